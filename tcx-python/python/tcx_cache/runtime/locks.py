"""Locks of which each process has its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from .weak import Alive


class ProcessLock:
    """A lock that a child of ``fork`` does not inherit: one that a thread of the parent holds at that moment would stay locked forever.

    ``with lock.own:`` holds it. Code that may run while this thread holds it asks :attr:`is_held_here`, instead of entering it again.
    """

    def __init__(self) -> None:
        #: A lock in C, to be entered as it is: Ctrl-C may interrupt code of Python between taking a lock and the block that gives it back.
        self.own: Any = threading.RLock()
        #: The order in which a thread takes several.
        self.number = next(_NUMBERS)
        _LOCKS.add(self)

    def hold(self, seconds: float) -> bool:
        """Takes it for a fork, if that is possible within this time. Returns whether it did."""
        return bool(self.own.acquire(timeout=max(seconds, 0.0)))

    def release(self) -> None:
        """After :meth:`hold`, if that has taken it."""
        if self.is_held_here:
            self.own.release()

    def renew(self) -> None:
        """In a child of ``fork``, before it runs anything else."""
        self.own = threading.RLock()

    def turn(self, seconds: float = 0.0) -> AbstractContextManager[Any]:
        """Holds it. A thread that runs code of the user with another lock held waits for it at most so long: two functions that use the table of
        each other would wait for each other. They may compute a value twice, as two processes may."""
        # One that this thread has is held twice, and is not given back where the thread ends to compute.
        return _IfFree(self, seconds) if is_computing() and not self.is_held_here else self.own

    @property
    def is_held_here(self) -> bool:
        """Whether this thread holds it."""
        return bool(self.own._is_owned())

    def __reduce__(self) -> tuple[type[ProcessLock], tuple[()]]:
        return ProcessLock, ()


class _IfFree:
    """Holds a lock, unless another thread does."""

    def __init__(self, lock: ProcessLock, seconds: float) -> None:
        # That of this process, also if the block ends in a child of `fork`.
        self._own, self._seconds = lock.own, seconds

    def __enter__(self) -> None:
        try:
            # First: what Ctrl-C leaves held is given back where the thread ends to compute.
            _here.taken.add(self._own)
            self._own.acquire(timeout=self._seconds)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        _release([self._own])


_LOCKS: Alive[ProcessLock] = Alive()
_NUMBERS = itertools.count()
#: The lock that this thread held when it began to run code of the user, and those that it has taken within that.
_here = threading.local()


def is_computing() -> bool:
    """Whether this thread runs code of the user, or is about to, with a lock held."""
    # No flag that is set back: Ctrl-C could come before that.
    within = getattr(_here, "within", None)
    return within is not None and bool(within._is_owned())


def _release(owned: Iterable[Any]) -> None:
    for own in owned:
        if own._is_owned():
            own.release()


def release_taken() -> None:
    """Gives back what Ctrl-C has left held, where a thread has computed that holds no other lock."""
    for own in getattr(_here, "taken", ()):
        if own._is_owned():
            own.release()


@contextlib.contextmanager
def computes(lock: ProcessLock) -> Iterator[None]:
    """This thread runs a function or a module of the user, and holds its lock."""
    # The lock itself is one that an earlier call has left there, and that this one holds again.
    if is_computing() and _here.within is not lock.own:
        yield
        return
    _here.within, _here.taken = lock.own, set()
    try:
        yield
    finally:
        _release(_here.taken)


class PartLocks:
    """The locks of objects that are parts of several others: what shares a part shares a lock."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[weakref.ref[Any], ProcessLock]] = {}
        self._guard = ProcessLock()

    def of(self, parts: Iterable[Any]) -> tuple[ProcessLock, ...]:
        """All locks that these parts have, in the same order in each thread. Parts without one get the first of them, or a new one."""
        with self._guard.own:
            known = [(part, self._known(part)) for part in parts]
            found = sorted({id(lock): lock for _, lock in known if lock is not None}.values(), key=lambda lock: lock.number) or [ProcessLock()]
            for part, lock in known:
                if lock is None:
                    self._add(part, found[0])
            return tuple(found)

    def _known(self, part: Any) -> ProcessLock | None:
        ref, lock = self._of.get(id(part), (None, None))
        # The address may be that of an object that is gone.
        return lock if ref is not None and ref() is part else None

    def _add(self, part: Any, lock: ProcessLock) -> None:
        known, key = self._of, id(part)

        def remove(gone: weakref.ref[Any]) -> None:
            # Without the guard: this may run at any time, also in a thread that has it.
            own = known.get(key)
            if own is not None and own[0] is gone:
                del known[key]

        known[key] = weakref.ref(part, remove), lock


#: The seconds that a fork waits for threads at most: one of them may wait for the thread that forks.
_BEFORE_FORK = 1.0
_held: dict[int, list[ProcessLock]] = {}


def _hold_all() -> None:
    """Waits until no thread is within a network. A child would find the mutexes of its tensors locked, and nothing releases them there."""
    deadline = time.monotonic() + _BEFORE_FORK
    held = _held[threading.get_ident()] = []
    for lock in _LOCKS.listed():
        if not lock.is_held_here:
            # Before it is held: Ctrl-C may end this at any time, and those that are held are released all the same.
            held.append(lock)
            lock.hold(deadline - time.monotonic())


def _release_all() -> None:
    for lock in _held.pop(threading.get_ident(), []):
        lock.release()


def _renew_all() -> None:
    _held.clear()
    for lock in _LOCKS.listed():
        lock.renew()


# The child has one thread then.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_renew_all)
