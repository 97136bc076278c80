"""What tables and cached modules have in common: everything but computing."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from .. import _native
from ..engine import ids as keys
from ..engine.coverage import Coverage
from ..engine.rows import Rows
from ..errors import InvalidBatchError

Self = TypeVar("Self", bound="Upkeep")


@dataclass(frozen=True)
class RowFacts:
    """What is known of a stored row without reading its values."""

    #: When the oldest row of its segment was computed.
    computed: datetime.datetime
    #: The file of the row; ``None`` as long as it waits in the write buffer of this process.
    segment: str | None
    #: The bytes of its outputs as they are stored.
    bytes: int


class Upkeep:
    """A table that can be looked at, kept small and closed."""

    _rows: Rows
    _view: int = 0

    @property
    def id(self) -> str:
        """The id: the name of the folder."""
        return self._rows.opening.module

    @property
    def mode(self) -> str:
        """``read_write``, ``read_only``, ``recompute`` or ``off``."""
        return self._rows.opening.mode

    def coverage(self, ids: Any) -> Coverage:
        """Reports which of these ids are stored. It reads no values, and counts neither hits nor misses.

        Raises:
            InvalidBatchError: if an id is malformed.
        """
        return self._rows.coverage(ids, self._view)

    def prefetch(self, ids: Any) -> int:
        """Brings the rows of these ids into memory, so that a lookup soon after does not wait for the disk. Returns the number of stored
        rows."""
        return self._rows.prefetch(ids, self._view)

    def stored_ids(self) -> list[Any]:
        """The ids that are stored now, sorted by their bytes."""
        handle = self._rows.handle
        return [] if handle is None else handle.reader.ids(self._view)

    def describe(self, ids: Any) -> list[RowFacts | None]:
        """What is known of the rows of these ids; ``None`` for an id without a row."""
        described = self._rows.required().reader.describe(self._rows.pack(ids, self._view))
        utc = datetime.timezone.utc
        return [row and RowFacts(datetime.datetime.fromtimestamp(row[0], utc), row[1], row[2]) for row in described]

    def invalidate(self, ids: Any) -> None:
        """Invalidates the rows of these ids, in all their views: they are computed again when they are next needed. The rows are dead in every
        process when this returns and it has looked at the folder.

        Raises:
            WrongModeError: if the handle changes nothing.
            IoError: if the invalidation cannot be written; it takes effect in this process, which writes it as soon as it can.
        """
        self._rows.changed().invalidate(self._rows.pack(keys.unordered(ids), 0))

    def invalidate_prefix(self, prefix: str | bytes) -> None:
        """Invalidates the rows of every id that begins with this prefix."""
        self._rows.changed().invalidate_prefix(prefix.encode() if isinstance(prefix, str) else bytes(prefix))

    def invalidate_all(self) -> None:
        """Invalidates every row."""
        self._rows.changed().invalidate_all()

    def invalidate_older_than(self, time: datetime.datetime | datetime.timedelta) -> None:
        """Invalidates the rows that were computed before this time, or longer ago than this, also those that other processes have not written
        yet. The age of a row is that of the oldest row in its segment. A time without a time zone is local."""
        if isinstance(time, datetime.timedelta):
            time = datetime.datetime.now(datetime.timezone.utc) - time
        self._rows.changed().invalidate_older_than(max(time.timestamp(), 0.0))

    def compact(self) -> None:
        """Joins segments of about the same age, without dead rows. What they replace stays until :meth:`collect`."""
        self._rows.changed().compact()

    def collect(self, older_than: float | datetime.timedelta = 60.0) -> int:
        """Removes files that are no longer needed and are older than this (seconds). Returns their number."""
        seconds = older_than.total_seconds() if isinstance(older_than, datetime.timedelta) else older_than
        return self._rows.changed().collect(float(seconds))

    def refresh(self) -> None:
        """Lists the folder now, to find rows of other processes."""
        handle = self._rows.handle
        if handle is not None and handle.mode != "off":
            handle.reader.refresh()

    def stats(self) -> dict[str, Any]:
        """The counters of this process since it opened the table, by the names that they have in Rust; durations in seconds. Before the first
        use, all of them are zero. ``traffic`` has the requests to an object store, and the files that wait to be sent."""
        handle = self._rows.handle
        return _native.Store.no_stats() if handle is None else handle.reader.stats()

    def disk_usage(self) -> dict[str, int]:
        """The files, bytes and reclaimable bytes of the folder, of all processes."""
        files, size, dead = self._rows.required().reader.disk_usage()
        return {"files": files, "bytes": size, "dead_bytes": dead}

    def flush(self) -> None:
        """Waits until the rows that this process has computed are durable: they survive kill -9 and power loss. A child of ``fork`` flushes
        its own rows, not those of its parent.

        Raises:
            Error: if rows cannot be written (they stay in the buffer), or rows computed since the last flush are lost.
        """
        self._rows.flush()

    def flush_local(self) -> None:
        """As :meth:`flush`, for a cache in an object store that may be away: it is enough if the rows are durable on this machine. They are sent
        as soon as the store can be reached.

        Raises:
            Error: as :meth:`flush`.
        """
        self._rows.flush_local()

    def close(self) -> None:
        """Flushes, and closes this handle and its views.

        Raises:
            Error: as :meth:`flush`.
        """
        self._rows.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._rows.is_closed

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def checked_view(number: int) -> int:
    """The number of a view.

    Raises:
        InvalidBatchError: if it is not one.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 32:
        raise InvalidBatchError(f"view: expected an integer from 0 to 4294967295, found {number!r}")
    return number
