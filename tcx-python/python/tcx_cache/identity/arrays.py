"""Arrays of numpy as tensors: as the same memory where that is possible, and otherwise as a copy, or as a hash of what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import _native
from ..errors import InvalidWeightsError
from ..tensors.memory import is_numeric, is_tensor
from .config import entries

#: The characters of the types that are as long as the machine has them, with bytes that hold nothing.
_LONG = "gG"
#: The types of most objects in arrays, whose values are their texts.
_SIMPLE = frozenset({bool, int, float, str, bytes, type(None)})
#: How much longer an object takes than the bytes of its address.
_OBJECT = 64
#: `isbuiltin` of a type that numpy does not have itself, such as those of ml_dtypes.
_OF_ANOTHER_PACKAGE = 2


def as_tensor(value: Any) -> Any:
    """A tensor, or an array as one, of the same memory where that is possible. An array that no tensor can hold, such as one with fields, is
    a tensor of the hash of its values."""
    if is_tensor(value):
        return value
    import numpy
    import torch

    if _is_hashed(value):
        return torch.frombuffer(bytearray(_contents(value).encode()), dtype=torch.uint8)
    if not isinstance(value, numpy.ndarray) or not _is_native(value):
        value = numpy.array(value, dtype=value.dtype.newbyteorder("="))
    elif not value.flags.writeable:
        # It may be a file of any size. Nothing writes to the tensor, and torch warns of an array that it could not write to.
        value = numpy.asarray(_Unlocked(value))
    return torch.from_numpy(value)


class _Unlocked:
    """The memory of a read-only array, as that of one that can be written."""

    def __init__(self, array: Any) -> None:
        self._array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def is_copied(value: Any) -> bool:
    """Whether the memory of what :func:`as_tensor` returns does not show what is written to the array later."""
    if is_tensor(value):
        return False
    import numpy

    # A mask may be added to an array that has none.
    return not isinstance(value, numpy.ndarray) or isinstance(value, numpy.ma.MaskedArray) or not _is_native(value) or _is_hashed(value)


def objects(array: Any) -> Iterator[Any]:
    """The objects in an array, also those in its fields."""
    import numpy

    # A record of an array has fields that are no arrays.
    array = numpy.asarray(array)
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from objects(array[name])
    elif array.dtype.hasobject:
        yield from array.astype(object).flat


def looked_at(array: Any) -> int:
    """How many bytes of values are as much work as to look at all of an array, or at the objects in it."""
    return int(array.nbytes) * (_OBJECT if array.dtype.hasobject else 1)


def are_plain(items: list[Any]) -> bool:
    """Whether objects hold nothing that a walk would find."""
    return all(map(_is_simple, items))


def _is_simple(item: Any) -> bool:
    own = type(item)
    if own in _SIMPLE:
        return True
    if own is tuple:
        return all(map(_is_simple, item))
    import numpy

    # A record may have objects in its fields.
    return isinstance(item, numpy.generic) and not isinstance(item, numpy.void)


def check_objects(items: list[Any], name: str, is_walked: Callable[[Any], bool]) -> None:
    """Refuses objects of an array that are neither values with a text, nor what `is_walked` is true of.

    Raises:
        InvalidWeightsError: if there is one.
    """
    for item in items:
        if _text(item) is None and not is_numeric(item) and not is_walked(item):
            own = type(item)
            raise InvalidWeightsError(
                f"array `{name}`: holds a `{own.__module__}.{own.__qualname__}`, whose value is not known; replace it by the numbers, strings, arrays or tensors that "
                "define it, or keep it in another attribute, and pass what it decides as `config=`"
            )


def _is_native(array: Any) -> bool:
    return bool(array.dtype.isnative) and all(stride >= 0 for stride in array.strides)


def _is_hashed(array: Any) -> bool:
    """Whether its values are not those of a tensor: strings, dates, fields, objects, types of other packages, and numbers behind a mask."""
    own = array.dtype
    return own.kind not in "biufc" or own.char in _LONG or own.isbuiltin == _OF_ANOTHER_PACKAGE or _is_masked(_mask(array))


def _mask(array: Any) -> Any:
    """The mask of an array; ``None`` if it has none."""
    import numpy

    mask = numpy.ma.getmask(array)
    return None if mask is numpy.ma.nomask else mask


def _is_masked(mask: Any) -> bool:
    if mask is None:
        return False
    return any(_is_masked(mask[name]) for name in mask.dtype.names) if mask.dtype.names is not None else bool(mask.any())


def _contents(value: Any) -> str:
    """The hash of an array. It is the same in every process, and no other array of another type, shape or value has it."""
    import numpy

    hasher, mask = _native.Fingerprint(), _mask(value)
    _add(hasher, numpy.asarray(value))
    if _is_masked(mask):
        hasher.part(b"mask")
        _add(hasher, numpy.asarray(mask))
        # Of the constant `masked`, which has none of its own, it cannot be read.
        fill = numpy.ma.default_fill_value(value.dtype) if value is numpy.ma.masked else value.fill_value
        _add(hasher, numpy.asarray(fill))
    return hasher.digest()


def _add(hasher: _native.Fingerprint, array: Any) -> None:
    """Adds the type, the shape and the values. Bytes between fields are left out: they may be any."""
    own = array.dtype
    if own.names is not None:
        hasher.part(f"{len(own.names)} fields".encode())
        for name in own.names:
            hasher.part(name.encode())
            _add(hasher, array[name])
        return
    hasher.part(("long" if own.char in _LONG else own.name).encode())
    hasher.part(repr(array.shape).encode())
    if own.hasobject:
        for item in objects(array):
            hasher.part((_text(item) or type(item).__qualname__).encode())
    elif own.char in _LONG:
        for part in (array.real, array.imag):
            _add_long(hasher, part)
    else:
        native = array if own.isnative else array.astype(own.newbyteorder("="))
        hasher.part(native.tobytes())


def _add_long(hasher: _native.Fingerprint, array: Any) -> None:
    """Adds numbers of which not all bytes count: a fraction in two parts, and an exponent."""
    import numpy

    fraction, exponent = numpy.frexp(array)
    high = fraction.astype(numpy.float64)
    low = numpy.where(numpy.isfinite(array), fraction - numpy.where(numpy.isfinite(array), high, 0), 0).astype(numpy.float64)
    for part in (high, low, exponent.astype(numpy.int64)):
        hasher.part(part.tobytes())


def _text(item: Any) -> str | None:
    """A text that differs whenever the value does; ``None`` of an object without one."""
    if type(item) in _SIMPLE:
        return repr(item)
    try:
        return repr(entries("", item))
    except (InvalidWeightsError, RecursionError, ValueError):
        # A list that contains itself, or a string that is no text, has none.
        return None
