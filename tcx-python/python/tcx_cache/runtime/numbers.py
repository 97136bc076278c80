"""Numbers that callers pass: those of Python and of NumPy."""

from __future__ import annotations

import operator
from typing import Any

#: What every native type of a setting can hold.
_END = 1 << 63


def whole(value: Any, least: int) -> int | None:
    """A whole number, ``least`` or more; ``None`` if it is none, or too large for any setting."""
    if isinstance(value, bool):
        return None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if least <= number < _END else None
