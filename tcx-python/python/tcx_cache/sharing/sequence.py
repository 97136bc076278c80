"""A list of ids that need not be in memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Listed
from typing import Any

from ..engine import ids as keys
from ..errors import InvalidBatchError, LoaderError
from ..runtime.numbers import whole
from ..tensors.memory import is_numeric

#: How many ids of a sequence that is read again are compared with those of the first reading.
_COMPARED = 16


class Sequence(ABC):
    """Ids in an order that need not be in memory: a function of the position, an iterator, the lines of a file, or a column of one.
    ``warm_shared`` and ``warm_sharded`` have one work range of them at a time. They take lists, ranges and arrays as they are.

    Every worker needs the same ids in the same order.

    >>> import tcx_cache as tcx
    >>> numbers = tcx.Sequence.by_position(100_000_000, lambda position: f"image {position}")
    >>> even = tcx.Sequence.repeated(lambda: (number for number in range(100) if number % 2 == 0))
    >>> lines = tcx.Sequence.lines("ids.txt")  # one id a line
    >>> numbers.length, even.length
    (100000000, None)
    """

    #: Whether ids can be read in any order.
    jumps = True

    @staticmethod
    def by_position(length: int, id: Callable[[int], Any]) -> Sequence:
        """The ids ``id(0)``, ``id(1)``, …"""
        number = whole(length, 0)
        if number is None:
            raise InvalidBatchError(f"ids: expected a number of ids, found {length!r}")
        return _ByPosition(number, id)

    @staticmethod
    def repeated(begin: Callable[[], Iterable[Any]]) -> Sequence:
        """The ids of an iterator. ``begin`` makes it again whenever ids are needed that have passed: rarely more than twice."""
        return _Repeated(begin)

    @staticmethod
    def lines(path: str | os.PathLike[str]) -> Sequence:
        """The lines of a text file, which are read as they are needed. Empty lines are left out."""
        return _Repeated(lambda: _lines(os.fspath(path)))

    @staticmethod
    def column(path: str | os.PathLike[str], name: str | None = None) -> Sequence:
        """A column of a Parquet or Arrow file, which pyarrow reads as it is needed: texts, integers or bytes.

        Args:
            path: The file; its first bytes decide the format.
            name: The column; ``id``, or the only one, if it is not named.

        Raises:
            LoaderError: if the file cannot be read.
            InvalidBatchError: if there is no such column.
        """
        from .column import Column

        return Column(os.fspath(path), name)

    @staticmethod
    def of(ids: Any) -> Sequence:
        """Ids in whatever form.

        Raises:
            InvalidBatchError: if they have no order, or can be read only once.
        """
        if isinstance(ids, Sequence):
            return ids._begun()
        if isinstance(ids, os.PathLike):
            return Sequence.lines(ids)
        if isinstance(ids, (str, bytes, bytearray, memoryview)):
            raise InvalidBatchError(f"ids: expected all ids, found one {type(ids).__name__}; pass a list, or `tcx.Sequence.lines(path)` for the lines of a file")
        if isinstance(ids, (set, frozenset, dict)):
            raise InvalidBatchError(f"ids: a {type(ids).__name__} has no order that all workers have: pass a sorted list")
        if isinstance(ids, (list, tuple, range)) or is_numeric(ids) or hasattr(ids, "to_pylist"):
            return _Sliced(ids)
        if isinstance(ids, Listed):
            return _ByPosition(len(ids), ids.__getitem__)
        if isinstance(ids, Iterator):
            raise InvalidBatchError(f"ids: a {type(ids).__name__} can be read only once; pass `tcx.Sequence.repeated(…)` with a function that makes it")
        raise InvalidBatchError(
            f"ids: expected a list, a range, an array, the path of a file or a `tcx.Sequence`, found {type(ids).__name__}; "
            "pass `tcx.Sequence.by_position(length, id)` for a function of the position"
        )

    @property
    @abstractmethod
    def length(self) -> int | None:
        """How many ids there are; ``None`` for an iterator or a file that was not read to its end."""

    @abstractmethod
    def read(self, start: int, count: int) -> list[Any]:
        """The ids from position ``start``: ``count``, or fewer at the end."""

    def _begun(self) -> Sequence:
        """The same ids for one call. What another call has learned of them has no effect: all workers begin with the same knowledge."""
        return self


class _Sliced(Sequence):
    """A list, a range, a vector."""

    def __init__(self, ids: Any) -> None:
        self._ids = ids

    @property
    def length(self) -> int:
        return len(self._ids)

    def read(self, start: int, count: int) -> list[Any]:
        return keys.listed(self._ids[start : start + count])


class _ByPosition(Sequence):
    def __init__(self, length: int, id: Callable[[int], Any]) -> None:
        self._length, self._id = length, id

    @property
    def length(self) -> int:
        return self._length

    def read(self, start: int, count: int) -> list[Any]:
        return keys.listed([self._id(position) for position in range(start, min(start + count, self._length))])


class _Repeated(Sequence):
    """Ids that are read one after the other, from the beginning if need be."""

    jumps = False

    def __init__(self, begin: Callable[[], Iterable[Any]]) -> None:
        self._begin = begin
        self._ids: Iterator[Any] | None = None
        self._at = 0
        self._length: int | None = None
        #: The first ids of all readings.
        self._first: list[Any] = []

    @property
    def length(self) -> int | None:
        return self._length

    def _begun(self) -> Sequence:
        return _Repeated(self._begin)

    def read(self, start: int, count: int) -> list[Any]:
        try:
            return keys.listed(self._read(start, count))
        except BaseException:
            # A generator that has raised looks like one at its end, and after Ctrl-C the position may be wrong.
            self._ids = None
            raise

    def _read(self, start: int, count: int) -> list[Any]:
        if self._ids is None or start < self._at:
            self._ids, self._at = iter(self._begin()), 0
        found: list[Any] = []
        while self._at < start + count:
            try:
                own = next(self._ids)
            except StopIteration:
                if self._at < len(self._first):
                    raise _other_ids() from None
                self._length = self._at
                break
            if self._at < len(self._first) and self._first[self._at] != own:
                raise _other_ids()
            if self._at == len(self._first) < _COMPARED:
                self._first.append(own)
            if self._at >= start:
                found.append(own)
            self._at += 1
        return found


def _other_ids() -> InvalidBatchError:
    return InvalidBatchError("ids: the sequence has other ids than at the first reading; its function must make a new iterator each time")


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                # As in Rust: without the end of a line, a carriage return is a part of the id.
                own = line.removesuffix("\r\n") if line.endswith("\r\n") else line.removesuffix("\n")
                if own:
                    yield own
    except (OSError, UnicodeDecodeError) as error:
        raise LoaderError(f"cannot read ids from {path}: {error}") from error
