"""A table of rows: its columns, its ids, and what is done with them. Modules and tables of functions are built on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .. import _native
from ..errors import ClosedError, Error, InvalidBatchError, InvalidSettingsError, MismatchError, WrongModeError
from ..runtime.locks import ProcessLock
from ..runtime.warn import warn
from ..schema.existing import PINNED, declared_before, from_leaves, pinned, without_outputs
from ..schema.infer import infer
from ..schema.tree import Schema
from . import ids as keys
from .columns import Target, write
from .coverage import Coverage
from .handle import Handle
from .object_store import ObjectStore
from .place import Place, existing

#: The number of ids that are looked up together where no rows are read.
_MANY = 65_536


@dataclass(frozen=True)
class Opening:
    """How a table is opened, when its columns and the type of its ids are known."""

    place: Place
    module: str
    entries: list[tuple[str, str]]
    provenance: list[tuple[str, str]]
    settings: dict[str, Any]
    mode: str
    arrays: str

    def of(self, entries: list[tuple[str, str]], provenance: list[tuple[str, str]]) -> Opening:
        """The same with an identity."""
        return replace(self, entries=entries, provenance=provenance)


class Rows:
    """The rows of one module or function.

    Its columns are declared, or read from the folder if it exists, or inferred from the first batch that is computed.
    """

    def __init__(self, opening: Opening, schema: Schema | None, ids: str | None, is_pinned: bool = False) -> None:
        self.opening = opening
        self._opening = ProcessLock()
        self._handle: Handle | None = None
        self._ids = ids
        #: Whether the type of the ids was declared, or read from the folder: that of a batch holds until the folder says otherwise.
        self._knows_ids = ids is not None
        self._schema = schema
        self._is_pinned = is_pinned
        self._is_closed = False
        self._warned: set[str] = set()
        if schema is None and opening.settings.get("on_mismatch") == "separate":
            raise InvalidSettingsError(
                f"module `{opening.module}`: `on_mismatch=\"separate\"` needs `outputs=`: without them the identity is not known before the first batch"
            )
        if opening.settings.get("on_mismatch") != "separate" or ids is None:
            self._read_existing()
        if self._schema is not None and self._ids is not None:
            self._open(self._schema, self._ids)

    @staticmethod
    def existing(opening: Opening, schema: Schema | None) -> Rows:
        """The rows of an existing folder, with whatever identity it has; of a new one, if the folder does not exist."""
        spec = existing(opening.place, opening.module)
        if spec is None:
            return Rows(opening, schema, None)
        return Rows(opening.of(without_outputs(spec), spec.provenance), schema, spec.ids)

    def _read_existing(self) -> None:
        """Takes over what was not declared from the folder, if it exists."""
        own = self.opening
        if own.mode == "off" and isinstance(own.place, ObjectStore):
            # It makes no request.
            return
        spec = existing(own.place, own.module)
        if spec is None:
            return
        if not self._knows_ids:
            self._ids, self._knows_ids = spec.ids, True
        inferred = pinned(spec)
        if self._schema is None:
            self._schema = Schema.parse(inferred) if inferred else declared_before(spec) or from_leaves(spec.leaves)
            self._is_pinned = inferred is not None
        else:
            # Declared now, and inferred when the folder was created: the same if nothing differs.
            self._is_pinned = self._is_pinned or inferred == self._schema.text()

    def _open(self, schema: Schema, ids: str, is_pinned: bool | None = None) -> Handle:
        own = self.opening
        pins = self._is_pinned if is_pinned is None else is_pinned
        entries = [*own.entries, *schema.entries()]
        provenance = [*own.provenance, (PINNED, schema.text())]
        if pins:
            entries.append(provenance.pop())
        spec = _native.Spec(own.module, ids, schema.leaves(), entries, provenance)
        self._handle = Handle(own.place, spec, own.settings, own.mode)
        self._schema, self._is_pinned, self._knows_ids = schema, pins, True
        return self._handle

    @property
    def handle(self) -> Handle | None:
        """The open table; ``None`` as long as its columns are not known."""
        if self._is_closed:
            raise ClosedError(f"the cache of `{self.opening.module}` is closed: open it again")
        if self._handle is None and self._ids is not None:
            with self._opening.own:
                # Another process may have created the folder.
                if self._handle is None and self._schema is None:
                    self._read_existing()
                if self._handle is None and self._schema is not None:
                    self._open(self._schema, self._ids)
        return self._handle

    @property
    def schema(self) -> Schema | None:
        """The columns, if they are known."""
        return self._schema

    @property
    def ids(self) -> str | None:
        """The type of the ids, if it is known."""
        return self._ids

    @property
    def is_pinned(self) -> bool:
        """Whether the columns were inferred, and are part of the identity."""
        return self._is_pinned

    def required(self) -> Handle:
        """The open table.

        Raises:
            InvalidBatchError: if its columns are not known yet.
        """
        handle = self.handle
        if handle is None:
            raise InvalidBatchError(
                f"module `{self.opening.module}`: nothing is stored, and `outputs=` are not declared, so the columns are not known; compute a batch first"
            )
        return handle

    def pack(self, ids: Any, view: int) -> _native.Keys:
        """The keys of ids, which settle their type if it is not known."""
        ids = keys.once(ids)
        if not self._knows_ids:
            kind = keys.type_of(keys.listed(ids))
            with self._opening.own:
                if not self._knows_ids:
                    # Another process may have created the folder, for ids of another type.
                    self._read_existing()
                if not self._knows_ids:
                    self._ids = kind or self._ids
        if self._ids is None:
            raise InvalidBatchError("there is no id in the batch, so their type is not known; declare `ids=`")
        return keys.pack(ids, self._ids, view)

    # Reading and computing.

    def lookup(self, packed: _native.Keys, pinned: bool = False) -> Found | None:
        """Looks up a batch; ``None`` as long as the columns are not known."""
        handle = self.handle
        if handle is None or self._schema is None:
            return None
        target = Target(self._schema, len(packed), self.opening.arrays, pinned)
        store = handle.reader
        return Found(handle, store, target, store.lookup(packed, target.into()), packed)

    def lookup_to_write(self, packed: _native.Keys, found: Found | None) -> Found | None:
        """The same batch in the store of this process, with what other threads have computed since."""
        handle = self.handle
        if handle is None or self._schema is None:
            return None
        store = handle.writer if handle.stores_rows else handle.reader
        if found is not None and found.store is store:
            store.lookup_again(found.rows)
            return found
        target = Target(self._schema, len(packed), self.opening.arrays)
        return Found(handle, store, target, store.lookup(packed, target.into(), None, found is not None), packed)

    def check_any(self, positions: list[int]) -> None:
        """Refuses a batch without samples, from which no column can be inferred.

        Raises:
            InvalidBatchError: if there is no position.
        """
        if not positions:
            raise InvalidBatchError(f"module `{self.opening.module}`: the batch has no sample, so the columns are not known; declare `outputs=`")

    def columns(self, output: Any, rows: int) -> list[_native.Column]:
        """The columns of a computed output. The first one settles the schema, if it was not declared."""
        self.settle(output, rows)
        if self._schema is None:
            raise InvalidBatchError(f"module `{self.opening.module}`: the columns are not known")
        return write(self._schema, output, rows)

    def settle(self, output: Any, rows: int) -> bool:
        """Settles the schema by a computed output, if it is not known. Returns whether it has: not if it was known, or if another process has
        created the folder since, whose schema holds then.

        Raises:
            InvalidOutputError: if the output has no columns, or others than those in the folder.
            MismatchError: if the folder was created for another identity.
        """
        if self._schema is not None:
            return False
        with self._opening.own:
            if self._schema is not None:
                return False
            self._read_existing()
            if self._schema is None:
                schema = infer(output, rows)
                write(schema, output, rows)
                # It refuses classes that cannot be made of what was read of them.
                schema.build(schema.flatten(output))
                if self._ids is None or self._opens_first(schema, self._ids):
                    return self._handle is not None
            settled = self._schema
        if settled is not None:
            # It names both sides, if they differ.
            write(settled, output, rows)
        return False

    def settled(self, packed: _native.Keys, found: Found | None, output: Any, positions: list[int]) -> Found | None:
        """The lookup that computed rows complete. ``None`` if the schema was not known when they were computed and another process has stored
        rows since: it may have computed them too, or invalidated them, so that they are looked up, and computed again if they are missing.
        """
        if found is not None:
            return found
        if not self.settle(output, len(positions)):
            return None
        found = self.lookup_to_write(packed, None)
        return found if found is not None and found.rows.distinct_missing() == positions else None

    def _opens_first(self, schema: Schema, ids: str) -> bool:
        """Opens the table with an inferred schema, unless another process has just created it."""
        try:
            self._open(schema, ids, is_pinned=True)
        except MismatchError:
            self._read_existing()
            if self._schema is None:
                # Open in this process, and not written yet. The same columns, which were declared there, are the same.
                self._open(schema, ids, is_pinned=False)
            return False
        return True

    def note_kept(self, is_kept: bool) -> None:
        """Warns once of computed rows that are not kept because the folder is full, and once because it cannot be written."""
        handle = self._handle
        if is_kept or handle is None:
            return
        if handle.reader.is_full():
            why = "its folder has reached `max_bytes`: rows are computed and returned, but not stored"
            remedy = "raise it, remove rows, or pass `when_full=\"evict_oldest\"`"
        elif handle.reader.stats()["is_writing_off"]:
            why = "its folder cannot be written: rows are computed and returned, but not stored"
            remedy = "make room, or repair what `flush` reports; tcx tries again by itself"
        else:
            return
        if why not in self._warned:
            self._warned.add(why)
            warn(f"module `{self.opening.module}`: {why}; {remedy}")

    # Keeping and removing.

    def coverage(self, ids: Any, view: int) -> Coverage:
        """Which of these ids have a row."""
        found = keys.listed(keys.unordered(ids))
        distinct = list(dict.fromkeys(found))
        handle = self.handle
        if not distinct:
            return Coverage(0, [])
        if handle is None:
            self.pack(distinct[:1], view)
            handle = self.handle
        if handle is None or handle.mode == "off":
            return Coverage(len(distinct), distinct)
        missing: list[Any] = []
        for start in range(0, len(distinct), _MANY):
            part = distinct[start : start + _MANY]
            rows = handle.reader.lookup(self.pack(part, view), [], [], True)
            missing += [part[position] for position in rows.all_missing()]
        return Coverage(len(distinct), missing)

    def stored(self, ids: Any, view: int, packed: _native.Keys | None = None) -> _native.Rows:
        """The rows of these ids, all of which are stored; `packed` are their keys, if they are known.

        Raises:
            InvalidBatchError: if one is missing; the message names it.
        """
        ids = keys.once(ids)
        packed = self.pack(ids, view) if packed is None else packed
        found = self.required().reader.lookup(packed, [])
        if found.missing():
            raise self.incomplete(ids, view)
        return found

    def incomplete(self, ids: Any, view: int) -> InvalidBatchError:
        """The error of a batch of which a row was missing a moment ago."""
        missing, name = self.coverage(ids, view).missing, self.opening.module
        if missing:
            return InvalidBatchError(f"module `{name}`: {len(missing)} samples are missing, one of them with id {missing[0]!r}; fill the cache before")
        return InvalidBatchError(f"module `{name}`: rows came or went while they were looked up; ask again")

    def prefetch(self, ids: Any, view: int) -> int:
        """Brings rows into memory, and returns how many are stored."""
        handle = self.handle
        packed = self.pack(keys.unordered(ids), view)
        return 0 if handle is None else handle.reader.prefetch(packed)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def close(self) -> None:
        """Flushes and closes."""
        self._is_closed, handle = True, self._handle
        if handle is not None:
            handle.close()

    def flush(self) -> None:
        """Makes the rows durable that this process has computed."""
        handle = self.handle
        if handle is not None:
            handle.flush()

    def flush_local(self) -> None:
        """Makes the rows durable on this machine that this process has computed."""
        handle = self.handle
        if handle is not None:
            handle.flush_local()

    def changed(self) -> _native.Store:
        """The store, to change what is in it."""
        handle = self.required()
        if not handle.stores_rows:
            raise WrongModeError(
                f"module `{self.opening.module}`: cannot change rows: this handle has mode `{handle.mode}`; open the module in mode `read_write`"
            )
        return handle.writer


@dataclass
class Found:
    """A batch that was looked up."""

    handle: Handle
    store: _native.Store
    target: Target
    rows: _native.Rows
    packed: _native.Keys

    @property
    def missing(self) -> int:
        """How many rows are missing."""
        return self.rows.missing()

    def insert(
        self,
        positions: list[int],
        columns: list[_native.Column],
        seconds: float,
        attestation: _native.Attestation | None = None,
    ) -> bool:
        """Adds computed rows. Returns whether they are kept, as far as the handle keeps rows."""
        self.store.computed(len(positions), seconds)
        is_kept = self.store.insert(self.rows, positions, columns, attestation)
        self.handle.accepted()
        return is_kept or not self.handle.stores_rows

    def values(self) -> list[Any]:
        """The columns, when all rows are found."""
        return self.target.read(self.rows)

    def output(self, schema: Schema) -> Any:
        """The rows, when all are found."""
        return schema.build(self.values())


def timed(compute: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and how many seconds it took."""
    start = time.perf_counter()
    found = compute()
    return found, time.perf_counter() - start
