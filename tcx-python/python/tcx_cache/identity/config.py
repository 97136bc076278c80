"""Configuration as entries of an identity: a path and a value, written as Rust writes them."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
import re
import struct
from typing import Any

from .. import _native
from ..errors import InvalidWeightsError
from ..schema.types import DType, Typed

#: Longer values are entered as their hash and their length.
LONGEST_VALUE = 200
#: Longer sequences are entered as their hash and their length.
MOST_ITEMS = 64

#: The integers of Rust.
_INTEGER = re.compile(r"([iu])(8|16|32|64|128|size)")

Entries = list[tuple[str, str]]


class _Assumed:
    """A marker: a field that Rust enters as assumed stateless."""

    def __repr__(self) -> str:
        return "tcx.ASSUMED_STATELESS"


#: A field of a struct in Rust with ``#[tcx(assume_stateless)]``: its value is no part of the identity.
ASSUMED_STATELESS = _Assumed()


def entries(path: str, value: Any) -> Entries:
    """The entries of a value: a number, a string, a truth value, ``None``, a path, an enum, a dtype, a list, a tuple, a dict with string
    keys, or a dataclass of them.

    Raises:
        InvalidWeightsError: if the value is something else, whose text might not differ whenever it does.
    """
    text = _text(value)
    if text is not None:
        return [(path, _short(text))]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        return [(path, type(value).__qualname__), *_named(path, fields)]
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise InvalidWeightsError(f"configuration `{path}`: a dict with keys that are not strings; use strings")
        return [(path, f"{len(value)} entries"), *_named(path, sorted(value.items()))]
    if isinstance(value, (list, tuple)):
        return _sequence(path, list(value))
    if isinstance(value, (set, frozenset)):
        try:
            return _sequence(path, sorted(value))
        except TypeError:
            raise InvalidWeightsError(f"configuration `{path}`: a set whose items have no order; use a list") from None
    raise InvalidWeightsError(
        f"configuration `{path}`: {type(value).__name__} is no plain value; use the numbers and strings that define it"
    )


def _named(path: str, fields: list[tuple[str, Any]]) -> Entries:
    return [entry for name, value in fields for entry in entries(f"{path}.{name}" if path else name, value)]


def _sequence(path: str, items: list[Any]) -> Entries:
    count = "1 item" if len(items) == 1 else f"{len(items)} items"
    found = [(path, count)]
    for number, item in enumerate(items):
        found += entries(f"{path}[{number}]", item)
    if len(found) > MOST_ITEMS:
        return [(path, f"{count}, {digest([text for entry in found for text in entry])}")]
    return found


def _text(value: Any) -> str | None:
    if value is None:
        return "None"
    if value is ASSUMED_STATELESS:
        return "assumed stateless"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        # Flags that are combined may have no name.
        name = f".{value.name}" if value.name is not None else f"({value.value!r})"
        return f"{type(value).__qualname__}{name}"
    if isinstance(value, int):
        return f"{int(value)}i64"
    if isinstance(value, float):
        return f"{_float(float(value))}f64" if math.isfinite(value) else _odd(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    if isinstance(value, os.PathLike):
        return quoted(os.fsdecode(value))
    if isinstance(value, Typed):
        return f"{_typed(value)}{value.dtype}"
    if isinstance(value, DType):
        return f"dtype {value.name}"
    # A dtype of torch: its text is its value.
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return f"dtype {value}"
    return None


def _float(value: float) -> str:
    """As Rust prints it: the shortest digits that give the same number, without an exponent."""
    from decimal import Decimal

    text = format(Decimal(repr(value)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text


def _typed(value: Typed) -> str:
    """The shortest digits that give the same number of its type. Rust prints halves as `f32`."""
    if value.dtype not in ("f16", "bf16", "f32", "f64"):
        return str(_integer(value))
    number = float(value.value)
    if value.dtype == "f64":
        return _float(number)
    try:
        narrow = struct.pack("<e", number) if value.dtype == "f16" else struct.pack("<f", number)
    except OverflowError:
        raise InvalidWeightsError(f"{number} is no {value.dtype}: it is larger than the largest one; pass `tcx.typed` a wider type") from None
    if value.dtype == "bf16" and narrow[:2] != b"\0\0":
        raise InvalidWeightsError(f"{number} is no bf16: pass the number that it is rounded to")
    (exact,) = struct.unpack("<e" if value.dtype == "f16" else "<f", narrow)
    texts = (f"{exact:.{digits}g}" for digits in range(1, 10))
    shortest = next(text for text in texts if struct.pack("<f", float(text)) == struct.pack("<f", exact))
    return _float(float(shortest))


def _integer(value: Typed) -> int:
    """An integer of its type."""
    number, dtype = value.value, value.dtype
    try:
        found = int(number)
    except (ValueError, OverflowError):
        # NaN or an infinity.
        found = None
    kind = _INTEGER.fullmatch(dtype)
    if kind is not None and found is not None:
        bits = int(kind[2].replace("size", "64"))
        low, high = (-(1 << bits - 1), 1 << bits - 1) if kind[1] == "i" else (0, 1 << bits)
        found = found if low <= found < high else None
    if found is None or found != number:
        raise InvalidWeightsError(f"{number} is no {dtype}: pass `tcx.typed` a whole number in the range of {dtype}, or the name of a floating-point type")
    return found


def _odd(value: float) -> str:
    if math.isnan(value):
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return f"NaN {bits:#x} f64"
    return f"{'-' if value < 0 else ''}inf f64"


def quoted(text: str) -> str:
    """A string in quotation marks; control characters are escaped, so that an entry stays one line."""
    escapes = {'"': '\\"', "\\": "\\\\", "\t": "\\t", "\r": "\\r", "\n": "\\n"}
    characters = (
        escapes.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x20 or ord(char) == 0x7F else char) for char in text
    )
    return f'"{"".join(characters)}"'


def _short(text: str) -> str:
    size = len(text.encode())
    return text if size <= LONGEST_VALUE else f"{digest([text])}, {size} bytes"


def digest(texts: list[str]) -> str:
    """The hash of some texts: they cannot be split differently and give the same."""
    hasher = _native.Fingerprint()
    for text in texts:
        hasher.part(text.encode())
    return hasher.digest()
