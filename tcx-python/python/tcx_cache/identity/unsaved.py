"""The tensors of a module, also those that its ``state_dict`` does not show: they decide outputs as well.

These are buffers that are not persistent, parameters that a ``state_dict`` of one's own leaves out or returns otherwise, and tensors, arrays
and modules that are attributes, or in containers and dataclasses that are attributes, or attributes of other objects that are attributes, or
what a method that is an attribute belongs to.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from types import BuiltinMethodType, MethodType, MethodWrapperType, ModuleType, SimpleNamespace
from typing import Any

from .. import _native
from ..batch.attributes import in_slots
from ..tensors.memory import is_array, is_tensor
from .wrappers import unwrap

#: The types of most attributes, which hold no tensor.
_PLAIN = (bool, int, float, str, bytes, type(None), type, type(lambda: 0))

#: Those of methods. A function in C is one, of a module of Python.
_METHODS = (MethodType, MethodWrapperType, BuiltinMethodType)


class Scan:
    """One walk through a module, its parts and the containers in its attributes, each once. It is made before and after each batch, unless
    nothing that it would read was replaced since the last one."""

    def __init__(self, module: Any) -> None:
        import torch

        self._seen: set[int] = set()
        self._module = torch.nn.Module
        #: What every module has: its weights are known by their names.
        self._own = _of_every_module()
        #: The module and its parts, also those that are not registered: `eval` does not reach them.
        self.modules: list[tuple[str, Any]] = []
        #: Parameters and buffers, by their names.
        self.parameters: dict[str, Any] = {}
        self.buffers: dict[str, Any] = {}
        #: The other tensors and arrays, by the way that leads to them.
        self.attributes: dict[str, Any] = {}
        #: Parameters and buffers of modules that are not registered.
        self._hidden: dict[str, Any] = {}
        self._dicts: list[tuple[dict[Any, Any], list[tuple[Any, Any]]]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._instances: list[tuple[Any, type, Any]] = []
        #: Whether all that the walk has read can be compared without another walk.
        self._is_plain = True
        #: What methods belong to, and the ways to them. Most are parts that the walk comes to in any case, under names of their own.
        self._owners: list[tuple[Any, str]] = []
        self._walk(module, "", self.parameters, self.buffers)
        while self._owners:
            self._attribute(*self._owners.pop(0))
        self.attributes = {**self._hidden, **self.attributes}

    @property
    def registered(self) -> dict[str, Any]:
        """Parameters and buffers."""
        return {**self.parameters, **self.buffers}

    @property
    def others(self) -> list[str]:
        """The names of the attributes that are no parameters and buffers as well. After a move to another device, all of them may be others."""
        known = {id(tensor) for tensor in self.registered.values()}
        return [name for name, own in self.attributes.items() if id(own) not in known]

    @property
    def all(self) -> dict[str, Any]:
        """All tensors and arrays."""
        return {**self.parameters, **self.buffers, **self.attributes}

    def contents(self) -> _native.Contents | None:
        """What the walk has read, to see whether another one would find the same; ``None`` if only a walk can show that."""
        return _native.Contents(self._dicts, self._lists, self._instances) if self._is_plain else None

    def _read(self, container: Any) -> list[tuple[Any, Any]]:
        """The items of a dict."""
        read = list(container.items())
        if type(container) in (dict, OrderedDict):
            self._dicts.append((container, read))
        else:
            self._is_plain = False
        return read

    def _walk(self, module: Any, path: str, parameters: dict[str, Any], buffers: dict[str, Any]) -> None:
        # A module may hold its own handle, which adds no weights.
        module = _inside(module)
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        self.modules.append((path.removesuffix("."), module))
        own = vars(module)
        self._instances.append((module, type(module), own))
        for found, into in ((module._parameters, parameters), (module._buffers, buffers)):
            into.update({f"{path}{name}": tensor for name, tensor in self._read(found) if tensor is not None})
        for name, value in self._read(own):
            if name not in self._own and not isinstance(value, _PLAIN):
                self._attribute(value, f"{path}{name}")
        for name, part in self._read(module._modules):
            if part is not None:
                self._walk(part, f"{path}{name}.", parameters, buffers)

    def _attribute(self, value: Any, path: str) -> None:
        if is_tensor(value) or (is_array(value) and value.dtype.kind in "biufc"):
            self.attributes[path] = value
        elif isinstance(value, self._module):
            self._walk(value, f"{path}.", self._hidden, self._hidden)
        elif isinstance(value, dict):
            self._items(value, ((f"{path}[{key!r}]", item) for key, item in self._read(value)))
        elif isinstance(value, (list, tuple)):
            read = list(value)
            if type(value) is list:
                self._lists.append((value, read))
            elif isinstance(value, list):
                self._is_plain = False
            self._items(value, ((f"{path}[{number}]", item) for number, item in enumerate(read)))
        elif isinstance(value, (set, frozenset)):
            self._is_plain &= isinstance(value, frozenset)
            self._items(value, ((f"{path}[{number}]", item) for number, item in enumerate(sorted(value, key=repr))))
        elif isinstance(value, deque):
            self._is_plain = False
            self._items(value, ((f"{path}[{number}]", item) for number, item in enumerate([*value])))
        elif isinstance(value, functools.partial):
            given = [*enumerate(value.args), *self._read(value.keywords), ("func", value.func)]
            self._items(value, ((f"{path}[{key!r}]", item) for key, item in given))
        elif isinstance(value, _METHODS):
            owner = value.__self__
            if not isinstance(owner, (ModuleType, *_PLAIN)):
                self._owners.append((owner, f"{path}.__self__"))
        elif dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace):
            self._items(value, ((f"{path}.{name}", item) for name, item in self._held(value)))
        else:
            # Of any other object, such as a tokenizer with its vocabulary, only what it has itself.
            own = self._held(value, lambda item: is_tensor(item) or is_array(item) or isinstance(item, self._module))
            self._items(value, ((f"{path}.{name}", item) for name, item in own))

    def _held(self, value: Any, is_wanted: Callable[[Any], bool] = lambda item: True) -> list[tuple[str, Any]]:
        """The wanted attributes of an object, in its ``__dict__`` and in its slots."""
        own = getattr(value, "__dict__", None)
        held = self._read(own) if isinstance(own, dict) else []
        slots = [(name, item) for name, item in in_slots(value) if is_wanted(item)]
        # Others, such as those of a path, decide nothing.
        self._is_plain &= not slots
        return [*((name, item) for name, item in held if is_wanted(item)), *slots]

    def _items(self, container: Any, items: Iterable[tuple[str, Any]]) -> None:
        if id(container) in self._seen:
            return
        self._seen.add(id(container))
        for path, item in items:
            if not isinstance(item, _PLAIN):
                self._attribute(item, path)


def _inside(module: Any) -> Any:
    """The module itself, or the one inside of a handle, which has its weights under the same names."""
    return module.module if getattr(type(module), "_is_handle", False) else module


@functools.cache
def _of_every_module() -> frozenset[str]:
    import torch

    return frozenset(vars(torch.nn.Module()))


def left_out(scan: Scan, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a ``state_dict`` leaves out: buffers, and other tensors. A weight that it returns in other memory is left out too: its values
    may be others."""

    def missing(tensors: dict[str, Any]) -> dict[str, Any]:
        return {name: own for name, own in tensors.items() if name not in state or not _is_same(state[name], own, name)}

    return missing(scan.buffers), {**missing(scan.parameters), **scan.attributes}


def _is_same(one: Any, other: Any, name: str) -> bool:
    return one is other or _form(one, name) == _form(other, name)


def _form(tensor: Any, name: str) -> tuple[Any, ...]:
    wrapped = unwrap(tensor, name)
    if wrapped is None:
        return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device
    # Not its text: a `state_dict` has weights without gradients, which the text of some classes shows.
    return type(tensor), *(_form(part, f"{name}.{own}") for own, part in wrapped.parts.items())


def as_tensor(value: Any) -> Any:
    """A tensor, or an array as one, of the same memory where that is possible."""
    if is_tensor(value):
        return value
    import numpy
    import torch

    if is_copied(value):
        value = numpy.array(value, dtype=value.dtype.newbyteorder("="))
    elif not value.flags.writeable:
        # It may be a file of any size. Nothing writes to the tensor, and torch warns of an array that it could not write to.
        value = numpy.asarray(_Unlocked(value))
    return torch.from_numpy(value)


class _Unlocked:
    """The memory of a read-only array, as that of one that can be written."""

    def __init__(self, array: Any) -> None:
        self._array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def is_copied(value: Any) -> bool:
    """Whether :func:`as_tensor` copies it: an array of a form that a tensor cannot have."""
    if is_tensor(value):
        return False
    import numpy

    is_native = value.dtype.isnative and all(stride >= 0 for stride in value.strides)
    return not (isinstance(value, numpy.ndarray) and is_native)
