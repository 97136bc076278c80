"""Tensors of classes that hold their values in other tensors, such as quantized ones and those that are distributed.

They have no memory of their own: their address is 0. What decides their values is what ``__tensor_flatten__`` names, the method by which
``torch.compile`` takes them apart.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidWeightsError
from ..tensors.memory import is_numeric, is_tensor

#: In the text of an object that shows nothing of its contents, and differs between processes.
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


@dataclasses.dataclass(frozen=True)
class Wrapped:
    """A tensor, taken apart."""

    #: Its class, dtype and shape, the names of its parts, and all else that decides its values.
    text: str
    #: The tensors inside, by their names there.
    parts: dict[str, Any]


def unwrap(tensor: Any, name: str) -> Wrapped | None:
    """The parts of a tensor whose values are in others; ``None`` of any other tensor.

    Raises:
        InvalidWeightsError: if not all that decides its values is known.
    """
    own = type(tensor)
    if not (is_tensor(tensor) and hasattr(own, "__tensor_flatten__")) or _is_jagged(tensor):
        return None
    names, context = tensor.__tensor_flatten__()
    found = {part: getattr(tensor, part) for part in names}
    parts = {part: value for part, value in found.items() if is_tensor(value)}
    others = {part: value for part, value in found.items() if part not in parts}
    try:
        known = _text((others, context))
    except ValueError as error:
        raise InvalidWeightsError(
            f"weight `{name}`: is a `{_path(own)}` with {error} in its context, whose value is not known; replace it by a plain tensor "
            "(such as `dequantize` or `full_tensor` returns), or leave it to a module outside of the cached one"
        ) from None
    text = f"{_path(own)}, {tensor.dtype}, {[*tensor.shape]}, {[*tensor.stride()]}, {[*parts]}, {known}"
    return Wrapped(text, parts)


def flat(tensors: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Tensors that have memory, by the names of the weights and then of their parts, and the texts of those that were taken apart.

    Raises:
        InvalidWeightsError: as :func:`unwrap`.
    """
    plain: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for name, tensor in tensors.items():
        wrapped = unwrap(tensor, name)
        if wrapped is None:
            plain[name] = tensor
            continue
        texts[name] = wrapped.text
        inside, more = flat({f"{name}.{part}": own for part, own in wrapped.parts.items()})
        plain.update(inside)
        texts.update(more)
    return plain, texts


def _is_jagged(tensor: Any) -> bool:
    # A nested tensor is no weight: its numbers of rows differ between processes.
    return bool(tensor.is_nested)


def _path(own: Any) -> str:
    return f"{own.__module__}.{own.__qualname__}"


def _text(value: Any) -> str:
    """A text that is the same in every process.

    Raises:
        ValueError: of a value without one; says which.
    """
    if is_numeric(value):
        raise ValueError(f"a `{_path(type(value))}`")
    if isinstance(value, enum.Enum):
        # Flags that are combined may have no name.
        name = f".{value.name}" if value.name is not None else f"({value.value!r})"
        return f"{_path(type(value))}{name}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(key)}: {_text(own)}' for key, own in value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(_text, value))})"
    if isinstance(value, (set, frozenset)):
        return f"set({', '.join(sorted(map(_text, value)))})"
    if isinstance(value, functools.partial):
        return f"partial{_text((value.func, value.args, value.keywords))}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value) if field.compare}
        return f"{_path(type(value))}{_text(fields)}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    if _ADDRESS.search(text):
        raise ValueError(f"a `{_path(type(value))}`")
    return text
