"""Containers among the inputs of a module: those that would not be the same where samples are selected are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidBatchError
from .attributes import held, unnamed


class Refused(Exception):
    """Why a part cannot be split."""


class Ambiguous(Refused):
    """Why it is not known how a part is split: nothing around it is known either."""


#: The types of values that are the same wherever they are equal.
_SIMPLE = (type(None), bool, int, float, str, bytes)
#: Those of containers of which only empty ones are.
_CONTAINERS = (tuple, list, dict, set, frozenset)
#: What classes of transformers have of all samples, and no module reads: the words of a BatchEncoding, and a setting of BatchFeature.
_OF_TRANSFORMERS = frozenset({"_encodings", "_n_sequences", "skip_tensor_conversion"})


def mapping_of(own: Mapping[Any, Any], chosen: dict[Any, Any], path: str) -> Any:
    """A mapping of the class of another one, of other items. A BatchEncoding of transformers is made of a dict, as most mappings are.

    Raises:
        InvalidBatchError: if that is not possible, or if it has other items or attributes then.
    """
    cls: Any = type(own)
    try:
        made = cls(chosen)
        is_same = _has_items(made, chosen)
    except Exception as error:
        raise InvalidBatchError(f"{path} is {cls.__name__}, which cannot be made of the parts of some samples: {error}; pass a dict") from error
    if not is_same:
        raise InvalidBatchError(f"{path} is {cls.__name__}, which changes its parts when it is made, so that the module would get other inputs; pass a dict")
    name = _lost(own, made, chosen)
    if name is not None:
        raise InvalidBatchError(
            f"{path} is {cls.__name__}, whose attribute `{name}` is not the same when it is made of the parts of some samples, so that the module would get other "
            f"inputs: pass a dict, make `{name}` a part with one value for each sample, or give {cls.__name__} a method `__tcx_select__(positions)` and a `__len__` "
            "that counts samples"
        )
    return made


def _has_items(made: Mapping[Any, Any], chosen: Mapping[Any, Any]) -> bool:
    return len(made) == len(chosen) and all(name in made and made[name] is item for name, item in chosen.items())


def _lost(own: Mapping[Any, Any], made: Mapping[Any, Any], chosen: dict[Any, Any]) -> str | None:
    """The first attribute that is not the same beside the items of all samples and beside the chosen ones; ``None`` if all are."""
    before, now = held(own), held(made)
    names = {*before, *now}
    if any(cls.__module__.split(".")[0] == "transformers" for cls in type(own).__mro__):
        names -= _OF_TRANSFORMERS
    for name in sorted(names):
        if name not in before or name not in now:
            return name
        one, other = before[name], now[name]
        # A ModelOutput has its items as attributes too.
        is_item = name in chosen and one is own[name] and other is chosen[name]
        if not is_item and not _is_same(one, other) and not (_is_only_items(one, own) and _is_only_items(other, chosen)):
            return name
    return None


def _is_same(one: Any, other: Any) -> bool:
    """Whether two attributes have the same value; `False` if that is not known."""
    is_known = type(one) in _SIMPLE or (type(one) in _CONTAINERS and not one and not other)
    # The texts of 0 and -0 differ, and those of two NaN do not.
    return one is other or (is_known and type(one) is type(other) and repr(one) == repr(other))


def _is_only_items(value: Any, items: Mapping[Any, Any]) -> bool:
    """Whether an attribute is where a UserDict has its items."""
    return isinstance(value, Mapping) and not held(value) and _has_items(value, items)


def check_dataclass(value: Any, names: list[str], path: str) -> None:
    """Refuses a dataclass with attributes beside its fields: they may follow from all samples, and stay as they are where some are selected."""
    others = unnamed(value, names)
    if others:
        name, cls = others[0], type(value).__name__
        # In a list, it is not one for each sample because of that.
        raise Ambiguous(
            f"{path} is {cls}, whose attribute `{name}` is no field, so it would stay that of the whole batch where samples are selected: declare it, as in "
            f"`{name}: torch.Tensor = field(init=False)`, make it a `functools.cached_property`, or give {cls} a method `__tcx_select__(positions)` and `__len__`"
        )


def check_sequence(value: Any, path: str) -> None:
    """Refuses a list or a tuple of another class, of which only a plain one can be made: of all else, it is not known what it holds."""
    base = list if isinstance(value, list) else tuple
    if isinstance(value, base) and type(value) is not base:
        cls = type(value).__name__
        raise Ambiguous(
            f"{path} is {cls}, which becomes a plain {base.__name__} where samples are selected, so that the module would get other inputs: pass "
            f"`{base.__name__}(…)`, or give {cls} a method `__tcx_select__(positions)` and a `__len__` that counts samples"
        )


def check_named(value: Any, path: str) -> None:
    """Refuses a named tuple with attributes beside its fields, which one that is made of the fields of some samples does not have."""
    others = unnamed(value, ())
    if others:
        cls = type(value).__name__
        raise Ambiguous(
            f"{path} is {cls}, whose attribute `{others[0]}` is no field, so it would be lost where samples are selected: make it a field with one value for each "
            f"sample or a `functools.cached_property`, or give {cls} a method `__tcx_select__(positions)` and a `__len__` that counts samples"
        )
