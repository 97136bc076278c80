"""What happens when a process ends: its tables are flushed, as long as Python can still be asked for weights."""

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


_OPEN: dict[int, weakref.WeakSet[Flushes]] = {}


def flush_when_this_process_ends(table: Flushes) -> None:
    """Has a table flushed when this process ends, also as a worker of ``multiprocessing``, which calls no ``atexit`` handlers."""
    pid = os.getpid()
    own = _OPEN.get(pid)
    if own is None:
        own = _OPEN[pid] = weakref.WeakSet()
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        if util is not None and process is not None and process.parent_process() is not None:
            util.Finalize(None, _flush_all, exitpriority=0)
    own.add(table)


def _flush_all() -> None:
    # A child of `fork` inherits the handler and the list of its parent, whose tables it leaves alone.
    for table in list(_OPEN.get(os.getpid(), ())):
        try:
            table.flush_at_exit()
        except Exception as error:
            # The others are flushed all the same.
            print(f"tcx: rows are lost: {error}; call `flush` before the end to get this error", file=sys.stderr)
    # What the engine reports from now on, it writes to stderr itself.
    _native.end_notices()


atexit.register(_flush_all)
