"""Inputs and outputs of classes that run code of their own when they are made: it runs once, or the class is refused."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, UserDict, defaultdict
from typing import Generic, NamedTuple, TypeVar

import pytest
import torch

import tcx_cache as tcx


@dataclasses.dataclass
class Scaled:
    x: torch.Tensor
    total: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self):
        self.x = self.x / 2
        self.total = self.x.sum(1)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor

    def __post_init__(self):
        object.__setattr__(self, "x", self.x / 2)


class Fields(NamedTuple):
    x: torch.Tensor


class Halved(Fields):
    def __new__(cls, x):
        return super().__new__(cls, x / 2)


class Mapped(UserDict):
    def __init__(self, items):
        super().__init__({name: item / 2 for name, item in items.items()})


class Strict(dict):
    def __init__(self, *, x):
        super().__init__(x=x)


class First(torch.nn.Module):
    def forward(self, batch):
        return batch["x"] if hasattr(batch, "keys") else batch.x


@dataclasses.dataclass
class Extended:
    x: torch.Tensor
    extra: object = dataclasses.field(init=False, default=None)


@pytest.mark.parametrize("name", ["extra", "other"])
def test_an_output_with_more_than_its_constructor_takes_is_refused(name):
    class Module(torch.nn.Module):
        def forward(self, x):
            output = Extended(x)
            setattr(output, name, x.sum(1))
            return output

    with pytest.raises(tcx.InvalidOutputError, match=f"has `{name}`, which is no argument of its constructor.*return a dict"):
        tcx.cached(Module().eval(), None, id="m_v1")(torch.ones(2, 3), ids=["a", "b"])


def test_an_output_whose_other_fields_have_their_defaults_comes_from_the_cache_and_moves(directory):
    class Module(torch.nn.Module):
        def forward(self, x):
            return Extended(x)

    cached = tcx.cached(Module().eval(), directory, id="m_v1")
    for _ in range(2):
        assert cached(torch.ones(2, 3), ids=["a", "b"]).extra is None
    assert [rows.x.shape for _, rows in tcx.torch.epoch(cached, ["a", "b"], batch_size=2, device="cpu")] == [(2, 3)]
    assert tcx.torch.FeatureDataset(cached, ["a", "b"])[1].x.shape == (3,)


@pytest.mark.parametrize("made", [Scaled, Frozen, Halved])
def test_an_input_is_not_changed_a_second_time_by_the_code_of_its_class(made):
    batch = made(torch.randn(3, 2))
    cached = tcx.cached(First().eval(), None, id="first_v1")
    assert torch.equal(cached(batch, ids=["a", "b", "c"]), batch.x)
    later = made(torch.randn(2, 2))
    assert torch.equal(cached(later, ids=["c", "d"]), torch.stack([batch.x[2], later.x[1]]))


@dataclasses.dataclass
class Masked:
    x: torch.Tensor

    @functools.cached_property
    def mask(self):
        return self.x > 0

    @property
    def masked(self):
        return self.x * self.mask


class Masking(torch.nn.Module):
    def forward(self, batch):
        return batch.masked


def test_cached_properties_of_an_input_are_those_of_the_selected_samples():
    cached = tcx.cached(Masking().eval(), None, id="masking_v1")
    cached(Masked(torch.tensor([[1.0], [-1.0]])), ids=["a", "b"])
    batch = Masked(torch.tensor([[1.0], [-2.0], [3.0]]))
    # The mask of all three, two of which are computed.
    mask = batch.mask
    assert torch.equal(cached(batch, ids=["a", "c", "d"]), torch.tensor([[1.0], [0.0], [3.0]]))
    assert batch.mask is mask


@dataclasses.dataclass
class Forgetful(Masked):
    def __getstate__(self):
        return {"x": self.x}


def test_cached_properties_that_a_copy_has_not_are_no_error():
    cached = tcx.cached(Masking().eval(), None, id="masking_v1")
    cached(Forgetful(torch.tensor([[1.0], [-1.0]])), ids=["a", "b"])
    batch = Forgetful(torch.tensor([[1.0], [-2.0], [3.0]]))
    assert batch.mask.any()
    assert torch.equal(cached(batch, ids=["a", "c", "d"]), torch.tensor([[1.0], [0.0], [3.0]]))


@dataclasses.dataclass
class Derived:
    x: torch.Tensor

    def __post_init__(self):
        self.masked = self.x * (self.x > 0)


@dataclasses.dataclass(frozen=True)
class Slotted:
    x: torch.Tensor
    __slots__ = ("x", "__masked")

    def __init__(self, x):
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "_Slotted__masked", x * (x > 0))

    @property
    def masked(self):
        return self.__masked


@pytest.mark.parametrize("made, attribute", [(Derived, "masked"), (Slotted, "_Slotted__masked")])
def test_an_input_with_attributes_that_are_no_fields_is_refused(made, attribute):
    cached = tcx.cached(Masking().eval(), None, id="masking_v1")
    message = rf"argument 0 is {made.__name__}, whose attribute `{attribute}` is no field, .* declare it.* `__tcx_select__\(positions\)`"
    for x, ids in [(torch.tensor([[1.0], [-1.0]]), ["a", "b"]), (torch.tensor([[1.0], [-2.0], [3.0]]), ["a", "c", "d"])]:
        with pytest.raises(tcx.InvalidBatchError, match=message):
            cached(made(x), ids=ids)


T = TypeVar("T")


@dataclasses.dataclass
class Of(Generic[T]):
    x: torch.Tensor


def test_an_input_of_a_generic_class_knows_its_type():
    x = torch.randn(2, 2)
    assert torch.equal(tcx.cached(First().eval(), None, id="first_v1")(Of[int](x), ids=["a", "b"]), x)


def test_mappings_of_other_classes_are_made_of_their_parts_or_refused():
    x = torch.randn(3, 2)
    cached = tcx.cached(First().eval(), None, id="first_v1")
    for number, batch in enumerate([OrderedDict(x=x), UserDict(x=x)]):
        ids = [f"{number} {own}" for own in "abc"]
        assert torch.equal(cached(batch, ids=ids), x)
    for batch, message in [
        (Mapped({"x": x}), "argument 0 is Mapped, which changes its parts when it is made"),
        (Strict(x=x), "argument 0 is Strict, which cannot be made of the parts of some samples: .*; pass a dict"),
        (defaultdict(list, x=x), "argument 0 is defaultdict, which cannot be made"),
    ]:
        with pytest.raises(tcx.InvalidBatchError, match=message):
            cached(batch, ids=["d", "e", "f"])


@dataclasses.dataclass
class Doubled:
    x: torch.Tensor

    def __post_init__(self):
        self.x = self.x * 2


class Narrow(Fields):
    def __new__(cls, x, scale):
        return super().__new__(cls, x * scale)


@pytest.mark.parametrize(
    "make, message",
    [(Doubled, "class Doubled changes its field `x` when it is made"), (lambda x: Narrow(x, 2), "class Narrow cannot be made of its fields")],
)
def test_an_output_that_the_code_of_its_class_would_change_a_second_time_is_refused(directory, make, message):
    class Making(torch.nn.Module):
        def forward(self, x):
            return make(x)

    with tcx.cached(Making().eval(), directory, id="making_v1") as cached:
        with pytest.raises(tcx.InvalidOutputError, match=message):
            cached(torch.ones(2, 2), ids=["a", "b"])
    assert not directory.exists() or not list(directory.glob("making_v1/seg-*"))
