"""Where a cache is: a directory, memory of this process, or a prefix of an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Union

from .. import _native
from ..errors import InvalidIdError, InvalidPathError, InvalidSettingsError
from ..runtime.numbers import whole
from .object_store import ObjectStore

Place = Union[str, _native.Memory, ObjectStore]

#: The settings of a cache in an object store.
OF_STORES = frozenset({"near_tier", "near_bytes", "storage_options", "spool_bytes"})


def place(
    path: Any,
    near_tier: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    spool_bytes: int | None = None,
    near_bytes: int | None = None,
) -> str | ObjectStore:
    """The place that a path or a URL names. The settings have no effect on a directory.

    Raises:
        InvalidPathError: if a cache cannot be there.
        InvalidSettingsError: if a setting is not known, or there is no directory for the near tier.
    """
    if isinstance(path, ObjectStore):
        return path
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise InvalidPathError(f"cannot open a cache: expected the path of a directory or a URL, found {type(path).__name__}")
    text: str = os.fsdecode(path)
    if not text:
        raise InvalidPathError("cannot open a cache: the path is empty; pass a directory")
    found = _native.directory_of(text)
    if found is not None:
        return directory(found)
    spool, near = _bytes("spool_bytes", spool_bytes), _bytes("near_bytes", near_bytes)
    return ObjectStore(text, _near_tier(near_tier), _options(storage_options or {}), spool, near)


def _bytes(name: str, given: Any) -> int | None:
    found = whole(given, 0)
    if found is None and given is not None:
        raise InvalidSettingsError(f"setting `{name}`: found {given!r}, expected a number of bytes, such as `10 << 30`")
    return found


def _near_tier(path: Any) -> str | None:
    if path is None:
        return None
    text: str = os.fsdecode(path)
    if not text:
        raise InvalidPathError("setting `near_tier`: the path is empty; pass a directory on a disk of this machine")
    return os.path.abspath(text)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a store by lower-case names, with durations in seconds and other values as text."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InvalidSettingsError(f"`storage_options`: found a name of type {type(name).__name__}, expected a string")
        own = name.lower()
        if own == "deadline":
            value = value.total_seconds() if isinstance(value, timedelta) else value
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InvalidSettingsError(f"`storage_options`: `deadline`: found {value!r}, expected a number of seconds")
            found[own] = float(value)
        elif own == "parallel":
            requests = whole(value, 1)
            if requests is None:
                raise InvalidSettingsError(f"`storage_options`: `parallel`: found {value!r}, expected a number of requests")
            found[own] = requests
        elif isinstance(value, bool):
            found[own] = "true" if value else "false"
        elif isinstance(value, (str, int, float)):
            found[own] = str(value)
        else:
            # The value may be a credential.
            raise InvalidSettingsError(f"`storage_options`: `{name}` is of type {type(value).__name__}, expected a string")
    return found


def directory(text: str) -> str:
    """The absolute path of a cache directory.

    Raises:
        InvalidPathError: if the path is not expanded, or is the folder of a module.
    """
    if text.split("/", 1)[0] == "~" and not os.path.exists("~"):
        raise InvalidPathError(
            f"cannot open a cache at {text}: there is no directory `~` here; pass the path of your home directory: only a shell replaces `~` by it"
        )
    absolute = os.path.abspath(text)
    if os.path.isfile(absolute):
        raise InvalidPathError(f"cannot open a cache at {absolute}: it is a file; pass a directory")
    inner = absolute
    while True:
        if _native.is_module(inner):
            outer = os.path.dirname(inner)
            raise InvalidPathError(f"cannot open a cache at {absolute}: {inner} is the folder of a module; open {outer} instead")
        parent = os.path.dirname(inner)
        if parent == inner:
            return absolute
        inner = parent


def existing(place: Place, module: str) -> _native.Spec | None:
    """What a module or table is that has rows there; ``None`` if it has none."""
    if isinstance(place, ObjectStore):
        return place.native.spec(module)
    if isinstance(place, _native.Memory):
        return None
    folder = f"{place}/{module}"
    return _native.Spec.read(folder) if _native.is_module(folder) else None


def modules(place: Place) -> list[str]:
    """The names of the folders of modules and tables that have rows there."""
    if isinstance(place, ObjectStore):
        return place.native.modules()
    return _native.modules(place) if isinstance(place, str) and os.path.isdir(place) else []


def native(place: Place) -> str | _native.Memory | _native.ObjectStore:
    """The place for the native part."""
    return place.native if isinstance(place, ObjectStore) else place


def check_id(module: str) -> None:
    """Refuses the id of a module or table that cannot name a folder, before anything is computed.

    Raises:
        InvalidIdError: if it cannot.
    """
    if not isinstance(module, str):
        raise InvalidIdError(f"the id of a module is {module!r}: expected a string")
    _native.Spec(module, "str", [("value", "dense", "f32", [], False)], [], [])
