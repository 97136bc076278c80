"""The backend: rows by their keys, one sample each."""

from __future__ import annotations

import os
from typing import Any, cast

import torch

from ..engine import ids as keys
from ..engine.rows import Opening, Rows
from ..engine.several import for_all
from ..errors import InvalidOutputError
from ..modules.cache import Cache
from ..modules.table import Table
from ..runtime.weak import Alive
from ..schema.tree import Schema, node, parts, shown
from ..torch.epoch import moved


class ArrowIPCCacheBackend:
    """Rows of a module in ``cache_dir/module_id``.

    Args:
        cache_dir: The cache directory.
        module_id: The id of the module.
        lru_size: Without effect: rows are copied from mapped files, and the page cache of the system is shared by all processes.
        async_write: Whether :meth:`put_batch` returns before its rows are durable.
        max_workers: Without effect: a table has one writer thread.
        flush_every: The number of samples after which rows are made durable, at the latest.
        writer_rank: Without effect: every rank writes, and no row of another rank is lost.
        current_rank: Without effect.
        outputs: The types of the outputs, as for :func:`tcx_cache.cached`; by the first sample, if they are not declared.
        **settings: The settings of :class:`tcx_cache.Cache`.
    """

    def __init__(
        self,
        cache_dir: str | os.PathLike[str],
        module_id: str,
        lru_size: int = 4096,
        async_write: bool = True,
        max_workers: int = 2,
        flush_every: int = 2048,
        writer_rank: int = 0,
        current_rank: int | None = None,
        *,
        outputs: Any = None,
        **settings: Any,
    ) -> None:
        self.cache_dir = os.path.join(os.fspath(cache_dir), module_id)
        self.module_id = module_id
        self.async_write, self.flush_every = bool(async_write), max(int(flush_every), 1)
        self.lru_size, self.max_workers = lru_size, max_workers
        self.writer_rank = int(writer_rank)
        self.current_rank = int(os.environ.get("RANK", 0)) if current_rank is None else int(current_rank)
        self.outputs = outputs
        self._cache = Cache(cache_dir, **settings)
        #: Those that were bound last, and all that are in use.
        self._rows: Rows | None = None
        self._bound: Alive[Rows] = Alive()
        self._waiting = 0

    @property
    def cache(self) -> Cache:
        """The cache that holds the module."""
        return self._cache

    def bind(self, rows: Rows) -> None:
        """Uses the rows of a cached module, with its identity, beside those of modules that are bound already."""
        self._rows = rows
        self._bound.add(rows)

    def table(self) -> Table:
        """The rows as a table: those of the module that uses the backend, or of the existing folder, whatever its identity is."""
        if self._rows is None:
            self.bind(self._open())
        return Table(cast(Rows, self._rows))

    def _open(self) -> Rows:
        schema = None if self.outputs is None else Schema(node(self.outputs))
        opening = self._cache.opening(self.module_id, "torch").of([("self", "table")], [])
        return Rows.existing(opening, schema)

    def get_batch(self, cache_ids: Any, map_location: Any = "cpu") -> tuple[list[Any], list[int]]:
        """The samples with these ids, ``None`` for a missing one, and the positions of the missing ones."""
        table, listed = self.table(), keys.listed(cache_ids)
        if not listed:
            return [], []
        absent = set(table.coverage(listed).missing)
        present = [own for own in dict.fromkeys(listed) if own not in absent]
        found = dict(zip(present, samples(table.stored(present), len(present)))) if present else {}
        device = torch.device(map_location)
        return [moved(found[own], device) if own in found else None for own in listed], [
            position for position, own in enumerate(listed) if own not in found
        ]

    def put_batch(self, items: dict[Any, Any]) -> None:
        """Stores samples by their ids. A sample that is stored already is left as it is."""
        if not items:
            return
        self.table().put(list(items), joined(list(items.values())))
        self.wrote(len(items))

    def wrote(self, rows: int) -> None:
        """Rows were accepted: they are made durable now, if that is due."""
        self._waiting += rows
        if not self.async_write or self._waiting >= self.flush_every:
            self.flush()

    def flush(self) -> None:
        """Makes all rows durable.

        Raises:
            Error: if rows of any module that uses the backend are lost.
        """
        self._waiting = 0
        for_all([own for own in self._bound.listed() if not own.is_closed], lambda own: own.flush())

    def close(self) -> None:
        """Flushes and closes."""
        for_all(self._bound.listed(), lambda own: own.close())

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._cache, self.module_id, self.async_write, self.flush_every, self.outputs)


def _reopen(cache: Cache, module_id: str, async_write: bool, flush_every: int, outputs: Any) -> ArrowIPCCacheBackend:
    own = ArrowIPCCacheBackend(
        cast("os.PathLike[str]", cache._place), module_id, async_write=async_write, flush_every=flush_every, outputs=outputs
    )
    own._cache = cache
    return own


def samples(output: Any, rows: int) -> list[Any]:
    """An output of a batch as one output for each sample."""
    found = parts(output)
    if found is None:
        return [output[row] for row in range(rows)] if output is not None else [None] * rows
    columns = [samples(part, rows) for _, part in found]
    return [_like(output, [name for name, _ in found], [column[row] for column in columns]) for row in range(rows)]


def joined(values: list[Any]) -> Any:
    """Outputs of single samples as one output of a batch."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        is_even = all(isinstance(value, torch.Tensor) and value.shape == first.shape for value in values)
        return torch.stack(values) if is_even else values
    found = parts(tuple(first) if isinstance(first, list) else first)
    if found is None:
        return values
    names = [name for name, _ in found]
    fields = [dict(parts(tuple(value) if isinstance(value, list) else value) or ()) for value in values]
    other = next((number for number, own in enumerate(fields) if own.keys() != set(names)), None)
    if other is not None:
        raise InvalidOutputError(f"sample {other} of the batch is {shown(values[other])}, and sample 0 is {shown(first)}: expected the same fields")
    return _like(first, names, [joined([own[name] for own in fields]) for name in names])


def _like(container: Any, names: list[str], values: list[Any]) -> Any:
    if isinstance(container, dict) and type(container) is dict:
        return dict(zip(names, values))
    if isinstance(container, (tuple, list)) and not hasattr(container, "_fields"):
        return tuple(values)
    return type(container)(**dict(zip(names, values)))
