"""Locks of which each process has its own."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from types import TracebackType


class ProcessLock:
    """A lock that a child of ``fork`` does not inherit: one that a thread of the parent holds at that moment would stay locked forever.

    Code that may run while this thread holds it asks :attr:`is_held_here`, instead of waiting for itself.
    """

    def __init__(self) -> None:
        self._own = threading.Lock()
        self._holder: tuple[int, int] | None = None
        _LOCKS.add(self)

    def hold(self, seconds: float) -> bool:
        """Takes it for a fork, if that is possible within this time and this thread does not have it."""
        return not self.is_held_here and self._own.acquire(timeout=max(seconds, 0.0))

    def release(self) -> None:
        """After :meth:`hold`."""
        self._own.release()

    def renew(self) -> None:
        """In a child of ``fork``, before it runs anything else."""
        self._own, self._holder = threading.Lock(), None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Holds it. A thread that runs code of the user with another lock held does not wait for it: two functions that use the table of each other
        would wait for each other. They may compute a value twice, as two processes may."""
        if getattr(_here, "computes", False) and not self._own.acquire(blocking=False):
            yield
            return
        if not getattr(_here, "computes", False):
            self._own.acquire()
        self._holder = (os.getpid(), threading.get_ident())
        try:
            yield
        finally:
            self.__exit__(None, None, None)

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
_here = threading.local()


@contextlib.contextmanager
def computes() -> Iterator[None]:
    """This thread runs a function or a module of the user, and holds its lock."""
    before = getattr(_here, "computes", False)
    _here.computes = True
    try:
        yield
    finally:
        _here.computes = before


#: The seconds that a fork waits for threads at most: one of them may wait for the thread that forks.
_PATIENCE = 1.0
_held: dict[int, list[ProcessLock]] = {}


def _hold_all() -> None:
    """Waits until no thread is within a network. A child would find the mutexes of its tensors locked, and nothing releases them there."""
    deadline = time.monotonic() + _PATIENCE
    held = _held[threading.get_ident()] = []
    for lock in list(_LOCKS):
        if lock.hold(deadline - time.monotonic()):
            # At once: Ctrl-C may end this at any time, and those that are held are released all the same.
            held.append(lock)


def _release_all() -> None:
    for lock in _held.pop(threading.get_ident(), []):
        lock.release()


def _renew_all() -> None:
    _held.clear()
    for lock in list(_LOCKS):
        lock.renew()


# The child has one thread then.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_renew_all)
