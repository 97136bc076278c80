"""What happens when a process ends: its threads end, and its tables are flushed, as long as Python can still be asked for weights."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Protocol, TypeVar

from .. import _native
from .weak import Alive

Own = TypeVar("Own")


class Flushes(Protocol):
    """What has rows to write."""

    def flush_at_exit(self) -> None:
        """Makes rows durable; it is the end of this process."""


class Ends(Protocol):
    """A thread that calls PyTorch."""

    def end(self) -> None:
        """Stops the thread and waits for it; it is the end of this process."""


#: Of threads that have ended, too, as long as others refer to them.
_RUNNING: dict[int, Alive[Ends]] = {}
_OPEN: dict[int, Alive[Flushes]] = {}
#: The processes whose tables are flushed for the last time, or were.
_ENDED: set[int] = set()


def end_with_this_process(thread: Ends) -> None:
    """Has a started thread end before Python does: one that comes back from PyTorch to a Python that ends aborts the process."""
    _RUNNING.setdefault(os.getpid(), Alive()).add(thread)


def flush_when_this_process_ends(table: Flushes) -> None:
    """Has a table flushed when this process ends, also as a worker of ``multiprocessing``, which calls no ``atexit`` handlers."""
    pid, own = os.getpid(), Alive[Flushes]()
    known = _OPEN.setdefault(pid, own)
    known.add(table)
    if known is own:
        _register(pid)


def _register(pid: int) -> None:
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is None or process is None or process.parent_process() is None:
        return
    if util.is_exiting():
        # A thread of a worker opens its first table after the worker has called what is registered.
        _ENDED.add(pid)
    else:
        util.Finalize(None, _end_all, exitpriority=0)


def flush_if_this_process_has_ended(table: Flushes) -> None:
    """Called after a table has accepted rows. A thread may run longer than the last flush of its process, after which nothing else writes them.

    Raises:
        Error: if they cannot be written.
    """
    # The end is noted before that flush begins, and this looks after the rows were accepted: one of the two writes them.
    if _ENDED and os.getpid() in _ENDED:
        table.flush_at_exit()


def _end_all() -> None:
    # A child of `fork` inherits the handler and what its parent has, which it leaves alone.
    try:
        for thread in _listed(_RUNNING):
            thread.end()
    finally:
        # Also after Ctrl-C while it waits.
        _flush_all()


def _listed(known: dict[int, Alive[Own]]) -> list[Own]:
    """Those of this process."""
    own = known.get(os.getpid())
    return [] if own is None else own.listed()


def _flush_all() -> None:
    _ENDED.add(os.getpid())
    for table in _listed(_OPEN):
        try:
            table.flush_at_exit()
        except Exception as error:
            # The others are flushed all the same.
            print(f"tcx: rows are lost: {error}; call `flush` before the end to get this error", file=sys.stderr)
    # What the engine reports from now on, it writes to stderr itself.
    _native.end_notices()


atexit.register(_end_all)
