"""Rows as tables of Arrow, and tables of Arrow as rows, through the Arrow C data interface (``__arrow_c_stream__``, ``__arrow_c_array__``):
pyarrow, Polars, DuckDB, nanoarrow and others have it, and none of them has to be installed.

What goes out owns its memory: the mapped files of a cache are never exported.

A column is what it is in the files of a cache: tensors of one shape are ``arrow.fixed_shape_tensor``, tensors that differ in size are lists of
their elements, strings are strings. ``bf16`` has no type in Arrow: its bits are ``uint16``, and the metadata of the field has
``tcx.dtype = bf16``. Truth values are those of Arrow.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from . import _native
from .engine import ids as keys
from .errors import InvalidBatchError, InvalidOutputError
from .schema.tree import Schema
from .schema.types import SIZES, Column
from .tensors import memory

if TYPE_CHECKING:
    from .modules.cached import Cached
    from .modules.table import Table

_TENSOR = "arrow.fixed_shape_tensor"


def batch(source: Table | Cached, ids: Any, id_column: str = "id") -> _native.ArrowBatch:
    """The stored rows of these ids as a batch for every library that has the C data interface, such as ``polars.DataFrame(batch)``: a column of
    ids, and one for each column of the output, by its name.

    Raises:
        InvalidBatchError: if a row is missing, or a column of the output has the name of that of the ids.

    >>> import tempfile, tcx_cache as tcx
    >>> table = tcx.Cache(tempfile.mkdtemp()).table("lengths_v1", outputs=int)
    >>> _ = table.put(["a", "bb"], [1, 2])
    >>> len(tcx.arrow.batch(table, ["bb", "a"]))
    2
    """
    ids = keys.once(ids)
    packed = source._rows.pack(ids, source._view)
    rows = source._rows.stored(ids, source._view, packed)
    schema = source._rows.schema
    if schema is not None and any(name == id_column for name, *_ in schema.leaves()):
        raise InvalidBatchError(f"module `{source.id}`: a column of the output is `{id_column}`, as is that of the ids; pass another `id_column`")
    return rows.to_arrow(packed, id_column)


def table(source: Table | Cached, ids: Any, id_column: str = "id") -> Any:
    """As :func:`batch`, as a ``pyarrow.Table``.

    Raises:
        InvalidBatchError: as :func:`batch`.
    """
    import pyarrow as pa

    return pa.table(batch(source, ids, id_column))


def put(target: Table, data: Any, id_column: str = "id", *, replaces: bool = False) -> int:
    """Stores the rows of a table of Arrow, of any library that has its C data interface, and returns how many it has stored. The columns that
    were not declared are inferred from their types.

    Args:
        target: The table of the cache.
        data: A ``pyarrow.Table``, a data frame of Polars, a relation of DuckDB, what :func:`batch` returns, and others.
        id_column: The name of the column with the ids.
        replaces: Whether stored rows are replaced.

    Raises:
        InvalidBatchError: if it is no table, or has no column of ids.
        InvalidOutputError: if a column has another type than is declared.
    """
    found = _read(data)
    names = found.names()
    if id_column not in names:
        raise InvalidBatchError(f"the table has no column `{id_column}` of ids, found {', '.join(names)}; pass `id_column`")
    repeated = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if repeated is not None:
        raise InvalidBatchError(f"the table has several columns `{repeated}`: rename them")
    schema = target._rows.schema
    kinds = {} if schema is None else dict(schema.columns())
    columns = {name: found.column(number) for number, name in enumerate(names)}
    ids = columns.pop(id_column).values()
    values = {name: _value(column, name, kinds.get(name), len(found)) for name, column in columns.items()}
    output = _structured(values, schema)
    return target.replace(ids, output) if replaces else target.put(ids, output)


def _read(data: Any) -> _native.ArrowTable:
    found = _native.ArrowTable.of(data)
    # A dict of lists, and data frames of old versions of pandas.
    if found is None and (isinstance(data, dict) or type(data).__module__.startswith("pandas.")):
        found = _of_pyarrow(data)
    if found is None:
        raise InvalidBatchError(f"expected a table that has the C data interface of Arrow, such as one of pyarrow or Polars, found {type(data).__name__}")
    return found


def _of_pyarrow(data: Any) -> _native.ArrowTable | None:
    try:
        import pyarrow as pa
    except ImportError:
        return None
    try:
        return _native.ArrowTable.of(pa.table(data))
    except (TypeError, pa.ArrowException) as error:
        raise InvalidBatchError(f"pyarrow cannot make a table of this {type(data).__name__}: {error}") from error


def _value(column: _native.ArrowColumn, name: str, declared: Column | None, rows: int) -> Any:
    """The values of a column of Arrow: a tensor, or a list with one item for each row."""
    dtype, shape = column.dtype, column.shape
    is_scalar = not shape and (column.has_nulls if declared is None else declared.kind != "tensor")
    if dtype is None or is_scalar:
        return column.values()
    ends = column.ends()
    flat = _elements(column, dtype, ends[-1] if ends else 0)
    order = None
    if column.metadata.get("ARROW:extension:name") == _TENSOR and shape and None not in shape:
        shape, order = _described(name, column.metadata.get("ARROW:extension:metadata") or "{}", shape)
    if not column.has_nulls and None not in shape:
        return _ordered(flat.reshape([rows, *shape]), order)
    starts = iter(zip([0, *ends], ends))
    dims = [-1 if dim is None else dim for dim in shape]

    def row() -> Any:
        start, end = next(starts)
        return _ordered(flat[start:end].reshape([1, *dims]), order)[0]

    return [row() if is_there else None for is_there in column.present()]


def _described(name: str, text: str, found: list[int | None]) -> tuple[list[int | None], list[int] | None]:
    """The shape and the order of dimensions that the metadata of a column name, whose lists have the shape `found`."""
    try:
        described = json.loads(text)
        shape, order = described.get("shape", found), described.get("permutation")
        fits = all(type(dim) is int and dim >= 0 for dim in shape) and math.prod(shape) == math.prod(dim or 0 for dim in found)
        fits = fits and (order is None or sorted(order) == [*range(len(shape))])
    except (ValueError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise InvalidOutputError(
            f"column `{name}`: its metadata says that it is {_TENSOR} of {text}, which does not describe lists of the shape {found}; write it again, or remove "
            "its metadata"
        )
    return shape, order


def _elements(column: _native.ArrowColumn, dtype: str, count: int) -> Any:
    """The elements of all rows, copied."""
    # Numpy has no bf16.
    arrays = "torch" if dtype == "bf16" else memory.default_arrays()
    own = memory.new(arrays, (count,), dtype)
    column.copy(own.address, count * SIZES[dtype])
    return memory.finish(own)


def _ordered(tensor: Any, order: list[int] | None) -> Any:
    """Tensors in the order of dimensions that their type names."""
    if order is None:
        return tensor
    dims = [0, *(1 + dim for dim in order)]
    return tensor.permute(dims) if memory.is_tensor(tensor) else tensor.transpose(dims)


def _structured(values: dict[str, Any], schema: Schema | None) -> Any:
    """Columns by their names as an output of the schema."""
    if schema is None:
        return values["value"] if list(values) == ["value"] else _nested(values)
    missing = [name for name, _ in schema.columns() if name not in values]
    if missing:
        raise InvalidOutputError(f"the table has no column `{missing[0]}`, which is declared; found {', '.join(values)}")
    found = [_declared(column, name, values) for name, column in schema.columns()]
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


def _declared(column: Column, name: str, values: dict[str, Any]) -> Any:
    """The values of a column as they were declared: a file has them in the dtype that is stored, and lists of elements without their shape."""
    value = values[name]
    if column.kind != "tensor":
        return value
    if not isinstance(value, list):
        return _widened(column, value)
    sizes = values.get(f"{name}.sizes")
    rows: list[Any] = []
    for number, row in enumerate(value):
        if not memory.is_numeric(row):
            rows.append(row)
            continue
        known = iter(sizes[number].tolist()) if column.varying > 1 and sizes is not None else None
        dims = [(next(known) if known else -1) if dim is None else dim for dim in column.shape]
        try:
            rows.append(_widened(column, row.reshape(dims)))
        except (ValueError, RuntimeError, StopIteration) as error:
            raise InvalidOutputError(f"column `{name}`: expected {column.described}, found other elements for row {number}: {error}") from error
    return rows


def _widened(column: Column, value: Any) -> Any:
    is_stored = column.stored is not None and memory.dtype_name(value) == column.stored
    return memory.cast(value, column.dtype or "") if is_stored else value


__all__ = ["batch", "put", "table"]
