"""Rows that one thread puts on a GPU, and another takes: each thread has its own current device and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..tensors.streams import Queued, refuse_capture

#: PyTorch says nothing of the types of some of its functions.
_cuda: Any = torch.cuda


def current_device(device: torch.device) -> torch.device:
    """A device with its number: where it has none, that of the calling thread is meant, and not that of a thread which is started."""
    return torch.device("cuda", _cuda.current_device()) if device.type == "cuda" and device.index is None else device


class Copies:
    """Copies rows to a device on a stream of its own. Made by the thread that takes the rows, and used by another."""

    def __init__(self, device: torch.device | None) -> None:
        self._stream = _cuda.Stream(device) if device is not None and device.type == "cuda" else None
        self._current = _cuda.current_device() if _cuda.is_initialized() else None
        #: What the thread that takes the rows has queued.
        self.queued = Queued()

    def send(self, read: Callable[[], Any], move: Callable[[Any], Any]) -> Sent:
        """What ``move`` makes of the rows that ``read`` returns: it queues copies."""
        if self._current is not None:
            # The user's functions find the device that is current where the rows are taken.
            _cuda.set_device(self._current)
        rows = read()
        if self._stream is None:
            return Sent(move(rows))
        read_on = {id(own): _cuda.current_stream(own.device) for own in _tensors(rows) if own.is_cuda}
        # What was computed on the device is there for what is queued on this stream.
        self._stream.wait_stream(_cuda.current_stream(self._stream.device))
        with _cuda.stream(self._stream):
            return Sent(move(rows), read_on)


class Sent:
    """Rows whose copies to a device may still be queued, on the current streams of the thread that makes this."""

    def __init__(self, rows: Any, read_on: dict[int, Any] | None = None) -> None:
        """`read_on` has, by their `id`, the streams of tensors that come from others than the current ones."""
        self._rows, others = rows, read_on or {}
        #: Each with the stream that its memory is from.
        self._tensors = [(own, others.get(id(own)) or _cuda.current_stream(own.device)) for own in _tensors(rows) if own.is_cuda]
        devices = {own.device for own, _ in self._tensors}
        self._events = [(device, _cuda.current_stream(device).record_event()) for device in devices]

    def take(self) -> Any:
        """The rows, for the current streams of the calling thread.

        Raises:
            InvalidBatchError: if a CUDA graph is captured, and rows are on a GPU.
        """
        if self._events:
            refuse_capture()
        for device, event in self._events:
            _cuda.current_stream(device).wait_event(event)
        for own, source in self._tensors:
            current = _cuda.current_stream(own.device)
            # Its memory is not given to the stream that it came from while this one uses it. Some allocators warn if they are the same.
            if current != source:
                own.record_stream(current)
        return self._rows


def _tensors(rows: Any) -> Iterator[torch.Tensor]:
    """The tensors of an output."""
    if isinstance(rows, torch.Tensor):
        yield rows
        return
    parts: Any = ()
    if isinstance(rows, dict):
        parts = rows.values()
    elif isinstance(rows, (tuple, list)):
        parts = rows
    elif hasattr(rows, "__dataclass_fields__"):
        parts = [getattr(rows, name) for name in rows.__dataclass_fields__]
    for part in parts:
        yield from _tensors(part)
