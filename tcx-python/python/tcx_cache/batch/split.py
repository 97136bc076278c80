"""Structured batches: the inputs of some samples, of positional and keyword arguments, dicts, lists and tuples.

Every part of the inputs must belong to the samples, one row or item each. A part that cannot be split, or that could be split in two ways,
is an error: it is never guessed.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from ..errors import InvalidBatchError
from ..tensors.memory import is_array, is_numeric, is_tensor
from .attributes import evaluated
from .containers import Ambiguous, Refused, check_dataclass, check_named, check_sequence, mapping_of

#: Selects the samples at some positions from a part of the inputs.
Select = Callable[[Any, "list[int]"], Any]


@dataclass(frozen=True)
class Inputs:
    """The inputs of a module: its arguments.

    >>> import tcx_cache as tcx
    >>> inputs = tcx.Inputs({"pixels": 1}, mask=None)  # one dict as a positional argument, and a keyword
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "kwargs", kwargs)


def as_inputs(loaded: Any) -> Inputs:
    """What a loader returned, as arguments."""
    if isinstance(loaded, Inputs):
        return loaded
    if isinstance(loaded, tuple) and not hasattr(loaded, "_fields"):
        return Inputs(*loaded)
    if isinstance(loaded, Mapping):
        if not all(isinstance(name, str) for name in loaded):
            raise InvalidBatchError("the loader returned a mapping whose keys are no names of arguments; return `tcx.Inputs(mapping)` to pass it as one argument")
        return Inputs(**loaded)
    return Inputs(loaded)


@dataclass(frozen=True)
class PerSample:
    """A list with one item for each sample."""

    items: Any


@dataclass(frozen=True)
class Parts:
    """A list or tuple of parts, each of which has all samples."""

    items: Any


def per_sample(items: Any) -> PerSample:
    """Says that a list has one item for each sample, where it could also be a list of parts with all samples each."""
    return PerSample(items)


def parts(items: Any) -> Parts:
    """Says that a list is one of parts with all samples each, where it could also have one item for each sample."""
    return Parts(items)


@dataclass(frozen=True)
class Plan:
    """How the inputs of one call are split."""

    inputs: Inputs
    rows: int
    _args: tuple[Select, ...]
    _kwargs: dict[str, Select]

    def select(self, positions: list[int]) -> Inputs:
        """The inputs of the samples at these positions, in this order."""
        args = [select(value, positions) for select, value in zip(self._args, self.inputs.args)]
        kwargs = {name: self._kwargs[name](value, positions) for name, value in self.inputs.kwargs.items()}
        return Inputs(*args, **kwargs)

    @property
    def whole(self) -> Inputs:
        """The inputs of all samples."""
        return self.select(list(range(self.rows)))

    def passed(self, positions: list[int]) -> Inputs | None:
        """The inputs as they were passed, if these are the positions of all samples in their order, and selecting them would only copy plain tensors;
        for a module that writes into none of its inputs."""
        parts = [part for part in [*self.inputs.args, *self.inputs.kwargs.values()] if part is not None]
        is_same = positions == [*range(self.rows)] and all(_is_plain(part) for part in parts)
        # Of tensors that share their memory, one changes by what is written to the other.
        is_same = is_same and len({part.untyped_storage().data_ptr() for part in parts}) == len(parts)
        return self.inputs if is_same else None


def plan(inputs: Inputs, rows: int) -> Plan:
    """How to split the inputs of `rows` samples.

    Raises:
        InvalidBatchError: if a part cannot be split by sample, or could be in two ways, or if there is no part that has samples.
    """
    counted = _Counted()

    def of(value: Any, path: str) -> Select:
        try:
            return _split(value, rows, path, counted)
        except Refused as refused:
            raise InvalidBatchError(str(refused)) from None

    args = tuple(of(value, f"argument {number}") for number, value in enumerate(inputs.args))
    kwargs = {name: of(value, f"argument `{name}`") for name, value in inputs.kwargs.items()}
    if not counted.parts:
        raise InvalidBatchError("there is no input that has samples: expected at least one tensor or list; pass the inputs of the batch")
    return Plan(inputs, rows, args, kwargs)


@dataclass
class _Counted:
    """How many parts have samples."""

    parts: int = 0


def _split(value: Any, rows: int, path: str, counted: _Counted) -> Select:
    if value is None:
        # An argument that is not passed: there is nothing to split.
        return _as_it_is
    if is_numeric(value):
        return _split_tensor(value, rows, path, counted)
    if isinstance(value, PerSample):
        return _per_sample(value, rows, path, counted)
    if isinstance(value, Parts):
        check_sequence(value.items, path)
        return _children(value, list(value.items), rows, path, counted, lambda own, items: type(own.items)(items))
    if hasattr(value, "__tcx_select__") and hasattr(value, "__len__"):
        _check_rows(len(value), rows, path)
        counted.parts += 1
        return lambda own, positions: own.__tcx_select__(positions)
    if isinstance(value, Mapping):
        return _mapping(value, rows, path, counted)
    # Of one that is a list too, a copy would have all items.
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, list, tuple)):
        return _dataclass(value, rows, path, counted)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        select = _children(value, list(value), rows, path, counted, lambda own, items: type(own)._make(items), value._fields)
        check_named(value, path)
        return select
    if isinstance(value, (list, tuple)):
        select = _sequence(value, rows, path, counted)
        # After the items: one that cannot be split is an item as it is, in a list of them.
        check_sequence(value, path)
        return select
    raise Refused(_shared(value, path))


def _as_it_is(value: Any, _: list[int]) -> Any:
    return value


_SINGLE = (bool, int, float, str, bytes)


def _shared(value: Any, path: str) -> str:
    name = path.removeprefix("argument ").strip("`")
    if isinstance(value, _SINGLE) and not name.isidentifier():
        return (
            f"{path} is {value!r} for all samples, so it cannot be split by sample: make it a part of the module and of `config=`, or pass a list with one "
            "value for each sample"
        )
    if isinstance(value, _SINGLE):
        return (
            f"{path} is {value!r} for all samples, so it cannot be split by sample: pass it to `tcx.cached` as `shared={{{name!r}: {value!r}}}`, "
            "which makes it part of the identity, or pass a list with one value for each sample"
        )
    return (
        f"{path} is {type(value).__name__}, which cannot be split by sample: pass tensors, arrays, or lists with one item for each sample, or give the "
        "class a method `__tcx_select__(positions)` and `__len__`"
    )


def _check_rows(found: int, rows: int, path: str) -> None:
    if found != rows:
        single = "; a single sample needs a dimension for the batch, as in `image[None]`" if rows == 1 else ""
        raise Refused(
            f"{path}: expected one row for each of {rows} ids, found {found}; pass one id per sample, and what all samples share as `shared=` of "
            f"`tcx.cached`{single}"
        )


def _split_tensor(value: Any, rows: int, path: str, counted: _Counted) -> Select:
    # Not `is_nested`: each batch comes here.
    if getattr(value, "is_nested", False):
        raise Refused(f"{path} is a nested tensor, of which rows cannot be selected: pass a list of tensors (`unbind()`), and nest them in the module")
    if not value.shape:
        raise Refused(
            f"{path} is a single number, which cannot be split by sample: pass what all samples share as `shared=` of `tcx.cached`"
        )
    _check_rows(value.shape[0], rows, path)
    _check_class(value, path)
    counted.parts += 1
    return _select_rows


#: The modules of classes that are plain: a parameter is a tensor.
_PLAIN = ("torch", "torch.nn.parameter", "numpy")


def _check_class(value: Any, path: str) -> None:
    """Refuses a tensor or an array of a class that it does not have any more when rows are selected: the module may look at it."""
    if type(value).__module__ in _PLAIN or type(_select_rows(value, [])) is type(value):
        return
    raise Refused(
        f"{path} is a {type(value).__name__}, which becomes another class of tensor when rows are selected, so that the module would get other inputs: pass a "
        "plain tensor (`as_subclass(torch.Tensor)`), or make it in the module"
    )


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor that a copy of its rows does not differ from, and that counts what is written to it."""
    if not is_tensor(value) or type(value).__module__ != "torch":
        return False
    import torch

    # In the mode of inference, no tensor counts what is written to it.
    is_counted = not torch.is_inference_mode_enabled() and not value.is_inference()
    is_dense = value.layout == torch.strided and not value.is_quantized and not value.is_conj() and not value.is_neg()
    return is_counted and is_dense and bool(value.is_contiguous())


def _select_rows(value: Any, positions: list[int]) -> Any:
    if is_array(value):
        return value[positions]
    import torch

    first = positions[0] if positions else 0
    if value.layout == torch.strided and positions == [*range(first, first + len(positions))]:
        # Rows that follow one another, as all of a batch do.
        return value.narrow(0, first, len(positions)).clone(memory_format=torch.contiguous_format)
    if value.layout == torch.strided:
        return value.index_select(0, torch.tensor(positions, dtype=torch.int64, device=value.device))
    return torch.stack([value[position] for position in positions])


def _per_sample(value: PerSample, rows: int, path: str, counted: _Counted) -> Select:
    check_sequence(value.items, path)
    _check_rows(len(value.items), rows, path)
    counted.parts += 1
    return lambda own, positions: _like(own.items, [own.items[position] for position in positions])


def _like(sequence: Any, items: list[Any]) -> Any:
    return tuple(items) if isinstance(sequence, tuple) else items


def _mapping(value: Mapping[Any, Any], rows: int, path: str, counted: _Counted) -> Select:
    if not value:
        raise Refused(f"{path} is empty: leave it out")

    def rebuild(own: Mapping[Any, Any], items: list[Any]) -> Any:
        chosen = dict(zip(own, items))
        return chosen if type(own) is dict else mapping_of(own, chosen, path)

    return _children(value, list(value.values()), rows, path, counted, rebuild, list(value), _values)


def _values(value: Mapping[Any, Any]) -> list[Any]:
    return list(value.values())


def _dataclass(value: Any, rows: int, path: str, counted: _Counted) -> Select:
    names = [field.name for field in dataclasses.fields(value)]

    def read(own: Any) -> list[Any]:
        return [getattr(own, name) for name in names]

    def rebuild(own: Any, items: list[Any]) -> Any:
        # Without `__init__` and `__post_init__`, which would change parts that they have changed before.
        made = copy.copy(own)
        for name, item in zip(names, items):
            object.__setattr__(made, name, item)
        # The copy has them of all samples; they are computed again from the parts that it has.
        for name in evaluated(made) - {*names}:
            object.__delattr__(made, name)
        return made

    select = _children(value, read(value), rows, path, counted, rebuild, names, read)
    check_dataclass(value, names, path)
    return select


def _children(
    value: Any,
    items: list[Any],
    rows: int,
    path: str,
    counted: _Counted,
    rebuild: Callable[[Any, list[Any]], Any],
    names: Any = None,
    read: Callable[[Any], list[Any]] | None = None,
) -> Select:
    """The split of a container, all parts of which have samples."""
    labels = names if names is not None else range(len(items))
    selects = [_split(item, rows, f"{path}[{label!r}]", counted) for label, item in zip(labels, items)]
    read = read or (lambda own: list(own.items if isinstance(own, Parts) else own))

    def select(own: Any, positions: list[int]) -> Any:
        return rebuild(own, [choose(item, positions) for choose, item in zip(selects, read(own))])

    return select


def _sequence(value: Any, rows: int, path: str, counted: _Counted) -> Select:
    """A list or a tuple: of parts that have all samples, or of one item for each sample, if only one of the two is possible."""
    tried = _Counted()
    as_parts: Select | None = None
    why = ""
    try:
        as_parts = _children(value, list(value), rows, path, tried, _like)
    except Ambiguous:
        raise
    except Refused as refused:
        why = str(refused)
    is_per_sample = len(value) == rows and _are_alike(value)
    if as_parts is not None and is_per_sample:
        # Also a list of None: it could be left out, or have no value for each sample.
        raise Ambiguous(
            f"{path} is a {type(value).__name__} of {len(value)} items for {rows} samples: it could be one item for each sample, or parts that have all "
            "samples; pass `tcx.per_sample(…)` or `tcx.parts(…)`"
        )
    if as_parts is not None:
        counted.parts += tried.parts
        return as_parts
    if is_per_sample and isinstance(value[0], (bool, int, float)):
        # A size of two numbers would be split wherever a batch has two samples.
        raise Ambiguous(
            f"{path} is a {type(value).__name__} of {rows} numbers for {rows} samples: it could be one number for each sample, or a value that all samples share; "
            "pass a tensor or `tcx.per_sample(…)`, or `shared=` of `tcx.cached`"
        )
    if is_per_sample:
        counted.parts += 1
        return lambda own, positions: _like(own, [own[position] for position in positions])
    if len(value) == rows:
        raise Ambiguous(
            f"{path} is a {type(value).__name__} of {rows} items of different types, so it is not known whether it has one item for each sample: "
            "pass `tcx.per_sample(…)` or `tcx.parts(…)`"
        )
    raise Refused(
        (why if not all(isinstance(item, _SINGLE) for item in value) else "")
        or f"{path} is a {type(value).__name__} of {len(value)} items for {rows} samples: expected one item for each sample, or parts that have all samples"
    )


def _are_alike(items: Any) -> bool:
    """Whether items may be the values of samples: they are of one type."""
    kinds = {"tensor" if is_tensor(item) else type(item) for item in items if item is not None}
    return len(kinds) <= 1 and len(items) > 0
