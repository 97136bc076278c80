"""The tensors of a module, also those that its ``state_dict`` does not show: they decide outputs as well.

These are buffers that are not persistent, parameters that a ``state_dict`` of one's own leaves out or returns otherwise, and tensors, arrays
and modules that are attributes, or in containers and dataclasses that are attributes, or attributes of other objects that are attributes, of
tensors or of the classes of modules, or what a method that is an attribute belongs to, or what a function that is an attribute has from where
it was defined.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, OrderedDict, UserDict, deque
from collections.abc import Callable, Iterable
from types import BuiltinMethodType, CellType, FunctionType, MappingProxyType, MethodType, MethodWrapperType, ModuleType, SimpleNamespace
from typing import Any

from .. import _native
from ..batch.attributes import in_slots
from ..tensors.memory import is_array, is_tensor
from .arrays import are_plain, check_objects, objects
from .code import Code, Reached, content
from .wrappers import unwrap

#: The types of most attributes, which hold no tensor.
_PLAIN = (bool, int, float, str, bytes, type(None), type)

#: Those of dicts.
_DICTS = (dict, MappingProxyType)

#: Those of methods. A function in C is one, of a module of Python.
_METHODS = (MethodType, MethodWrapperType, BuiltinMethodType)


class Scan:
    """One walk through a module, its parts and the containers in its attributes, each once. It is made before and after each batch, unless
    nothing that it would read was replaced since the last one."""

    def __init__(self, module: Any, code: Code | None = None) -> None:
        import torch

        self._code = Code() if code is None else code
        self._seen: set[int] = set()
        #: What each class of modules has.
        self._classes: dict[type, list[tuple[str, Any]]] = {}
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
        #: What methods belong to, the ways to them, and whether these are in a handle. Most are parts with names of their own.
        self._owners: list[tuple[Any, str, bool]] = []
        #: Functions, the ways to them, and their classes. What they have is mostly a part of the module under another name.
        self._functions: list[tuple[Any, str, type | None, bool]] = []
        #: Classes of modules whose code is not read yet, with those that they inherit from, and the ways to them.
        self._coded: list[tuple[type, tuple[type, ...], str]] = []
        #: What code reaches by name, and which variables were found in it.
        self.reached: list[Reached] = []
        self._variables: set[Any] = set()
        #: What variables of these functions refer to.
        self.cells: list[tuple[CellType, Any]] = []
        #: The classes of modules, and what each has.
        self.of_classes: list[tuple[type, list[Any]]] = []
        #: The names of those `attributes` that were set on tensors.
        self.of_tensors: set[str] = set()
        #: The parts of the module that methods and functions use, by the ways to them there.
        self._used: dict[str, Any] = {}
        self._is_following = False
        #: Whether the walk is in the module of a handle, and the parts that are only there: that handle takes their locks, in any thread.
        self._is_in_handle = False
        self._of_handles: set[int] = set()
        #: The classes of parts outside of handles.
        self._direct: set[type] = set()
        #: The names of those `attributes` that are a second name of a tensor, in a function.
        self.aliases: set[str] = set()
        self._walk(module, "", self.parameters, self.buffers)
        self._is_following = True
        self._follow_methods()
        self._follow_code()
        self.attributes = {**self._hidden, **self.attributes}

    def parts(self, of_handles: bool) -> list[Any]:
        """The parts that only handles in the module have, or all others."""
        return [part for _, part in self.modules if (id(part) in self._of_handles) is of_handles]

    @property
    def registered(self) -> dict[str, Any]:
        """Parameters and buffers."""
        return {**self.parameters, **self.buffers}

    @property
    def others(self) -> list[str]:
        """The names of the attributes that are no parameters and buffers as well. After a move to another device, all of them may be others."""
        known = {id(tensor) for tensor in self.registered.values()}
        return [name for name, own in self.attributes.items() if id(own) not in known and name not in self.aliases]

    @property
    def all(self) -> dict[str, Any]:
        """All tensors and arrays."""
        return {**self.parameters, **self.buffers, **self.attributes}

    @property
    def used_parts(self) -> dict[str, str]:
        """Which parts of the module its methods and functions use: the way to each there, and its name in the module."""
        if not self._used:
            return {}
        names = {id(part): path for path, part in self.modules}
        used, known = {path: names[id(part)] for path, part in self._used.items() if id(part) in names}, {*names.values()}
        # A part that uses itself says nothing.
        return {path: name for path, name in used.items() if name != _part_of(path, known)}

    @property
    def used_tensors(self) -> dict[str, str]:
        """Which tensors of the module its functions use, in the same way."""
        # The first name that it has.
        names = {id(own): name for name, own in reversed(self.all.items())}
        return {path: names[id(self.attributes[path])] for path in self.aliases}

    def contents(self) -> _native.Contents | None:
        """What the walk has read, to see whether another one would find the same; ``None`` if only a walk can show that."""
        return _native.Contents(self._dicts, self._lists, self._instances) if self._is_plain else None

    def _read(self, container: Any) -> list[tuple[Any, Any]]:
        """The items of a dict."""
        read = list(container.items())
        if type(container) in (dict, OrderedDict):
            self._dicts.append((container, read))
        elif not isinstance(container, MappingProxyType) or not all(isinstance(item, _PLAIN) for _, item in read):
            self._is_plain = False
        return read

    def _walk(self, module: Any, path: str, parameters: dict[str, Any], buffers: dict[str, Any]) -> None:
        # A module may hold its own handle, which adds no weights.
        inside, was_in_handle = _inside(module), self._is_in_handle
        self._is_in_handle |= inside is not module
        self._part(inside, path, parameters, buffers)
        self._is_in_handle = was_in_handle

    def _part(self, module: Any, path: str, parameters: dict[str, Any], buffers: dict[str, Any]) -> None:
        if not self._is_in_handle:
            self._direct.add(type(module))
        if id(module) in self._seen:
            if not self._is_in_handle and id(module) in self._of_handles:
                self._of_handles -= {id(part) for part in module.modules()}
            return
        self._of_handles |= {id(module)} if self._is_in_handle else set()
        self._seen.add(id(module))
        self.modules.append((path.removesuffix("."), module))
        own = vars(module)
        self._instances.append((module, type(module), own))
        for found, into in ((module._parameters, parameters), (module._buffers, buffers)):
            for name, tensor in self._read(found):
                if tensor is not None:
                    into[f"{path}{name}"] = tensor
                    self._of_tensor(tensor, f"{path}{name}")
        # One that is compiled has the module inside, and else what `torch.compile` keeps.
        for name, value in self._read(own) if type(module).__name__ != "OptimizedModule" else ():
            if name not in self._own and not isinstance(value, _PLAIN):
                self._attribute(value, f"{path}{name}")
        for name, value in self._of_class(type(module), path):
            # A name of its own: `forward` may set an attribute of that name.
            self._attribute(value, f"{path}__class__.{name}")
        for name, part in self._read(module._modules):
            if part is not None:
                self._walk(part, f"{path}{name}.", parameters, buffers)

    def _of_class(self, own: type, path: str) -> list[tuple[str, Any]]:
        """The tensors, arrays and modules that a class has, or one that it inherits from, also in its dicts, lists and tuples."""
        if own not in self._classes:
            found: dict[str, Any] = {}
            bases = own.__mro__[: own.__mro__.index(self._module)]
            self._coded.append((own, bases, f"{path}__class__"))
            for base in reversed(bases):
                held = vars(base)
                self.of_classes.append((base, [*held.values()]))
                found.update(held)
            self._classes[own] = [(name, value) for name, value in found.items() if self._is_of_class(value)]
        return self._classes[own]

    def _is_of_class(self, value: Any) -> bool:
        items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        return any(has_tensors(item) if isinstance(item, self._module) else self._holds_values(item) for item in items)

    def _holds_values(self, value: Any) -> bool:
        return is_tensor(value) or is_array(value) or isinstance(value, self._module)

    def _of_tensor(self, tensor: Any, path: str) -> None:
        """What code has set on a tensor as an attribute, such as the scale of a weight. Those of a class that holds its values in other
        tensors are known by :func:`unwrap`."""
        own = getattr(tensor, "__dict__", None)
        if own is None or hasattr(type(tensor), "__tensor_flatten__"):
            return
        # Methods and functions are for who loads or trains it.
        kept = [(name, item) for name, item in self._read(own) if not isinstance(item, (*_PLAIN, FunctionType, *_METHODS))]
        if kept:
            before = {*self.attributes}
            self._items(tensor, ((f"{path}.{name}", item) for name, item in kept))
            self.of_tensors |= self.attributes.keys() - before

    def _follow_methods(self) -> None:
        while self._owners:
            value, path, self._is_in_handle = self._owners.pop(0)
            self._attribute(value, path)

    def _follow_code(self) -> None:
        """After all else, so that what code shares with the module has the name that it has there."""
        known, before = {id(tensor) for tensor in (*self.all.values(), *self._hidden.values())}, {*self.attributes}
        while self._coded or self._functions:
            if self._coded:
                own, bases, path = self._coded.pop(0)
                self._is_in_handle = own not in self._direct
                for name, value in self._reaches(self._code.of_class(own, bases), path):
                    self._attribute(value, name)
            else:
                *function, self._is_in_handle = self._functions.pop(0)
                self._function(*function)
            self._follow_methods()
        self.aliases = {name for name, own in self.attributes.items() if name not in before and id(own) in known}

    def _reaches(self, reached: Reached, path: str) -> list[tuple[str, Any]]:
        """The values that code reaches, each variable once, under the first class or function that has it."""
        if reached.names or reached.cells:
            self.reached.append(reached)
        new = [own for own in reached.found if own.key not in self._variables]
        self._variables |= {own.key for own in new}
        return [(f"{path}.{own.path}", own.value) for own in new]

    def _attribute(self, value: Any, path: str) -> None:
        if is_tensor(value):
            self.attributes[path] = value
            self._of_tensor(value, path)
        elif is_array(value):
            self._array(value, path)
        elif isinstance(value, self._module):
            if self._is_following and id(value) in self._seen:
                self._used[path] = value
            self._walk(value, f"{path}.", self._hidden, self._hidden)
        elif isinstance(value, _DICTS):
            named = _named(path, self._read(value))
            self._items(value, (*named, *self._beside(value, path)))
        elif isinstance(value, UserDict):
            self._items(value, self._beside(value, path))
        elif isinstance(value, (list, tuple)):
            read = list(value)
            if type(value) is list:
                self._lists.append((value, read))
            elif isinstance(value, list):
                self._is_plain = False
            numbered = [(f"{path}[{number}]", item) for number, item in enumerate(read) if not isinstance(item, _PLAIN)]
            self._items(value, (*numbered, *self._beside(value, path)))
        elif isinstance(value, (set, frozenset, deque)):
            self._is_plain &= isinstance(value, frozenset)
            read = [*value] if isinstance(value, deque) else sorted(value, key=repr)
            self._items(value, (*((f"{path}[{number}]", item) for number, item in enumerate(read)), *self._beside(value, path)))
        elif isinstance(value, functools.partial):
            given = [*enumerate(value.args), *self._read(value.keywords), ("func", value.func)]
            self._items(value, _named(path, given))
        elif isinstance(value, _METHODS):
            owner = value.__self__
            if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
                self._functions.append((value.__func__, path, owner if isinstance(owner, type) else type(owner), self._is_in_handle))
            elif isinstance(value, MethodType):
                self._attribute(value.__func__, path)
            if not isinstance(owner, (ModuleType, *_PLAIN)):
                self._owners.append((owner, f"{path}.__self__", self._is_in_handle))
        elif isinstance(value, FunctionType):
            self._functions.append((value, path, None, self._is_in_handle))
        elif dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace):
            self._items(value, ((f"{path}.{name}", item) for name, item in self._held(value)))
        else:
            # Of any other object, such as a tokenizer with its vocabulary, only what it has itself.
            own = self._held(value, self._holds_values)
            self._items(value, ((f"{path}.{name}", item) for name, item in own))

    def _array(self, array: Any, path: str) -> None:
        self.attributes[path] = array
        if not array.dtype.hasobject:
            return
        items = [*objects(array)]
        if are_plain(items):
            # Their texts are compared, and nothing else is in them.
            return
        check_objects(items, path, self._is_walked)
        # No list that can be compared later.
        self._is_plain = False
        self._items(array, ((f"{path}[{number}]", item) for number, item in enumerate(items)))

    def _is_walked(self, value: Any) -> bool:
        """Whether a walk finds what is in a value, and all else of it is no part of an identity, as in an attribute."""
        containers = (self._module, *_DICTS, UserDict, list, tuple, set, frozenset, deque, functools.partial, FunctionType, SimpleNamespace, *_METHODS)
        return isinstance(value, containers) or dataclasses.is_dataclass(value)

    def _function(self, function: Any, path: str, owner: type | None) -> None:
        """What a function has beside its code: variables of where it was defined, defaults, attributes, and what the code reaches by name."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or ())
        held = [(name, cell, content(cell)) for name, cell in cells]
        self.cells += [(cell, found) for _, cell, found in held]
        closure = ((f"{path}.__closure__[{name}]", found) for name, _, found in held)
        defaults = ((f"{path}.__defaults__[{number}]", item) for number, item in enumerate(function.__defaults__ or ()))
        named = ((f"{path}.__kwdefaults__[{name}]", item) for name, item in self._read(function.__kwdefaults__ or {}))
        own = ((f"{path}.{name}", item) for name, item in self._read(vars(function)))
        reached = self._reaches(self._code.of_function(function, owner), path)
        self._items(function, (*closure, *defaults, *named, *own, *reached))

    def _held(self, value: Any, is_wanted: Callable[[Any], bool] = lambda item: True) -> list[tuple[str, Any]]:
        """The wanted attributes of an object, in its ``__dict__`` and in its slots."""
        own = getattr(value, "__dict__", None)
        held = self._read(own) if isinstance(own, dict) else []
        slots = [(name, item) for name, item in in_slots(value) if is_wanted(item)]
        # Others, such as those of a path, decide nothing.
        self._is_plain &= not slots
        return [*((name, item) for name, item in held if is_wanted(item)), *slots]

    def _beside(self, container: Any, path: str) -> list[tuple[str, Any]]:
        """What a container of a class of one's own has beside its items."""
        return [(f"{path}.{name}", item) for name, item in self._held(container)] if hasattr(container, "__dict__") else []

    def _items(self, container: Any, items: Iterable[tuple[str, Any]]) -> None:
        if id(container) in self._seen:
            return
        self._seen.add(id(container))
        for path, item in items:
            if not isinstance(item, _PLAIN):
                self._attribute(item, path)


def _part_of(path: str, names: set[str]) -> str:
    """The name of the innermost part that has what is at the end of a way."""
    while path and (path := path.rpartition(".")[0]) not in names:
        pass
    return path


def has_tensors(module: Any) -> bool:
    """Whether a module has parameters or buffers."""
    return next(module.parameters(), None) is not None or next(module.buffers(), None) is not None


def _named(path: str, items: Iterable[tuple[Any, Any]]) -> list[tuple[str, Any]]:
    """The items of a dict by the texts of their keys. Several keys may have the same: those of two modules of a kind."""
    counts: Counter[str] = Counter()
    named = []
    for key, item in items:
        text = repr(key)
        counts[text] += 1
        named.append((f"{path}[{text}]" if counts[text] == 1 else f"{path}[{text}]#{counts[text]}", item))
    return named


def is_same_content(cell: CellType, held: Any) -> bool:
    """Whether a walk would find in a variable what it has found before: nothing in numbers and strings, such as those that count calls."""
    found = content(cell)
    return found is held or (isinstance(found, _PLAIN) and isinstance(held, _PLAIN))


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

    others = {name: own for name, own in scan.attributes.items() if name not in scan.aliases}
    return missing(scan.buffers), {**missing(scan.parameters), **others}


def _is_same(one: Any, other: Any, name: str) -> bool:
    return one is other or _form(one, name) == _form(other, name)


def _form(tensor: Any, name: str) -> tuple[Any, ...]:
    wrapped = unwrap(tensor, name)
    if wrapped is None:
        return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device
    # Not its text: a `state_dict` has weights without gradients, which the text of some classes shows.
    return type(tensor), *(_form(part, f"{name}.{own}") for own, part in wrapped.parts.items())
