"""The entries of a ``state_dict`` that the module computes when it is asked, such as ``_extra_state``: they are part of the identity, and no
weight shows that one has changed."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from ..errors import InvalidWeightsError
from ..tensors.captures import beside_captures
from ..tensors.streams import is_capturing
from .weights import fingerprint


class Computed:
    """The entries of a ``state_dict`` that are not in the memory of watched weights, as they are when it is made. Most modules have none."""

    def __init__(self, state: dict[str, Any], watched: Iterable[Any], names: Container[str]) -> None:
        held = {_address(own) for own in watched}
        entries = {name: own for name, own in state.items() if not _is_held(name, _address(own), held, names)}
        self._found = {name: fingerprint({name: own}) for name, own in entries.items()}
        self._default_dtype = _default_dtype()
        #: The size of all of them.
        self.nbytes = sum(int(own.nbytes) for own in entries.values())

    def changed(self, module: Any) -> str | None:
        """The first entry that has another value now, or is gone; ``None`` if all are the same.

        It calls ``state_dict``, if there are entries to compare.
        """
        # What is made of numbers has the default dtype, which the program may set for a moment; while that differs, nothing is computed.
        if not self._found or is_capturing() or _default_dtype() is not self._default_dtype:
            return None
        with beside_captures():
            state = module.state_dict()
            return next((name for name, expected in self._found.items() if not _has_value(state, name, expected)), None)


def _is_held(name: str, address: int, held: set[int], names: Container[str]) -> bool:
    """Whether an entry is in the memory of a weight. Of a class that has no memory of its own, the name shows it."""
    return address in held if address else name in names


def _address(tensor: Any) -> int:
    """Where the memory begins that a tensor is a part of; 0 if that is not known."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, AttributeError):
        return 0


def _has_value(state: dict[str, Any], name: str, expected: str) -> bool:
    if not hasattr(state.get(name), "data_ptr"):
        return False
    try:
        return fingerprint({name: state[name]}) == expected
    except InvalidWeightsError:
        return False


def _default_dtype() -> Any:
    import torch

    return torch.get_default_dtype()
