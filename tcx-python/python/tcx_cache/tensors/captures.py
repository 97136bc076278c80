"""Threads beside one that captures a CUDA graph.

In the mode ``global``, the default of ``torch.cuda.graph``, CUDA ends a capture when any thread copies from a GPU, pins memory or allocates it.
A thread may say that it does nothing that belongs to the graph.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

from .streams import uses_cuda

#: ``cudaStreamCaptureModeRelaxed``.
_RELAXED = 2


@contextlib.contextmanager
def beside_captures() -> Iterator[None]:
    """What this thread does inside of it on a GPU ends no capture of another thread, where the library of CUDA is found."""
    exchange = _exchange() if uses_cuda() else None
    if exchange is None:
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    # It puts the mode of before into `mode`.
    has_changed = exchange(ctypes.byref(mode)) == 0
    try:
        yield
    finally:
        if has_changed:
            exchange(ctypes.byref(mode))


@functools.cache
def _exchange() -> Any:
    """``cudaThreadExchangeStreamCaptureMode`` of the library that torch has loaded; ``None`` if there is none."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            fields = (line.rstrip("\n").split(maxsplit=5) for line in maps)
            paths = {own[5] for own in fields if len(own) == 6 and "libcudart" in own[5]}
    except OSError:
        return None
    for path in sorted(paths):
        with contextlib.suppress(OSError, AttributeError):
            exchange = ctypes.CDLL(path).cudaThreadExchangeStreamCaptureMode
            exchange.argtypes, exchange.restype = [ctypes.c_void_p], ctypes.c_int
            return exchange
    return None
