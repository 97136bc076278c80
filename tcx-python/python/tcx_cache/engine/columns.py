"""Outputs as columns of the engine, and back."""

from __future__ import annotations

from typing import Any

from .. import _native
from ..errors import InvalidOutputError
from ..schema.tree import Schema, shown, where
from ..schema.types import NUMBERS, SIZES, Column, described
from ..tensors import memory, streams
from ..tensors.memory import Memory


def write(schema: Schema, output: Any, rows: int) -> list[_native.Column]:
    """The columns of an output with this number of rows, copied.

    Raises:
        InvalidOutputError: if the output is not as the schema says; the message has both.
    """
    is_leaf = isinstance(schema.root, Column)
    columns: list[_native.Column] = []
    values = schema.flatten(output)
    streams.wait(values)
    for (name, column), value in zip(schema.columns(), values):
        columns += _write(column, value, rows, where("" if is_leaf else name))
    return columns


def _write(column: Column, value: Any, rows: int, path: str) -> list[_native.Column]:
    if column.kind == "tensor":
        return _write_tensors(column, value, rows, path)
    values = _listed(value, rows, path, column)
    present = [item is not None for item in values]
    _check_present(column, present, path)
    native = _write_values(column, values, path)
    return [native.optional(present) if column.is_optional else native]


_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "bytes": (bytes,), "int": (int,), "float": (float, int), "truth": (bool,)}
_EMPTY: dict[str, Any] = {"str": "", "bytes": b"", "int": 0, "float": 0.0, "truth": False}


def _write_values(column: Column, values: list[Any], path: str) -> _native.Column:
    """The rows of strings, byte strings or numbers."""
    expected, kind = _TYPES[column.kind], column.kind
    for number, item in enumerate(values):
        # A truth value is an int in Python, and another type in a cache.
        is_other = not isinstance(item, expected) or (isinstance(item, bool) and kind != "truth")
        if item is not None and is_other:
            raise InvalidOutputError(f"{path}: expected {kind}, found {type(item).__name__} for sample {number} of the batch")
        if kind == "float" and isinstance(item, int) and not _is_float(item):
            raise InvalidOutputError(f"{path}: expected float, found an int for sample {number} of the batch that a float would round; declare it as `int`")
    values = [_EMPTY[kind] if item is None else item for item in values]
    try:
        if kind == "str":
            return _native.Column.texts(values)
        if kind == "bytes":
            return _native.Column.blobs(values)
        if kind == "int":
            return _native.Column.ints(values)
        return _native.Column.floats(values) if kind == "float" else _native.Column.bools(values)
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidOutputError(f"{path}: cannot be stored as {column.described}: {error}") from error


def _is_float(number: int) -> bool:
    """Whether a float has the value of an integer."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _listed(value: Any, rows: int, path: str, column: Column) -> list[Any]:
    """One item for each sample."""
    if memory.is_numeric(value) and column.kind in NUMBERS:
        value = value.tolist()
    if isinstance(value, (list, tuple)) and len(value) == rows:
        return list(value)
    raise InvalidOutputError(f"{path}: expected a list of {rows} items of {column.described}, found {shown(value)}")


def _check_present(column: Column, present: list[bool], path: str) -> None:
    if not column.is_optional and not all(present):
        number = present.index(False)
        raise InvalidOutputError(
            f"{path}: expected {column.described}, found None for sample {number} of the batch; declare it as `tcx.optional(…)`"
        )


def _write_tensors(column: Column, value: Any, rows: int, path: str) -> list[_native.Column]:
    if memory.is_numeric(value) and not column.is_ragged and not column.is_optional:
        return [_write_batch(column, value, rows, path)]
    if memory.is_numeric(value):
        # One tensor for the batch: its rows are equally large, and present.
        _check_rows(column, value, rows, path)
        value = list(value)
    values = _listed(value, rows, path, column)
    _check_present(column, [item is not None for item in values], path)
    held = [None if item is None else _row(column, item, number, path) for number, item in enumerate(values)]
    return _pack(column, held)


def _write_batch(column: Column, value: Any, rows: int, path: str) -> _native.Column:
    """The rows of one tensor."""
    _check_rows(column, value, rows, path)
    own = memory.plain(_stored(column, value, path), path)
    if own.shape[1:] != column.shape:
        raise InvalidOutputError(
            f"{path}: expected {column.described}, found {described(own.dtype, own.shape[1:])}; "
            "bump the id, or declare the dimension that differs as None in `outputs=`"
        )
    return _native.Column.dense(own.address, own.bytes)


def _check_rows(column: Column, value: Any, rows: int, path: str) -> None:
    if memory.is_nested(value) or not value.shape or value.shape[0] != rows:
        raise InvalidOutputError(f"{path}: expected {rows} rows of {column.described}, found {shown(value)}")


def _stored(column: Column, value: Any, path: str) -> Any:
    """A tensor in the dtype that is stored; no other dtype is converted."""
    found = memory.dtype_name(value)
    if found != column.dtype:
        raise InvalidOutputError(f"{path}: expected {column.described}, found {described(found, value.shape[1:])}; bump the id")
    return memory.cast(value, column.stored) if column.stored else value


def _row(column: Column, item: Any, number: int, path: str) -> Memory:
    """The tensor of one sample."""
    if not memory.is_numeric(item):
        raise InvalidOutputError(f"{path}: expected {column.described}, found {shown(item)} for sample {number} of the batch")
    found = memory.dtype_name(item)
    fits = len(item.shape) == len(column.shape) and all(
        dim in (None, size) for dim, size in zip(column.shape, item.shape)
    )
    if found != column.dtype or not fits:
        raise InvalidOutputError(
            f"{path}: expected {column.described}, found {described(found, item.shape)} for sample {number} of the batch; bump the id"
        )
    return memory.plain(memory.cast(item, column.stored) if column.stored else item, path)


def _pack(column: Column, held: list[Memory | None]) -> list[_native.Column]:
    """The column of tensors of single samples, and that of their sizes if several dimensions differ."""
    present = [item is not None for item in held]
    if column.is_ragged:
        values = _native.Column.varying([(item.address, item.bytes) if item else (0, 0) for item in held])
    else:
        values = _dense_rows(column, held)
    if column.is_optional:
        values = values.optional(present)
    if column.varying < 2:
        return [values]
    sizes = [
        size
        for item in held
        for size in ([own for own, dim in zip(item.shape, column.shape) if dim is None] if item else [0] * column.varying)
    ]
    return [values, _native.Column.ints(sizes)]


def _dense_rows(column: Column, held: list[Memory | None]) -> _native.Column:
    """Rows of equal width; zeros where there is no value."""
    width = _width(column)
    return _native.Column.dense_rows([(item.address, item.bytes) if item else (0, 0) for item in held], width)


def _width(column: Column) -> int:
    width = SIZES[column.stored_dtype]
    for dim in column.shape:
        width *= dim or 0
    return width


class Target:
    """Memory for the columns of a lookup: of those that a lookup can copy while it finds rows."""

    def __init__(self, schema: Schema, rows: int, arrays: str, pinned: bool = False) -> None:
        self._columns: list[tuple[int, Column, Memory | None]] = []
        self._arrays = arrays
        self._rows = rows
        for leaf, column in schema.places:
            even = column.even_shape
            own = None if even is None else memory.new(arrays, (rows, *even), column.stored_dtype, pinned)
            self._columns.append((leaf, column, own))

    def into(self) -> list[tuple[int, int, int]]:
        """Destinations for a lookup."""
        return [(leaf, own.address, own.bytes) for leaf, _, own in self._columns if own]

    def read(self, rows: _native.Rows) -> list[Any]:
        """The columns of a complete lookup, with these destinations."""
        return [self._read(rows, leaf, column, own) for leaf, column, own in self._columns]

    def _read(self, rows: _native.Rows, leaf: int, column: Column, own: Memory | None) -> Any:
        if own is not None:
            rows.copy_dense(leaf, own.address, own.bytes, True)
            return self._widened(column, own)
        present = rows.present(leaf) if column.is_optional else None
        if column.kind in ("str", "bytes"):
            values = rows.texts(leaf) if column.kind == "str" else rows.blobs(leaf)
        elif column.kind in NUMBERS:
            values = rows.numbers(leaf)
        else:
            values = self._tensors(rows, leaf, column)
        if present is None:
            return values
        return [value if is_there else None for value, is_there in zip(values, present)]

    def _widened(self, column: Column, own: Memory) -> Any:
        read = memory.finish(own)
        return memory.cast(read, column.dtype or "") if column.stored else read

    def _tensors(self, rows: _native.Rows, leaf: int, column: Column) -> list[Any]:
        """One tensor for each sample, views of one piece of memory."""
        ends = rows.ends(leaf)
        size = SIZES[column.stored_dtype]
        starts = [0, *ends]
        own = memory.new(self._arrays, ((ends[-1] if ends else 0) // size,), column.stored_dtype)
        rows.copy_varying(leaf, own.address, own.bytes)
        packed = self._widened(column, own)
        sizes = iter(rows.numbers(leaf + 1)) if column.varying > 1 else None
        values = []
        for start, end in zip(starts, ends):
            elements = (end - start) // size
            values.append(packed[start // size : end // size].reshape(_shape(column, elements, sizes)))
        return values


def _shape(column: Column, elements: int, sizes: Any) -> tuple[int, ...]:
    """The shape of a row with this number of elements."""
    if sizes is not None:
        return tuple(next(sizes) if dim is None else dim for dim in column.shape)
    known = 1
    for dim in column.shape:
        known *= 1 if dim is None else dim
    return tuple(elements // known if dim is None else dim for dim in column.shape)
