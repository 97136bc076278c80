"""What a module computes with and its `state_dict` leaves out is known."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections import deque
from types import SimpleNamespace

import numpy
import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity.known import Known
from tcx_cache.identity.unsaved import Scan


class Scaled(torch.nn.Module):
    """Keeps a factor in some place."""

    def __init__(self, factor, place):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        with torch.no_grad():
            self.layer.weight.fill_(1.0)
            self.layer.bias.fill_(0.0)
        own = torch.tensor(float(factor))
        places = {
            "buffer": lambda: self.register_buffer("factor", own, persistent=False),
            "attribute": lambda: setattr(self, "factor", own),
            "list": lambda: setattr(self, "factors", [None, own]),
            "nested": lambda: setattr(self, "factors", {"a": ({"b": own},)}),
            "array": lambda: setattr(self, "factor", own.numpy()),
            "module": lambda: setattr(self, "parts", [Holder(own)]),
            "parameters": lambda: setattr(self, "parts", [torch.nn.Parameter(own, requires_grad=False)]),
            "dataclass": lambda: setattr(self, "kept", Kept([own])),
            "slots": lambda: setattr(self, "kept", Slotted(own)),
            "object": lambda: setattr(self, "kept", Plain(own)),
            "namespace": lambda: setattr(self, "kept", SimpleNamespace(own=own)),
            "deque": lambda: setattr(self, "kept", deque([own])),
            "partial": lambda: setattr(self, "kept", functools.partial(torch.mul, other=own)),
            "method": lambda: setattr(self, "kept", Holder(own).half_of),
            "partial of a method": lambda: setattr(self, "kept", functools.partial(Plain(own).plus, 1)),
            "method of a tensor": lambda: setattr(self, "kept", own.mul),
        }
        self.register_parameter("hidden", torch.nn.Parameter(own, requires_grad=False)) if place not in places else places[place]()
        self.place = place

    def state_dict(self, *args, **kwargs):
        found = super().state_dict(*args, **kwargs)
        if self.place == "dropped":
            del found["hidden"]
        if self.place == "replaced":
            found["hidden"] = torch.zeros(())
        return found

    def factor_of(self):
        value = {
            "buffer": lambda: self.factor,
            "attribute": lambda: self.factor,
            "array": lambda: torch.as_tensor(self.factor),
            "list": lambda: self.factors[1],
            "nested": lambda: self.factors["a"][0]["b"],
            "module": lambda: self.parts[0].own,
            "parameters": lambda: self.parts[0],
            "dataclass": lambda: self.kept.own[0],
            "slots": lambda: self.kept.own,
            "object": lambda: self.kept.own,
            "namespace": lambda: self.kept.own,
            "deque": lambda: self.kept[0],
            "partial": lambda: self.kept.keywords["other"],
            "method": lambda: self.kept.__self__.own,
            "partial of a method": lambda: self.kept.func.__self__.own,
            "method of a tensor": lambda: self.kept.__self__,
        }
        return value.get(self.place, lambda: self.hidden)()

    def forward(self, x):
        return self.layer(x) * self.factor_of()


class Holder(torch.nn.Module):
    def __init__(self, own):
        super().__init__()
        self.own = torch.nn.Parameter(own, requires_grad=False)

    def half_of(self, x):
        return x * self.own / 2


@dataclasses.dataclass
class Kept:
    own: list[torch.Tensor]


class Slotted:
    __slots__ = ("own",)

    def __init__(self, own):
        self.own = own


class Plain:
    def __init__(self, own):
        self.own = own

    def plus(self, more):
        return self.own + more


PLACES = ["buffer", "attribute", "list", "nested", "array", "module", "parameters", "dropped", "replaced"]
PLACES += ["dataclass", "slots", "object", "namespace", "deque", "partial"]
PLACES += ["method", "partial of a method", "method of a tensor"]


def scaled(factor, place):
    module = frozen(Scaled(factor, place))
    for part in [*getattr(module, "parts", []), getattr(getattr(module, "kept", None), "__self__", None)]:
        part.eval() if isinstance(part, torch.nn.Module) else None
    return module


@pytest.mark.parametrize("place", PLACES)
def test_what_state_dict_leaves_out_is_part_of_the_identity(directory, place):
    with tcx.cached(scaled(2, place), directory, id="m_v1") as cached:
        assert cached(torch.ones(1, 4), ids=["a"]).tolist() == [[8.0, 8.0]]
    with tcx.cached(scaled(2, place), directory, id="m_v1") as cached:
        assert cached.coverage(["a"]).is_complete
    with pytest.raises(tcx.MismatchError, match="`tensors`: .*not in `state_dict`|`buffers`: blake3"):
        tcx.cached(scaled(3, place), directory, id="m_v1")


@pytest.mark.parametrize("place", PLACES)
def test_what_state_dict_leaves_out_is_watched(directory, place):
    module = scaled(2, place)
    cached = tcx.cached(module, directory, id="m_v1", flush_interval=3600)
    cached(torch.ones(1, 4), ids=["a"])
    found = module.factor_of()
    (found.data if isinstance(found, torch.nn.Parameter) else found).fill_(3.0)
    with pytest.raises(tcx.ModuleViolationError, match="changed"):
        cached(torch.ones(1, 4), ids=["b"])
    with pytest.raises(tcx.ModuleViolationError, match="1 computed row was not kept"):
        cached.flush()


def test_a_method_of_a_part_leaves_the_names_of_its_weights_as_they_are():
    class Part(torch.nn.Module):
        def __init__(self, has_method):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)
            if has_method:
                self.run = self.layer.forward

        def forward(self, x):
            return self.layer(x)

    parts = [frozen(Part(has_method)) for has_method in (False, True)]
    parts[1].load_state_dict(parts[0].state_dict())
    plain, known = (Known.of(part, Scan(part)) for part in parts)
    [(label, used)] = known.unsaved
    assert label == "functions" and used.startswith("run.__self__ is layer: ")
    assert dataclasses.replace(known, unsaved=()) == plain


def test_tensors_that_follow_from_the_configuration_need_not_be_in_the_identity_of_rust(directory):
    def opened(assumed, fields):
        return tcx.cached(scaled(2, "buffer"), directory, id="m_v1", type_name="Scaled", fields=fields, assume_stateless=assumed)

    fields = {"layer": tcx.WEIGHTS, "factor": 2}
    with opened(["factor"], fields) as cached:
        assert cached(torch.ones(1, 4), ids=["a"]).tolist() == [[8.0, 8.0]]
    with opened(["factor"], fields) as cached:
        assert cached.coverage(["a"]).is_complete
        cached.module.factor.fill_(3)
        with pytest.raises(tcx.ModuleViolationError, match="`factor`: changed"):
            cached(torch.ones(1, 4), ids=["b"])
    for assumed, given, message in [
        (["layer.weight"], fields, "`state_dict` leaves out .here: factor., found `layer.weight`"),
        ("factor", fields, "expected a list of names"),
        (["factor"], None, "found `factor`; tensors of the module itself can be left out with `fields=` only"),
    ]:
        with pytest.raises(tcx.InvalidSettingsError, match=message):
            opened(assumed, given)


@pytest.mark.parametrize("place", PLACES)
def test_what_state_dict_leaves_out_is_refused_where_rust_names_the_identity(place):
    with pytest.raises(tcx.InvalidWeightsError, match="that `state_dict` leaves out .*leave `fields=` out"):
        tcx.cached(scaled(2, place), None, id="m_v1", type_name="Scaled", fields={"layer": tcx.WEIGHTS})


def test_parts_that_are_not_registered_are_in_evaluation_mode_and_without_gradients():
    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = [torch.nn.Linear(4, 2)]

        def forward(self, x):
            return self.parts[0](x)

    module = frozen(Hidden())
    with pytest.raises(tcx.InvalidWeightsError, match=r"its part `parts\[0\]` is in training mode"):
        tcx.cached(module, None, id="m_v1")
    module.parts[0].eval()
    with pytest.raises(tcx.InvalidWeightsError, match=r"weight `parts\[0\].weight`: tracks gradients"):
        tcx.cached(module, None, id="m_v1")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_attributes_that_a_failed_forward_has_added_are_its_own(directory, error):
    class Keeping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.grids = {}

        def forward(self, x):
            self.grids.setdefault(x.shape[-1], torch.ones(x.shape[-1]))
            if x.shape[-1] > 4:
                raise error
            return x.mean(-1, keepdim=True)

    with tcx.cached(Keeping().eval(), directory, id="m_v1", flush_interval=3600) as cached:
        cached(torch.ones(2, 4), ids=["a", "b"])
        with pytest.raises(error):
            cached(torch.ones(2, 8), ids=["c", "d"])
        cached(torch.ones(2, 4), ids=["e", "f"])
        cached.flush()
        assert cached.coverage(["a", "b", "e", "f"]).is_complete


def test_attributes_that_forward_keeps_for_later_are_its_own(directory):
    class Keeping(torch.nn.Module):
        def forward(self, x):
            self.last = x.mean()
            self.masks = {len(x): torch.ones(len(x))}
            return x * 2

    module = Keeping().eval()
    with tcx.cached(module, directory, id="m_v1") as cached:
        for number in range(3):
            cached(torch.randn(2, 4), ids=[f"{number} a", f"{number} b"])
    with tcx.cached(Keeping().eval(), directory, id="m_v1") as cached:
        assert cached.coverage(["0 a"]).is_complete
    # One that was there before decides outputs as far as can be seen.
    with pytest.raises(tcx.MismatchError, match="`tensors`: absent from the cache"):
        tcx.cached(module, directory, id="m_v1")
    other = tcx.cached(module, None, id="m_v1")
    with pytest.raises(tcx.ModuleViolationError, match="if `forward` keeps it for later, delete it before the module is cached"):
        other(torch.randn(2, 4), ids=["a", "b"])


def test_an_attribute_that_is_added_between_batches_is_noticed(linear):
    cached = tcx.cached(linear, None, id="m_v1")
    cached(torch.ones(1, 4), ids=["a"])
    linear.factor = torch.ones(1)
    with pytest.raises(tcx.ModuleViolationError, match="weight `factor`: was added"):
        cached(torch.ones(1, 4), ids=["b"])


def test_objects_without_tensors_cost_no_walk_for_each_batch(linear):
    linear.file, linear.kept = pathlib.PurePath("a/b"), Slotted("no tensor")
    assert Scan(linear).contents() is not None
    linear.kept = Slotted(torch.ones(1))
    assert Scan(linear).contents() is None
