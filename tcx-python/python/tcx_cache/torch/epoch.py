"""An epoch in any order, read ahead of the loop."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import Any, TypeVar, Union

import torch

from ..engine.ids import is_vector
from ..errors import Error, ForkedError
from ..identity.surroundings import OfThread
from ..modules.cached import Cached
from ..modules.table import Table, check_batch_size
from ..runtime.ends import end_with_this_process
from ..schema.declared import Batch
from ..tensors.captures import beside_captures
from ..tensors.memory import is_array, is_tensor
from ..tensors.streams import Queued, refuse_capture
from .streams import Copies, Sent, current_device

_END = object()
Id = TypeVar("Id")
Load = Union[Callable[["list[Id]"], Any], None]


def epoch(
    cache: Cached[Batch] | Table[Batch],
    order: Sequence[Id],
    batch_size: int,
    *,
    load: Callable[[list[Id]], Any] | None = None,
    prefetch: int = 2,
    device: Any = None,
    drop_last: bool = False,
) -> Iterator[tuple[list[Id], Batch]]:
    """The batches of an epoch: their ids and their rows. A thread looks up the next ``prefetch`` batches while the loop uses one.

    Args:
        cache: A table or a cached module.
        order: The ids in the order of the epoch; shuffle them before. A list, a tensor or an array is copied, so that it may be shuffled for the next
            epoch during this one. Of a range or another sequence, the slice of a batch is read when the batch is, in the thread. The ids of a tensor or
            an array are numbers and strings of Python in each batch.
        batch_size: The number of samples in a batch.
        load: Loads the inputs of missing samples (``compute`` of a table). What the loop has queued on its GPU before it asked for its last batch is
            done before what is queued by this, also if that is in the thread.
        prefetch: How many batches are read ahead; 0 reads each when it is asked for, without a thread. The thread computes with the autocast
            and the default device that are active where this is called.
        device: Where the rows are put; a copy to CUDA is from pinned memory, on a stream of its own, and runs beside the loop. Whatever stream
            is current where a batch is taken waits for the copy.
        drop_last: Whether the last batch is left out if it is smaller.

    Raises:
        Error: as ``fetch``, at the batch that fails.
        ForkedError: at the next batch in a child of ``fork``, if the parent has called this with ``prefetch``.
    """
    check_batch_size(batch_size)
    batches: _Batches[Id] = _Batches(order, batch_size, drop_last)
    target = None if device is None else current_device(torch.device(device))

    def read(ids: list[Id], load: Load[Id]) -> Batch:
        return cache.fetch(ids, load) if load is not None or isinstance(cache, Cached) else cache.stored(ids)

    if prefetch < 1:
        return ((ids, read(ids, load) if target is None else moved(read(ids, load), target)) for ids in batches)
    copies, of_caller = Copies(target), OfThread()
    load_in_thread = None if load is None else _after(copies.queued, load)

    def send(ids: list[Id]) -> Sent:
        with of_caller.active():
            return copies.send(lambda: read(ids, load_in_thread), lambda rows: rows if target is None else moved(rows, target))

    # A lookup uses nothing of the caller.
    return _Ahead(batches, send, prefetch, None if load is None else copies.queued)


def _after(queued: Queued, load: Callable[[list[Id]], Any]) -> Callable[[list[Id]], Any]:
    """A function that loads after what was queued: both the inputs and the module may be what the caller has computed on a stream of its own."""

    def load_after(missing: list[Id]) -> Any:
        queued.wait()
        return load(missing)

    return load_after


class _Batches(Iterable["list[Id]"]):
    """The ids of each batch of an epoch, which are sliced when the reader gets there."""

    def __init__(self, order: Sequence[Id], size: int, drop_last: bool) -> None:
        self._order = _own(order)
        self._size = size
        self._end = len(order) - (len(order) % size if drop_last else 0)

    def __iter__(self) -> Iterator[list[Id]]:
        for start in range(0, self._end, self._size):
            part = self._order[start : start + self._size]
            yield part.tolist() if is_vector(part) else list(part)


def _own(order: Any) -> Any:
    """The order of an epoch, which does not change with that of the caller."""
    if is_tensor(order):
        # A slice of one on a GPU would wait for the GPU, in each batch.
        return order.tolist() if is_vector(order) and order.device.type != "cpu" else order.detach().clone()
    if is_array(order):
        return order.copy()
    return order[:] if isinstance(order, MutableSequence) else order


class _Ahead(Iterator[tuple["list[Id]", Batch]]):
    """Batches that a thread reads ahead. The thread ends with the iterator."""

    def __init__(self, batches: Iterable[list[Id]], read: Callable[[list[Id]], Sent], prefetch: int, queued: Queued | None) -> None:
        self._ready: queue.Queue[Any] = queue.Queue(prefetch)
        self._queued, self._pid = queued, os.getpid()
        # It does not refer to the iterator, so that one which is dropped stops it.
        self._reader = _Reader(batches, read, self._ready)
        self._reader.start()
        end_with_this_process(self._reader)

    def __next__(self) -> tuple[list[Id], Batch]:
        if self._is_inherited:
            raise ForkedError(
                "an epoch is read in a child of `fork`, and the thread that reads it ahead runs in its parent; call `epoch` in this process, or pass "
                "`prefetch=0`"
            )
        if self._reader.stopped.is_set():
            raise self._end()
        if self._queued is not None:
            # What the body of the loop has queued.
            self._queued.note()
        found = self._ready.get()
        if found is _END or isinstance(found, BaseException):
            # For a caller that asks again.
            self._reader.put_end()
            raise found if isinstance(found, BaseException) else self._end()
        ids, sent = found
        return ids, sent.take()

    def _end(self) -> BaseException:
        if self._reader.is_cut_short:
            return Error("an epoch is read while its process ends, so the rest of its batches is not read: let the main thread wait for the loop")
        return StopIteration()

    def close(self) -> None:
        """Stops reading ahead."""
        if self._is_inherited:
            # The queue may be locked by the thread of the parent.
            return
        self._reader.stopped.set()
        while not self._ready.empty():
            try:
                self._ready.get_nowait()
            except queue.Empty:
                break
        # Another thread may wait for a batch.
        self._reader.put_end()

    @property
    def _is_inherited(self) -> bool:
        """Whether this process was forked from the one that reads ahead."""
        return self._pid != os.getpid()

    def __del__(self) -> None:
        self.close()


class _Reader(threading.Thread):
    """Reads batches into a queue, until it is stopped. Only ``end`` waits for it when the program ends."""

    def __init__(self, batches: Iterable[list[Any]], read: Callable[[list[Any]], Sent], ready: queue.Queue[Any]) -> None:
        super().__init__(name="tcx-epoch", daemon=True)
        self._batches, self._read, self._ready = batches, read, ready
        self.stopped = threading.Event()
        self.is_cut_short = False

    def run(self) -> None:
        try:
            self._read_all()
        finally:
            # Of one that was stopped the loop may wait for a batch.
            self.put_end()

    def _read_all(self) -> None:
        last: Any = _END
        batches = iter(self._batches)
        while not self.stopped.is_set():
            try:
                # The loop may capture a graph at the same time.
                with beside_captures():
                    ids = next(batches, None)
                    if ids is None:
                        break
                    rows = self._read(ids)
            except BaseException as error:
                last = error
                break
            if not self._put((ids, rows)):
                return
        self._put(last)

    def put_end(self) -> None:
        """Lets the loop see the end. A queue that is full has something before it, and a loop that takes that looks whether this is stopped."""
        with contextlib.suppress(queue.Full):
            self._ready.put_nowait(_END)

    def _put(self, item: Any) -> bool:
        while not self.stopped.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def end(self) -> None:
        """Stops the thread and waits until the batch that it reads is there."""
        if self.is_alive():
            self.is_cut_short = True
            self.stopped.set()
            self.join()


def moved(rows: Any, device: torch.device) -> Any:
    """An output on a device.

    Raises:
        InvalidBatchError: if a CUDA graph is captured, and rows are copied to a GPU.
    """
    if isinstance(rows, torch.Tensor):
        if device.type == "cuda" and not rows.is_cuda:
            refuse_capture()
        pinned = rows.pin_memory() if device.type == "cuda" and not rows.is_cuda and not rows.is_pinned() else rows
        # The CPU waits for no stream: what it gets has to be there.
        return pinned.to(device, non_blocking=device.type != "cpu")
    if isinstance(rows, dict):
        named = {name: moved(part, device) for name, part in rows.items()}
        return named if type(rows) is dict else type(rows)(**named)
    if isinstance(rows, tuple):
        parts = [moved(part, device) for part in rows]
        return type(rows)(*parts) if hasattr(rows, "_fields") else tuple(parts)
    if isinstance(rows, list):
        return [moved(part, device) for part in rows]
    if hasattr(rows, "__dataclass_fields__"):
        return type(rows)(**{field.name: moved(getattr(rows, field.name), device) for field in dataclasses.fields(rows) if field.init})
    return rows
