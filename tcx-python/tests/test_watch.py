"""A module is watched between and within batches: quickly, and whatever is replaced in it."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy
import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity import watch, watched


class Network(torch.nn.Module):
    """Has what modules have: parts, buffers, and tensors in containers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("scale", torch.ones(4), persistent=False)
        self.factors = {"list": [torch.ones(1), 3], "tuple": (torch.ones(1),)}
        self.sizes, self.outer = [1, 2], [Holder()]

    def forward(self, images):
        factors = self.factors["list"][0] * self.factors["tuple"][0] * self.outer[0].factor
        return self.layers(images - self.mean) * self.scale * factors


class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.ones(1)


class Other(torch.nn.Linear):
    """Linear, in another class."""


def inputs(start):
    return torch.randn(4, 4), [f"id {number}" for number in range(start, start + 4)]


def computed(network, batches=3):
    """A cached module that has computed some batches, so that it knows what the module has."""
    cached = tcx.cached(network, None, id="m_v1")
    for number in range(batches):
        images, ids = inputs(4 * number)
        cached(images, ids=ids)
    return cached


def transpose(network):
    network.layers[0].weight.data = network.layers[0].weight.data.t()


def swap_dict(network):
    """As some programs restore a module."""
    layer = network.layers[0]
    layer.__dict__ = {**vars(layer), "_parameters": vars(frozen(torch.nn.Linear(4, 4)))["_parameters"]}


def swap_class(network):
    network.layers[0].__class__ = Other


CHANGES = {
    "a weight is another one": lambda own: setattr(own.layers[2], "weight", torch.nn.Parameter(torch.randn(4, 4), requires_grad=False)),
    "a weight is written": lambda own: own.layers[0].weight.add_(1),
    "a weight is written past torch": lambda own: own.layers[0].weight.data.numpy().fill(3),
    "a weight is transposed": transpose,
    "a weight has another dtype": lambda own: setattr(own.layers[0].weight, "data", own.layers[0].weight.data.view(torch.int32)),
    "a weight tracks gradients": lambda own: own.layers[0].weight.requires_grad_(True),
    "a buffer is another one": lambda own: setattr(own, "mean", torch.ones(4)),
    "a hidden buffer is another one": lambda own: setattr(own, "scale", torch.zeros(4)),
    "a part is another one": lambda own: own.layers.__setitem__(0, frozen(torch.nn.Linear(4, 4))),
    "a part has another class": swap_class,
    "a part has another dict": swap_dict,
    "a part is added": lambda own: own.layers.append(torch.nn.Tanh().eval()),
    "a part is removed": lambda own: own.layers.__delitem__(1),
    "an item of a list is another one": lambda own: own.factors["list"].__setitem__(0, torch.zeros(1)),
    "an item of a list is added": lambda own: own.factors["list"].append(torch.zeros(1)),
    "an item of a dict is another one": lambda own: own.factors.__setitem__("tuple", (torch.zeros(1),)),
    "an item of a dict is removed": lambda own: own.factors.pop("list"),
    "an attribute is added": lambda own: setattr(own, "more", torch.ones(1)),
    "an attribute of a part in a list": lambda own: setattr(own.outer[0], "factor", torch.zeros(1)),
    "a part is trained": lambda own: own.layers[0].train(),
    "a part in a list is trained": lambda own: own.outer[0].train(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_replaced_between_two_batches_is_noticed(change):
    network = frozen(Network())
    network.outer[0].eval()
    cached = computed(network)
    CHANGES[change](network)
    for _ in range(2):
        with pytest.raises(tcx.ModuleViolationError):
            images, ids = inputs(100)
            cached(images, ids=ids)
    assert cached.coverage([f"id {number}" for number in range(100, 104)]).stored == 0


def test_a_module_in_which_nothing_is_replaced_is_walked_once(monkeypatch):
    walks = []
    scan = watch.Scan
    monkeypatch.setattr(watch, "Scan", lambda module, *others: walks.append(module) or scan(module, *others))
    network = frozen(Network())
    network.outer[0].eval()
    cached = computed(network, batches=5)
    assert len(walks) == 3, "to find its parts, when it is frozen with their locks held, and before the first batch"
    network.sizes.append(3)
    images, ids = inputs(100)
    cached(images, ids=ids)
    assert len(walks) == 4, "a number is no weight, and what it replaces is looked at once"


def test_the_device_of_the_weights_is_theirs_after_a_move(directory, linear):
    computing = tcx.cached(linear, directory, id="m_v1")._computing
    assert [computing.device.type for _ in range(2)] == ["cpu"] * 2
    linear.to("meta")
    assert computing.device.type == "meta"
    assert tcx.cached(frozen(torch.nn.ReLU()), directory, id="n_v1")._computing.device.type == "cpu"


def calls(work):
    """How many functions in Python a call runs, without those that what is garbage by then calls at its end."""
    found = 0

    def count(_frame, event, _argument):
        nonlocal found
        found += event == "call"

    gc.collect()
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def test_a_batch_takes_few_calls_whatever_the_size_of_the_module(directory):
    computed_calls, found_calls = [], []
    for depth in (1, 50):
        network = frozen(torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(depth)]))
        cached = tcx.cached(network, directory, id=f"m{depth}_v1", outputs=tcx.f32[4])
        images, ids = inputs(0)
        cached(images, ids=ids)
        images, ids = inputs(4)
        computed_calls.append(calls(lambda: cached(images, ids=ids)) - calls(lambda: network(images)))
        found_calls.append(calls(lambda: cached(images, ids=ids)))
    assert computed_calls[0] == computed_calls[1] and found_calls[0] == found_calls[1]
    assert computed_calls[0] < 200 and found_calls[0] < 60, (computed_calls, found_calls)


def test_a_module_that_keeps_its_last_output_is_computed_with():
    class Keeps(torch.nn.Module):
        def forward(self, images):
            self.last = images * 2
            return self.last

    cached = computed(Keeps().eval(), batches=5)
    assert cached.coverage([f"id {number}" for number in range(20)]).is_complete


@pytest.mark.parametrize("how", ["by the handle", "before a flush"])
def test_memory_that_moved_weights_had_is_freed(directory, how):
    array = numpy.ones((2, 4), numpy.float32)
    linear = frozen(torch.nn.Linear(4, 2, bias=False))
    linear.weight.data = torch.from_numpy(array)
    cached = tcx.cached(linear, directory, id="m_v1", flush_interval=3600)
    cached(torch.ones(2, 4), ids=["a", "b"])
    memory = weakref.ref(array)
    del array
    if how == "by the handle":
        # As `to` does for another device.
        cached._apply(torch.clone)
    else:
        linear._apply(torch.clone)
        cached.flush()
    gc.collect()
    assert memory() is None
    cached(torch.ones(2, 4), ids=["c", "d"])
    linear.weight.data.fill_(3)
    with pytest.raises(tcx.ModuleViolationError, match="weight `weight`: changed"):
        cached.flush()


def test_a_move_to_memory_with_other_values_is_noticed_by_the_next_batch(directory, linear):
    cached = tcx.cached(linear, directory, id="m_v1")
    cached(torch.ones(2, 4), ids=["a", "b"])
    before = linear.weight.clone()
    cached._apply(lambda own: own * 2)
    cached._apply(lambda own: own / 2)
    assert torch.equal(linear.weight, before)
    cached(torch.ones(2, 4), ids=["c", "d"])
    cached.to("meta")
    linear.load_state_dict({"weight": before + 1, "bias": torch.zeros(2)}, assign=True)
    linear.requires_grad_(False)
    with pytest.raises(tcx.ModuleViolationError, match="changed after it was frozen"):
        cached(torch.ones(2, 4), ids=["e", "f"])
    assert cached.coverage(["a", "b", "c", "d"]).is_complete


def test_values_that_change_before_a_move_are_noticed(directory, linear):
    cached = tcx.cached(linear, directory, id="m_v1", flush_interval=3600)
    cached(torch.ones(2, 4), ids=["a", "b"])
    before = linear.weight.clone()
    linear.weight.data.numpy().fill(3)
    linear.weight.data = before
    cached._apply(torch.clone)
    with pytest.raises(tcx.ModuleViolationError, match="weight `weight`: changed"):
        cached.flush()


def test_a_sample_that_fails_after_a_move_reads_no_memory_that_was_freed(monkeypatch):
    array = numpy.ones((4, 4), numpy.float32)
    linear = frozen(torch.nn.Linear(4, 4, bias=False))
    linear.weight.data = torch.from_numpy(array)
    cached = tcx.cached(linear, None, id="m_v1")
    cached(torch.ones(2, 4), ids=["a", "b"])
    memory, address = weakref.ref(array), array.ctypes.data
    del array
    linear.weight.data = linear.weight.data.clone()
    with monkeypatch.context() as failing:
        # As if a GPU had no memory left.
        failing.setattr(watched.sample, "Sample", lambda weights: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cached(torch.ones(2, 4), ids=["c", "d"])
    gc.collect()
    read, sample = [], watched._native.sample
    monkeypatch.setattr(watched._native, "sample", lambda places, lines: read.extend(own for own, _ in places) or sample(places, lines))
    cached._computing.watch._sampled.is_other()
    assert memory() is not None or address not in read
    cached(torch.ones(2, 4), ids=["c", "d"])
    linear.weight.data.numpy().fill(3)
    with pytest.raises(tcx.ModuleViolationError, match="weight `weight`: changed in place"):
        cached(torch.ones(2, 4), ids=["e", "f"])


def test_a_write_to_weights_in_channels_last_is_noticed_by_the_next_batch():
    network = frozen(torch.nn.Conv2d(8, 8, 3)).to(memory_format=torch.channels_last)
    cached, images = tcx.cached(network, None, id="m_v1"), torch.randn(2, 8, 5, 5)
    cached(images, ids=["a", "b"])
    before = network.weight.clone()
    network.weight.data.fill_(3)
    with pytest.raises(tcx.ModuleViolationError, match="weight `weight`: changed in place"):
        cached(images, ids=["c", "d"])
    network.weight.data.copy_(before)


class Scaled(torch.nn.Module):
    """Has a number that only its `state_dict` shows."""

    def __init__(self, scale=1.0, size=1):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4, bias=False)
        torch.nn.init.ones_(self.layer.weight)
        self.scale, self.size, self.asked = scale, size, 0

    def get_extra_state(self):
        self.asked += 1
        return torch.full((self.size,), self.scale)

    def set_extra_state(self, state):
        self.scale = float(state[0])

    def forward(self, x):
        return self.layer(x) * self.scale


def load_scale(network, scale):
    network.load_state_dict({**network.state_dict(), "_extra_state": torch.full((network.size,), scale)})


ENTRY = "`state_dict` entry `_extra_state`: changed after it was frozen, so that rows computed before and after would differ"


def test_an_entry_of_the_state_dict_that_no_weight_holds_is_watched(directory):
    network = frozen(Scaled())
    cached = tcx.cached(network, directory, id="m_v1")
    for number in range(3):
        images, ids = inputs(4 * number)
        cached(images, ids=ids)
    cached.flush()
    load_scale(network, 1.0)
    images, ids = inputs(12)
    cached(images, ids=ids)
    cached.flush()
    load_scale(network, 2.0)
    images, ids = inputs(16)
    with pytest.raises(tcx.ModuleViolationError, match=ENTRY):
        cached(images, ids=ids)
    # That is final.
    load_scale(network, 1.0)
    with pytest.raises(tcx.ModuleViolationError, match=ENTRY):
        cached(images, ids=ids)
    assert cached.coverage([f"id {number}" for number in range(20)]).missing == ids


@pytest.mark.parametrize("size", [1, 1 << 19])
def test_an_entry_of_the_state_dict_that_changes_later_stops_rows_from_becoming_durable(directory, size):
    network, options = frozen(Scaled(size=size)), {"id": "m_v1", "outputs": tcx.f32[4], "flush_interval": 3600}
    cached = tcx.cached(network, directory, **options)
    images, ids = inputs(0)
    cached(images, ids=ids)
    asked = network.asked
    network.scale = 2.0
    with pytest.raises(tcx.ModuleViolationError, match=ENTRY):
        cached.flush()
    # A large one is looked at before rows become durable only.
    assert (asked > 2) == (size == 1)
    assert tcx.cached(frozen(Scaled(size=size)), directory, **options).coverage(ids).missing == ids


def test_a_module_whose_state_dict_has_its_weights_only_is_asked_for_it_once(directory, linear):
    calls = []
    linear.register_state_dict_pre_hook(lambda *_: calls.append(1))
    cached = tcx.cached(torch.nn.Sequential(linear, torch.nn.BatchNorm1d(2)).eval().requires_grad_(False), directory, id="m_v1")
    before = len(calls)
    for number in range(3):
        images, ids = inputs(4 * number)
        cached(images, ids=ids)
    cached.flush()
    assert len(calls) == before


def test_a_default_dtype_that_is_set_for_a_moment_changes_no_entry_of_the_state_dict(directory):
    network = frozen(Scaled())
    cached = tcx.cached(network, directory, id="m_v1", flush_interval=3600)
    images, ids = inputs(0)
    cached(images, ids=ids)
    torch.set_default_dtype(torch.float64)
    try:
        cached.flush()
    finally:
        torch.set_default_dtype(torch.float32)
    images, ids = inputs(4)
    cached(images, ids=ids)
