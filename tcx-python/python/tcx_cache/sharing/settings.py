"""Settings of calls that share work. Their defaults are those of the crate `tcx`, whose workers may have a part in the same job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ..errors import InvalidSettingsError
from ..runtime.numbers import whole

#: The ids of a work range, if their number is not known.
_RANGE = 4096
#: A work range has at least this many ids if it is not set.
_LEAST_RANGE = 64
#: If it is not set, a list has about this many work ranges: each is a file.
_RANGES = 4096
#: The most work ranges.
_MOST_RANGES = 1 << 20
#: Renewals and looks at other workers have to fit in.
_LEAST_EXPIRY = 0.1
#: The most threads that load ahead. More of them exhaust the machine.
_MOST_THREADS = 1024


def range_size(asked: int | None, ids: int | None) -> int:
    """The number of ids in a work range. It depends on what all workers know alike.

    Raises:
        InvalidSettingsError: if it makes no sense.
    """
    if asked is None:
        size = _RANGE if ids is None else max(-(-(ids // _RANGES) // _LEAST_RANGE) * _LEAST_RANGE, _LEAST_RANGE)
    else:
        size = positive("range_size", asked)
    if ids is not None and -(-ids // size) > _MOST_RANGES:
        raise InvalidSettingsError(
            f"`range_size` is {size}, which makes {-(-ids // size)} work ranges of {ids} ids; at most {_MOST_RANGES} are possible; set {-(-ids // _MOST_RANGES)} or more"
        )
    return size


def expiry(asked: Any) -> float:
    """A time in seconds.

    Raises:
        InvalidSettingsError: if it is too short, or no time.
    """
    seconds = asked.total_seconds() if isinstance(asked, timedelta) else asked
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not _LEAST_EXPIRY <= seconds < 1e9:
        raise InvalidSettingsError(f"`expiry` is {asked!r}: expected 0.1 seconds or more; minutes on a network file system")
    return float(seconds)


def positive(name: str, value: Any) -> int:
    """A number of something.

    Raises:
        InvalidSettingsError: if it is not 1 or more, or too large.
    """
    number = whole(value, 1)
    if number is None:
        raise InvalidSettingsError(f"`{name}` is {value!r}; expected a whole number from 1 to 2**63 - 1")
    return number


def threads(name: str, value: Any) -> int:
    """A number of threads.

    Raises:
        InvalidSettingsError: if it is not 1 or more, or one that no machine has use for.
    """
    number = positive(name, value)
    if number > _MOST_THREADS:
        raise InvalidSettingsError(f"`{name}` is {number}; expected at most {_MOST_THREADS} threads")
    return number
