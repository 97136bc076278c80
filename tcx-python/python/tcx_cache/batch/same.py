"""Whether two samples have the same inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..tensors.memory import is_array, is_tensor
from .split import Inputs, Parts, PerSample


def have_same_bytes(one: Inputs, other: Inputs) -> bool:
    """Whether contiguous tensors among the arguments have the same bytes, in which a NaN is itself too, and are still of one kind."""
    import torch

    def kind(part: Any) -> tuple[Any, ...]:
        return part.shape, part.dtype, part.is_contiguous(), part.requires_grad

    def as_bytes(part: Any) -> Any:
        # The steps of dimensions of one element say nothing, and a view of bytes does not take all of them.
        return part.detach().as_strided((part.numel(),), (1,)).view(torch.uint8)

    def is_same(part: Any, its: Any) -> bool:
        return part is its or (kind(part) == kind(its) and torch.equal(as_bytes(part), as_bytes(its)))

    parts = zip([*one.args, *one.kwargs.values()], [*other.args, *other.kwargs.values()])
    return all(is_same(part, its) for part, its in parts)


def are_same(one: Any, other: Any) -> bool:
    """Whether two inputs are the same, NaN and itself too; inputs that cannot be compared count as the same."""
    if isinstance(one, Inputs):
        return are_same(one.args, other.args) and are_same(one.kwargs, other.kwargs)
    if isinstance(one, (PerSample, Parts)):
        return are_same(one.items, other.items)
    if is_tensor(one) and is_tensor(other):
        if one.shape != other.shape:
            return False
        same = one == other
        if one.is_floating_point() or one.is_complex():
            same = same | (one.isnan() & other.isnan())
        return bool(same.all())
    if is_array(one) and is_array(other):
        return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(are_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(are_same(own, its) for own, its in zip(one, other))
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return all(are_same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    if isinstance(one, (str, bytes, int, float, bool, type(None))):
        return type(one) is type(other) and (one == other or one != one)
    return True
