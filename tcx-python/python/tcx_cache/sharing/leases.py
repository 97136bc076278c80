"""Sharing a list of ids with other processes, by leases of work ranges: as in the crate `tcx`, whose workers may have a part in the job."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from .. import _native
from ..engine.handle import Handle
from ..errors import Error, FullError, InvalidBatchError, WrongModeError
from .filling import Filled, Filler
from .reports import SharedReport, SharedWorker
from .sequence import Sequence

#: How often a call that waits for other workers looks whether it is to stop, in seconds.
_LOOKS_EVERY = 0.05


@dataclass(frozen=True)
class Job:
    """How a job is shared."""

    name: str
    range_size: int
    #: After this number of seconds without a sign of life, a worker is taken for gone.
    expiry: float


def warm_shared(filler: Filler, ids: Sequence, job: Job) -> SharedReport:
    """Computes ranges until all are finished."""
    filler.check_mode()
    if filler.rows.opening.mode == "recompute":
        raise WrongModeError(
            f"module `{filler.id}`: cannot share work in mode `recompute`: each handle computes every sample; invalidate the rows, and open the module in mode "
            "`read_write`"
        )
    try:
        first = ids.read(0, job.range_size)
        before = filler.not_kept()
        handle = filler.settle_columns(_some(ids, job, first))
        if handle is None:
            # There is no id.
            return SharedReport(asked=0)
        digest = filler.pack(first).digest_all()
        of_job = (job.name, filler.view, job.range_size, ids.length, digest)
        worker = _native.JobWorker(handle.writer, of_job, job.expiry, ids.jumps, filler.is_stopped)
        if worker.has_left:
            return SharedReport(computed=filler.computed, stopped=True)
        try:
            return _Share(filler, worker, handle, ids, job.range_size, digest, before).run()
        finally:
            worker.leave()
    finally:
        filler.end()


def _some(ids: Sequence, job: Job, first: list[object]) -> list[object]:
    """The ids whose outputs decide the columns if they are not known: not those that all workers begin with, if they can be read."""
    ranges = (ids.length or 0) // job.range_size
    return ids.read(random.Random().randrange(ranges) * job.range_size, job.range_size) if ids.jumps and ranges > 1 else first


@dataclass
class _Share:
    """The part of a worker in a job."""

    filler: Filler
    worker: _native.JobWorker
    handle: Handle
    ids: Sequence
    range_size: int
    #: The digest of the ids of the first range, as they were read first.
    first: int
    #: How many computed rows were not kept before.
    not_kept: int
    #: Ranges whose rows are not durable yet, with the digests of their ids.
    pending: list[tuple[int, int]] = field(default_factory=list)
    #: How many of the computed samples were counted.
    counted: int = 0

    def run(self) -> SharedReport:
        try:
            is_stopped = self._work()
        except BaseException as error:
            # Whatever stopped it, what is finished stays, and others need not do it again.
            self._settle_after(error)
            raise
        self._settle()
        found = self.worker.ids()
        workers = [SharedWorker(*own) for own in self.worker.workers()]
        return SharedReport((self.ids.length if found is None else found) or 0, self.filler.computed, workers, is_stopped)

    def _work(self) -> bool:
        """Computes ranges until all are finished; returns whether it was stopped before."""
        self._count(0)
        while not self.filler.is_stopped():
            try:
                next_range = self.worker.next()
            except Error:
                self.pending.clear()
                raise
            # Before anything is computed.
            self._compare()
            if next_range is None:
                self._check_length()
                return False
            if isinstance(next_range, float):
                has_finished = bool(self.pending)
                self._settle()
                # Its own ranges may have been the last ones.
                if not has_finished:
                    self._wait(next_range)
                continue
            number, is_taken_over = next_range
            if is_taken_over:
                self._refresh()
            if self._compute(number) is Filled.STOPPED:
                return True
            if self.filler.is_flush_due():
                self._settle()
        return True

    def _refresh(self) -> None:
        """Looks for the rows of a worker that is gone. Those that are not found are computed."""
        try:
            self.handle.writer.refresh()
        except Error:
            pass

    def _compute(self, number: int) -> Filled:
        ids = self.ids.read(number * self.range_size, self.range_size)
        digest = self.filler.pack(ids).digest_all()
        if number == 0 and digest != self.first:
            same = "return the same id for a position" if self.ids.jumps else "make a new iterator"
            raise InvalidBatchError(
                f"module `{self.filler.id}`: ids: the sequence has other ids than at the first reading; its function must {same} each time"
            )
        filled = self.filler.fill(ids, lambda: self.worker.has_lost(number)) if ids else Filled.LOST
        length = self.ids.length
        if len(ids) < self.range_size and length is not None:
            self.worker.learn_ids(length)
        if filled is Filled.WHOLE:
            self.pending.append((number, digest))
        else:
            self.worker.give_up(number)
        self._count(len(ids) if filled is Filled.WHOLE else 0)
        return filled

    def _count(self, samples: int) -> None:
        """Reports what was computed since the last time, and how many of these samples were found."""
        computed = self.filler.computed - self.counted
        self.counted = self.filler.computed
        self.worker.count(computed, max(samples - computed, 0))

    def _settle(self) -> None:
        """Makes rows durable, and reports the ranges that are finished by that."""
        if not self.pending and self.filler.is_durable:
            return
        self.filler.flush()
        if self.filler.not_kept() > self.not_kept:
            raise FullError(
                f"module `{self.filler.id}`: rows that were computed could not be kept, so no worker can finish the job; make room, or raise `max_bytes`, and call this "
                "again"
            )
        if self.pending:
            self.worker.finished(self.pending)
            self.pending.clear()

    def _settle_after(self, error: BaseException) -> None:
        # Rows that were found may still wait to be written, whoever computed them: the ranges are finished once a flush has succeeded.
        self.filler.flush_after(error)
        if self.filler.has_failed or self.filler.not_kept() > self.not_kept:
            return
        try:
            self.worker.finished(self.pending)
        except Error:
            # This is the child of a fork, which is no worker.
            pass

    def _compare(self) -> None:
        """Compares the ids that other workers reported with those of this one."""
        while (found := self.worker.comparison()) is not None:
            number, digest, worker = found
            # Where ids are read one after the other, those of another range are as expensive as all before it.
            if not self.ids.jumps:
                continue
            ids = self.ids.read(number * self.range_size, self.range_size)
            if self.filler.pack(ids).digest_all() != digest:
                self.pending.clear()
                self.worker.refuse(number, digest, worker)

    def _check_length(self) -> None:
        """Ids that are read one after the other are counted by the worker that comes to their end. The others compare that with their own."""
        length = self.worker.ids()
        if length is None or self.ids.length is not None:
            return
        last = max(length - 1, 0)
        found = len(self.ids.read(last, 2))
        self.worker.learn_ids(last + found if self.ids.length is None else self.ids.length)
        self.worker.next()

    def _wait(self, pause: float) -> None:
        end = time.monotonic() + pause
        while time.monotonic() < end and not self.filler.is_stopped():
            time.sleep(min(_LOOKS_EVERY, pause))
