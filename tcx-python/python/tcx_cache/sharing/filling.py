"""Computing what is missing of one work range after the other."""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from .. import _native
from ..batch.split import as_inputs, plan
from ..engine.handle import Handle, rows_not_kept
from ..engine.rows import Rows
from ..errors import WrongModeError
from ..identity.surroundings import OfThread
from ..tensors import streams

#: The finished work in seconds that a killed process may lose, if flushing is fast.
_FLUSH_EVERY = 1.0
#: What is computed between two flushes takes at least this many times as long as the first: a flush reads all weights.
_FLUSH_SHARE = 100

Load = Callable[["list[Any]"], Any]


class Stop(Protocol):
    """A request to end early, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether it was made."""


class Filled(enum.Enum):
    """What came of a work range."""

    #: Every sample was found or computed. What was computed is not durable yet.
    WHOLE = enum.auto()
    STOPPED = enum.auto()
    #: Another worker has taken it over.
    LOST = enum.auto()


@dataclass
class Filler:
    """What computes work ranges, as `fetch` of a cached module does, and returns no rows."""

    rows: Rows
    view: int
    #: Looks samples up, and computes what is missing with what the function loads. It reads no rows.
    complete: Callable[[list[Any], Load], None]
    load: Load
    batch_size: int
    #: How many threads load ahead, if there are more than one.
    workers: int = 1
    stop: Stop | None = None
    #: How many samples were computed.
    computed: int = 0
    #: Whether a flush has failed. It may report once that rows are lost, so a later one that succeeds says nothing of them.
    has_failed: bool = False
    _durable: int = 0
    _flushed: float = field(default_factory=time.monotonic)
    _pause: float = _FLUSH_EVERY
    _threads: ThreadPoolExecutor | None = None

    @property
    def id(self) -> str:
        """The id of the module."""
        return self.rows.opening.module

    def is_stopped(self) -> bool:
        """Whether it is to end early."""
        return self.stop is not None and self.stop.is_set()

    def check_mode(self) -> None:
        """Refuses a handle that keeps nothing.

        Raises:
            WrongModeError: if its mode is such.
        """
        mode = self.rows.opening.mode
        if mode not in ("read_write", "recompute"):
            raise WrongModeError(f"module `{self.id}`: cannot fill the cache: this handle has mode `{mode}`; open the module in mode `read_write`")

    def pack(self, ids: list[Any]) -> _native.Keys:
        """The keys of ids."""
        return self.rows.pack(ids, self.view)

    def not_kept(self) -> int:
        """How many computed rows this process has not kept."""
        handle = self.rows.handle
        return 0 if handle is None else rows_not_kept(handle.reader.stats())

    def fill(self, ids: list[Any], at_batch: Callable[[], bool] = lambda: False) -> Filled:
        """Computes what is missing for these ids. Calls `at_batch` after each batch, which returns whether to give up."""
        missing = self._missing(ids)
        batches = [missing[start : start + self.batch_size] for start in range(0, len(missing), self.batch_size)]
        if self.workers > 1:
            return self._fill_ahead(batches, at_batch)
        for batch in batches:
            if self.is_stopped():
                return Filled.STOPPED
            self._compute(batch, self.load)
            if at_batch():
                return Filled.LOST
        return Filled.WHOLE

    def _missing(self, ids: list[Any]) -> list[Any]:
        """The ids without a row, each once."""
        packed, handle = self.pack(ids), self.rows.handle
        if handle is None:
            # Nothing is stored, and the first batch decides the columns.
            return list(dict.fromkeys(ids))
        return [ids[position] for position in handle.writer.lookup(packed, [], [], True).distinct_missing()]

    def _fill_ahead(self, batches: list[list[Any]], at_batch: Callable[[], bool]) -> Filled:
        """As `fill`, while threads load the next batches: at most one batch more than there are threads is loaded and not computed."""
        threads = self._threads = self._threads or ThreadPoolExecutor(self.workers, "tcx-load")
        waiting, loading = deque(batches), deque[tuple["list[Any]", "Future[Any]"]]()
        device, queued, of_caller = streams.current_device(), streams.Queued(), OfThread()

        def load(batch: list[Any]) -> Any:
            streams.set_device(device)
            queued.wait()
            with of_caller.active():
                loaded = self.load(batch)
            streams.wait_for_current()
            return loaded

        try:
            while waiting or loading:
                while waiting and len(loading) < self.workers and not self.is_stopped():
                    batch = waiting.popleft()
                    loading.append((batch, threads.submit(load, batch)))
                if not loading:
                    return Filled.STOPPED
                batch, loaded = loading.popleft()
                self._compute(batch, self._select(batch, loaded.result()))
                if at_batch():
                    return Filled.LOST
            return Filled.WHOLE
        finally:
            for _, loaded in loading:
                loaded.cancel()

    def _select(self, batch: list[Any], loaded: Any) -> Load:
        """A function that loads what was loaded for a batch: all of it, or the samples that are still missing."""

        def select(wanted: list[Any]) -> Any:
            if wanted == batch:
                return loaded
            positions = {own: position for position, own in enumerate(batch)}
            return plan(as_inputs(loaded), len(batch)).select([positions[own] for own in wanted])

        return select

    def _compute(self, batch: list[Any], load: Load) -> None:
        """Computes what is missing of a batch, and flushes now and then."""
        asked = 0

        def counted(wanted: list[Any]) -> Any:
            nonlocal asked
            asked = len(wanted)
            return load(wanted)

        is_first = self.rows.handle is None
        self.complete(batch, counted)
        self.computed += asked
        # The other processes learn of the columns from the folder.
        if is_first or self.is_flush_due():
            self.flush()

    def is_flush_due(self) -> bool:
        """Whether the last flush was long enough ago."""
        return time.monotonic() - self._flushed >= self._pause

    @property
    def is_durable(self) -> bool:
        """Whether everything that was computed is durable."""
        return self.computed == self._durable

    def flush(self) -> None:
        """Makes durable what was computed.

        Raises:
            Error: if it cannot be written.
        """
        start, computed = time.monotonic(), self.computed
        try:
            self.rows.flush()
        except BaseException:
            self.has_failed = True
            raise
        self._flushed = time.monotonic()
        self._pause = max(_FLUSH_EVERY, (self._flushed - start) * _FLUSH_SHARE)
        self._durable = computed

    def flush_after(self, error: BaseException) -> None:
        """Makes durable what was computed before something failed, if it can: that failure is the one to report."""
        try:
            self.flush()
        except Exception as other:
            if hasattr(error, "add_note"):
                error.add_note(f"tcx: rows that were computed before could not be made durable: {other}")

    def end(self) -> None:
        """Waits for threads that load."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def settle_columns(self, ids: list[Any]) -> Handle | None:
        """The open table. Its columns are those that the outputs of some of these ids have, if they are not known; ``None`` without any id."""
        if ids:
            self.pack(ids[:1])
        if self.rows.handle is None and ids:
            self._compute(list(dict.fromkeys(ids))[: self.batch_size], self.load)
        return self.rows.handle
