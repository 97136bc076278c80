"""The settings of a cache, by their names in Rust."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from ..errors import InvalidSettingsError
from ..runtime.numbers import whole

#: Those of the engine.
NATIVE = frozenset(
    {
        "flush_bytes",
        "flush_interval",
        "write_buffer_bytes",
        "refresh_every",
        "gc_grace",
        "time_to_live",
        "max_bytes",
        "when_full",
        "compression",
        "memory_cache_bytes",
        "memory_cache_policy",
        "read_mode",
        "background_priority",
        "on_mismatch",
    }
)
MODES = ("read_write", "read_only", "recompute", "off")


def check(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, with durations in seconds.

    Raises:
        InvalidSettingsError: if there is no such setting.
    """
    check_names(settings, NATIVE)
    for name, value in settings.items():
        # `None` is no limit.
        if name.endswith("_bytes") and value is not None and whole(value, 0) is None:
            raise InvalidSettingsError(f"setting `{name}`: found {value!r}, expected a number of bytes, such as `10 << 30`")
    seconds = {name: value.total_seconds() for name, value in settings.items() if isinstance(value, timedelta)}
    return {**settings, **seconds}


def check_names(settings: Iterable[str], names: frozenset[str]) -> None:
    """Refuses a setting that does not exist.

    Raises:
        InvalidSettingsError: if there is no such setting.
    """
    for name in sorted({*settings} - names):
        import difflib

        close = difflib.get_close_matches(name, names, 1)
        expected = f"did you mean `{close[0]}`?" if close else f"expected one of {', '.join(sorted(names))}"
        raise InvalidSettingsError(f"there is no setting `{name}`: {expected}")


def check_mode(mode: str) -> str:
    """The mode.

    Raises:
        InvalidSettingsError: if there is no such mode.
    """
    if mode not in MODES:
        raise InvalidSettingsError(f"there is no mode `{mode}`: expected {', '.join(MODES)}")
    return mode
