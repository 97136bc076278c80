"""Rows as tables of Arrow, and tables of Arrow as rows.

Tables of other libraries come in through the Arrow C data interface (``__arrow_c_stream__``, ``__arrow_c_array__``). What goes out are tables of
pyarrow, which offer that interface too; they own their memory: the mapped files of a cache are never exported.

A column is what it is in the files of a cache: tensors of one shape are ``arrow.fixed_shape_tensor``, tensors that differ in size are lists of
their elements, strings are strings. ``bf16`` has no type in Arrow: its bits are ``uint16``, and the metadata of the field has
``tcx.dtype = bfloat16``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engine import ids as keys
from .errors import InvalidBatchError, InvalidOutputError
from .schema.tree import Schema
from .schema.types import NUMBERS, Column
from .tensors import memory

if TYPE_CHECKING:
    from .modules.cached import Cached
    from .modules.table import Table

_ELEMENTS = {
    "f16": "float16",
    "bf16": "uint16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "bool": "bool_",
}
_BF16 = {b"tcx.dtype": b"bfloat16"}


def table(source: Table | Cached, ids: Any, id_column: str = "id") -> Any:
    """The stored rows of these ids as a ``pyarrow.Table``: a column of ids, and one for each column of the output, by its name.

    Raises:
        InvalidBatchError: if a row is missing.
    """
    import pyarrow as pa

    listed = keys.listed(ids)
    rows = source._rows
    output = source.fetch(listed)
    schema = rows.schema
    if schema is None:
        raise InvalidBatchError(f"module `{source.id}`: the columns are not known")
    arrays = {id_column: pa.array([str(own) if hasattr(own, "__fspath__") else own for own in listed])}
    fields = [pa.field(id_column, arrays[id_column].type)]
    for (name, column), value in zip(schema.columns(), schema.flatten(output)):
        if name in arrays:
            raise InvalidBatchError(f"module `{source.id}`: a column of the output is `{name}`, as is that of the ids; pass another `id_column`")
        for own, array in _arrays(name, column, value):
            arrays[own] = array
            fields.append(pa.field(own, array.type, metadata=_BF16 if column.dtype == "bf16" and own == name else None))
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


def put(target: Table, data: Any, id_column: str = "id", *, replaces: bool = False) -> int:
    """Stores the rows of a table of Arrow, of any library that has its C data interface, and returns how many it has stored. The columns that
    were not declared are inferred from their types.

    Args:
        target: The table of the cache.
        data: A ``pyarrow.Table``, a data frame of Polars, a relation of DuckDB, and others.
        id_column: The name of the column with the ids.
        replaces: Whether stored rows are replaced.

    Raises:
        InvalidBatchError: if there is no column of ids.
        InvalidOutputError: if a column has another type than is declared.
    """
    import pyarrow as pa

    found = data if isinstance(data, pa.Table) else pa.table(data)
    names = found.column_names
    if id_column not in names:
        raise InvalidBatchError(f"the table has no column `{id_column}` of ids, found {', '.join(names)}; pass `id_column`")
    repeated = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if repeated is not None:
        raise InvalidBatchError(f"the table has several columns `{repeated}`: rename them")
    ids = found.column(id_column).to_pylist()
    values = {name: _value(name, found.column(name), found.schema.field(name)) for name in names if name != id_column}
    output = _structured(values, target._rows.schema)
    return target.replace(ids, output) if replaces else target.put(ids, output)


def _structured(values: dict[str, Any], schema: Schema | None) -> Any:
    """Columns by their names as an output of the schema."""
    if schema is None:
        return values["value"] if list(values) == ["value"] else _nested(values)
    missing = [name for name, _ in schema.columns() if name not in values]
    if missing:
        raise InvalidOutputError(f"the table has no column `{missing[0]}`, which is declared; found {', '.join(values)}")
    found = [_shaped(column, name, values) for name, column in schema.columns()]
    return schema.build(found)


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                break
        if not isinstance(place, dict) or last in place:
            raise InvalidOutputError(f"column `{name}`: another column has a part of its name, so that it cannot be a field of both; rename one")
        place[last] = value
    return tree


def _shaped(column: Column, name: str, values: dict[str, Any]) -> Any:
    """The values of a column, with the shapes that lists of elements do not have."""
    value = values[name]
    if column.kind != "tensor" or not isinstance(value, list):
        return value
    sizes = values.get(f"{name}.sizes")
    rows: list[Any] = []
    for number, row in enumerate(value):
        if row is None:
            rows.append(None)
            continue
        known = iter(sizes[number].tolist()) if column.varying > 1 and sizes is not None else None
        dims = [(next(known) if known else -1) if dim is None else dim for dim in column.shape]
        try:
            rows.append(row.reshape(dims))
        except (ValueError, RuntimeError) as error:
            raise InvalidOutputError(f"column `{name}`: expected {column.described}, found other elements for row {number}: {error}") from error
    return rows


def _arrays(name: str, column: Column, value: Any) -> list[tuple[str, Any]]:
    """The arrays of one column of an output."""
    import pyarrow as pa

    if column.kind != "tensor":
        types = {"str": pa.string(), "bytes": pa.binary(), **{of: getattr(pa, _ELEMENTS[dtype])() for of, dtype in NUMBERS.items()}}
        return [(name, pa.array(value, types[column.kind]))]
    element = getattr(pa, _ELEMENTS[column.dtype or ""])()
    if column.is_ragged:
        return _lists(name, column, value, element)
    if column.is_optional:
        shape = [dim or 0 for dim in column.shape]
        rows: list[Any] = [None if row is None else _flat(row).tolist() for row in value]
        storage = pa.array(rows, pa.list_(element, _product(shape))) if shape else pa.array([row and row[0] for row in rows], element)
        return [(name, storage)]
    flat = pa.array(_flat(value), element)
    if not column.shape:
        return [(name, flat)]
    shape = [dim or 0 for dim in column.shape]
    storage = pa.FixedSizeListArray.from_arrays(flat, _product(shape))
    # Truth values have no tensors in Arrow.
    if column.dtype == "bool":
        return [(name, storage)]
    return [(name, pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(element, shape), storage))]


def _lists(name: str, column: Column, value: list[Any], element: Any) -> list[tuple[str, Any]]:
    """Tensors that differ in size: lists of their elements, and their sizes if several dimensions differ."""
    import numpy
    import pyarrow as pa

    flat = [None if row is None else _flat(row) for row in value]
    present = [row for row in flat if row is not None]
    offsets = numpy.concatenate([[0], numpy.cumsum([0 if row is None else len(row) for row in flat])]).astype(numpy.int64)
    joined = numpy.concatenate(present) if present else numpy.empty(0, element.to_pandas_dtype())
    mask = pa.array([row is None for row in flat]) if column.is_optional else None
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(joined, element), mask=mask)
    if column.varying < 2:
        return [(name, lists)]
    sizes = [
        size
        for row in value
        for size in ([own for own, dim in zip(row.shape, column.shape) if dim is None] if row is not None else [0] * column.varying)
    ]
    return [(name, lists), (f"{name}.sizes", pa.FixedSizeListArray.from_arrays(pa.array(sizes, pa.int64()), column.varying))]


def _flat(value: Any) -> Any:
    """The elements of a tensor as an array of numpy; those of bf16 as their bits."""
    if memory.is_tensor(value):
        import torch

        value = value.detach().cpu().contiguous()
        if value.dtype == torch.bfloat16:
            return value.view(torch.int16).numpy().view("uint16").reshape(-1)
        return value.numpy().reshape(-1)
    return value.reshape(-1)


def _value(name: str, column: Any, field: Any) -> Any:
    """The values of a column of Arrow: a tensor, or a list with one item for each row."""
    import pyarrow as pa

    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    is_bf16 = (field.metadata or {}).get(b"tcx.dtype") == b"bfloat16"
    own = array.type
    if isinstance(own, pa.FixedShapeTensorType):
        return _tensors(name, array, is_bf16)
    if pa.types.is_fixed_size_list(own):
        if array.null_count:
            return [None if not item.is_valid else _numbers(name, item.values, is_bf16) for item in array]
        return _numbers(name, array.flatten(), is_bf16).reshape(len(array), own.list_size)
    if pa.types.is_list(own) or pa.types.is_large_list(own):
        return [None if not item.is_valid else _numbers(name, item.values, is_bf16) for item in array]
    if array.null_count or not (pa.types.is_integer(own) or pa.types.is_floating(own) or pa.types.is_boolean(own)):
        return array.to_pylist()
    return _numbers(name, array, is_bf16)


def _tensors(name: str, array: Any, is_bf16: bool) -> Any:
    """Tensors of one shape, in the order of dimensions that their type names."""
    own, storage = array.type, array.storage
    order = [0, *(1 + dim for dim in own.permutation)] if own.permutation else None

    def shaped(numbers: Any, rows: int) -> Any:
        found = numbers.reshape([rows, *own.shape])
        if order is None:
            return found
        return found.permute(order) if memory.is_tensor(found) else found.transpose(order)

    if not storage.null_count:
        return shaped(_numbers(name, storage.flatten(), is_bf16), len(array))
    return [None if not item.is_valid else shaped(_numbers(name, item.values, is_bf16), 1)[0] for item in storage]


def _numbers(name: str, array: Any, is_bf16: bool) -> Any:
    """The elements of an array of numbers, copied."""
    import numpy

    if array.null_count:
        # Integers would become floats, and a null in a float NaN.
        raise InvalidOutputError(f"column `{name}`: an element is null inside of a tensor; fill it, or store rows without it as null")
    numbers = numpy.array(array.to_numpy(zero_copy_only=False))
    if not is_bf16:
        return numbers
    import torch

    if numbers.dtype != numpy.uint16:
        raise InvalidOutputError(f"column `{name}`: its metadata says bf16, whose bits are uint16, found {numbers.dtype}")
    return torch.from_numpy(numbers.view(numpy.int16)).view(torch.bfloat16)


def _product(shape: list[int]) -> int:
    product = 1
    for dim in shape:
        product *= dim
    return product


__all__ = ["put", "table"]
