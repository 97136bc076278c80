"""Waiting for a GPU: tensors may come from any stream, and a copy to the CPU waits for the current one only."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ..errors import InvalidBatchError


def wait(values: Iterable[Any]) -> None:
    """Waits until the tensors on a GPU among these values, and among the items of lists, are computed."""
    cuda = _cuda()
    if cuda is None:
        return
    items = (item for value in values for item in (value if isinstance(value, (list, tuple)) else (value,)))
    for device in {item.device for item in items if getattr(item, "is_cuda", False)}:
        cuda.synchronize(device)


def wait_for_current() -> None:
    """Waits for what this thread has queued on its current stream, before another thread, with other streams, uses it."""
    cuda = _cuda()
    if cuda is not None:
        cuda.current_stream().synchronize()


def current_device() -> int | None:
    """The GPU that is current in this thread; ``None`` if the process uses none."""
    cuda = _cuda()
    return None if cuda is None else int(cuda.current_device())


def set_device(device: int | None) -> None:
    """Makes a GPU that was current in another thread that of this one."""
    cuda = _cuda()
    if cuda is not None and device is not None:
        cuda.set_device(device)


def uses_cuda() -> bool:
    """Whether this process uses a GPU."""
    return _cuda() is not None


class Queued:
    """What a thread has queued on its current streams. Others, which have streams of their own, wait for it before they call what uses it."""

    def __init__(self) -> None:
        self._events: list[tuple[Any, Any]] = []
        self.note()

    def note(self) -> None:
        """Notes what the calling thread has queued so far."""
        cuda = _cuda()
        # What is captured is not done, and nothing can wait for it.
        if cuda is not None and not is_capturing():
            self._events = [(device, cuda.current_stream(device).record_event()) for device in _used(cuda)]

    def wait(self) -> None:
        """Has what the calling thread queues from now on, on its current streams, done after what was noted."""
        cuda = _cuda()
        if cuda is not None:
            for device, event in self._events:
                cuda.current_stream(device).wait_event(event)


def _used(cuda: Any) -> list[int]:
    """The GPUs that this process uses; a stream of another would take memory there."""
    torch: Any = sys.modules["torch"]
    is_used = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return [int(cuda.current_device())] if is_used is None else [device for device in range(cuda.device_count()) if is_used(device)]


def is_capturing() -> bool:
    """Whether what this thread queues becomes part of a CUDA graph instead of being done."""
    cuda = _cuda()
    return cuda is not None and bool(cuda.is_current_stream_capturing())


def refuse_capture(module: str | None = None) -> None:
    """Refuses rows for a GPU while a CUDA graph is captured.

    Raises:
        InvalidBatchError: if this thread captures one.
    """
    if is_capturing():
        raise InvalidBatchError(
            f"{f'module `{module}`: ' if module else ''}rows were asked for while a CUDA graph is captured, which would copy the memory of this lookup whenever it "
            "is replayed; ask for them before, and copy them into an input of the graph"
        )


def _cuda() -> Any:
    """`torch.cuda`, if this process uses it. A forked child of one that does cannot."""
    torch: Any = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
