"""Epochs and data sets: their ids, and rows that have no elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import pytest
import torch
from torch.utils.data import DataLoader

import tcx_cache as tcx


@pytest.fixture
def table(cache):
    """Has the squares of 20 numbers."""
    own = cache.table("squares_v1", outputs=int, ids=int)
    own.put(range(20), [number * number for number in range(20)])
    return own


class Counted(Sequence):
    """The ids from 0, which counts the slices that were made of it."""

    def __init__(self, length):
        self.length, self.slices = length, 0

    def __len__(self):
        return self.length

    def __getitem__(self, part):
        assert isinstance(part, slice)
        self.slices += 1
        return range(self.length)[part]


ORDERS = [
    torch.arange(19, -1, -1),
    torch.arange(19, -1, -1, dtype=torch.int16),
    torch.arange(20).flip(0)[::1],
    numpy.arange(20)[::-1],
    numpy.arange(20, dtype=numpy.uint8)[::-1],
    numpy.array([*range(20)][::-1], dtype=object),
    range(19, -1, -1),
    [*range(20)][::-1],
]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_ids_of_an_epoch_are_those_of_python_whatever_its_order_is_held_in(table, order, prefetch, drop_last):
    found = list(tcx.torch.epoch(table, order, 8, prefetch=prefetch, drop_last=drop_last))
    assert [len(ids) for ids, _ in found] == ([8, 8] if drop_last else [8, 8, 4])
    ids = [own for batch, _ in found for own in batch]
    assert ids == [*range(20)][::-1][: len(ids)] and {*map(type, ids)} == {int}
    assert [value for _, rows in found for value in rows] == [own * own for own in ids]


def test_ids_of_an_epoch_that_are_strings_in_an_array_are_those_of_python(cache):
    table = cache.table("lengths_v1", outputs=int, ids=str)
    table.put(["a", "bb", "ccc"], [1, 2, 3])
    (batch,) = tcx.torch.epoch(table, numpy.array(["ccc", "a", "bb"]), 3)
    assert batch == (["ccc", "a", "bb"], [3, 1, 2]) and {*map(type, batch[0])} == {str}


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_sequence_is_sliced_when_its_batches_are_read(table, prefetch):
    order = Counted(20)
    epoch = tcx.torch.epoch(table, order, 2, prefetch=prefetch)
    assert order.slices <= prefetch + 1
    assert next(epoch)[0] == [0, 1]
    assert 1 <= order.slices <= prefetch + 2
    assert [own for batch, _ in epoch for own in batch] == [*range(2, 20)] and order.slices == 10


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("made", [list, lambda ids: torch.tensor([*ids]), numpy.array])
def test_an_order_that_is_shuffled_during_its_epoch_is_that_of_the_next_one(table, made, prefetch):
    order, other = made(range(20)), made(range(19, -1, -1))
    epoch = tcx.torch.epoch(table, order, 2, prefetch=prefetch)
    first = next(epoch)[0]
    order[:] = other
    assert [*first, *(own for batch, _ in epoch for own in batch)] == [*range(20)]
    assert next(tcx.torch.epoch(table, order, 2, prefetch=prefetch))[0] == [19, 18]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_of_a_sequence_is_raised_at_its_batch(table, prefetch):
    class Failing(Counted):
        def __getitem__(self, part):
            if part.start == 4:
                raise ZeroDivisionError
            return super().__getitem__(part)

    epoch = tcx.torch.epoch(table, Failing(20), 2, prefetch=prefetch)
    assert [next(epoch)[0], next(epoch)[0]] == [[0, 1], [2, 3]]
    with pytest.raises(ZeroDivisionError):
        next(epoch)


@pytest.mark.parametrize("ids", [torch.arange(19, -1, -1), numpy.arange(20)[::-1], [*range(19, -1, -1)]])
def test_a_dataset_has_the_ids_of_a_tensor_as_those_of_python(table, ids):
    asked = []

    class Table:
        def flush(self):
            pass

        def stored(self, batch):
            asked.extend(batch)
            return table.stored(batch)

    dataset = tcx.torch.FeatureDataset(Table(), ids)
    assert len(dataset) == 20 and dataset[3] == 256
    assert asked == [16] and {*map(type, asked)} == {int}
    assert [*DataLoader(tcx.torch.FeatureDataset(table, ids), batch_size=10)][1] == [own * own for own in range(9, -1, -1)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_whose_rows_have_no_elements_is_read_in_workers(cache, workers, monkeypatch):
    def new_shared(size, device="cpu", make=torch.UntypedStorage._new_shared):
        # As versions of torch that map any number of bytes.
        assert size > 0, "unable to mmap 0 bytes"
        return make(size, device=device)

    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", new_shared)
    ragged = cache.table("boxes_v1", outputs={"boxes": tcx.f32[None, 4], "score": tcx.f32[1]}, ids=int)
    boxes = [torch.zeros(0, 4), torch.zeros(0, 4), torch.ones(2, 4)]
    ragged.put(range(3), {"boxes": boxes, "score": torch.ones(3, 1)})
    found = list(DataLoader(tcx.torch.FeatureDataset(ragged, range(3)), batch_size=2, num_workers=workers))
    assert [own.shape for batch in found for own in batch["boxes"]] == [(0, 4), (0, 4), (2, 4)]
    assert [batch["score"].shape for batch in found] == [(2, 1), (1, 1)]
