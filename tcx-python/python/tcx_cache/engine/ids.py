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


class Ids(list[Any]):
    """Ids that :func:`listed` has made."""


def listed(ids: Any) -> Ids:
    """The ids as a list of strings, integers or byte strings: ids that are equal as keys are equal in Python. An id of another type stays as
    it is, and :func:`pack` refuses it with its position.

    Raises:
        InvalidBatchError: if they are not a sequence of ids.
    """
    if type(ids) is Ids:
        return ids
    if is_numeric(ids):
        return Ids(map(_plain, _of_vector(ids)))
    if isinstance(ids, (str, bytes, bytearray, memoryview)):
        raise InvalidBatchError(f"ids: expected a list with one id for each sample, found one {type(ids).__name__}; pass `[id]`")
    if isinstance(ids, (set, frozenset)):
        raise InvalidBatchError("ids: a set has no order, so it is not known which id belongs to which sample; pass a list")
    try:
        # A column of pyarrow has elements that are not values of Python.
        found = Ids(ids.to_pylist() if hasattr(ids, "to_pylist") else ids)
    except TypeError:
        raise InvalidBatchError(f"ids: expected a list with one id for each sample, found {type(ids).__name__}") from None
    return found if {*map(type, found)} <= NAMES.keys() else Ids(map(_plain, found))


def unordered(ids: Any) -> Any:
    """Ids whose order does not matter: those of a set too."""
    return list(ids) if isinstance(ids, (set, frozenset)) else ids


def once(ids: Any) -> Any:
    """The ids as they may be read several times: a generator can be read once."""
    return ids if is_tensor(ids) and _is_of_64_bits(ids) else listed(ids)


def _is_of_64_bits(ids: Any) -> bool:
    return ids.ndim == 1 and str(ids.dtype) == "torch.int64"


def is_vector(ids: Any) -> bool:
    """Whether ids are a tensor or an array whose elements are the ids: `tolist` is much faster than reading them one by one."""
    if not is_numeric(ids):
        return False
    # Those of an array of byte strings have lost their last zeros.
    kind = getattr(ids.dtype, "kind", None) or ("f" if ids.is_floating_point() or ids.is_complex() or str(ids.dtype) == "torch.bool" else "i")
    return ids.ndim == 1 and kind in "iuUO"


def _of_vector(ids: Any) -> list[Any]:
    """The elements of a tensor or an array."""
    if not is_vector(ids):
        raise InvalidBatchError(f"ids: expected a vector of integers or strings, found {list(ids.shape)} of {ids.dtype}; pass a list")
    return list(ids.tolist())


def _plain(own: Any) -> Any:
    """An id as a value of a type of Python; a path is named by its text."""
    if type(own) in NAMES or isinstance(own, bool):
        return own
    if isinstance(own, str):
        return str.__str__(own)
    if isinstance(own, (bytes, bytearray, memoryview)):
        return bytes(own)
    if isinstance(own, os.PathLike):
        return os.fspath(own)
    if hasattr(own, "as_py"):
        # A value of pyarrow.
        return own.as_py()
    if is_numeric(own) and (own.ndim != 0 or "bool" in str(own.dtype)):
        return own
    try:
        return operator.index(own)
    except (TypeError, ValueError, RuntimeError):
        return own


def type_of(ids: list[Any]) -> str | None:
    """The type of the ids, by the first one."""
    if not ids:
        return None
    first = ids[0]
    if isinstance(first, str):
        return "str"
    if isinstance(first, bytes):
        return "bytes"
    if isinstance(first, int) and not isinstance(first, bool):
        return "int"
    raise InvalidBatchError(f"id 0 of the batch is {type(first).__name__}, expected str, int or bytes")


def pack(ids: Any, kind: str, view: int = 0) -> _native.Keys:
    """The keys of ids of this type.

    Raises:
        InvalidBatchError: if an id has another type, is empty or too long.
    """
    if isinstance(view, bool) or not isinstance(view, int) or not 0 <= view < 1 << 32:
        raise InvalidBatchError(f"view: expected an integer from 0 to 4294967295, found {view!r}")
    if kind == "int" and is_tensor(ids) and _is_of_64_bits(ids):
        owner = ids.detach().cpu().contiguous()
        return _native.Keys.ints_at(owner.data_ptr(), owner.nbytes, view)
    found = listed(ids)
    try:
        if kind == "str":
            return _native.Keys.text(found, view)
        if kind == "bytes":
            return _native.Keys.bytes(found, view)
    except UnicodeEncodeError:
        number = next(number for number, own in enumerate(found) if not _is_encodable(own))
        raise InvalidBatchError(f"id {number} of the batch is {found[number]!r}, which has no UTF-8: use byte strings as ids") from None
    except TypeError:
        raise _refused(found, kind) from None
    return _native.Keys.ints(_integers(found), view)


def _refused(ids: list[Any], kind: str) -> InvalidBatchError:
    number, own = next((number, own) for number, own in enumerate(ids) if not isinstance(own, str if kind == "str" else bytes))
    return InvalidBatchError(f"id {number} of the batch is {type(own).__name__}, expected {kind}")


def _is_encodable(own: str) -> bool:
    try:
        own.encode()
    except UnicodeEncodeError:
        return False
    return True


def _integers(ids: list[Any]) -> list[int]:
    for number, own in enumerate(ids):
        if isinstance(own, bool) or not isinstance(own, int):
            raise InvalidBatchError(f"id {number} of the batch is {type(own).__name__}, expected int")
        if not -(1 << 63) <= own < 1 << 63:
            raise InvalidBatchError(f"id {number} of the batch is {own}: expected an integer of 64 bits; use strings or bytes")
    return ids
