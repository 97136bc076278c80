"""Inputs and outputs of classes that run code of their own when they are made: it runs once, or the class is refused."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, UserDict, defaultdict, namedtuple
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


def with_scale(base):
    """A class with an attribute that decides the output, and has a default."""

    class Batch(base):
        def __init__(self, items, scale=1.0):
            super().__init__(items)
            self.scale = scale

    return Batch


class Numbered(Fields):
    def scaled(self, scale):
        self.scale = scale
        return self


class Slots(dict):
    __slots__ = ("scale",)

    def __init__(self, items, scale=1.0):
        super().__init__(items)
        self.scale = scale


@dataclasses.dataclass
class Fielded(list):
    x: torch.Tensor

    @classmethod
    def of(cls, x):
        own = cls(x)
        own.append(x)
        return own


class Scaling(torch.nn.Module):
    def forward(self, batch):
        x = batch["x"] if hasattr(batch, "keys") else batch.x if hasattr(batch, "x") else batch[0]
        return torch.as_tensor(x) * getattr(batch, "scale", 1.0)


THREES = torch.full((2, 2), 3.0)
OF_MAPPING = "whose attribute `scale` is not the same when it is made of the parts of some samples, .*: pass a dict, .*`__tcx_select__"


@pytest.mark.parametrize(
    "batch, message",
    [
        (with_scale(dict)({"x": torch.ones(2, 2)}, 3.0), OF_MAPPING),
        (with_scale(UserDict)({"x": torch.ones(2, 2)}, 3.0), OF_MAPPING),
        (with_scale(OrderedDict)({"x": torch.ones(2, 2)}, THREES), OF_MAPPING),
        (Slots({"x": torch.ones(2, 2)}, 3.0), OF_MAPPING),
        ({"b": with_scale(dict)({"x": torch.ones(2, 2)}, [1])}, r"argument 0\['b'\] is Batch, " + OF_MAPPING),
        (with_scale(list)([torch.ones(2, 2)], 3.0), r"becomes a plain list where samples are selected, .*: pass `list\(…\)`, or give"),
        (with_scale(list)(["a", "b"], 3.0), r"becomes a plain list"),
        (tcx.per_sample(with_scale(list)([1.0, 2.0], 3.0)), r"becomes a plain list"),
        (tcx.parts(with_scale(list)([torch.ones(2, 2), torch.ones(2, 2)], 3.0)), r"becomes a plain list"),
        (tcx.parts(Fields(torch.ones(2, 2))), r"argument 0 is Fields, which becomes a plain tuple"),
        (torch.linalg.svd(torch.ones(2, 2, 2)), r"argument 0 is linalg_svd, which becomes a plain tuple where samples are selected, .*: pass `tuple\(…\)`"),
        (Numbered(torch.ones(2, 2)).scaled(3.0), "argument 0 is Numbered, whose attribute `scale` is no field, so it would be lost"),
        ([Numbered(torch.ones(2, 2)).scaled(3.0)] * 2, r"argument 0\[0\] is Numbered, whose attribute `scale` is no field"),
        ([with_scale(list)([torch.ones(2, 2)])] * 2, r"argument 0\[0\] is Batch, which becomes a plain list"),
        (Fielded.of(torch.ones(2, 2)), "argument 0 is Fielded, which becomes a plain list"),
    ],
)
def test_an_input_whose_class_has_more_than_its_items_is_refused(batch, message):
    cached = tcx.cached(Scaling().eval(), None, id="scaling_v1", outputs=tcx.f32[2])
    with pytest.raises(tcx.InvalidBatchError, match=message):
        cached(batch, ids=["a", "b"])


class Encoding(UserDict):
    """As the one of transformers, which keeps the words of the whole batch."""

    def __init__(self, data, encoding=None):
        super().__init__(data)
        self._encodings = encoding

    def __getattr__(self, name):
        if name not in self.data:
            raise AttributeError(name)
        return self.data[name]


class OfTransformers(Encoding):
    """One that a program derives."""


class Outputs(OrderedDict):
    """As a ModelOutput of transformers, whose items are attributes too."""

    def __init__(self, items):
        super().__init__(items)
        for name, item in items.items():
            setattr(self, name, item)
        self.pooled, self.settings = None, {}


class Labelled(NamedTuple):
    x: torch.Tensor
    label: list


Encoding.__module__ = "transformers.tokenization_utils_base"
Plain = namedtuple("Plain", "x")


@pytest.mark.parametrize(
    "make",
    [
        lambda x: OrderedDict(x=x),
        lambda x: UserDict(x=x),
        lambda x: with_scale(dict)({"x": x}),
        lambda x: with_scale(UserDict)({"x": x}),
        lambda x: Encoding({"x": x}, [object() for _ in x]),
        lambda x: OfTransformers({"x": x}, [object() for _ in x]),
        lambda x: Outputs({"x": x}),
        Plain,
        Fields,
        lambda x: Labelled(x, ["text"] * len(x)),
    ],
)
def test_an_input_whose_class_has_nothing_else_gives_the_selected_samples_their_rows(make):
    cached = tcx.cached(Scaling().eval(), None, id="scaling_v1", outputs=tcx.f32[2])
    first, second = torch.randn(2, 2), torch.randn(3, 2)
    assert torch.equal(cached(make(first), ids=["a", "b"]), first)
    # Of the second batch, the samples in the middle and at the end are missing.
    found = cached(make(second), ids=["b", "c", "d"])
    assert torch.equal(found, torch.stack([first[1], second[1], second[2]]))


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
