"""Ids and targets in columns of pandas and other libraries are read by position, in whatever order their labels are."""

from __future__ import annotations

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.torch import FeatureDataset


class Labelled:
    """A column that is read by its labels, as one of pandas."""

    def __init__(self, values, labels):
        self._by_label, self._values = dict(zip(labels, values)), values

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)

    def __getitem__(self, label):
        return self._by_label[label]

    @property
    def iloc(self):
        return self._values


def labelled(values, labels, is_real):
    return pytest.importorskip("pandas").Series(values, index=labels) if is_real else Labelled(values, labels)


REAL = pytest.mark.parametrize("is_real", [False, True], ids=["stand-in", "pandas"])


@pytest.fixture
def table(cache):
    table = cache.table("t_v1", outputs=int, ids=str)
    table.put(["a", "b", "c"], [1, 2, 3])
    return table


@REAL
def test_a_column_is_read_by_position(table, is_real):
    # As after a shuffle, or a filter.
    ids, targets = labelled(["a", "b", "c"], [2, 0, 1], is_real), labelled([10, 20, 30], [1, 2, 0], is_real)
    dataset = FeatureDataset(table, ids, targets=targets)
    assert [dataset[index] for index in range(3)] == [(1, 10), (2, 20), (3, 30)]
    [(rows, found)] = torch.utils.data.DataLoader(dataset, batch_size=3)
    assert (rows, found.tolist()) == ([1, 2, 3], [10, 20, 30])


@REAL
def test_a_column_with_other_labels_is_read(table, is_real):
    ids, targets = labelled(["a", "c"], [100, 300], is_real), labelled([10, 30], [100, 300], is_real)
    dataset = FeatureDataset(table, ids, targets=targets)
    assert [dataset[index] for index in range(2)] == [(1, 10), (3, 30)]


@pytest.mark.parametrize("targets", [{0: 10, 1: 20, 2: 30}, {10, 20, 30}])
def test_targets_that_are_not_read_by_position_are_refused(table, targets):
    with pytest.raises(tcx.InvalidBatchError, match="targets: expected .* found (dict|set)"):
        FeatureDataset(table, ["a", "b", "c"], targets=targets)


def test_targets_of_pyarrow_are_values_of_python(table):
    pyarrow = pytest.importorskip("pyarrow")
    dataset = FeatureDataset(table, pyarrow.array(["a", "b", "c"]), targets=pyarrow.array([10, 20, 30]))
    [(_, found)] = torch.utils.data.DataLoader(dataset, batch_size=3)
    assert found.tolist() == [10, 20, 30]
