"""Tensors, arrays and numbers of which a copy could be another value: they are kept as they are, or refused."""

from __future__ import annotations

import numpy
import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.tensors.memory import shared
from tcx_cache.torch import FeatureDataset


@pytest.fixture
def elsewhere():
    """A program whose tensors are on another device by default."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_rows_are_read_into_memory_of_the_cpu_whatever_the_default_device_is(directory, linear, elsewhere):
    inputs = torch.arange(12.0, device="cpu").reshape(3, 4)
    expected = linear(inputs)
    with tcx.cached(linear, directory, id="linear_v1") as cached:
        for _ in range(2):
            found = cached(inputs, ids=["a", "b", "c"])
            assert found.device.type == "cpu" and torch.equal(found, expected)
        with shared():
            assert torch.equal(cached.fetch(["c", "a"]), expected[[2, 0]])
        dataset = FeatureDataset(cached, ["a", "b", "c"], targets=torch.arange(3, device="cpu"))
        batch, _ = dataset.__getitems__([2, 1])
        assert torch.equal(batch.value[0], expected[[2, 1]]) and batch.value[1].tolist() == [2, 1]


class Named(torch.Tensor):
    """Loses its class when rows are selected, as the tensors of torchvision do."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs or {})


class Kept(torch.Tensor):
    """Keeps it, as subclasses do by default."""


class Dispatching(torch.nn.Module):
    def forward(self, x):
        return torch.Tensor(x * 2 if type(x) in (Named, Kept) else x)


def test_a_tensor_of_a_class_that_the_module_would_not_see_is_refused():
    x = torch.randn(3, 2)
    cached = tcx.cached(Dispatching().eval(), None, id="dispatching_v1")
    assert torch.equal(cached(x.as_subclass(Kept), ids=["a", "b", "c"]), 2 * x)
    with pytest.raises(tcx.InvalidBatchError, match="argument 0 is a Named, which becomes another class of tensor"):
        cached(x.as_subclass(Named), ids=["d", "e", "f"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_refused_with_what_to_do(layout):
    if layout is torch.jagged:
        pytest.importorskip("sympy", reason="torch makes jagged tensors with sympy")

    def nested(x):
        return torch.nested.nested_tensor([row[: number + 1] for number, row in enumerate(x)], layout=layout)

    class Nesting(torch.nn.Module):
        def forward(self, x):
            return nested(x)

    with pytest.raises(tcx.InvalidBatchError, match="argument 0 is a nested tensor.*`unbind"):
        tcx.cached(torch.nn.Identity().eval(), None, id="same_v1")(nested(torch.randn(2, 3)), ids=["a", "b"])
    for outputs in (None, tcx.f32[3], tcx.f32[None]):
        with pytest.raises(tcx.InvalidOutputError, match="found a nested tensor"):
            tcx.cached(Nesting().eval(), None, id="nesting_v1", outputs=outputs)(torch.randn(2, 3), ids=["a", "b"])


def test_a_masked_array_is_refused(cache):
    table = cache.table("t_v1")
    with pytest.raises(tcx.InvalidOutputError, match="output: expected a plain array, found a masked one"):
        table.put(["a", "b"], numpy.ma.array([[1.0], [2.0]], mask=[[True], [False]]))


def test_an_integer_that_a_float_would_round_is_refused(cache):
    table = cache.table("t_v1", outputs=float)
    table.put(["a", "b"], [1.5, 2])
    assert table.stored(["b"]) == [2.0]
    for number in ((1 << 53) + 1, -(1 << 60) - 1, 1 << 2000):
        with pytest.raises(tcx.InvalidOutputError, match="an int for sample 0 of the batch that a float would round"):
            table.put(["c"], [number])


@pytest.mark.parametrize("with_targets", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_is_one_of_several_that_are_read_together(directory, with_targets, workers):
    table, numbers = tcx.Cache(directory).table("t_v1", outputs={"dense": tcx.f32[2]}, ids=int), torch.arange(12.0)
    table.put(range(12), {"dense": numbers.repeat(2, 1).T.contiguous()})
    own = FeatureDataset(table, range(12), targets=torch.arange(12) if with_targets else None)
    stacked = torch.utils.data.StackDataset(own, torch.utils.data.TensorDataset(numbers))
    seen = []
    for features, (others,) in torch.utils.data.DataLoader(stacked, batch_size=5, shuffle=True, num_workers=workers):
        rows, targets = features if with_targets else (features, others.long())
        assert torch.equal(rows["dense"], others.repeat(2, 1).T) and torch.equal(targets, others.long())
        seen += others.tolist()
    assert sorted(seen) == numbers.tolist()
    named = torch.utils.data.StackDataset(features=own, number=numbers)
    assert len(next(iter(torch.utils.data.DataLoader(named, batch_size=5)))["number"]) == 5
    # A data set around it may leave samples out.
    chosen = own.__getitems__([3, 5, 7])[::2]
    assert chosen[1].row()[0]["dense"].tolist() == [7, 7] if with_targets else chosen[1].row()["dense"].tolist() == [7, 7]
    rows = FeatureDataset.collate(chosen)
    assert (rows[0] if with_targets else rows)["dense"].tolist() == [[3, 3], [7, 7]]
