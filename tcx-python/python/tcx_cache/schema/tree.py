"""The structure of an output: dicts, tuples, and classes with named fields, whose leaves are columns."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Union

from ..batch.attributes import unnamed
from ..errors import CorruptError, Error, InvalidOutputError
from ..tensors.memory import is_nested
from . import classes
from .declared import Batch, Declared
from .types import Column, NativeLeaf, column_of, is_column, parse

Node = Union[Column, "Group", "Nothing"]


@dataclass(frozen=True)
class Nothing:
    """A part that is ``None`` in every batch: an output of the module that its configuration leaves out."""


@dataclass(frozen=True)
class Group(Declared[Batch]):
    """Named parts."""

    #: ``dict``, ``tuple`` or ``struct``.
    kind: str
    fields: tuple[tuple[str, Node], ...]
    #: The class that a struct is made of.
    cls: type | None = None

    def build(self, values: list[Any]) -> Any:
        """The parts as the container that they came in."""
        if self.kind == "tuple":
            return tuple(values)
        named = {name: value for (name, _), value in zip(self.fields, values)}
        return named if self.cls is None else _made(self.cls, named)


def _made(cls: type, fields: dict[str, Any]) -> Any:
    """An object of a class with these fields.

    Raises:
        InvalidOutputError: if code of the class changes them: the module has returned them after that, and it would run a second time.
    """
    try:
        made = cls(**fields)
    except TypeError as error:
        raise InvalidOutputError(f"an output of the class {cls.__qualname__} cannot be made of its fields: {error}; return a dict") from error
    changed = next((name for name, value in fields.items() if getattr(made, name, None) is not value), None)
    if changed is not None:
        raise InvalidOutputError(
            f"an output of the class {cls.__qualname__} changes its field `{changed}` when it is made, so that a row of the cache would be another than the module "
            "has returned; return a dict, or change the field before the object is made"
        )
    return made


def struct(cls: type[Batch], /, **fields: Any) -> Group[Batch]:
    """The structure of an output that is a dataclass, a namedtuple, or a ``ModelOutput`` of transformers.

    >>> import tcx_cache as tcx
    >>> from collections import namedtuple
    >>> Features = namedtuple("Features", "pooled caption")
    >>> outputs = tcx.struct(Features, pooled=tcx.f32[2048], caption=str)
    """
    return Group("struct", tuple((name, node(of)) for name, of in fields.items()), classes.used(cls))


def node(declared: Any) -> Node:
    """The structure that a declaration describes."""
    if isinstance(declared, (Group, Nothing)):
        return declared
    if declared is None:
        return Nothing()
    if is_column(declared):
        return column_of(declared)
    if isinstance(declared, dict):
        return Group("dict", tuple((_name(name), node(of)) for name, of in declared.items()))
    if type(declared) is tuple:
        return Group("tuple", tuple((str(number), node(of)) for number, of in enumerate(declared)))
    return column_of(declared)


def _name(name: Any) -> str:
    if isinstance(name, str) and name and "." not in name:
        return name
    raise InvalidOutputError(f"output field {name!r}: expected a name that is not empty and has no dots; rename the field")


@dataclass(frozen=True)
class Schema:
    """The columns of a table and the structure of its outputs."""

    root: Node

    def columns(self) -> list[tuple[str, Column]]:
        """The columns in order, with the names that they have in the files."""
        return list(self._columns)

    @functools.cached_property
    def _columns(self) -> list[tuple[str, Column]]:
        found: list[tuple[str, Column]] = []

        def walk(own: Node, path: str) -> None:
            if isinstance(own, Group):
                for name, child in own.fields:
                    walk(child, f"{path}.{name}" if path else name)
            elif isinstance(own, Column):
                found.append((path or "value", own))

        walk(self.root, "")
        if not found:
            raise InvalidOutputError("the output has no field that can be stored: expected at least one")
        return found

    @functools.cached_property
    def places(self) -> tuple[tuple[int, Column], ...]:
        """The columns, with the number of the first column of the engine that each has."""
        found, leaf = [], 0
        for _, column in self._columns:
            found.append((leaf, column))
            leaf += len(column.leaves(""))
        return tuple(found)

    def leaves(self) -> list[NativeLeaf]:
        """The columns of the engine."""
        return [leaf for name, column in self.columns() for leaf in column.leaves(name)]

    def entries(self) -> list[tuple[str, str]]:
        """What the identity says of the columns, as in Rust."""
        is_leaf = isinstance(self.root, Column)
        described = ((name, column.entry()) for name, column in self.columns())
        return [("Output" if is_leaf else f"Output.{name}", entry) for name, entry in described if entry]

    def build(self, values: list[Any]) -> Any:
        """An output from its columns."""
        return _built(self.root, iter(values))

    def flatten(self, output: Any) -> list[Any]:
        """The columns of an output, in order.

        Raises:
            InvalidOutputError: if its structure is another one.
        """
        values: list[Any] = []
        _flatten(self.root, output, "", values)
        return values

    def text(self) -> str:
        """All of it as one line, to be pinned in an identity."""
        return json.dumps(_encoded(self.root), separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def parse(text: str) -> Schema:
        """The schema of such a line.

        Raises:
            MismatchError: if it names a class that this program has not used, and that may not be built: see :mod:`.classes`.
            CorruptError: if it is not such a line.
        """
        try:
            return Schema(_decoded(json.loads(text)))
        except Error:
            raise
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptError(f"the outputs in the cache are described by a text that cannot be read: {error}; declare `outputs=`") from error


# Not closures, which would refer to themselves: a batch would live until the garbage collector comes.


def _built(own: Node, rest: Iterator[Any]) -> Any:
    """The output of a node, whose columns are the next ones."""
    if isinstance(own, Group):
        return own.build([_built(child, rest) for _, child in own.fields])
    return next(rest) if isinstance(own, Column) else None


def _flatten(own: Node, value: Any, path: str, into: list[Any]) -> None:
    """Adds the columns of an output."""
    if isinstance(own, Group):
        found = dict(parts(value) or ())
        expected = [name for name, _ in own.fields]
        absent = [name for name, child in own.fields if name not in found and not isinstance(child, Nothing)]
        if parts(value) is None or absent or set(found) - set(expected):
            raise InvalidOutputError(
                f"{where(path)}: expected {_listed(own.kind, expected)}, found {shown(value)}; return the same fields for every batch, or bump the id"
            )
        for name, child in own.fields:
            _flatten(child, found.get(name), f"{path}.{name}" if path else name, into)
    elif isinstance(own, Nothing):
        if value is not None:
            raise InvalidOutputError(
                f"{where(path)}: expected None, as in the first batch, found {shown(value)}; return the same fields for every batch"
            )
    else:
        into.append(value)


def where(path: str) -> str:
    """As messages name a field."""
    return f"output field `{path}`" if path else "output"


def parts(value: Any) -> list[tuple[str, Any]] | None:
    """The named parts of an output; ``None`` of a value that is a leaf."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # A ModelOutput of transformers is a dict of the fields that are not None, too.
        named = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.init]
        _refuse_others(value, [name for name, _ in named])
        return named
    if isinstance(value, dict):
        return [(_name(name), part) for name, part in value.items()]
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None) or [str(number) for number in range(len(value))]
        return list(zip(names, value))
    return None


def _refuse_others(value: Any, names: list[str]) -> None:
    """Refuses a dataclass with more than the fields by which it is made: it would come without that from the cache, or with what its class makes of
    other rows."""
    defaults = {field.name: field.default for field in dataclasses.fields(value) if not field.init}
    others = [name for name in unnamed(value, names) if not (name in defaults and getattr(value, name) is defaults[name])]
    if others:
        name, cls = others[0], type(value).__name__
        raise InvalidOutputError(
            f"an output of the class {cls} has `{name}`, which is no argument of its constructor, so it would be missing where the row comes from the cache: "
            f"declare it as a field that is one, make it a `functools.cached_property`, or return a dict"
        )


def group_like(value: Any, children: list[tuple[str, Node]]) -> Group:
    """The structure of a container, with these parts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return Group("struct", tuple(children), classes.used(type(value)))
    if isinstance(value, dict):
        return Group("dict", tuple(children))
    if hasattr(value, "_fields"):
        return Group("struct", tuple(children), classes.used(type(value)))
    return Group("tuple", tuple(children))


def shown(value: Any) -> str:
    """What a value is, for a message."""
    found = parts(value)
    if found is not None:
        return _listed(type(value).__name__, [name for name, _ in found])
    if is_nested(value):
        return "a nested tensor"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__} of {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, list):
        return f"a list of {len(value)} {type(value[0]).__name__ if value else 'items'}"
    return "None" if value is None else type(value).__name__


def _listed(kind: str, names: list[str]) -> str:
    return f"{kind} with {', '.join(f'`{name}`' for name in names) or 'no fields'}"


def _encoded(own: Node) -> Any:
    if isinstance(own, Column):
        return repr(own)
    if isinstance(own, Nothing):
        return None
    kind = own.kind if own.cls is None else f"struct {classes.name_of(own.cls)}"
    return {kind: [[name, _encoded(child)] for name, child in own.fields]}


def _decoded(data: Any) -> Node:
    if data is None:
        return Nothing()
    if isinstance(data, str):
        return parse(data)
    ((kind, fields),) = data.items()
    children = tuple((_name(name), _decoded(child)) for name, child in fields)
    if kind in ("dict", "tuple"):
        return Group(kind, children)
    own = classes.named(kind.removeprefix("struct "), [name for name, _ in children])
    return Group("struct", children, own)
