"""Takes over the rows of a directory that torchcachex has written. Pickled values are never loaded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import CorruptError, InvalidBatchError, InvalidOutputError, InvalidPathError
from ..modules.cached import Cached
from ..modules.table import Table
from .backend import joined

_ITEM = re.compile(r"item(\d+)$")


@dataclass(frozen=True)
class Imported:
    """What was taken over."""

    #: The rows that were read, of which the last one with an id counts.
    rows: int
    #: Those of them that were stored: the others were stored before.
    stored: int


def import_directory(
    source: str | os.PathLike[str], target: Table | Cached, *, without_pickled: bool = False, batch_size: int = 1024
) -> Imported:
    """Stores the rows of a directory of torchcachex (``cache_dir/module_id``) in a table, or in a cached module.

    torchcachex does not record which weights have computed a row. The caller answers for it that they are those of the target;
    ``Cached.verify`` compares samples.

    Args:
        source: The directory, which has a folder ``segments``.
        target: Where the rows are stored.
        without_pickled: Whether pickled fields are left out. Otherwise they are an error that names them: to load a pickle is to run the
            code in it.
        batch_size: How many rows are stored together.

    Raises:
        InvalidPathError: if the directory has no segments.
        InvalidOutputError: if a field is pickled.
        CorruptError: if a segment cannot be read.
    """
    folder = os.path.join(os.fspath(source), "segments")
    if not os.path.isdir(folder):
        raise InvalidPathError(f"{os.fspath(source)} has no folder `segments`: expected a directory that torchcachex has written")
    structure, metadata = _schema(os.path.join(os.fspath(source), "schema.json"))
    prefix = f"{os.path.basename(os.path.normpath(os.fspath(source)))}:"
    rows: dict[str, Any] = {}
    read = 0
    for name in sorted(os.listdir(folder)):
        if name.endswith(".arrow"):
            for key, sample in _samples(os.path.join(folder, name), structure, metadata, without_pickled):
                # A later segment has the newer row.
                rows[key.removeprefix(prefix)] = sample
                read += 1
    ids, stored = list(rows), 0
    table = target if isinstance(target, Table) else Table(target._rows, target._view)
    for start in range(0, len(ids), batch_size):
        part = ids[start : start + batch_size]
        values = joined([rows[own] for own in part])
        stored += table.put(part if table._rows.ids != "int" else [_integer(own) for own in part], values)
    return Imported(read, stored)


def _integer(key: str) -> int:
    try:
        return int(key)
    except ValueError:
        raise InvalidBatchError(f"key {key!r} is no integer, and the ids of the target are; import into a table with `ids=str`") from None


def _schema(path: str) -> tuple[str | None, dict[str, str]]:
    """The structure of the samples, and the metadata; both are also known from the columns, if the file is missing."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None, {}
    own = found if isinstance(found, dict) else {}
    structure, metadata = own.get("output_structure"), own.get("metadata")
    return structure if isinstance(structure, str) else None, dict(metadata) if isinstance(metadata, dict) else {}


def _samples(path: str, structure: str | None, metadata: dict[str, str], without_pickled: bool) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa

    try:
        with pa.memory_map(path) as file:
            try:
                table = pa.ipc.open_file(file).read_all()
            except pa.ArrowInvalid:
                file.seek(0)
                table = pa.ipc.open_stream(file).read_all()
            yield from _rows(path, table, structure, metadata, without_pickled)
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{path}: cannot be read as a file of Arrow: {error}; move it away to import the others") from error


def _rows(path: str, table: Any, structure: str | None, metadata: dict[str, str], without_pickled: bool) -> Iterator[tuple[str, Any]]:
    names = table.column_names
    if "key" not in names:
        raise CorruptError(f"{path}: has no column `key`: expected a segment of torchcachex")
    pickled = [name for name in names if name == "blob" or name.endswith("_blob")]
    if pickled and (not without_pickled or pickled == ["blob"]):
        raise InvalidOutputError(
            f"{path}: column `{pickled[0]}` is pickled, and loading a pickle runs the code in it; compute these rows again, or pass `without_pickled=True` to leave "
            "such fields out"
        )
    fields = [name.removesuffix("_data") for name in names if name.endswith("_data")]
    own = {(key.decode() if isinstance(key, bytes) else key): value for key, value in (table.schema.metadata or {}).items()}
    dtypes = {**{key: value.decode() if isinstance(value, bytes) else value for key, value in own.items()}, **metadata}
    is_numbered = all(_ITEM.match(name) for name in fields)
    if is_numbered:
        fields.sort(key=lambda name: int(name.removeprefix("item")))
    is_sequence = structure in ("tuple", "list") or (structure is None and is_numbered)
    for number in range(table.num_rows):
        key = table.column("key")[number].as_py()
        if not isinstance(key, str):
            raise CorruptError(f"{path}: the key of row {number} is {type(key).__name__}, expected str; move the file away to import the others")
        try:
            if "data" in names:
                sample: Any = _tensor(table, "data", "shape", number, dtypes.get("torch_dtype"))
            else:
                sample = {name: _tensor(table, f"{name}_data", f"{name}_shape", number, None) for name in fields}
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
            raise CorruptError(f"{path}: row {number} is no tensor with its shape: {error}; move the file away to import the others") from error
        yield key, tuple(sample.values()) if is_sequence and isinstance(sample, dict) else sample


def _tensor(table: Any, data: str, shape: str, number: int, dtype: str | None) -> Any:
    import numpy
    import torch

    values, dims = table.column(data)[number].values, table.column(shape)[number].as_py()
    if values is None or values.null_count or not isinstance(dims, list) or any(not isinstance(dim, int) or dim < 0 for dim in dims):
        raise ValueError(f"found the shape {dims!r}, and {'no values' if values is None else f'{values.null_count} nulls'}")
    tensor = torch.from_numpy(numpy.array(values.to_numpy(zero_copy_only=False))).reshape(dims)
    # torchcachex has stored bf16 as f32, which holds the same numbers.
    return tensor.bfloat16() if dtype == "torch.bfloat16" else tensor
