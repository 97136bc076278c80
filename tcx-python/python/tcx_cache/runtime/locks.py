"""Locks of which each process has its own."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class ProcessLock:
    """A lock that a child of ``fork`` does not inherit: one that a thread of the parent holds at that moment would stay locked forever.

    Code that may run while this thread holds it asks :attr:`is_held_here`, instead of waiting for itself.
    """

    def __init__(self) -> None:
        self._own = threading.Lock()
        self._holder: tuple[int, int] | None = None
        _LOCKS.add(self)

    def renew(self) -> None:
        """In a child of ``fork``, before it runs anything else."""
        self._own, self._holder = threading.Lock(), None

    @property
    def is_held_here(self) -> bool:
        """Whether this thread holds it."""
        return self._holder == (os.getpid(), threading.get_ident())

    def __enter__(self) -> None:
        self._own.acquire()
        self._holder = (os.getpid(), threading.get_ident())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._holder = None
        self._own.release()

    def __reduce__(self) -> tuple[type[ProcessLock], tuple[()]]:
        return ProcessLock, ()


_LOCKS: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock.renew()


# The child has one thread then.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
