"""Ids in a column of a Parquet or Arrow file."""

from __future__ import annotations

import bisect
import itertools
from typing import Any

from ..engine import ids as keys
from ..errors import InvalidBatchError, LoaderError
from ..runtime.locks import ProcessLock
from .sequence import Sequence

#: The first bytes of a Parquet file.
_PARQUET = b"PAR1"
#: The column, if it is not named.
_COLUMN = "id"


class Column(Sequence):
    """A column that is read a part at a time, in any order. A row group, or a record batch, of it is in memory."""

    def __init__(self, path: str, name: str | None) -> None:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet

        self._path = path
        try:
            with open(path, "rb") as file:
                is_parquet = file.read(4) == _PARQUET
            if is_parquet:
                self._parquet = pyarrow.parquet.ParquetFile(path)
                self._name = self._named(self._parquet.schema_arrow.names, name)
                groups = range(self._parquet.num_row_groups)
                sizes = [self._parquet.metadata.row_group(group).num_rows for group in groups]
            else:
                self._parquet = None
                self._batches = pyarrow.ipc.open_file(pyarrow.memory_map(path))
                self._name = self._named(self._batches.schema.names, name)
                sizes = [self._batches.get_batch(batch).num_rows for batch in range(self._batches.num_record_batches)]
        except (OSError, pyarrow.ArrowException) as error:
            raise LoaderError(f"cannot read ids from {path}: {error}") from error
        #: The position behind each part.
        self._ends = list(itertools.accumulate(sizes))
        #: The part that was read last.
        self._read: tuple[int, Any] | None = None
        self._reading = ProcessLock()

    def _named(self, names: list[str], name: str | None) -> str:
        if name is None and _COLUMN not in names and len(names) == 1:
            return names[0]
        found = _COLUMN if name is None else name
        if found not in names:
            raise InvalidBatchError(f"ids: {self._path} has no column `{found}`; its columns are {', '.join(names)}; pass the name of the one with the ids")
        return found

    @property
    def length(self) -> int:
        return self._ends[-1] if self._ends else 0

    def read(self, start: int, count: int) -> list[Any]:
        end, found = min(start + count, self.length), list[Any]()
        while start < end:
            part = bisect.bisect_right(self._ends, start)
            first = self._ends[part - 1] if part else 0
            stop = min(end, self._ends[part])
            found += self._part(part)[start - first : stop - first].to_pylist()
            start = stop
        if None in found:
            raise InvalidBatchError(f"ids: the column `{self._name}` of {self._path} contains nulls; leave these rows out")
        return keys.listed(found)

    def _part(self, part: int) -> Any:
        import pyarrow

        # Several threads may read, and a file of pyarrow is one for one of them at a time.
        with self._reading.own:
            if self._read is not None and self._read[0] == part:
                return self._read[1]
            try:
                if self._parquet is not None:
                    read = self._parquet.read_row_group(part, columns=[self._name]).column(0)
                else:
                    read = self._batches.get_batch(part).column(self._name)
            except (OSError, pyarrow.ArrowException) as error:
                raise LoaderError(f"cannot read ids from {self._path}: {error}") from error
            self._read = (part, read)
            return read
