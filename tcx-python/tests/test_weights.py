"""Everything that a module computes with is known: also what its `state_dict` leaves out, and what copies of it have."""

from __future__ import annotations

import copy
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
from tcx_cache.identity.arrays import as_tensor
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
        (["layer.weight"], fields, "`layer.weight` is no tensor that `state_dict` leaves out: .*here: factor"),
        ("factor", fields, "expected a list of names"),
        (["factor"], None, "pass it with `fields=`"),
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


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.LSTM(4, 3, batch_first=True),
        torch.nn.utils.weight_norm(torch.nn.Linear(4, 2)),
        torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 2)),
        torch.nn.TransformerEncoderLayer(4, 2, batch_first=True),
    ],
)
def test_modules_of_torch_that_keep_weights_twice_are_frozen(directory, module):
    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            found = self.inner(x)
            return found[0] if isinstance(found, tuple) else found

    own = frozen(First())
    # What weight norm computes in each forward is no weight of its own.
    own.inner.__dict__.pop("weight", None)
    with torch.no_grad(), tcx.cached(own, directory, id="m_v1") as cached:
        x = torch.randn(3, 5, 4)
        assert torch.allclose(cached(x, ids=[1, 2, 3]), own(x), atol=1e-6)
        assert torch.allclose(cached(x, ids=[1, 2, 4]), own(x), atol=1e-6)


def test_a_copy_with_other_weights_or_adapters_shares_no_rows(directory, linear):
    linear.active_adapter = ["one"]
    cached = tcx.cached(linear, directory, id="m_v1")
    x = torch.randn(3, 4)
    same = copy.deepcopy(cached)
    assert torch.equal(same(x, ids=["a", "b", "c"]), cached(x, ids=["a", "b", "c"])) and same.module is not linear
    for change in [
        lambda: linear.weight.data.add_(1),
        lambda: setattr(linear, "active_adapter", ["two"]),
        lambda: setattr(linear, "factor", torch.ones(1)),
    ]:
        before = copy.deepcopy(linear.state_dict())
        change()
        with pytest.raises(tcx.ModuleViolationError, match="its copy has other weights or adapters"):
            copy.deepcopy(cached)
        linear.load_state_dict(before)
        linear.active_adapter = ["one"]


def test_a_shallow_copy_is_the_same_handle(directory, linear):
    cached = tcx.cached(linear, directory, id="m_v1")
    found = copy.copy(cached)
    assert isinstance(found, tcx.Cached) and found.module is linear


class OptimizedModule(torch.nn.Module):
    """As `torch.compile` makes it: weights have the prefix `_orig_mod`."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module
        self.eval()

    def forward(self, *args, **kwargs):
        return self._orig_mod(*args, **kwargs)


def test_a_copy_of_a_compiled_module_has_the_weights_of_the_one_inside(directory, linear):
    compiled = OptimizedModule(linear)
    cached = tcx.cached(compiled, directory, id="m_v1")
    x = torch.randn(2, 4)
    expected = linear(x)
    assert torch.equal(cached(x, ids=["a", "b"]), expected)
    assert torch.equal(copy.deepcopy(cached)(x, ids=["a", "b"]), expected)
    cached.flush()
    assert tcx.cached(linear, directory, id="m_v1").coverage(["a", "b"]).is_complete


def test_the_factor_of_an_adapter_is_part_of_the_identity(directory, linear):
    linear._active_adapter, linear.scaling = ["lora"], {"lora": 2.0}
    with tcx.cached(linear, directory, id="m_v1") as cached:
        cached(torch.ones(1, 4), ids=["a"])
    linear.scaling = {"lora": 4.0}
    with pytest.raises(tcx.MismatchError, match="`adapters`: "):
        tcx.cached(linear, directory, id="m_v1")


def test_weights_without_values_are_refused():
    with pytest.raises(tcx.InvalidWeightsError, match="weight `weight`: is on the device `meta`"):
        tcx.cached(frozen(torch.nn.Linear(4, 2, device="meta")), None, id="m_v1")
    with pytest.raises(tcx.InvalidWeightsError, match="a dense tensor, found a sparse"):
        linear = frozen(torch.nn.Linear(4, 2))
        linear.mask = torch.ones(2, 2).to_sparse()
        tcx.cached(linear, None, id="m_v1")


@pytest.mark.parametrize("array", [numpy.ones(3, ">f4"), numpy.ones(4)[::-2], numpy.broadcast_to(numpy.ones(1), (3,)), numpy.float64(2), numpy.array("text")])
def test_arrays_of_any_form_are_read(linear, array):
    linear.array = array
    tcx.cached(linear, None, id="m_v1")(torch.ones(2, 4), ids=["a", "b"])


@pytest.mark.parametrize("form", ["reversed", "swapped", "read-only"])
def test_what_is_written_to_arrays_of_any_form_is_noticed(directory, form):
    class Offset(torch.nn.Module):
        def forward(self, x):
            return x + torch.from_numpy(self.offset.astype("f4"))

    base = numpy.arange(4, dtype=">f4" if form == "swapped" else "f4")
    module = Offset().eval()
    module.offset = base[::-1] if form == "reversed" else base.view()
    module.offset.flags.writeable = form != "read-only"
    cached = tcx.cached(module, directory, id="m_v1", flush_interval=3600)
    cached(torch.ones(1, 4), ids=["a"])
    cached(torch.ones(1, 4), ids=["b"])
    base *= 100
    with pytest.raises(tcx.ModuleViolationError, match="changed"):
        cached(torch.ones(1, 4), ids=["c"])
    with pytest.raises(tcx.ModuleViolationError, match="2 computed rows were not kept"):
        cached.flush()


class Constant(torch.nn.Module):
    """Keeps a number in a place that TorchScript hides."""

    def __init__(self, factor, place):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        with torch.no_grad():
            self.layer.weight.fill_(1.0)
            self.layer.bias.fill_(0.0)
        self.factor = factor if place == "number" else torch.tensor(factor)

    def forward(self, x):
        return self.layer(x) * self.factor


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["number", "tensor"])
@pytest.mark.parametrize("is_inner", [False, True])
def test_what_a_scripted_module_hides_is_part_of_the_identity(directory, place, is_inner):
    def made(factor):
        own = torch.jit.script(frozen(Constant(factor, place)))
        return frozen(torch.nn.Sequential(own)) if is_inner else own

    inputs = torch.ones(2, 4)
    with tcx.cached(made(2.0), directory, id="m_v1") as cached:
        assert cached(inputs, ids=["a", "b"]).tolist() == [[8.0, 8.0]] * 2
    with tcx.cached(made(2.0), directory, id="m_v1") as cached:
        assert cached.coverage(["a", "b"]).is_complete
    with pytest.raises(tcx.MismatchError, match="`script`: blake3"):
        tcx.cached(made(3.0), directory, id="m_v1")


@pytest.mark.parametrize(
    "change",
    [lambda module: module.__setitem__(1, torch.nn.GELU().eval()), lambda module: module.append(torch.nn.Tanh().eval()), lambda module: module.pop(1)],
)
def test_a_part_that_is_replaced_by_one_of_another_class_is_noticed(change):
    module = frozen(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()))
    cached = tcx.cached(module, None, id="m_v1")
    cached(torch.ones(1, 4), ids=["a"])
    change(module)
    with pytest.raises(tcx.ModuleViolationError, match="a part of it was added, removed or replaced by one of another class"):
        cached(torch.ones(1, 4), ids=["b"])


class Rotary(torch.nn.Module):
    """Keeps a buffer under a second name, as rotary embeddings do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("inverse", torch.arange(4.0))
        self.original = self.inverse

    def forward(self, x):
        return x * self.original


def test_a_second_name_of_a_weight_stays_the_same_when_the_weight_is_moved(directory):
    module = frozen(Rotary())
    inputs = torch.ones(2, 4)
    with tcx.cached(module, directory, id="m_v1") as cached:
        cached(inputs, ids=["a", "b"])
        # As a move to another device does.
        module._buffers["inverse"] = module.inverse.clone()
        cached(inputs, ids=["c", "d"])
    with tcx.cached(module, directory, id="m_v1") as cached:
        assert cached.coverage(["a", "c"]).is_complete
    with tcx.cached(frozen(Rotary()), directory, id="m_v1") as cached:
        assert cached.coverage(["a", "c"]).is_complete


def test_a_second_name_of_a_weight_is_no_reason_to_refuse_the_identity_of_rust(directory):
    for module in (frozen(Rotary()), frozen(torch.nn.LSTM(4, 3))):
        tcx.cached(module, directory, id="m_v1", type_name="M", fields={"layer": tcx.WEIGHTS})
    moved = frozen(Rotary())
    moved._buffers["inverse"] = moved.inverse.clone()
    with pytest.raises(tcx.InvalidWeightsError, match=r"leaves out \(original\)"):
        tcx.cached(moved, directory, id="m_v1", type_name="M", fields={"layer": tcx.WEIGHTS})


def test_a_read_only_array_is_read_in_place():
    array = numpy.arange(4.0)
    array.flags.writeable = False
    assert as_tensor(array).data_ptr() == array.__array_interface__["data"][0]


def test_objects_without_tensors_cost_no_walk_for_each_batch(linear):
    linear.file, linear.kept = pathlib.PurePath("a/b"), Slotted("no tensor")
    assert Scan(linear).contents() is not None
    linear.kept = Slotted(torch.ones(1))
    assert Scan(linear).contents() is None


class Holding(torch.nn.Module):
    """Holds its own handle, and may be a part of another one."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize("of", ["the module", "one around it", "both", "the handle"])
def test_a_copy_of_a_module_that_holds_its_own_handle_has_a_handle_of_its_own(directory, of):
    module, x = frozen(Holding()), torch.ones(2, 4)
    cached = tcx.cached(module, directory, id="m_v1", outputs=tcx.f32[2])
    object.__setattr__(module, "cached", cached)
    cached(x, ids=["a", "b"])
    around = torch.nn.Sequential(module)
    copies = {
        "the module": lambda: copy.deepcopy(module),
        "one around it": lambda: copy.deepcopy(around)[0],
        "both": lambda: copy.deepcopy([cached, module])[1],
        "the handle": lambda: copy.deepcopy(cached).module,
    }
    own = copies[of]()
    assert own is not module and own.cached is not cached and own.cached.module is own
    assert [*own.cached.state_dict()] == ["layer.weight", "layer.bias"] and own.cached.id == "m_v1"
    assert torch.equal(own.cached(x, ids=["c", "d"]), module(x))
    hooked = []
    own.register_forward_hook(lambda *_: hooked.append(1))
    assert torch.equal(own.cached(x, ids=["c", "d"]), module(x)) and not hooked, "the handle has hooks of its own"
    assert cached.coverage(["a", "b", "c", "d"]).is_complete
    # Another copy has changed before its handle is used.
    other = copies[of]()
    other.layer.weight.data.add_(1)
    with pytest.raises(tcx.ModuleViolationError, match="its copy has other weights or adapters|changed in place"):
        other.cached(x, ids=["e", "f"])
        other.cached.flush()


def test_an_attribute_that_is_set_on_a_handle_is_that_of_the_module(directory, linear):
    cached = tcx.cached(linear, directory, id="m_v1")
    x = torch.ones(2, 4)
    cached(x, ids=["a", "b"])
    cached.label = "one"
    assert linear.label == "one" and cached.view(1).label == "one"
    cached(x, ids=["c", "d"])
    del cached.label
    assert not hasattr(linear, "label") and not hasattr(cached, "label")
    cached.eval().training = False
    cached.factor = torch.ones(1)
    assert linear.factor is cached.factor
    with pytest.raises(tcx.ModuleViolationError, match="weight `factor`: was added or removed"):
        cached(x, ids=["e", "f"])
    del cached.factor
    cached.bias = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    assert linear.bias is cached.bias
