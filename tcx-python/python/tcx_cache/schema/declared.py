"""What a declaration of outputs says about the type of a batch: for type checkers only, at run time it is nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeVar as DefaultTypeVar

    Batch = DefaultTypeVar("Batch", default=Any, covariant=True)
    Array = DefaultTypeVar("Array", default=torch.Tensor, covariant=True)
else:
    Batch = TypeVar("Batch", covariant=True)
    Array = TypeVar("Array", covariant=True)

#: What a column of Python values has.
Value = TypeVar("Value", str, bytes, int, float, bool)
#: What ``forward`` of a module returns.
Returned = TypeVar("Returned", covariant=True)


class Declared(Generic[Batch]):
    """The type of an output whose batches are a ``Batch``: ``f32[8]`` is a ``Declared[torch.Tensor]``."""


class Forwards(Protocol[Returned]):
    """A module whose ``forward`` returns this: a ``torch.nn.Module`` whose annotations say so."""

    @property
    def forward(self) -> Callable[..., Returned]:
        """What it computes with."""
