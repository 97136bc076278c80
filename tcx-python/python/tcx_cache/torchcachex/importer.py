"""Takes over the rows of a directory that torchcachex has written. Pickled values are never loaded."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import CorruptError, InvalidBatchError, InvalidOutputError, InvalidPathError
from ..modules.cached import Cached
from ..modules.table import Table, check_batch_size
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
        batch_size: How many rows are read and stored together.

    Raises:
        InvalidPathError: if the directory has no segments.
        InvalidOutputError: if a field is pickled.
        CorruptError: if a segment cannot be read. Nothing is stored then, unless only a row of it is damaged: the rows before that one are stored.
    """
    check_batch_size(batch_size)
    folder = os.path.join(os.fspath(source), "segments")
    if not os.path.isdir(folder):
        raise InvalidPathError(f"{os.fspath(source)} has no folder `segments`: expected a directory that torchcachex has written")
    described = _described(os.path.join(os.fspath(source), "schema.json"))
    prefix = f"{os.path.basename(os.path.normpath(os.fspath(source)))}:"
    table = target if isinstance(target, Table) else Table(target._rows, target._view)
    as_id = _integer if table._rows.ids == "int" else str
    # Only the keys, before anything is stored: a later segment has the newer row of an id.
    last: dict[Any, tuple[str, int]] = {}
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".arrow")]
    read = stored = 0
    for path in paths:
        for number, key in enumerate(_keys(path, without_pickled)):
            last[as_id(key.removeprefix(prefix))] = path, number
            read += 1

    def newest(path: str) -> Iterator[tuple[Any, Any]]:
        for number, (key, row) in enumerate(_rows(path, described)):
            own = as_id(key.removeprefix(prefix))
            if last.get(own) == (path, number):
                yield own, row()

    samples = itertools.chain.from_iterable(map(newest, paths))
    while part := list(itertools.islice(samples, batch_size)):
        stored += table.put([own for own, _ in part], joined([sample for _, sample in part]))
    return Imported(read, stored)


def _integer(key: str) -> int:
    try:
        return int(key)
    except ValueError:
        raise InvalidBatchError(f"key {key!r} is no integer, and the ids of the target are; import into a table with `ids=str`") from None


@dataclass(frozen=True)
class _Described:
    """What the directory says of all samples; both are also known from the columns."""

    structure: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)


def _described(path: str) -> _Described:
    """What a file says; nothing, if it is missing or damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return _Described()
    own = found if isinstance(found, dict) else {}
    structure, metadata = own.get("output_structure"), own.get("metadata")
    return _Described(structure if isinstance(structure, str) else None, dict(metadata) if isinstance(metadata, dict) else {})


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """A file that is mapped: what is not read of it takes no memory."""
    import pyarrow as pa

    try:
        with pa.memory_map(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{path}: cannot be read as a file of Arrow: {error}; move it away to import the others") from error


def _tables(file: Any, only: str | None = None) -> Iterator[Any]:
    """The parts of a file, of all columns or of one."""
    import pyarrow as pa

    reader, _ = _reader(file, None)
    options = None if only is None else pa.ipc.IpcReadOptions(included_fields=[reader.schema.names.index(only)])
    reader, is_stream = _reader(file, options)
    batches = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
    for batch in batches:
        yield pa.Table.from_batches([batch])


def _reader(file: Any, options: Any) -> tuple[Any, bool]:
    """What reads a file, and whether it is one in the format of streams."""
    import pyarrow as pa

    file.seek(0)
    try:
        return pa.ipc.open_file(file, options=options), False
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file, options=options), True


def _keys(path: str, without_pickled: bool) -> Iterator[str]:
    """The keys of a segment. It reads no other column, and refuses a segment whose columns are not as expected."""
    with _opened(path) as file:
        _check_columns(path, _reader(file, None)[0].schema.names, without_pickled)
        number = 0
        for table in _tables(file, "key"):
            for key in table.column("key").to_pylist():
                if not isinstance(key, str):
                    raise CorruptError(f"{path}: the key of row {number} is {type(key).__name__}, expected str; move the file away to import the others")
                yield key
                number += 1


def _check_columns(path: str, names: list[str], without_pickled: bool) -> None:
    if "key" not in names:
        raise CorruptError(f"{path}: has no column `key`: expected a segment of torchcachex")
    pickled = [name for name in names if name == "blob" or name.endswith("_blob")]
    if pickled and (not without_pickled or pickled == ["blob"]):
        raise InvalidOutputError(
            f"{path}: column `{pickled[0]}` is pickled, and loading a pickle runs the code in it; compute these rows again, or pass `without_pickled=True` to leave "
            "such fields out"
        )
    for data in ["data"] if "data" in names else [name for name in names if name.endswith("_data")]:
        shape = f"{data.removesuffix('data')}shape"
        if shape not in names:
            raise CorruptError(f"{path}: has a column `{data}` and no column `{shape}`; move the file away to import the others")


def _rows(path: str, described: _Described) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The key of each row of a segment, and what reads its sample."""
    with _opened(path) as file:
        number = 0
        for table in _tables(file):
            sample = _samples(path, table, described, number)
            for row, key in enumerate(table.column("key").to_pylist()):
                yield key, functools.partial(sample, row)
            number += table.num_rows


def _samples(path: str, table: Any, described: _Described, start: int) -> Callable[[int], Any]:
    """A function that reads the sample of a row of a part, which begins with this row of the segment."""
    names = table.column_names
    fields = [name.removesuffix("_data") for name in names if name.endswith("_data")]
    own = {(key.decode() if isinstance(key, bytes) else key): value for key, value in (table.schema.metadata or {}).items()}
    dtypes = {**{key: value.decode() if isinstance(value, bytes) else value for key, value in own.items()}, **described.metadata}
    is_numbered = all(_ITEM.match(name) for name in fields)
    if is_numbered:
        fields.sort(key=lambda name: int(name.removeprefix("item")))
    is_sequence = described.structure in ("tuple", "list") or (described.structure is None and is_numbered)

    def sample(row: int) -> Any:
        try:
            if "data" in names:
                return _tensor(table, "data", "shape", row, dtypes.get("torch_dtype"))
            found = {name: _tensor(table, f"{name}_data", f"{name}_shape", row, None) for name in fields}
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
            raise CorruptError(f"{path}: row {start + row} is no tensor with its shape: {error}; move the file away to import the others") from error
        return tuple(found.values()) if is_sequence else found

    return sample


def _tensor(table: Any, data: str, shape: str, number: int, dtype: str | None) -> Any:
    import numpy
    import torch

    values, dims = table.column(data)[number].values, table.column(shape)[number].as_py()
    if values is None or values.null_count or not isinstance(dims, list) or any(not isinstance(dim, int) or dim < 0 for dim in dims):
        raise ValueError(f"found the shape {dims!r}, and {'no values' if values is None else f'{values.null_count} nulls'}")
    tensor = torch.from_numpy(numpy.array(values.to_numpy(zero_copy_only=False))).reshape(dims)
    # torchcachex has stored bf16 as f32, which holds the same numbers.
    return tensor.bfloat16() if dtype == "torch.bfloat16" else tensor
