"""What calls that share work have done."""

from __future__ import annotations

from dataclasses import dataclass, field

from .rank import Rank

#: Of a worker that does not say after how many seconds it is taken for gone.
_EXPIRY = 120.0


@dataclass(frozen=True)
class SharedWorker:
    """What one worker has done. A part of a :class:`SharedReport`."""

    #: The machine it runs on.
    host: str
    #: Its process there.
    process: int
    #: The samples that it computed.
    computed: int
    #: The samples that it found.
    found: int
    #: The work ranges that it finished.
    ranges: int
    #: How many of them it took over from workers that were gone.
    taken_over: int

    def __str__(self) -> str:
        taken_over = f", {self.taken_over} of them taken over" if self.taken_over else ""
        return f"{self.host}, process {self.process}: {self.computed:,} computed, {self.found:,} found, {self.ranges:,} work ranges{taken_over}"


@dataclass(frozen=True)
class SharedReport:
    """What :meth:`tcx_cache.Cached.warm_shared` has done, here and in other workers."""

    #: How many ids there are, repeated ones counted each time. Every one was found or computed by some worker, unless the call was stopped.
    asked: int = 0
    #: The samples that this worker computed.
    computed: int = 0
    #: What the workers of the job reported last, this one first. Those that joined after this one looked last are missing.
    workers: list[SharedWorker] = field(default_factory=list)
    #: Whether it ended early, because ``stop`` was set.
    stopped: bool = False

    def __str__(self) -> str:
        own = f"{self.computed:,} of {self.asked:,} samples computed here{', stopped early' if self.stopped else ''}"
        return "\n".join([own, *map(str, self.workers)])


@dataclass(frozen=True)
class WatchedWorker:
    """What a worker of a job reported last. A part of a :class:`JobProgress`."""

    #: The machine it runs on.
    host: str
    #: Its process there.
    process: int
    #: Whether it has left.
    has_left: bool
    #: After this number of seconds without a report, the others take it for gone.
    expiry: float | None
    #: How many seconds it had worked when it reported.
    worked: float | None
    #: How many seconds ago it reported, by the clocks of this machine and of the file system or store.
    silent: float | None
    #: The samples that it computed.
    computed: int
    #: The samples that it found.
    found: int

    @property
    def is_gone(self) -> bool:
        """Whether others take over what it had leased."""
        return not self.has_left and self.silent is not None and self.silent >= (self.expiry or _EXPIRY)

    @property
    def rows_per_second(self) -> float:
        """The samples in a second that it computed and found, since it began."""
        return (self.computed + self.found) / self.worked if self.worked else 0.0


@dataclass(frozen=True)
class JobProgress:
    """How far a job of :meth:`tcx_cache.Cached.warm_shared` is, by what its workers reported. As text, it is a line on all of them."""

    #: The name of the job.
    job: str
    #: The view of the samples.
    view: int
    #: How often the job was begun before.
    round: int
    #: Whether every id was found or computed.
    ended: bool
    #: How many ids there are; ``None`` if no worker knows yet.
    ids: int | None
    #: How many of them are in work ranges that are finished.
    finished: int
    #: Its workers.
    workers: list[WatchedWorker]

    @property
    def rows_per_second(self) -> float:
        """The samples in a second of the workers that are at work."""
        return sum(own.rows_per_second for own in self.workers if not own.has_left and not own.is_gone)

    def __str__(self) -> str:
        of = "" if self.ids is None else f" of {self.ids:,}"
        gone = sum(own.is_gone for own in self.workers)
        rest = "ended" if self.ended else f"{self.rows_per_second:,.0f} rows/s"
        workers = f"{len(self.workers):,} worker{'' if len(self.workers) == 1 else 's'}{f', {gone:,} gone' if gone else ''}"
        return f"job {self.job}: {self.finished:,}{of} rows, {rest}, {workers}"


@dataclass(frozen=True)
class ShardReport:
    """What :meth:`tcx_cache.Cached.warm_sharded` has done in this process."""

    #: The rank of this process.
    rank: Rank
    #: The ids of this rank, repeated ones counted each time.
    asked: int
    #: The samples that were missing, and were computed. In a call after one whose ranks died, these are the samples that they left.
    computed: int
    #: The rows that this process computed during the call and could not keep, because writing was off or the folder was full.
    not_kept: int = 0
    #: Whether it ended early, because ``stop`` was set.
    stopped: bool = False

    def __str__(self) -> str:
        not_kept = f", {self.not_kept:,} not kept" if self.not_kept else ""
        return f"{self.rank}: {self.computed:,} of {self.asked:,} samples computed{not_kept}{', stopped early' if self.stopped else ''}"
