"""Waiting for a GPU: tensors may come from any stream, and a copy to the CPU waits for the current one only."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


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


def is_capturing() -> bool:
    """Whether what this thread queues becomes part of a CUDA graph instead of being done."""
    cuda = _cuda()
    return cuda is not None and bool(cuda.is_current_stream_capturing())


def _cuda() -> Any:
    """`torch.cuda`, if this process uses it. A forked child of one that does cannot."""
    torch: Any = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
