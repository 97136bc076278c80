"""The tensors of a module, also those that its ``state_dict`` does not show: they decide outputs as well.

These are buffers that are not persistent, parameters that a ``state_dict`` of one's own leaves out or returns otherwise, and tensors, arrays
and modules that are attributes, or in lists, tuples, dicts and sets that are attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..tensors.memory import is_array, is_tensor

#: The types of most attributes, which hold no tensor.
_PLAIN = (bool, int, float, str, bytes, type(None), type, type(len), type(lambda: 0))


def registered(module: Any) -> dict[str, Any]:
    """The parameters and buffers of a module and of its parts, by their names."""
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}


def attributes(module: Any, known: dict[str, Any]) -> dict[str, Any]:
    """The other tensors and arrays of a module and of its parts, by the way that leads to them; without those that are known."""
    ids = {id(tensor) for tensor in known.values()}
    return {path: value for path, value in _Walk().of_module(module, "") if id(value) not in ids}


def modules(module: Any) -> list[tuple[str, Any]]:
    """A module and its parts, also those that are not registered: ``eval`` does not reach them."""
    walk = _Walk()
    for _ in walk.of_module(module, ""):
        pass
    return walk.modules


def left_out(module: Any, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a ``state_dict`` leaves out: buffers, and other tensors. A weight that it returns in other memory is left out too: its values
    may be others."""
    known = registered(module)
    names = {name for name, tensor in known.items() if name not in state or not _is_same(state[name], tensor)}
    buffers = dict(module.named_buffers(remove_duplicate=False))
    others = {name: known[name] for name in names if name not in buffers}
    return {name: known[name] for name in names if name in buffers}, {**others, **attributes(module, known)}


def _is_same(one: Any, other: Any) -> bool:
    def form(tensor: Any) -> tuple[Any, ...]:
        return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device

    return one is other or form(one) == form(other)


def as_tensor(value: Any) -> Any:
    """A tensor, or an array as one, of the same memory where that is possible."""
    if is_tensor(value):
        return value
    import numpy
    import torch

    is_native = value.dtype.isnative and all(stride >= 0 for stride in value.strides)
    if not (isinstance(value, numpy.ndarray) and value.flags.writeable and is_native):
        value = numpy.array(value, dtype=value.dtype.newbyteorder("="))
    return torch.from_numpy(value)


class _Walk:
    """A walk through modules and the containers in them, each once."""

    def __init__(self) -> None:
        import torch

        self._seen: set[int] = set()
        self._module = torch.nn.Module
        self.modules: list[tuple[str, Any]] = []
        #: What every module has: its weights are known by their names.
        self._own = frozenset(vars(torch.nn.Module()))

    def of_module(self, module: Any, path: str) -> Iterator[tuple[str, Any]]:
        """The tensors that are attributes of a module and of its parts."""
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        self.modules.append((path.removesuffix("."), module))
        for name, value in list(vars(module).items()):
            if name not in self._own and not isinstance(value, _PLAIN):
                yield from self._of(value, f"{path}{name}")
        for name, part in list(module._modules.items()):
            if part is not None:
                yield from self.of_module(part, f"{path}{name}.")

    def _of(self, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if is_tensor(value) or (is_array(value) and value.dtype.kind in "biufc"):
            yield path, value
        elif isinstance(value, self._module):
            # A module that is not registered: its weights are in no list of names.
            yield from ((f"{path}.{name}", tensor) for name, tensor in registered(value).items())
            yield from self.of_module(value, f"{path}.")
        elif isinstance(value, dict):
            yield from self._of_items(value, [(f"{path}[{key!r}]", item) for key, item in list(value.items())])
        elif isinstance(value, (list, tuple, set, frozenset)):
            items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else list(value)
            yield from self._of_items(value, [(f"{path}[{number}]", item) for number, item in enumerate(items)])

    def _of_items(self, container: Any, items: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        if id(container) in self._seen:
            return
        self._seen.add(id(container))
        for path, item in items:
            if not isinstance(item, _PLAIN):
                yield from self._of(item, path)
