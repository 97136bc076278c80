"""The settings of a cache, by their names in Rust."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ..errors import InvalidSettingsError

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
    unknown = sorted(settings.keys() - NATIVE)
    if unknown:
        raise InvalidSettingsError(f"there is no setting `{unknown[0]}`: expected one of {', '.join(sorted(NATIVE))}")
    seconds = {name: value.total_seconds() for name, value in settings.items() if isinstance(value, timedelta)}
    return {**settings, **seconds}


def check_mode(mode: str) -> str:
    """The mode.

    Raises:
        InvalidSettingsError: if there is no such mode.
    """
    if mode not in MODES:
        raise InvalidSettingsError(f"there is no mode `{mode}`: expected {', '.join(MODES)}")
    return mode
