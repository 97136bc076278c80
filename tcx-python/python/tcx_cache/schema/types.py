"""The types of columns: tensors, strings, byte strings, numbers; each may be optional."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Union, overload

from ..errors import InvalidOutputError
from .declared import Batch, Declared, Value

if TYPE_CHECKING:
    import torch

Dim = Union[int, None]
#: A column of the engine: name, kind, dtype, shape, whether samples may be without a value.
NativeLeaf = tuple[str, str, Union[str, None], "list[Dim]", bool]

#: The names of the dtypes, and the size of an element in bytes.
SIZES = {
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "u8": 1,
    "bool": 1,
}
_FLOATS = ("f16", "bf16", "f32", "f64")
#: The types of Python numbers, by their name in a schema.
NUMBERS = {"int": "i64", "float": "f64", "truth": "bool"}


@dataclass(frozen=True)
class Column(Declared[Batch]):
    """The type of a column."""

    #: ``tensor``, ``str``, ``bytes``, ``int``, ``float`` or ``truth``.
    kind: str
    dtype: str | None = None
    #: Without the dimension of the batch; ``None`` for a dimension that differs from sample to sample.
    shape: tuple[Dim, ...] = ()
    #: The narrower dtype that is stored, if it is another one.
    stored: str | None = None
    is_optional: bool = False

    @property
    def is_ragged(self) -> bool:
        """Whether rows differ in shape."""
        return None in self.shape

    @functools.cached_property
    def even_shape(self) -> tuple[int, ...] | None:
        """The shape of every row, if the rows of a batch are one tensor."""
        is_one = self.kind == "tensor" and not self.is_ragged and not self.is_optional
        return tuple(dim for dim in self.shape if dim is not None) if is_one else None

    @property
    def varying(self) -> int:
        """How many dimensions differ from row to row."""
        return sum(dim is None for dim in self.shape)

    @property
    def stored_dtype(self) -> str:
        """The dtype of the stored elements."""
        return self.stored or self.dtype or "u8"

    def stored_as(self, dtype: DType) -> Column[Batch]:
        """The same column, whose floats are stored in a narrower dtype: they are rounded when they enter the cache, before anything is
        returned, so that a miss returns what a hit will return.

        >>> import tcx_cache as tcx
        >>> tcx.f32[2048].stored_as(tcx.f16)
        f32[2048] stored as f16
        """
        if self.dtype not in _FLOATS or dtype.name not in _FLOATS or SIZES[dtype.name] >= SIZES[self.dtype]:
            raise InvalidOutputError(f"{self} cannot be stored as {dtype.name}: expected a narrower floating-point type")
        return replace(self, stored=dtype.name)

    def leaves(self, name: str) -> list[NativeLeaf]:
        """The columns of the engine."""
        if self.kind in NUMBERS:
            return [(name, "dense", NUMBERS[self.kind], [], self.is_optional)]
        if self.kind != "tensor":
            return [(name, "text" if self.kind == "str" else "bytes", None, [], self.is_optional)]
        kind = "ragged" if self.is_ragged else "dense"
        leaves: list[NativeLeaf] = [(name, kind, self.stored_dtype, list(self.shape), self.is_optional)]
        if self.varying > 1:
            leaves.append((f"{name}.sizes", "dense", "i64", [self.varying], False))
        return leaves

    def entry(self) -> str | None:
        """What the identity says of it beside its columns, as in Rust."""
        return f"{self.dtype}, stored as {self.stored}" if self.stored else None

    def __repr__(self) -> str:
        if self.kind == "tensor":
            dims = ", ".join("None" if dim is None else str(dim) for dim in self.shape)
            text = f"{self.dtype}[{dims}]"
        else:
            text = self.kind
        text += f" stored as {self.stored}" if self.stored else ""
        return f"optional {text}" if self.is_optional else text

    @property
    def described(self) -> str:
        """As messages of the engine print it: ``f16 [_, 768]``."""
        if self.kind != "tensor":
            text = {"str": "String", "bytes": "bytes"}.get(self.kind) or f"{NUMBERS[self.kind]} []"
        else:
            text = described(self.dtype or "", self.shape)
        return f"optional {text}" if self.is_optional else text


def described(dtype: str, shape: Any) -> str:
    """A dtype and a shape, as messages of the engine print them."""
    return f"{dtype} [{', '.join('_' if dim is None else str(dim) for dim in shape)}]"


class DType(Declared["torch.Tensor"]):
    """The type of the elements of a tensor. ``f32`` is a column of numbers, ``f32[2048]`` one of tensors; a dimension ``None`` differs from
    sample to sample.

    >>> import tcx_cache as tcx
    >>> tcx.f16[None, 768]
    f16[None, 768]
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @overload
    def __getitem__(self, shape: int | tuple[int, ...]) -> Column[torch.Tensor]: ...
    @overload
    def __getitem__(self, shape: None | tuple[Any, ...]) -> Column[list[torch.Tensor]]: ...
    def __getitem__(self, shape: Any) -> Column[Any]:
        dims = shape if isinstance(shape, tuple) else (shape,)
        for dim in dims:
            if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 1):
                raise InvalidOutputError(f"a dimension of {self.name} is {dim!r}: expected a positive integer or None")
        return Column("tensor", self.name, dims)

    def __repr__(self) -> str:
        return f"tcx.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return DType, (self.name,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DType) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("tcx.DType", self.name))


@dataclass(frozen=True)
class Typed:
    """A number with its type in Rust, in an identity."""

    dtype: str
    value: float


def typed(value: float, dtype: str) -> Typed:
    """A number of this type in Rust, for a configuration that a module in Rust has too: an integer is an `i64` otherwise, and a float an
    `f64`. A number that the type does not have is refused where the configuration is used.

    >>> import tcx_cache as tcx
    >>> config = {"size": tcx.typed(224, "u32")}
    """
    return Typed(dtype, value)


@overload
def optional(column: type[Value]) -> Column[list[Value | None]]: ...
@overload
def optional(column: Declared[list[torch.Tensor]] | Declared[torch.Tensor]) -> Column[list[torch.Tensor | None]]: ...
@overload
def optional(column: Any) -> Column[Any]: ...
def optional(column: Any) -> Column[Any]:
    """A column whose samples may be without a value: batches are lists with ``None`` for them.

    >>> import tcx_cache as tcx
    >>> tcx.optional(str)
    optional str
    """
    return replace(column_of(column), is_optional=True)


_PYTHON_TYPES = {str: "str", bytes: "bytes", int: "int", float: "float", bool: "truth"}


def is_column(value: Any) -> bool:
    """Whether a declaration is a column."""
    return isinstance(value, (Column, DType)) or (isinstance(value, type) and value in _PYTHON_TYPES)


def column_of(value: Any) -> Column:
    """The column that a declaration names: ``tcx.f32[2048]``, ``tcx.i64``, ``str``, ``bytes``, ``int``, ``float`` or ``bool``."""
    if isinstance(value, Column):
        return value
    if isinstance(value, DType):
        return Column("tensor", value.name)
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return Column(_PYTHON_TYPES[value])
    raise InvalidOutputError(
        f"{value!r} is no type of an output: expected `tcx.f32[2048]`, `str`, `bytes`, `int`, `float`, `bool`, or a dict or tuple of them"
    )


_TEXT = re.compile(r"^(optional )?(\w+)(?:\[([^\]]*)\])?(?: stored as (\w+))?$")


def parse(text: str) -> Column:
    """The column of a text that ``repr`` has made."""
    match = _TEXT.match(text)
    if not match:
        raise InvalidOutputError(f"`{text}` is no type of an output")
    is_optional, kind, dims, stored = match.groups()
    if kind in SIZES and dims is not None:
        shape = tuple(None if dim == "None" else int(dim) for dim in dims.split(", ") if dim)
        return Column("tensor", kind, shape, stored, bool(is_optional))
    if dims is None and kind in ("str", "bytes", *NUMBERS):
        return Column(kind, is_optional=bool(is_optional))
    raise InvalidOutputError(f"`{text}` is no type of an output")


f16, bf16, f32, f64 = DType("f16"), DType("bf16"), DType("f32"), DType("f64")
i8, i16, i32, i64 = DType("i8"), DType("i16"), DType("i32"), DType("i64")
u8 = DType("u8")
bool_ = DType("bool")
