"""Where a cache is: a directory, or memory of this process."""

from __future__ import annotations

import os
from typing import Any, Union

from .. import _native
from ..errors import InvalidIdError, InvalidPathError

Place = Union[str, _native.Memory]


def directory(path: Any) -> str:
    """The absolute path of a cache directory.

    Raises:
        InvalidPathError: if the path is empty, is not expanded, or is the folder of a module.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise InvalidPathError(f"cannot open a cache: expected the path of a directory, found {type(path).__name__}")
    text: str = os.fsdecode(path)
    if not text:
        raise InvalidPathError("cannot open a cache: the path is empty; pass a directory")
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


def check_id(module: str) -> None:
    """Refuses the id of a module or table that cannot name a folder, before anything is computed.

    Raises:
        InvalidIdError: if it cannot.
    """
    if not isinstance(module, str):
        raise InvalidIdError(f"the id of a module is {module!r}: expected a string")
    _native.Spec(module, "str", [("value", "dense", "f32", [], False)], [], [])
