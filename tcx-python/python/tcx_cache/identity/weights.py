"""Weights: their fingerprint, and the watch that notices when they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import _native
from ..errors import InvalidWeightsError, ModuleViolationError
from ..runtime.locks import ProcessLock
from ..schema.types import SIZES
from ..tensors.memory import dtype_name, plain

#: Cache lines that are read before and after each computed batch, over all weights.
_LINES = 1024
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
        tensor = tensors[name]
        found = dtype_name(tensor)
        hasher.part(name.encode())
        hasher.part(_RUST_NAMES.get(found, found).encode())
        hasher.part(b"".join(size.to_bytes(8, "little") for size in tensor.shape))
        owner = _bytes(tensor, name)
        hasher.memory(owner.data_ptr(), owner.nbytes)
    return hasher.digest()


def _bytes(tensor: Any, name: str) -> Any:
    """A contiguous tensor on the CPU with the same bytes."""
    import torch

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


def unsaved(module: Any) -> dict[str, Any]:
    """The buffers of a module that its ``state_dict`` leaves out: they decide outputs as well."""
    state = module.state_dict()
    return {name: value for name, value in module.named_buffers() if name not in state}


def refuse(module: Any, allows_gradients: bool) -> None:
    """Refuses a module that cannot be frozen.

    Raises:
        InvalidWeightsError: if it is in training mode, or a parameter tracks gradients.
    """
    training = next((name for name, part in module.named_modules() if part.training), None)
    if training is not None:
        part = f"its part `{training}` is" if training else "it is"
        raise InvalidWeightsError(
            f"module `{type(module).__name__}`: {part} in training mode, so dropout and batch norm make its outputs random; call `module.eval()` before"
        )
    tracked = next((name for name, weight in module.named_parameters() if weight.requires_grad), None)
    if tracked is not None and not allows_gradients:
        raise InvalidWeightsError(
            f"weight `{tracked}`: tracks gradients, so an optimizer could change it; call `module.requires_grad_(False)`, or pass `allow_gradients=True`: "
            "rows have no gradients in any case"
        )


@dataclass
class _Weight:
    name: str
    tensor: Any
    #: Keeps the memory, also if the weight is given another.
    alias: Any
    version: int
    form: tuple[Any, ...]
    checksum: bytes

    @staticmethod
    def freeze(name: str, tensor: Any) -> _Weight:
        # The version first: a write at the same time is then noticed.
        version = tensor._version if not tensor.is_inference() else 0
        alias = tensor.detach()
        return _Weight(name, tensor, alias, version, _form(tensor), _checksum(tensor, name))

    def is_touched(self) -> bool:
        """Whether something was written to it through torch, or it has other memory."""
        version = self.tensor._version if not self.tensor.is_inference() else 0
        return version != self.version or _form(self.tensor) != self.form


def _form(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device


def _checksum(tensor: Any, name: str) -> bytes:
    owner = _bytes(tensor, name)
    return _native.checksum(owner.data_ptr(), owner.nbytes)


class Watch:
    """Notices that the weights of a module have changed since its identity was made.

    It compares, before and after each computed batch, versions, addresses, dtypes and shapes, and 64 KiB of cache lines spread over all
    weights on the CPU; and before rows become durable, the checksum of all weights. Weights that were moved, or loaded again with the
    same values, are the same.
    """

    def __init__(self, module: Any, allows_gradients: bool) -> None:
        refuse(module, allows_gradients)
        self._module = module
        self._allows_gradients = allows_gradients
        self._changed: str | None = None
        self._lock = ProcessLock()
        self._freeze()
        self.fingerprint, self.unsaved = self._fingerprints()

    def _freeze(self) -> None:
        tensors = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        self._weights = [_Weight.freeze(name, tensor) for name, tensor in tensors.items()]
        lines = max(_LINES // max(len(self._weights), 1), 2)
        here = [own.alias for own in self._weights if own.alias.device.type == "cpu" and own.alias.is_contiguous()]
        self._sampled = [(own.data_ptr(), own.nbytes) for own in here], lines
        self._sample = _native.sample(*self._sampled)

    def _fingerprints(self) -> tuple[str, str | None]:
        rest = unsaved(self._module)
        return fingerprint(saved(self._module)), fingerprint(rest) if rest else None

    def check(self) -> None:
        """Looks at the weights, at small cost.

        Raises:
            ModuleViolationError: if they have changed. This is final: restoring them later does not undo it.
        """
        refuse(self._module, self._allows_gradients)
        with self._lock:
            self._check_known()
            names = {own.name for own in self._weights}
            found = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
            if found.keys() != names:
                name = sorted(found.keys() ^ names)[0]
                self._fail(name, "was added or removed after it was frozen")
            is_replaced = any(found[own.name] is not own.tensor for own in self._weights)
            if is_replaced or any(own.is_touched() for own in self._weights):
                self._look_closely()
            elif _native.sample(*self._sampled) != self._sample:
                self._fail(self._first_changed(), "changed in place after it was frozen, so that rows computed before and after would differ")

    def _look_closely(self) -> None:
        """Weights were touched: they are the same if all their values are."""
        if self._fingerprints() != (self.fingerprint, self.unsaved):
            self._fail(self._first_changed(), "changed after it was frozen, so that rows computed before and after would differ")
        self._freeze()

    def _first_changed(self) -> str:
        found = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        for own in self._weights:
            if _checksum(own.alias, own.name) != own.checksum or _checksum(found[own.name], own.name) != own.checksum:
                return own.name
        return self._weights[0].name if self._weights else "?"

    def _fail(self, name: str, what: str) -> None:
        self._changed = f"weight `{name}`: {what}; freeze the module again after the last change, and bump the id"
        self._check_known()

    def _check_known(self) -> None:
        if self._changed:
            raise ModuleViolationError(self._changed)

    def attest(self) -> str | None:
        """What has changed, of all values; the writer asks before rows become durable."""
        with self._lock:
            if self._changed is None:
                changed = next((own for own in self._weights if _checksum(own.alias, own.name) != own.checksum), None)
                if changed is not None:
                    self._changed = (
                        f"weight `{changed.name}`: changed in place after it was frozen, so that rows computed before and after would differ; "
                        "freeze the module again after the last change, and bump the id"
                    )
            return self._changed
