"""What is set on an instance of a class."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import MemberDescriptorType
from typing import Any


def unnamed(value: Any, names: Iterable[str]) -> list[str]:
    """What was set on an instance beside these names, sorted; not its cached properties, which follow from the rest."""
    return sorted(held(value).keys() - {*names})


def held(value: Any) -> dict[str, Any]:
    """What was set on an instance, by its names; not its cached properties."""
    # An instance that `Batch[int](…)` has made knows that type.
    left_out = {"__orig_class__", *evaluated(value)}
    return {name: own for name, own in [*_vars(value).items(), *in_slots(value)] if name not in left_out}


def evaluated(value: Any) -> set[str]:
    """The cached properties of an instance that have their value."""
    return {name for name in _vars(value) if isinstance(_of_class(type(value), name), functools.cached_property)}


def in_slots(value: Any) -> list[tuple[str, Any]]:
    """What is in the slots of an instance."""
    classes = [vars(cls) for cls in type(value).__mro__ if "__slots__" in vars(cls)]
    slots = [name for own in classes for name, member in own.items() if isinstance(member, MemberDescriptorType)]
    return [(name, getattr(value, name)) for name in slots if hasattr(value, name)]


def _of_class(cls: type, name: str) -> Any:
    """An attribute as the class defines it."""
    return next((vars(own)[name] for own in cls.__mro__ if name in vars(own)), None)


def _vars(value: Any) -> dict[str, Any]:
    """The `__dict__` of an instance, which one with slots only has not."""
    found: dict[str, Any] = getattr(value, "__dict__", {})
    return found
