"""Tables: a cache for any function of a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, Generic

from .. import _native
from ..engine import ids as keys
from ..engine.handle import rows_not_kept
from ..engine.rows import Found, Opening, Rows, timed
from ..errors import InvalidBatchError, InvalidSettingsError, ModuleViolationError
from ..runtime.locks import ProcessLock, computes
from ..runtime.numbers import whole
from ..runtime.progress import progress
from ..runtime.untraced import untraced
from ..schema.declared import Batch
from ..schema.tree import Schema, node
from .upkeep import Upkeep, checked_view

Compute = Callable[["list[Any]"], Any]


@dataclass(frozen=True)
class WarmReport:
    """What a warm-up has done."""

    #: The samples that were asked for, repeated ones counted once a batch.
    samples: int
    #: Those of them that were computed.
    computed: int
    #: Those that were computed and not kept, because the folder is full or writing is off.
    not_kept: int = 0


class Table(Upkeep, Generic[Batch]):
    """A typed store of samples without a module: for any function of a sample. Made by :meth:`tcx_cache.Cache.table`. To type checkers, it is
    one of the batches that its outputs declare: ``Table[list[int]]``.

    tcx cannot see when the function changes that computes the values. Give the table a new id then, or keep a version in its ``metadata``.

    >>> import tempfile, tcx_cache as tcx
    >>> with tcx.Cache(tempfile.mkdtemp()) as cache:
    ...     lengths = cache.table("text_lengths_v1", outputs=int)
    ...     lengths.fetch(["a", "bb"], lambda missing: [len(text) for text in missing])
    [1, 2]
    """

    def __init__(self, rows: Rows, view: int = 0, computing: ProcessLock | None = None, is_of_module: bool = False) -> None:
        self._rows = rows
        self._view = view
        self._computing = computing or ProcessLock()
        # What a module computes from inputs, a function that loads inputs must not be taken for.
        self._is_of_module = is_of_module

    def view(self, number: int) -> Table[Batch]:
        """The same table for a variant of its samples, such as an augmentation: 0 is the sample itself."""
        return Table(self._rows, checked_view(number), self._computing, self._is_of_module)

    @untraced
    def get(self, ids: Any) -> Batch | None:
        """The values of these ids, if all of them are stored, and ``None`` if one is missing; :meth:`coverage` reports which.

        Raises:
            InvalidBatchError: if an id is malformed.
        """
        found = self._rows.lookup(self._rows.pack(ids, self._view))
        if found is None or found.missing:
            return None
        batch: Batch = found.output(self._schema())
        return batch

    @untraced
    def stored(self, ids: Any) -> Batch:
        """The values of these ids, all of which are stored.

        Raises:
            InvalidBatchError: if one is missing; the message names it.
        """
        ids = keys.once(ids)
        found = self.get(ids)
        if found is None:
            raise self._rows.incomplete(ids, self._view)
        return found

    @untraced
    def fetch(self, ids: Any, compute: Compute | None = None) -> Batch:
        """The values of these ids, one row each in the order asked. If some are missing, ``compute`` is called once with their ids, each
        once, and returns their values in that order.

        Raises:
            InvalidOutputError: if the values are not as declared, or as those of the first batch.
            Error: as ``compute`` raises.
        """
        if compute is None:
            return self.stored(ids)
        batch: Batch = self._filled(ids, compute).output(self._schema())
        return batch

    @untraced
    def _fill(self, ids: Any, compute: Compute | None) -> None:
        """As :meth:`fetch`, where the rows are not wanted: they are not read."""
        if compute is None:
            self._rows.stored(ids, self._view)
        else:
            self._filled(ids, compute)

    def _filled(self, ids: Any, compute: Compute) -> Found:
        """These rows, with those computed that are missing, before they are read."""
        ids = keys.once(ids)
        packed = self._rows.pack(ids, self._view)
        found = self._rows.lookup(packed)
        return self._complete(ids, packed, found, compute) if found is None or found.missing else found

    def _complete(self, ids: Any, packed: Any, found: Found | None, compute: Compute) -> Found:
        if self._is_of_module:
            missing = self.coverage(ids).missing
            raise InvalidBatchError(
                f"module `{self.id}`: {len(missing)} samples are missing, and this handle has the rows of a cached module without its network, which is not pickled: "
                "compute them where the module is, or open it in this process with `tcx.cached`"
            )
        self._refuse_itself()
        with self._computing.turn():
            listed = keys.listed(ids)
            while True:
                found = self._rows.lookup_to_write(packed, found)
                positions = distinct_positions(listed) if found is None else found.rows.distinct_missing()
                if not positions and found is not None:
                    return found
                self._rows.check_any(positions)
                missing = [listed[position] for position in positions]
                with computes(self._computing):
                    values, seconds = timed(lambda: compute(missing))
                found = self._rows.settled(packed, found, values, positions)
                if found is not None:
                    break
            columns = self._rows.columns(values, len(missing))
            self._rows.note_kept(found.insert(positions, columns, seconds))
            return found

    def _refuse_itself(self) -> None:
        if self._computing.is_held_here:
            raise ModuleViolationError(
                f"module `{self.id}`: the function that computes values used its own handle to compute or store values: it would wait for itself forever; "
                "compute there without the handle, or use another table"
            )

    @untraced
    def put(self, ids: Any, values: Any) -> int:
        """Stores the values of those ids that have none yet, and returns how many it has stored: stored values stay as they are.

        Raises:
            FullError: if the folder has reached `max_bytes`, or a value is larger than that; nothing is stored then.
            InvalidBatchError: if an id is twice in the batch.
            WrongModeError: if the mode of the handle stores nothing.
        """
        return self._put(ids, values, replaces=False)

    @untraced
    def replace(self, ids: Any, values: Any) -> int:
        """Stores the values of these ids in the place of those that are stored, durably: also of those that another process has stored or
        replaced.

        Raises:
            FullError: as :meth:`put`.
            Error: if the values cannot be written and synced.
        """
        return self._put(ids, values, replaces=True)

    def _put(self, ids: Any, values: Any, replaces: bool) -> int:
        self._refuse_itself()
        listed = keys.listed(ids)
        packed = self._rows.pack(listed, self._view)
        columns = self._rows.columns(values, len(listed))
        with self._computing.turn():
            store = self._rows.changed()
            if len(set(listed)) != len(listed):
                raise InvalidBatchError(f"module `{self.id}`: an id is twice in the batch, and one row cannot hold two values; pass each id once")
            stored = store.put(packed, columns, replaces)
            self._rows.required().accepted()
            return stored

    def warm(self, ids: Iterable[Any], compute: Compute, *, batch_size: int = 64, progress: bool = True) -> WarmReport:
        """Computes the missing values of these ids, in batches of this size, and shows a progress bar where tqdm is installed."""
        return warm(self, ids, lambda part: self._fill(part, compute), batch_size, progress)

    def _schema(self) -> Schema:
        schema = self._rows.schema
        if schema is None:
            raise InvalidBatchError(f"module `{self.id}`: the columns are not known")
        return schema

    def __repr__(self) -> str:
        return f"Table({self.id!r}, mode={self.mode!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return reopen, (*travel(self._rows), self._view, self._is_of_module)


def warm(own: Upkeep, ids: Iterable[Any], fill: Callable[[list[Any]], None], batch_size: int, shown: bool) -> WarmReport:
    """Fills the batches of which some samples are missing."""
    check_batch_size(batch_size)
    total = len(ids) if isinstance(ids, Sized) else None
    bar = progress(total, shown, f"warm {own.id}")
    samples = computed = 0
    waiting: list[Any] = []
    before = rows_not_kept(own.stats())
    try:
        for part in _batches(keys.unordered(ids), batch_size):
            missing = own.coverage(part).missing
            samples, computed = samples + len(part), computed + len(missing)
            waiting += missing
            while len(waiting) >= batch_size:
                fill(waiting[:batch_size])
                waiting = waiting[batch_size:]
            bar.update(len(part))
        if waiting:
            fill(waiting)
    finally:
        bar.close()
    return WarmReport(samples, computed, rows_not_kept(own.stats()) - before)


def _batches(ids: Iterable[Any], size: int) -> Iterable[list[Any]]:
    """Lists of this many ids, the last one shorter."""
    batch: list[Any] = []
    for own in ids:
        batch.append(own)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def check_batch_size(size: int) -> None:
    """Refuses a number of samples that is no positive integer.

    Raises:
        InvalidBatchError: if it is none.
    """
    if whole(size, 1) is None:
        raise InvalidBatchError(f"batch_size: expected a positive integer, found {size!r}")


def distinct_positions(ids: list[Any]) -> list[int]:
    """The first position of each id."""
    first: dict[Any, int] = {}
    for position, own in enumerate(ids):
        first.setdefault(own, position)
    return list(first.values())


def open_table(opening: Opening, outputs: Any, ids: type | None) -> Table:
    """Opens a table."""
    return Table(Rows(opening, declared(outputs), named(ids)))


def declared(outputs: Any) -> Schema | None:
    """The schema that `outputs=` declares."""
    return None if outputs is None else Schema(node(outputs))


def named(ids: type | None) -> str | None:
    """The name of a type of ids."""
    if ids is None:
        return None
    if ids not in keys.NAMES:
        raise InvalidBatchError(f"ids of type {ids!r}: expected `str`, `int` or `bytes`")
    return keys.NAMES[ids]


def travel(rows: Rows) -> tuple[Opening, Schema | None, str | None, bool]:
    """What another process needs to open the same table: the place, the options and the identity.

    Raises:
        InvalidSettingsError: if the rows are in the memory of this process.
    """
    if isinstance(rows.opening.place, _native.Memory):
        raise InvalidSettingsError(f"`{rows.opening.module}` is in a cache in memory, which belongs to this process: it cannot be pickled; use a directory")
    return rows.opening, rows.schema, rows.ids, rows.is_pinned


def reopen(opening: Opening, schema: Schema | None, ids: str | None, is_pinned: bool, view: int, is_of_module: bool) -> Table:
    """The table in another process."""
    return Table(Rows(opening, schema, ids, is_pinned), view, None, is_of_module)
