"""What happens when a process ends: its threads end, and its tables are flushed, as long as Python can still be asked for weights."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Protocol

from .. import _native


class Flushes(Protocol):
    """What has rows to write."""

    def flush_at_exit(self) -> None:
        """Makes rows durable; it is the end of this process."""


class Ends(Protocol):
    """A thread that calls PyTorch."""

    def end(self) -> None:
        """Stops the thread and waits for it; it is the end of this process."""


#: Of threads that have ended, too, as long as others refer to them.
_RUNNING: dict[int, weakref.WeakSet[Ends]] = {}
_OPEN: dict[int, weakref.WeakSet[Flushes]] = {}


def end_with_this_process(thread: Ends) -> None:
    """Has a started thread end before Python does: one that comes back from PyTorch to a Python that ends aborts the process."""
    _RUNNING.setdefault(os.getpid(), weakref.WeakSet()).add(thread)


def flush_when_this_process_ends(table: Flushes) -> None:
    """Has a table flushed when this process ends, also as a worker of ``multiprocessing``, which calls no ``atexit`` handlers."""
    pid = os.getpid()
    own = _OPEN.get(pid)
    if own is None:
        own = _OPEN[pid] = weakref.WeakSet()
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        if util is not None and process is not None and process.parent_process() is not None:
            util.Finalize(None, _end_all, exitpriority=0)
    own.add(table)


def _end_all() -> None:
    # A child of `fork` inherits the handler and what its parent has, which it leaves alone.
    try:
        for thread in list(_RUNNING.get(os.getpid(), ())):
            thread.end()
    finally:
        # Also after Ctrl-C while it waits.
        _flush_all()


def _flush_all() -> None:
    for table in list(_OPEN.get(os.getpid(), ())):
        try:
            table.flush_at_exit()
        except Exception as error:
            # The others are flushed all the same.
            print(f"tcx: rows are lost: {error}; call `flush` before the end to get this error", file=sys.stderr)
    # What the engine reports from now on, it writes to stderr itself.
    _native.end_notices()


atexit.register(_end_all)
