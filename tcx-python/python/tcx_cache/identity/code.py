"""What the code of a class or a function reaches by name: globals, variables of where it was defined, and methods and properties by the names
that it has for them.

Code is read, and never run. Each function is read once, also of libraries, but none of torch, numpy and the standard library: these keep no
network of the program. Names are matched without knowing what they are attributes of, so that more may be found than the code uses, and not
less.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import os
import re
import sys
from collections import Counter, UserDict, deque
from collections.abc import Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from ..batch.attributes import in_slots
from ..tensors.memory import is_numeric

#: Values in which nothing is found.
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
#: The methods by which a module or another object is called.
_CALLED = ("forward", "__call__")
#: Packages without networks of the program, beside the standard library.
_LIBRARIES = frozenset({"torch", "numpy", "tcx_cache"})
#: How far containers in containers are looked into.
_DEPTH = 3


class Found(NamedTuple):
    """A value that holds tensors."""

    #: What is the same whenever this variable is found.
    key: Any
    #: The way to it from the class or the function.
    path: str
    value: Any
    #: The name of the module of Python that has it; none of the main program.
    module: str = ""


class Reached:
    """What some code reaches, as it was when it was read."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        #: Names of modules and classes, what they referred to, and what is the same whenever the variable is found.
        self.names: list[tuple[Mapping[str, Any], str, Any, Any]] = []
        #: Variables of functions, and what they referred to.
        self.cells: list[tuple[CellType, Any]] = []

    def is_same(self) -> bool:
        """Whether reading the code again would find the same: numbers and strings may change, such as those that count calls."""
        return all(_is_same(holder.get(name), value) for holder, name, value, _ in self.names) and all(
            _is_same(content(cell), value) for cell, value in self.cells
        )

    def leave_out_filled(self, before: Reached) -> None:
        """Leaves out what has come into variables that are the same as before, and held nothing then: `forward` has put it there."""
        held = {own.key for own in before.found}
        same = {key for holder, name, value, key in before.names if holder.get(name) is value}
        same |= {id(cell) for cell, value in before.cells if content(cell) is value}
        self.found = [own for own in self.found if own.key in held or own.key not in same]


class Code:
    """The code that walks through one module have read, so that the next one compares what it found there."""

    def __init__(self, ignored: Iterable[str] = ()) -> None:
        #: The names of variables that decide nothing of the outputs, and those of them that were reached.
        self.ignored, self.left_out = frozenset(ignored), set[str]()
        self._read: dict[Any, tuple[Reached, Any]] = {}

    def is_ignored(self, name: str) -> bool:
        """Whether a variable is left out, which is noted."""
        if name in self.ignored:
            self.left_out.add(name)
        return name in self.ignored

    @property
    def variables(self) -> list[str]:
        """The names of the variables that hold tensors."""
        names = {variable(own.path) for reached, _ in self._read.values() for own in reached.found}
        return sorted(name for name in names if name is not None)

    def of_class(self, own: type, bases: tuple[type, ...]) -> Reached:
        """What the code of a class reaches: `forward`, and all that it names. `bases` are the class and those that it inherits from."""
        # As long as the classes have what they had.
        held = [value for base in bases for value in vars(base).values()]
        return self._kept(own, held, lambda reader: reader.start(bases, _CALLED), bases)

    def of_function(self, function: FunctionType, owner: type | None) -> Reached:
        """What the code of a function reaches, without what it has from where it was defined. `owner` is the class of what it is a method of."""
        bases = () if owner is None else owner.__mro__
        # Functions that are made in each batch share their code.
        key = function.__code__, id(function.__globals__), owner
        return self._kept(key, [function.__globals__], lambda reader: reader.read(function), bases)

    def _kept(self, key: Any, held: list[Any], read: Any, bases: tuple[type, ...]) -> Reached:
        known = self._read.get(key)
        if known is None or len(known[1]) != len(held) or not all(map(_is_same, held, known[1])) or not known[0].is_same():
            reader = _Reader(bases, self)
            read(reader)
            reached = reader.finished()
            if known is not None:
                reached.leave_out_filled(known[0])
            known = self._read[key] = reached, held
        return known[0]


class _Reader:
    """Reads functions, and those that they name."""

    def __init__(self, bases: Iterable[type], code: Code) -> None:
        self._code = code
        #: Where the methods are that are called by name.
        self._bases = [base for base in bases if not _is_library(base.__module__)]
        self._seen: set[Any] = set()
        self._waiting: deque[FunctionType] = deque()
        self._reached = Reached()
        #: The globals that the code assigns.
        self._assigned: set[Any] = set()

    def start(self, bases: Iterable[type], names: Iterable[str]) -> None:
        """Begins with the methods of these names."""
        for name in names:
            for base in bases:
                self._wait(vars(base).get(name))

    def finished(self) -> Reached:
        """What was reached, when all functions are read."""
        while self._waiting:
            function = self._waiting.popleft()
            self._variables(function)
            self.read(function)
        reached = self._reached
        # A tensor that the code keeps in a global for later is its own. A network that it loads there is not.
        kept = {key for _, _, value, key in reached.names if key in self._assigned and value is not None and _is_value(value)}
        reached.names = [own for own in reached.names if own[3] not in kept]
        reached.found = _with_own_names([own for own in reached.found if own.key not in kept])
        return reached

    def read(self, function: FunctionType) -> None:
        """Looks up the names in the code of a function."""
        code, own = function.__code__, function.__globals__
        if _is_library(own.get("__name__")):
            return
        names = _names(code)
        self._assigned |= {(id(own), name) for name in names.assigned}
        for name in names.globals:
            if name in own or name not in _builtins():
                self._name(own, own, name, name, code)
        for name in names.modules:
            for full in (name, f"{own.get('__package__')}.{name}".rstrip(".")):
                if isinstance(sys.modules.get(full), ModuleType):
                    self._name(sys.modules, sys.modules, full, full, code)
        for name in names.attributes:
            for base in self._bases:
                self._wait(vars(base).get(name))

    def _variables(self, function: FunctionType) -> None:
        """What a function has from where it was defined, and its defaults."""
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if name != "__class__" and id(cell) not in self._seen and not self._code.is_ignored(name):
                self._seen.add(id(cell))
                value = content(cell)
                self._reached.cells.append((cell, value))
                self._value(id(cell), f"__closure__[{name}]", value, function.__code__)
                if isinstance(value, (type, ModuleType)):
                    self._namespace(value, name, function.__code__)
        defaults = [*enumerate(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        for own, value in defaults:
            self._value((id(function), own), f"{function.__name__}.__defaults__[{own}]", value, function.__code__)

    def _name(self, owner: Any, holder: Mapping[str, Any], name: str, shown: str, code: CodeType) -> None:
        """Looks up a name of a module or a class, which code refers to."""
        value, key = holder.get(name), (id(owner), name)
        if self._code.is_ignored(shown):
            return
        if isinstance(value, ModuleType):
            if key not in self._seen and not _is_library(value.__name__):
                self._seen.add(key)
                self._reached.names.append((holder, name, value, key))
            self._namespace(value, shown, code)
            return
        if key not in self._seen and not (isinstance(value, (FunctionType, type)) and _is_library(value.__module__)):
            self._seen.add(key)
            self._reached.names.append((holder, name, value, key))
            self._value(key, f"__globals__[{shown}]", value, code, str(holder.get("__name__", holder.get("__module__", ""))))
        if isinstance(value, type):
            self._namespace(value, shown, code)

    def _namespace(self, owner: Any, shown: str, code: CodeType) -> None:
        """Looks up the attributes that code names in a module or a class that it names."""
        key = id(owner), id(code)
        if key in self._seen or _is_library(owner.__name__ if isinstance(owner, ModuleType) else owner.__module__):
            return
        self._seen.add(key)
        # A variable of a module has one key, also where a function of the module names it.
        holders = [(base, vars(base)) for base in owner.__mro__] if isinstance(owner, type) else [(vars(owner), vars(owner))]
        # A class may be called, or be a function of autograd.
        called = ("__init__", *_CALLED) if isinstance(owner, type) and not _is_network(owner) else ()
        for name in (*_names(code).attributes, *called):
            base, holder = next(((base, holder) for base, holder in holders if name in holder), (None, None))
            if holder is not None:
                self._name(base, holder, name, f"{shown}.{name}", code)

    def _value(self, key: Any, path: str, value: Any, code: CodeType, module: str = "") -> None:
        """What a variable refers to: tensors, and code."""
        if isinstance(value, (*_PLAIN, type, ModuleType)):
            return
        self._wait(value)
        if _holds(value, _DEPTH):
            self._reached.found.append(Found(key, path, value, "" if module == "__main__" else module))
        # An object may be called, or a method of it.
        own = [base for base in type(value).__mro__ if base not in self._bases and not _is_library(base.__module__)]
        self._bases += own
        self.start(own, (*_CALLED, *_names(code).attributes))

    def _wait(self, value: Any) -> None:
        for function in _functions(value):
            if id(function) not in self._seen:
                self._seen.add(id(function))
                self._waiting.append(function)


class _Names(NamedTuple):
    globals: tuple[str, ...]
    attributes: tuple[str, ...]
    #: Modules that are imported where they are used.
    modules: tuple[str, ...]
    #: Globals that are assigned.
    assigned: tuple[str, ...]


@functools.lru_cache(maxsize=1 << 14)
def _names(code: CodeType) -> _Names:
    """The names in code, and in that of the functions in it, each once."""
    read: dict[str, dict[str, None]] = {"globals": {}, "attributes": {}, "modules": {}, "assigned": {}}
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            read["globals"][name] = None
        elif operation == "IMPORT_NAME":
            read["modules"][name] = None
        elif operation == "STORE_GLOBAL":
            read["assigned"][name] = None
        elif operation in ("LOAD_METHOD", "IMPORT_FROM") or operation.startswith(("LOAD_ATTR", "LOAD_SUPER")):
            read["attributes"][name] = None
    inner = [_names(item) for item in code.co_consts if isinstance(item, CodeType)]
    return _Names(*(tuple(dict.fromkeys([*read[field], *(name for own in inner for name in getattr(own, field))])) for field in _Names._fields))


def _with_own_names(found: list[Found]) -> list[Found]:
    """Each variable under a name that no other has: where several have one, with its module. In the order of the names, not of the code."""
    counts = Counter(own.path for own in found)
    named = [own if counts[own.path] == 1 else own._replace(path=own.path.replace("[", f"[{own.module}:", 1)) for own in found]
    named.sort(key=lambda own: own.path)
    numbers: Counter[str] = Counter()
    for place, own in enumerate(named):
        numbers[own.path] += 1
        if numbers[own.path] > 1:
            named[place] = own._replace(path=f"{own.path}#{numbers[own.path]}")
    return named


#: The part of a path that is a variable of code.
_VARIABLE = re.compile(r"__(?:globals|closure)__\[(?:[^\]:]*:)?([^\]]+)\]")


def variable(path: str) -> str | None:
    """The name of the variable of code through which a path leads; ``None`` if it leads through none."""
    found = _VARIABLE.search(path)
    return found[1] if found else None


def _is_value(value: Any) -> bool:
    return isinstance(value, _PLAIN) or is_numeric(value)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The functions of Python in what can be called, or in a container of it."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, (staticmethod, classmethod, MethodType)):
        yield from _functions(value.__func__)
    elif isinstance(value, property):
        yield from _functions(value.fget)
    elif isinstance(value, (functools.cached_property, functools.partial, functools.partialmethod)):
        yield from _functions(value.func)
    elif isinstance(value, (dict, list, tuple)):
        yield from (item for item in _items(value) if isinstance(item, FunctionType))
    else:
        # Of `functools.lru_cache`, and of a class of decorators.
        held = _attributes(value)
        wrapped = held.get("__wrapped__")
        yield from () if wrapped is None or wrapped is value else _functions(wrapped)
        # At once: another thread may set attributes.
        yield from [item for item in [*held.values()] if isinstance(item, FunctionType)]


def _holds(value: Any, depth: int) -> bool:
    """Whether a value holds tensors, arrays or modules with some, where a walk finds them."""
    import torch

    if isinstance(value, (*_PLAIN, type, ModuleType, FunctionType)) or depth == 0:
        return False
    if is_numeric(value):
        return True
    if isinstance(value, torch.nn.Module):
        return _has_weights(value)
    if isinstance(value, MethodType):
        return _holds(value.__self__, depth)
    if isinstance(value, (dict, MappingProxyType, UserDict, list, tuple, set, frozenset, deque, functools.partial)):
        return any(_holds(item, depth - 1) for item in _items(value))
    held = (*_attributes(value).values(), *(item for _, item in in_slots(value)))
    if dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace):
        return any(_holds(item, depth - 1) for item in held)
    # Of any other object, only what it has itself.
    return any(is_numeric(item) or (isinstance(item, torch.nn.Module) and _has_weights(item)) for item in held)


def _is_network(own: type) -> bool:
    import torch

    return issubclass(own, torch.nn.Module)


def _has_weights(module: Any) -> bool:
    """Whether a module has parameters, buffers, or other attributes that are tensors."""
    inside = module.module if getattr(type(module), "_is_handle", False) else module
    return any(
        any(tensor is not None for tensor in (*part._parameters.values(), *part._buffers.values())) or any(map(is_numeric, _attributes(part).values()))
        for part in inside.modules()
    )


def _items(value: Any) -> Iterable[Any]:
    """The items of a container. Methods of a class of its own are not called: they may load what is not loaded yet."""
    if isinstance(value, dict):
        return [*dict.values(value)]
    if isinstance(value, UserDict):
        return _items(value.data)
    if isinstance(value, functools.partial):
        return (*value.args, *value.keywords.values(), value.func)
    if isinstance(value, MappingProxyType):
        return [*value.values()]
    own: type = next(base for base in (list, tuple, set, frozenset, deque) if isinstance(value, base))
    return [*own.__iter__(value)]  # type: ignore[attr-defined]


def _attributes(value: Any) -> dict[str, Any]:
    """The ``__dict__`` of an object, past a method of its class that makes attributes."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_library(name: Any) -> bool:
    """Whether the code of a module is not read."""
    return isinstance(name, str) and _is_root_of_library(name.partition(".")[0])


@functools.lru_cache(maxsize=1 << 10)
def _is_root_of_library(root: str) -> bool:
    if root in _LIBRARIES or root in sys.builtin_module_names:
        return True
    if root not in getattr(sys, "stdlib_module_names", ()):
        return False
    # A program may have a module of such a name.
    file = getattr(sys.modules.get(root), "__file__", None)
    return file is None or os.path.dirname(os.__file__) in (os.path.dirname(file), os.path.dirname(os.path.dirname(file)))


@functools.lru_cache(maxsize=1)
def _builtins() -> frozenset[str]:
    import builtins

    return frozenset(vars(builtins))


def content(cell: CellType) -> Any:
    """What a variable of a function refers to; ``None`` if it is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _is_same(now: Any, before: Any) -> bool:
    return now is before or (isinstance(now, _PLAIN) and isinstance(before, _PLAIN))
