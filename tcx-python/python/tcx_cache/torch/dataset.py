"""A map-style dataset of stored rows: one lookup for each batch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Union, cast, overload

import torch
from torch.utils.data import default_collate, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from ..engine import ids as keys
from ..errors import InvalidBatchError
from ..modules.cached import Cached
from ..modules.table import Table
from ..schema.declared import Batch as Rows
from ..tensors.memory import is_numeric, shared

#: What a dataset has for a sample: its row, or a pair of its row and its target.
Item = TypeVar("Item", covariant=True)
Value = TypeVar("Value")
Target = TypeVar("Target")
Source = Union[Cached[Rows], Table[Rows]]
Load = Union[Callable[["list[Any]"], Any], None]


class FeatureDataset(torch.utils.data.Dataset[Item]):
    """The rows of some ids, for a ``DataLoader``, Lightning or the ``Trainer`` of transformers.

    The rows that this process has computed are made durable first, so that workers find them.

    A ``DataLoader`` asks for a whole batch at once (``__getitems__``), which is one lookup, and ``default_collate`` leaves the batch as it was
    looked up. A ``collate_fn`` of another kind is :meth:`collate`. Workers that were forked read through the handle of their parent; those that
    were spawned open the table again. Rows are on the CPU, also without workers: a module on a GPU does not put them there, so that a
    ``DataLoader`` can pin them.

    Args:
        cache: A table or a cached module.
        ids: The ids of the samples, in the order of their indices. Those of a tensor, an array or a column of pandas are copied into a list.
        load: Loads the inputs of missing samples (``compute`` of a table); without it, every sample has to be stored.
        targets: Further values for each sample, such as labels: batches are then pairs. A tensor, an array, a sequence, or a column of pandas or
            pyarrow; they are read by position.

    To type checkers, it is one of its items: ``FeatureDataset[tuple[torch.Tensor, int]]`` has tensors as rows, and integers as targets.

    >>> import tempfile, torch, tcx_cache as tcx
    >>> table = tcx.Cache(tempfile.mkdtemp()).table("t_v1", outputs=tcx.f32[2])
    >>> _ = table.put(["a", "b"], torch.ones(2, 2))
    >>> dataset = tcx.torch.FeatureDataset(table, ["a", "b"])
    >>> next(iter(torch.utils.data.DataLoader(dataset, batch_size=2))).shape
    torch.Size([2, 2])
    """

    @overload
    def __init__(
        self: FeatureDataset[torch.Tensor], cache: Source[torch.Tensor], ids: Sequence[Any], load: Load = ..., targets: None = ...
    ) -> None: ...
    @overload
    def __init__(
        self: FeatureDataset[dict[str, torch.Tensor]],
        cache: Source[dict[str, torch.Tensor]],
        ids: Sequence[Any],
        load: Load = ...,
        targets: None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: FeatureDataset[Value], cache: Source[list[Value]], ids: Sequence[Any], load: Load = ..., targets: None = ...
    ) -> None: ...
    @overload
    def __init__(
        self: FeatureDataset[tuple[torch.Tensor, torch.Tensor]],
        cache: Source[torch.Tensor],
        ids: Sequence[Any],
        load: Load = ...,
        *,
        targets: torch.Tensor,
    ) -> None: ...
    @overload
    def __init__(
        self: FeatureDataset[tuple[torch.Tensor, Target]],
        cache: Source[torch.Tensor],
        ids: Sequence[Any],
        load: Load = ...,
        *,
        targets: Sequence[Target],
    ) -> None: ...
    @overload
    def __init__(self: FeatureDataset[Any], cache: Source[Any], ids: Sequence[Any], load: Load = ..., targets: Any = ...) -> None: ...
    def __init__(self, cache: Source[Any], ids: Sequence[Any], load: Load = None, targets: Any = None) -> None:
        if targets is not None and len(targets) != len(ids):
            raise InvalidBatchError(f"expected one target for each of {len(ids)} ids, found {len(targets)}")
        self.cache, self.load, self.targets = cache, load, _by_position(targets)
        #: Read one by one in each batch, which takes long for the elements of a tensor. A column of pandas would be read by its labels.
        self.ids: Sequence[Any] = ids if isinstance(ids, Sequence) and not isinstance(ids, (str, bytes)) else keys.listed(ids)
        # Another process finds durable rows only.
        cache.flush()

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Item:
        """The row of one sample, without the dimension of the batch."""
        features, targets = self._read([index])
        row = _row(features, 0)
        item: Any = row if self.targets is None else (row, targets[0])
        # Of the type that the overloads of `__init__` say.
        return cast(Item, item)

    def __getitems__(self, indices: list[int]) -> list[Batch]:
        """The rows of a batch, of one lookup: one item for each, which has all of them."""
        features, targets = self._read(indices)
        if self.targets is not None and not isinstance(targets, torch.Tensor):
            targets = default_collate(targets)
        value = features if self.targets is None else (features, targets)
        return [Batch(value, position, len(indices)) for position in range(len(indices))]

    def _read(self, indices: list[int]) -> tuple[Any, Any]:
        ids = [self.ids[index] for index in indices]
        features = self._fetch(ids)
        if self.targets is None:
            return features, None
        if isinstance(self.targets, torch.Tensor):
            return features, self.targets[torch.tensor(indices, device="cpu")]
        # A column of pandas is read by its labels otherwise.
        targets = getattr(self.targets, "iloc", self.targets)
        return features, [targets[index] for index in indices]

    def _fetch(self, ids: list[Any]) -> Any:
        # What a worker reads is sent to its parent.
        with contextlib.nullcontext() if get_worker_info() is None else shared():
            return self._found(ids)

    def _found(self, ids: list[Any]) -> Any:
        if isinstance(self.cache, Cached):
            return self.cache._fetch(ids, self.load, torch.device("cpu"))
        return self.cache.stored(ids) if self.load is None else self.cache.fetch(ids, self.load)

    @staticmethod
    def collate(batch: Any) -> Any:
        """A batch as it was looked up; for ``DataLoader(collate_fn=…)``."""
        return default_collate(batch)


def _by_position(targets: Any) -> Any:
    """Targets that are read by position.

    Raises:
        InvalidBatchError: if it is not known that they are, as of a dict.
    """
    if targets is None or is_numeric(targets) or isinstance(targets, (Sequence, torch.utils.data.Dataset)) or hasattr(targets, "iloc"):
        return targets
    if hasattr(targets, "to_pylist") or hasattr(targets, "to_list"):
        # Those of pyarrow are no values of Python.
        return targets.to_pylist() if hasattr(targets, "to_pylist") else targets.to_list()
    raise InvalidBatchError(
        f"targets: expected a tensor, an array, a list or another sequence, or a column of a table, found {type(targets).__name__}, of which it is not known "
        "which value belongs to which id; pass a list in the order of the ids"
    )


class Batch:
    """A sample of a batch that is collated already."""

    def __init__(self, value: Any, position: int, rows: int) -> None:
        #: The whole batch.
        self.value = value
        self._position, self._rows = position, rows

    @staticmethod
    def whole(samples: Sequence[Batch]) -> Any:
        """The batch of which these are all samples in order; ``None`` if they are others."""
        first = samples[0]
        is_whole = len(samples) == first._rows and all(own.value is first.value and own._position == place for place, own in enumerate(samples))
        return first.value if is_whole else None

    def row(self) -> Any:
        """The sample, without the dimension of the batch."""
        return _row(self.value, self._position)


def _collated(batch: Sequence[Batch], *, collate_fn_map: Any = None) -> Any:
    whole = Batch.whole(batch)
    # A data set around this one may choose among the samples.
    return default_collate([own.row() for own in batch]) if whole is None else whole


# As the documentation of `default_collate` advises for types of one's own.
default_collate_fn_map[Batch] = _collated


def _row(features: Any, position: int) -> Any:
    """The row of one sample of an output."""
    if isinstance(features, dict):
        return {name: _row(part, position) for name, part in features.items()}
    if isinstance(features, tuple):
        parts = [_row(part, position) for part in features]
        return type(features)(*parts) if hasattr(features, "_fields") else tuple(parts)
    if hasattr(features, "__dataclass_fields__"):
        fields = (field for field in dataclasses.fields(features) if field.init)
        return type(features)(**{field.name: _row(getattr(features, field.name), position) for field in fields})
    return None if features is None else features[position]
