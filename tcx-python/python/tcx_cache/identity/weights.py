"""Weights: their fingerprint, and what is refused of them."""

from __future__ import annotations

from typing import Any

from .. import _native
from ..errors import InvalidWeightsError
from ..schema.types import SIZES
from ..tensors.memory import dtype_name, plain
from .unsaved import Scan, as_tensor

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


class _Weights:
    """A marker: where the weights are in the identity of a module in Rust."""

    def __repr__(self) -> str:
        return "tcx.WEIGHTS"


#: The place of the weights among ``fields`` of :func:`tcx_cache.cached`.
WEIGHTS = _Weights()


def fingerprint(tensors: dict[str, Any]) -> str:
    """The canonical hash of tensors, the same as that of ``tcx::Frozen``: in the order of their names, each with its name, dtype, shape and
    little-endian values, every part preceded by its length."""
    hasher = _native.Fingerprint()
    for name in sorted(tensors, key=lambda name: name.encode()):
        tensor = as_tensor(tensors[name])
        found = dtype_name(tensor)
        hasher.part(name.encode())
        hasher.part(_RUST_NAMES.get(found, found).encode())
        hasher.part(b"".join(size.to_bytes(8, "little") for size in tensor.shape))
        owner = contiguous(tensor, name)
        hasher.memory(owner.data_ptr(), owner.nbytes)
    return hasher.digest()


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
    if dtype_name(tensor) in SIZES:
        return plain(tensor, f"weight `{name}`").owner
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


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
        InvalidWeightsError: if it is in training mode, or a parameter tracks gradients.
    """
    training = next((name for name, part in scan.modules if part.training), None)
    if training is not None:
        part = f"its part `{training}` is" if training else "it is"
        raise InvalidWeightsError(
            f"module `{type(scan.modules[0][1]).__name__}`: {part} in training mode, so dropout and batch norm make its outputs random; call `module.eval()` before"
        )
    if allows_gradients:
        return
    tracked = next((name for name, weight in scan.all.items() if getattr(weight, "requires_grad", False)), None)
    if tracked is not None:
        raise InvalidWeightsError(
            f"weight `{tracked}`: tracks gradients, so an optimizer could change it; call `module.requires_grad_(False)`, or pass `allow_gradients=True`: "
            "rows have no gradients in any case"
        )
