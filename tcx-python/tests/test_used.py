"""What weights, classes, containers and functions hold is known: also which part of a module a function uses."""

from __future__ import annotations

from collections import UserDict, deque
from types import MappingProxyType

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity.known import Known
from tcx_cache.identity.unsaved import Scan

ONES = torch.ones(1, 4)


class Gate:
    """A key of a dict; all have the same text."""

    def __repr__(self):
        return "Gate()"


class Bank(dict):
    """A dict with attributes."""


class Row(list):
    """A list with attributes."""


class Line(deque):
    """A deque with attributes."""


UNSEEN = {}


def with_attribute(cls, value):
    held = cls()
    held.scale = value
    return held


PLACES = {
    "weight": lambda own, value: setattr(own.weight, "scale", value),
    "object of a weight": lambda own, value: setattr(own.weight, "state", {"scale": value}),
    "buffer": lambda own, value: setattr(own.bias, "scale", value),
    "attribute": lambda own, value: setattr(own.other, "scale", value),
    "key of the same text": lambda own, value: setattr(own, "gates", {Gate(): value, Gate(): torch.zeros(4)}),
    "dict": lambda own, value: setattr(own, "bank", with_attribute(Bank, value)),
    "list": lambda own, value: setattr(own, "bank", with_attribute(Row, value)),
    "deque": lambda own, value: setattr(own, "bank", with_attribute(Line, value)),
    "mapping": lambda own, value: setattr(own, "bank", MappingProxyType({"scale": value})),
    "user dict": lambda own, value: setattr(own, "bank", UserDict(scale=value)),
    "class": lambda own, value: setattr(type(own), "scale", value),
}


def scaled(place, factor):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("bias", torch.zeros(4))
            self.other = torch.zeros(4)

        def forward(self, x):
            return x * self.weight * self.value

    own = Scaled()
    value = torch.full((4,), float(factor))
    PLACES[place](own, value)
    # Where a walk does not look: no code names this dict.
    UNSEEN[id(Scaled)] = value
    Scaled.value = property(lambda self: globals()["UNSEEN"][id(type(self))])
    return frozen(own)


@pytest.mark.parametrize("place", PLACES)
def test_values_in_unusual_places_are_part_of_the_identity(directory, place):
    with tcx.cached(scaled(place, 2), directory, id="m") as cached:
        assert cached(ONES, ids=["a"]).tolist() == [[2.0] * 4]
    with tcx.cached(scaled(place, 2), directory, id="m") as cached:
        assert cached.coverage(["a"]).is_complete
    with pytest.raises(tcx.MismatchError):
        tcx.cached(scaled(place, 3), directory, id="m")(ONES, ids=["a"])


@pytest.mark.parametrize("place", PLACES)
def test_values_in_unusual_places_are_watched(directory, place):
    module = scaled(place, 2)
    cached = tcx.cached(module, directory, id="m")
    cached(ONES, ids=["a"])
    module.value.fill_(3)
    with pytest.raises(tcx.ModuleViolationError, match="changed"):
        cached(ONES, ids=["b"])


def test_a_tensor_of_a_class_that_is_replaced_is_noticed(directory):
    module = scaled("class", 2)
    cached = tcx.cached(module, directory, id="m")
    cached(ONES, ids=["a"])
    type(module).scale = torch.full((4,), 3.0)
    with pytest.raises(tcx.ModuleViolationError, match="weight `__class__.scale`: changed"):
        cached(ONES, ids=["b"])


class Chooses(torch.nn.Module):
    """Uses one of its parts by a function or a method."""

    def __init__(self, how, which):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(4))
        self.b = torch.nn.Parameter(torch.full((4,), 2.0))
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        tensor, part = {"a": (self.a, self.one), "b": (self.b, self.two)}[which]
        self.use = {
            "tensor of a function": lambda: lambda x: x * tensor,
            "part of a function": lambda: lambda x: part(x),
            "method": lambda: part.forward,
        }[how]()

    def forward(self, x):
        return self.use(x)


HOW = ["tensor of a function", "part of a function", "method"]


@pytest.mark.parametrize("how", HOW)
def test_which_part_a_function_uses_is_part_of_the_identity(directory, how):
    def made(which):
        torch.manual_seed(0)
        return frozen(Chooses(how, which))

    with tcx.cached(made("a"), directory, id="m") as cached:
        cached(ONES, ids=["a"])
    with tcx.cached(made("a"), directory, id="m") as cached:
        assert cached.coverage(["a"]).is_complete
    with pytest.raises(tcx.MismatchError):
        tcx.cached(made("b"), directory, id="m")(ONES, ids=["a"])


@pytest.mark.parametrize("how", HOW)
def test_a_function_that_uses_another_part_is_noticed(directory, how):
    module = frozen(Chooses(how, "a"))
    cached = tcx.cached(module, directory, id="m")
    cached(ONES, ids=["a"])
    module.use = frozen(Chooses(how, "b")).use if how == "tensor of a function" else module.two.forward
    with pytest.raises(tcx.ModuleViolationError):
        cached(ONES, ids=["b"])


def test_a_module_that_uses_itself_has_the_identity_of_one_that_does_not(directory):
    class Own(torch.nn.Module):
        def __init__(self, holds_itself):
            super().__init__()
            self.one = torch.nn.Linear(4, 4)
            if holds_itself:
                self.again, self.call = self.forward, lambda x: self(x)

        def forward(self, x):
            return self.one(x)

    torch.manual_seed(0)
    with tcx.cached(frozen(Own(False)), directory, id="m", type_name="Own") as cached:
        cached(ONES, ids=["a"])
    torch.manual_seed(0)
    with tcx.cached(frozen(Own(True)), directory, id="m", type_name="Own") as cached:
        assert cached.coverage(["a"]).is_complete


#: Which no code names.
HEAD = [torch.ones(4)]


@pytest.mark.parametrize("is_of_inference", [False, True])
def test_a_trainable_tensor_shows_itself_in_the_mode_of_inference(directory, is_of_inference):
    class Headed(torch.nn.Module):
        def forward(self, x):
            return x * globals()["HEAD"][0]

    cached = tcx.cached(frozen(Headed()), directory, id="m")
    HEAD[0] = torch.ones(4, requires_grad=True)
    x = torch.ones(2, 4)
    with torch.inference_mode():
        x = torch.ones(2, 4) if is_of_inference else x
        with pytest.raises(tcx.ModuleViolationError, match="trainable"):
            cached(x, ids=["a", "b"])


def test_a_module_that_writes_into_a_tensor_of_the_mode_of_inference_is_cached(directory):
    class Writes(torch.nn.Module):
        def forward(self, x):
            return x.add_(1)

    cached = tcx.cached(frozen(Writes()), directory, id="m")
    with torch.inference_mode():
        assert cached(torch.ones(2, 4), ids=["a", "b"]).tolist() == [[2.0] * 4] * 2
        assert cached(torch.ones(2, 4), ids=["c", "d"]).tolist() == [[2.0] * 4] * 2


@pytest.mark.parametrize("place", ["weight", "class"])
def test_an_attribute_that_is_set_later_is_noticed(directory, place):
    class Scaled(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * getattr(self.weight if place == "weight" else self, "scale", 1)

    module = frozen(Scaled(4, 2))
    cached = tcx.cached(module, directory, id="m")
    cached(ONES, ids=["a"])
    setattr(module.weight if place == "weight" else Scaled, "scale", torch.full((2,), 3.0))
    with pytest.raises(tcx.ModuleViolationError, match="was added or removed"):
        cached(ONES, ids=["b"])


def test_what_a_class_holds_in_a_dict_is_part_of_the_identity(directory):
    def made(factor):
        class Holds(torch.nn.Linear):
            bank = {"scale": torch.tensor(factor)}  # noqa: RUF012

        torch.manual_seed(0)
        return frozen(Holds(4, 2))

    tcx.cached(made(2.0), directory, id="m", type_name="Holds")(ONES, ids=["a"])
    tcx.cached(made(2.0), directory, id="m", type_name="Holds")(ONES, ids=["a"])
    with pytest.raises(tcx.MismatchError):
        tcx.cached(made(3.0), directory, id="m", type_name="Holds")(ONES, ids=["a"])


def test_activations_of_a_class_need_no_evaluation_mode(directory):
    class Convolution(torch.nn.Linear):
        activation = torch.nn.SiLU()
        activations = {"relu": torch.nn.ReLU()}  # noqa: RUF012

        def forward(self, x):
            return self.activation(super().forward(x))

    cached = tcx.cached(frozen(Convolution(4, 2)), directory, id="m")
    cached(ONES, ids=["a"])


def test_forward_may_set_an_attribute_that_its_class_has(directory):
    class Detects(torch.nn.Linear):
        anchors = torch.empty(0)

        def forward(self, x):
            self.anchors = torch.ones(2)
            return super().forward(x) * self.anchors

    cached = tcx.cached(frozen(Detects(4, 2)), directory, id="m")
    for number in range(3):
        cached(ONES, ids=[number])


def test_forward_may_move_what_a_weight_holds(directory):
    class State:
        scale = None

    class Quantized(torch.nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.state, self.weight.scale = State(), torch.full((2,), 2.0)

        def forward(self, x):
            if self.weight.scale is not None:
                self.state.scale, self.weight.scale = self.weight.scale, None
            return super().forward(x) * self.state.scale

    cached = tcx.cached(frozen(Quantized()), directory, id="m")
    for number in range(3):
        cached(ONES, ids=[number])


def test_forward_may_keep_a_part_for_later(directory):
    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            kept = self.a

            def run(x):
                nonlocal kept
                kept = self.b
                return kept(x)

            self.run = run

        def forward(self, x):
            return self.run(x)

    cached = tcx.cached(frozen(Keeps()), directory, id="m")
    for number in range(3):
        cached(ONES, ids=[number])


def test_which_ancestor_a_part_uses_is_part_of_the_identity(directory):
    class Child(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.use(x)

    class Parent(torch.nn.Module):
        def __init__(self, uses_own):
            super().__init__()
            self.proj, self.child = torch.nn.Linear(4, 4), Child()
            part = self if uses_own else self.child
            self.child.use = lambda x: part.proj(x)

        def forward(self, x):
            return self.child(x)

    def made(uses_own):
        torch.manual_seed(0)
        return frozen(Parent(uses_own))

    tcx.cached(made(True), directory, id="m")(ONES, ids=["a"])
    tcx.cached(made(True), directory, id="m")(ONES, ids=["a"])
    with pytest.raises(tcx.MismatchError):
        tcx.cached(made(False), directory, id="m")(ONES, ids=["a"])


def test_a_part_that_is_compiled_adds_no_names_of_pytorch_to_the_identity():
    pytest.importorskip("sympy")

    class Compiled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = torch.compile(torch.nn.Linear(4, 2))

    module = frozen(Compiled())
    assert Known.of(module, Scan(module)).unsaved == ()


def test_a_module_that_was_made_in_the_mode_of_inference_is_computed_in_it(directory):
    with torch.inference_mode():
        cached = tcx.cached(frozen(torch.nn.Linear(4, 2)), directory, id="m")
        for number in range(8):
            cached(torch.ones(2, 4), ids=[2 * number, 2 * number + 1])
    assert cached._computing._needs_inference
    assert not cached._computing._has_shown_gradients


@pytest.mark.parametrize("held", [MappingProxyType({"kind": "relu"}), UserDict(kind="relu")])
def test_containers_without_tensors_cost_no_walk_for_each_batch(held):
    module = frozen(torch.nn.Linear(4, 2))
    module.held = held
    assert Scan(module).contents() is not None
