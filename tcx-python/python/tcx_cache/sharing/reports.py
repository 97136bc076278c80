"""What calls that share work have done."""

from __future__ import annotations

from dataclasses import dataclass, field

from .rank import Rank


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
