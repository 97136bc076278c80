"""Weights in forms of their own, and those of copies of a module, are known."""

from __future__ import annotations

import copy

import numpy
import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity.arrays import as_tensor


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
