"""Sample ids as keys of the engine."""

from __future__ import annotations

import operator
import os
from typing import Any

from .. import _native
from ..errors import InvalidBatchError
from ..tensors.memory import is_numeric, is_tensor

#: The names of the types that ids may have.
NAMES = {str: "str", int: "int", bytes: "bytes"}


def listed(ids: Any) -> list[Any]:
    """The ids as a list of strings, integers or byte strings.

    Raises:
        InvalidBatchError: if they are not a sequence of ids.
    """
    if is_numeric(ids):
        if ids.ndim != 1 or not (ids.dtype.kind in "iu" if hasattr(ids.dtype, "kind") else not ids.dtype.is_floating_point):
            raise InvalidBatchError(f"ids: expected a vector of integers, found {list(ids.shape)} of {ids.dtype}")
        return list(ids.tolist())
    if isinstance(ids, (str, bytes)):
        raise InvalidBatchError(f"ids: expected a list with one id for each sample, found one {type(ids).__name__}; pass `[id]`")
    found = list(ids)
    # Ids that are equal as keys have to be equal in Python: a path is named by its text.
    return found if all(type(own) in NAMES for own in found) else [_plain(own) for own in found]


def _plain(own: Any) -> Any:
    if isinstance(own, os.PathLike):
        return os.fspath(own)
    return bytes(own) if isinstance(own, (bytearray, memoryview)) else own


def type_of(ids: list[Any]) -> str | None:
    """The type of the ids, by the first one."""
    if not ids:
        return None
    first = ids[0]
    if isinstance(first, str):
        return "str"
    if isinstance(first, bytes):
        return "bytes"
    if not isinstance(first, bool) and (isinstance(first, int) or hasattr(first, "__index__")):
        return "int"
    raise InvalidBatchError(f"id 0 of the batch is {type(first).__name__}, expected str, int or bytes")


def pack(ids: Any, kind: str, view: int = 0) -> _native.Keys:
    """The keys of ids of this type.

    Raises:
        InvalidBatchError: if an id has another type, is empty or too long.
    """
    if isinstance(view, bool) or not isinstance(view, int) or not 0 <= view < 1 << 32:
        raise InvalidBatchError(f"view: expected an integer from 0 to 4294967295, found {view!r}")
    if kind == "int" and is_tensor(ids) and ids.ndim == 1 and str(ids.dtype) == "torch.int64":
        owner = ids.detach().cpu().contiguous()
        return _native.Keys.ints_at(owner.data_ptr(), owner.nbytes, view)
    found = listed(ids)
    try:
        if kind == "str":
            return _native.Keys.text(found, view)
        if kind == "bytes":
            return _native.Keys.bytes(found, view)
    except TypeError:
        raise _refused(found, kind) from None
    return _native.Keys.ints(_integers(found), view)


def _refused(ids: list[Any], kind: str) -> InvalidBatchError:
    number, own = next((number, own) for number, own in enumerate(ids) if not isinstance(own, str if kind == "str" else bytes))
    return InvalidBatchError(f"id {number} of the batch is {type(own).__name__}, expected {kind}")


def _integers(ids: list[Any]) -> list[int]:
    integers = []
    for number, own in enumerate(ids):
        if isinstance(own, bool) or not hasattr(own, "__index__"):
            raise InvalidBatchError(f"id {number} of the batch is {type(own).__name__}, expected int")
        integer = operator.index(own)
        if not -(1 << 63) <= integer < 1 << 63:
            raise InvalidBatchError(f"id {number} of the batch is {integer}: expected an integer of 64 bits; use strings or bytes")
        integers.append(integer)
    return integers
