"""The classes that outputs are made of. A cache directory may come from anywhere, so the name of a class in it is no reason to run code.

A class is built if this program has declared it, or has returned an instance of it. A name in a file leads to a class only if the program
has loaded it already, and if building it does nothing but setting fields: a namedtuple, a dataclass without code of its own, or a
``ModelOutput`` of transformers. Nothing is imported.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from abc import ABCMeta
from collections import OrderedDict
from typing import Any

from ..errors import MismatchError

#: The classes that this program has declared or returned.
_USED: dict[str, type] = {}
#: What runs when an instance is made or a field of it is set.
_HOOKS = ("__new__", "__init__", "__post_init__", "__setattr__", "__setitem__", "__getattribute__", "__getattr__")


def name_of(cls: type) -> str:
    """The name of a class in the text of a schema."""
    return f"{cls.__module__}:{cls.__qualname__}"


def used(cls: type) -> type:
    """The same class, which this program has declared or returned: it may be built for rows of a cache."""
    _USED[name_of(cls)] = cls
    return cls


def named(name: str, fields: list[str]) -> type:
    """The class of this name, for outputs with these fields.

    Raises:
        MismatchError: if the program has not loaded it, or if building it may run code.
    """
    if name in _USED:
        return _USED[name]
    cls = _loaded(name)
    if cls is not None and _fields(cls) == fields:
        return cls
    why = "has not been imported" if cls is None else "has other fields, or runs code of its own when it is built"
    raise MismatchError(
        f"the outputs in the cache are of the class {name!r}, which {why}, and a cache is no reason to run code: import the class before the cache is "
        "opened, or declare `outputs=tcx.struct(…)` with the class of your program"
    )


def _loaded(name: str) -> type | None:
    """A class that is defined under this name in a loaded module. Attributes are read from dictionaries: some modules import others when
    they are asked for an attribute."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        if not isinstance(found, (types.ModuleType, type)):
            return None
        found = vars(found).get(part)
    return found if isinstance(found, type) and name_of(found) == name else None


def _fields(cls: type) -> list[str] | None:
    """The fields of a class that does nothing but setting them; ``None`` of another one."""
    if type(cls) not in (type, ABCMeta) or any(_has_code(base) for base in cls.__mro__):
        return None
    if "__dataclass_fields__" in vars(cls):
        names = [field.name for field in dataclasses.fields(cls) if field.init]
        return None if any(_has_setter(cls, name) for name in names) else names
    is_namedtuple = any(_is_namedtuple(base) for base in cls.__mro__)
    return list(getattr(cls, "_fields", ())) if is_namedtuple else None


def _has_code(base: type) -> bool:
    """Whether a class has code that runs when an instance of it, or of a class below it, is made."""
    if base in (object, tuple, dict, OrderedDict) or _is_model_output(base) or _is_namedtuple(base):
        return False
    own = vars(base)
    # `__init__` of a dataclass is generated, and so is what keeps a frozen one from being changed.
    parameters = own.get("__dataclass_params__")
    generated = {"__init__"} if parameters is not None and parameters.init else set()
    generated |= {"__setattr__"} if parameters is not None and parameters.frozen else set()
    return any(hook in own and hook not in generated for hook in _HOOKS)


def _has_setter(cls: type, name: str) -> bool:
    """Whether setting a field runs code: that of a property, for example."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    is_slot = isinstance(found, types.MemberDescriptorType)
    return not is_slot and hasattr(type(found), "__set__")


def _is_namedtuple(cls: type) -> bool:
    """Whether a class is what ``collections.namedtuple`` or ``typing.NamedTuple`` makes: its ``__new__`` is evaluated from a string."""
    own = vars(cls)
    made = own.get("__new__")
    code = getattr(getattr(made, "__func__", made), "__code__", None)
    return cls.__bases__ == (tuple,) and "_fields" in own and code is not None and code.co_filename.startswith("<string>")


def _is_model_output(cls: type) -> bool:
    """Whether it is the class of transformers from which its outputs are derived."""
    module = sys.modules.get("transformers.utils.generic")
    return module is not None and vars(module).get("ModelOutput") is cls
