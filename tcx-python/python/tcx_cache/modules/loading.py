"""Inputs that a function of the user has loaded for some samples of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..batch.split import Inputs, Plan

#: Selects the inputs at some positions of a batch.
Select = Callable[["list[int]"], Inputs]


class NotLoadedError(Exception):
    """The inputs of a sample were not loaded, because its row was there."""


class Loaded:
    """Inputs that were loaded for some samples of a batch."""

    def __init__(self, split: Plan, positions: list[int]) -> None:
        self._split = split
        self._places = {position: number for number, position in enumerate(positions)}

    @property
    def inputs(self) -> Inputs:
        """What was loaded."""
        return self._split.inputs

    def select(self, positions: list[int]) -> Inputs:
        """The inputs of the samples at these positions of the batch."""
        if not all(position in self._places for position in positions):
            raise NotLoadedError
        return self._split.select([self._places[position] for position in positions])


def explain(error: Exception, inputs: Inputs) -> None:
    """Adds to an error of `forward` what may be wrong with its inputs, where Python can (3.11)."""
    is_list = any(isinstance(own, list) and own and isinstance(own[0], torch.Tensor) for own in inputs.args)
    if is_list and hasattr(error, "add_note"):
        error.add_note("tcx: `load` returned a list of tensors, which `forward` gets as a list; return `torch.stack(…)` if it expects one tensor")
