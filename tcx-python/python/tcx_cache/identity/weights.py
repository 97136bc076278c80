"""Weights: their fingerprint, and what is refused of them."""

from __future__ import annotations

import re
from typing import Any

from .. import _native
from ..errors import InvalidWeightsError
from ..schema.types import SIZES
from ..tensors.memory import dtype_name, plain
from .arrays import as_tensor
from .code import variable
from .unsaved import Scan, has_tensors
from .wrappers import unwrap

#: The names that libtorch's bindings in Rust give to types that tcx does not store.
_RUST_NAMES = {
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "float8_e5m2": "Float8e5m2",
    "float8_e4m3fn": "Float8e4m3fn",
    "float8_e5m2fnuz": "Float8e5m2fnuz",
    "float8_e4m3fnuz": "Float8e4m3fnuz",
}


#: In the name of a part that classes or globals have.
_OUTSIDE = re.compile(r"__class__\.|__globals__\[")


class _Weights:
    """A marker: where the weights are in the identity of a module in Rust."""

    def __repr__(self) -> str:
        return "tcx.WEIGHTS"


#: The place of the weights among ``fields`` of :func:`tcx_cache.cached`.
WEIGHTS = _Weights()


def fingerprint(tensors: dict[str, Any]) -> str:
    """The canonical hash of tensors, the same as that of ``tcx::Frozen``: in the order of their names, each with its name, dtype, shape and
    little-endian values, every part preceded by its length. A tensor that holds its values in others, which Rust does not have, has instead
    of these a text and the tensors inside."""
    hasher = _native.Fingerprint()
    for name in sorted(tensors, key=lambda name: name.encode()):
        _add(hasher, name, as_tensor(tensors[name]))
    return hasher.digest()


def _add(hasher: _native.Fingerprint, name: str, tensor: Any) -> None:
    hasher.part(name.encode())
    wrapped = unwrap(tensor, name)
    if wrapped is not None:
        # No dtype has this name.
        hasher.part(b"class")
        hasher.part(wrapped.text.encode())
        for part, own in wrapped.parts.items():
            _add(hasher, f"{name}.{part}", own)
        return
    found = dtype_name(tensor)
    hasher.part(_RUST_NAMES.get(found, found).encode())
    hasher.part(b"".join(size.to_bytes(8, "little") for size in tensor.shape))
    owner = contiguous(tensor, name)
    hasher.memory(owner.data_ptr(), owner.nbytes)


def contiguous(tensor: Any, name: str) -> Any:
    """A contiguous tensor on the CPU with the same bytes.

    Raises:
        InvalidWeightsError: if its values are not known.
    """
    import torch

    if tensor.is_meta:
        raise InvalidWeightsError(f"weight `{name}`: is on the device `meta`, without values; load the weights before")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise InvalidWeightsError(f"weight `{name}`: expected a dense tensor, found a sparse or quantized one; call `to_dense` or `dequantize`")
    _refuse_without_memory(tensor, tensor, name)
    if dtype_name(tensor) in SIZES:
        owner = plain(tensor, f"weight `{name}`").owner
    else:
        owner = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    _refuse_without_memory(owner, tensor, name)
    return owner


def _refuse_without_memory(owner: Any, tensor: Any, name: str) -> None:
    if owner.nbytes and not _address(owner):
        own = type(tensor)
        raise InvalidWeightsError(
            f"weight `{name}`: is a `{own.__module__}.{own.__qualname__}`, which has no memory of its own, so its values are not known; replace it by a plain tensor "
            "(such as `dequantize` or `full_tensor` returns), or give its class the methods `__tensor_flatten__` and `__tensor_unflatten__`"
        )


def _address(tensor: Any) -> int:
    try:
        return int(tensor.data_ptr())
    except RuntimeError:
        # Some classes raise it instead of 0.
        return 0


def saved(module: Any) -> dict[str, Any]:
    """The parameters and the persistent buffers of a module, by their names.

    Raises:
        InvalidWeightsError: if its ``state_dict`` holds something else.
    """
    state = module.state_dict()
    for name, value in state.items():
        if not hasattr(value, "data_ptr"):
            raise InvalidWeightsError(
                f"weight `{name}`: expected a tensor, found {type(value).__name__}: its bytes are not known; leave it out of `state_dict`, and pass what it "
                "decides as `config=`"
            )
    return dict(state)


def refuse(scan: Scan, allows_gradients: bool) -> None:
    """Refuses a module that cannot be frozen, by a walk through it.

    Raises:
        InvalidWeightsError: if it is in training mode, or a parameter tracks gradients or has no values yet.
    """
    from torch.nn.parameter import is_lazy

    lazy = next((name for name, weight in scan.all.items() if is_lazy(weight)), None)
    if lazy is not None:
        raise InvalidWeightsError(f"weight `{lazy}`: is not initialized; run one batch first, with which a lazy module makes its weights")
    # An activation of a class or of a global is not reached by `eval`, and is the same in both modes.
    training = next((name for name, part in scan.modules if part.training and (not _OUTSIDE.search(name) or has_tensors(part))), None)
    if training is not None:
        part = f"its part `{training}` is" if training else "it is"
        own = variable(training)
        raise InvalidWeightsError(
            f"module `{type(scan.modules[0][1]).__name__}`: {part} in training mode, so dropout and batch norm make its outputs random; call "
            f"`{own or 'module'}.eval()` before{_or_left_out(own)}"
        )
    if allows_gradients:
        return
    tracked = next((name for name, weight in scan.all.items() if getattr(weight, "requires_grad", False)), None)
    if tracked is not None:
        raise InvalidWeightsError(
            f"weight `{tracked}`: tracks gradients, so an optimizer could change it; call `{variable(tracked) or 'module'}.requires_grad_(False)`, or pass "
            f"`allow_gradients=True`: rows have no gradients in any case{_or_left_out(variable(tracked))}"
        )


def _or_left_out(name: str | None) -> str:
    """What else can be done about a variable of code."""
    return "" if name is None else f"; or, if it decides nothing of the outputs, pass `assume_stateless=[{name!r}]`"
