"""Tensors of torch and arrays of numpy, as addresses; both libraries are imported only where they are used."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidOutputError

_TORCH = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "bool": "bool",
}
_NUMPY = {name: own for name, own in _TORCH.items() if name != "bf16"}


@dataclass
class Memory:
    """Contiguous memory of the CPU, with its owner."""

    owner: Any
    address: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]


def default_arrays() -> str:
    """The library whose tensors are returned: torch where it is installed, or else numpy."""
    return "torch" if importlib.util.find_spec("torch") else "numpy"


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: Any) -> bool:
    """Whether a value is an array of numpy, also one of a single number."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def is_numeric(value: Any) -> bool:
    """Whether a value is a tensor or an array."""
    return is_tensor(value) or is_array(value)


def is_nested(value: Any) -> bool:
    """Whether a value is a nested tensor of torch, which has no rows of one shape."""
    return is_tensor(value) and bool(value.is_nested)


def dtype_name(value: Any) -> str:
    """The dtype of a tensor or an array, as tcx names it; that of its library, if tcx has no name for it."""
    return _name(value.dtype)


@functools.lru_cache(256)
def _name(dtype: Any) -> str:
    # An array has the same type in another order of bytes.
    found = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    return next((name for name, own in _TORCH.items() if own == found), found)


def plain(value: Any, path: str = "output") -> Memory:
    """The elements of a tensor or an array in row-major order on the CPU. Copies only what is not like that yet.

    Raises:
        InvalidOutputError: if the value has no plain elements of a type that tcx stores.
    """
    name = dtype_name(value)
    if name not in _TORCH:
        raise InvalidOutputError(f"{path}: expected elements of a type that tcx stores ({', '.join(_TORCH)}), found {name}")
    return _plain_tensor(value, name, path) if is_tensor(value) else _plain_array(value, name, path)


def _plain_tensor(tensor: Any, name: str, path: str) -> Memory:
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise InvalidOutputError(f"{path}: expected a dense tensor, found a sparse, MKL-DNN or quantized one: call `to_dense` or `dequantize`")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if name == "bool":
        # A view of bytes as bools may hold any byte; a stored one is 0 or 1.
        tensor = tensor.view(torch.uint8).ne(0)
    return Memory(tensor, tensor.data_ptr(), tensor.nbytes, name, tuple(tensor.shape))


def _plain_array(array: Any, name: str, path: str) -> Memory:
    numpy = sys.modules["numpy"]
    if hasattr(array, "mask"):
        raise InvalidOutputError(f"{path}: expected a plain array, found a masked one, whose mask would be lost: call `filled`")
    array = numpy.ascontiguousarray(array).reshape(numpy.shape(array))
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return Memory(array, array.ctypes.data, array.nbytes, name, tuple(array.shape))


def cast(value: Any, dtype: str) -> Any:
    """A tensor or an array with elements of another type."""
    if is_tensor(value):
        return value.to(getattr(sys.modules["torch"], _TORCH[dtype]))
    return value.astype(_numpy_dtype(dtype), copy=False)


_wanted = threading.local()


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Tensors that this thread gets inside of it are in shared memory: another process, which they are sent to, gets them without a copy."""
    _wanted.shared = True
    try:
        yield
    finally:
        _wanted.shared = False


def new(arrays: str, shape: tuple[int, ...], dtype: str, pinned: bool = False) -> Memory:
    """Memory for elements that are written next. Of truth values it has bytes, which :func:`finish` compares with 0: a file may hold any
    byte, and a bool that is neither 0 nor 1 is undefined behaviour in C++."""
    held = "u8" if dtype == "bool" else dtype
    owner: Any
    if arrays == "torch":
        import torch

        element = getattr(torch, _TORCH[held])
        # Without `pin_memory`, which initializes CUDA even if it is false. The program may have set another default device.
        options: dict[str, Any] = {"device": "cpu", "pin_memory": True} if pinned else {"device": "cpu"}
        # No system maps 0 bytes.
        is_shared = getattr(_wanted, "shared", False) and 0 not in shape
        owner = _shared(shape, element) if is_shared else torch.empty(shape, dtype=element, **options)
        return Memory(owner, owner.data_ptr(), owner.nbytes, dtype, shape)
    import numpy

    owner = numpy.empty(shape, dtype=_numpy_dtype(held))
    return Memory(owner, owner.ctypes.data, owner.nbytes, dtype, shape)


def _shared(shape: tuple[int, ...], element: Any) -> Any:
    """A tensor in shared memory, as `default_collate` makes it in a worker."""
    import torch

    owner: Any = torch.empty(0, dtype=element, device="cpu")
    storage: Any = torch.UntypedStorage
    return owner.set_(storage._new_shared(torch.Size(shape).numel() * owner.element_size()), 0, shape)


def finish(memory: Memory) -> Any:
    """The tensor or array in memory that was written."""
    return memory.owner != 0 if memory.dtype == "bool" else memory.owner


def _numpy_dtype(dtype: str) -> Any:
    import numpy

    if dtype not in _NUMPY:
        raise InvalidOutputError(f"numpy has no type for {dtype}: use `arrays=\"torch\"`, or store f32")
    return numpy.dtype(_NUMPY[dtype])
