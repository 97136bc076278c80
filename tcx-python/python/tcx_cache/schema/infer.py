"""The schema of an output that was not declared, from the first batch."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidOutputError
from ..tensors.memory import dtype_name, is_nested, is_numeric
from .tree import Node, Nothing, Schema, group_like, parts, shown, where
from .types import SIZES, Column


def infer(output: Any, rows: int) -> Schema:
    """The schema of an output with this number of samples.

    Raises:
        InvalidOutputError: if a part of it does not have one row for each sample.
    """
    return Schema(_node(output, rows, ""))


def _node(value: Any, rows: int, path: str) -> Node:
    found = parts(value)
    if found is not None:
        # A ModelOutput has a field for everything that its class may return: what it leaves out is None.
        children = [(name, _node(part, rows, f"{path}.{name}" if path else name)) for name, part in found]
        return group_like(value, children)
    if value is None:
        return Nothing()
    if is_numeric(value):
        return _tensor(value, rows, path)
    if isinstance(value, list):
        return _list(value, rows, path)
    raise InvalidOutputError(
        f"{where(path)}: expected a tensor, a list with one item for each sample, or a dict, tuple or class of them, found {shown(value)}; "
        "leave the field out"
    )


def _tensor(value: Any, rows: int, path: str) -> Column:
    if is_nested(value):
        raise InvalidOutputError(f"{where(path)}: expected rows of one shape or a list of tensors, found a nested tensor: return a list (`unbind()`)")
    shape = tuple(value.shape)
    if not shape or shape[0] != rows:
        raise InvalidOutputError(
            f"{where(path)}: expected one row for each of {rows} samples along the first dimension, found {shown(value)}; "
            "return only what each sample has"
        )
    if 0 in shape[1:]:
        raise InvalidOutputError(f"{where(path)}: a row of {list(shape[1:])} is empty; leave the field out")
    return Column("tensor", _dtype(value, path), shape[1:])


def _dtype(value: Any, path: str) -> str:
    name = dtype_name(value)
    if name not in SIZES:
        raise InvalidOutputError(f"{where(path)}: expected elements of a type that tcx stores ({', '.join(SIZES)}), found {name}")
    return name


def _list(value: list[Any], rows: int, path: str) -> Column:
    if len(value) != rows:
        raise InvalidOutputError(
            f"{where(path)}: expected a list with one item for each of {rows} samples, found {len(value)}; "
            "return parts as a tuple or a dict"
        )
    present = [item for item in value if item is not None]
    is_optional = len(present) < len(value)
    if not present:
        raise InvalidOutputError(f"{where(path)}: every sample is None, so its type is not known; declare `outputs=`")
    if all(is_numeric(item) for item in present):
        return _ragged(present, is_optional, path)
    kinds = {_kind(item) for item in present}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        raise InvalidOutputError(
            f"{where(path)}: expected a list of tensors, strings, byte strings or numbers of one type, found {shown(value)}; declare `outputs=`"
        )
    return Column(kind, is_optional=is_optional)


def _kind(item: Any) -> str | None:
    for of, kind in ((str, "str"), (bytes, "bytes"), (bool, "truth"), (int, "int"), (float, "float")):
        if isinstance(item, of):
            return kind
    return None


def _ragged(items: list[Any], is_optional: bool, path: str) -> Column:
    """A list of tensors: the dimensions in which they differ are ragged; all of them that a single sample could differ in are not known."""
    dtypes = {_dtype(item, path) for item in items}
    ranks = {len(item.shape) for item in items}
    if len(dtypes) > 1 or len(ranks) > 1:
        raise InvalidOutputError(
            f"{where(path)}: expected tensors of one type and number of dimensions, found {', '.join(sorted(shown(item) for item in items[:2]))}"
        )
    shapes = [tuple(item.shape) for item in items]
    dims = tuple(sizes[0] if len(set(sizes)) == 1 and sizes[0] > 0 else None for sizes in zip(*shapes))
    if len(items) == 1 and dims:
        raise InvalidOutputError(
            f"{where(path)}: a list of one tensor does not show which dimensions differ; declare `outputs=`, for example `tcx.{dtypes.pop()}[None, 768]`"
        )
    return Column("tensor", dtypes.pop(), dims, is_optional=is_optional)


