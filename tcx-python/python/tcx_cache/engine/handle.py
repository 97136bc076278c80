"""An open table, in this process and in those that are forked from it."""

from __future__ import annotations

from typing import Any

from .. import _native
from ..errors import ClosedError
from ..runtime.ends import flush_if_this_process_has_ended, flush_when_this_process_ends
from ..runtime.locks import ProcessLock
from .place import Place, native


class Handle:
    """The store of a table.

    A child of ``fork`` reads through the handle of its parent, which needs no threads. When it has rows to write, it opens the table itself.
    """

    def __init__(self, place: Place, spec: _native.Spec, options: dict[str, Any], mode: str) -> None:
        self.place, self.spec, self.options, self.mode = place, spec, options, mode
        self._opening = ProcessLock()
        self._store = _native.Store(native(place), spec, options, mode)
        self._is_closed = False
        if mode in ("read_write", "recompute"):
            flush_when_this_process_ends(self)

    @property
    def reader(self) -> _native.Store:
        """The store, to look rows up."""
        if self._is_closed:
            raise ClosedError(f"the cache of `{self.spec.module}` is closed: open it again")
        return self._store

    @property
    def writer(self) -> _native.Store:
        """The store of this process, opened again in a child of ``fork``. What was looked up before belongs to the other one."""
        store = self.reader
        if not store.is_inherited:
            return store
        with self._opening.own:
            if self._store.is_inherited:
                # The parent's is kept from being freed: another thread of the parent may have been changing it at the fork.
                _INHERITED.append(self._store)
                self._store = _native.Store(native(self.place), self.spec, self.options, self.mode)
                flush_when_this_process_ends(self)
            return self._store

    @property
    def stores_rows(self) -> bool:
        """Whether computed rows are stored."""
        return self.mode in ("read_write", "recompute")

    def flush(self) -> None:
        """Makes the rows of this process durable."""
        if not self.reader.is_inherited:
            self.reader.flush()

    def flush_local(self) -> None:
        """Makes the rows of this process durable on this machine."""
        if not self.reader.is_inherited:
            self.reader.flush_local()

    def accepted(self) -> None:
        """Rows were accepted. At the end of a process, when nothing flushes them later, they are made durable at once.

        Raises:
            Error: if they cannot be.
        """
        flush_if_this_process_has_ended(self)

    def flush_at_exit(self) -> None:
        """As :meth:`flush`, when the process ends. Rows that wait for an object store are durable, and the next process sends them."""
        if not self._is_closed and not self.reader.is_inherited:
            self.reader.flush_at_exit()

    def close(self) -> None:
        """Flushes and lets go of the table."""
        if self._is_closed:
            return
        try:
            self.flush()
        finally:
            self._is_closed = True
            if not self._store.is_inherited:
                self._store.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed


def rows_not_kept(stats: dict[str, Any]) -> int:
    """How many computed rows this process has not kept, by its counters."""
    return max(int(stats["rows_dropped"]) - int(stats["rows_superseded"]), 0)


_INHERITED: list[_native.Store] = []
