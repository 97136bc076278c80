"""Weights of classes that hold their values in other tensors: these decide the identity, and are watched."""

from __future__ import annotations

import enum

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache import _native
from tcx_cache.identity.weights import fingerprint


class Inside(torch.Tensor):
    """Has its values in an attribute, as quantized weights do."""

    @staticmethod
    def __new__(cls, inside, context=1.0):
        return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=torch.float32, device=inside.device)

    def __init__(self, inside, context=1.0):
        self.inside, self.context = inside, context

    def plain(self):
        factor = self.context if isinstance(self.context, float) else 1.0
        return (self.inside.plain() if isinstance(self.inside, Inside) else self.inside).float() * factor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.detach:
            return cls(args[0].inside, args[0].context)
        if func is torch.nn.functional.linear:
            return func(*(own.plain() if isinstance(own, Inside) else own for own in args))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


class Quantized(Inside):
    """One that says so."""

    def __tensor_flatten__(self):
        return ["inside"], {"context": self.context}

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Quantized(parts["inside"], **context)


def network(weight):
    own = torch.nn.Linear(8, 4, bias=False)
    own.weight = torch.nn.Parameter(weight, requires_grad=False)
    return own.eval()


def integers(seed=0):
    return torch.randint(-100, 100, (4, 8), dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


def first(value):
    return value


OTHERS = {
    "values inside": lambda: Quantized(integers(1)),
    "a number beside": lambda: Quantized(integers(), 2.0),
    "an item of an enum": lambda: Quantized(integers(), Kind.TWO),
    "a function": lambda: Quantized(integers(), first),
    "the dtype inside": lambda: Quantized(integers().short()),
    "one more class around": lambda: Quantized(Quantized(integers())),
    "values in two classes": lambda: Quantized(Quantized(integers(1))),
}


@pytest.mark.parametrize("other", OTHERS)
def test_weights_that_hold_other_values_have_another_identity(directory, other):
    one = network(Quantized(integers()))
    assert one.weight.data_ptr() == 0 and one.weight.nbytes
    with tcx.cached(one, directory, id="m_v1") as cached:
        assert torch.equal(cached(X, ids=[1, 2, 3]), one(X))
    with tcx.cached(network(Quantized(integers())), directory, id="m_v1") as cached:
        assert cached.coverage([1, 2, 3]).is_complete
    with pytest.raises(tcx.MismatchError):
        tcx.cached(network(OTHERS[other]()), directory, id="m_v1")
    with tcx.cached(network(OTHERS[other]()), directory, id="n_v1") as cached:
        cached(X, ids=[1, 2, 3])
    with tcx.cached(network(OTHERS[other]()), directory, id="n_v1") as cached:
        assert cached.coverage([1, 2, 3]).is_complete


CHANGES = {
    "in place": lambda own: own.inside.add_(1),
    "past torch": lambda own: own.inside.numpy().fill(3),
    "another tensor": lambda own: setattr(own, "inside", integers(1)),
    "a number": lambda own: setattr(own, "context", 3.0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_nested", [False, True])
def test_what_changes_inside_of_a_weight_is_noticed(directory, change, is_nested):
    weight = Quantized(integers())
    module = network(Quantized(weight) if is_nested else weight)
    cached = tcx.cached(module, directory, id="m_v1", flush_interval=3600)
    for number in range(3):
        cached(X, ids=[3 * number, 3 * number + 1, 3 * number + 2])
    CHANGES[change](module.weight.inside if is_nested else module.weight)
    with pytest.raises(tcx.ModuleViolationError, match=r"weight `weight.*`: changed"):
        cached(X, ids=[11, 12, 13])


def test_what_is_written_inside_of_a_weight_and_not_restored_is_not_made_durable(directory):
    module = network(Quantized(integers()))
    cached = tcx.cached(module, directory, id="m_v1", flush_interval=3600)
    cached(X, ids=[1, 2, 3])
    module.weight.inside.numpy().fill(3)
    with pytest.raises(tcx.ModuleViolationError, match="weight `weight.inside`: changed"):
        cached.flush()


def test_an_equal_tensor_inside_of_a_weight_changes_nothing(directory):
    module = network(Quantized(integers()))
    with tcx.cached(module, directory, id="m_v1") as cached:
        cached(X, ids=[1, 2, 3])
        module.weight.inside = integers()
        assert torch.equal(cached(X, ids=[4, 5, 6]), module(X))
    assert module.weight.inside.sum() == integers().sum()


def test_a_class_whose_values_are_not_known_is_refused():
    name = rf"weight `weight`: is a `{__name__}.Inside`, which has no memory of its own, .*`__tensor_flatten__`"
    with pytest.raises(tcx.InvalidWeightsError, match=name):
        tcx.cached(network(Inside(integers())), None, id="m_v1")
    with pytest.raises(tcx.InvalidWeightsError, match=r"weight `weight.inside`: is a .*Inside"):
        tcx.cached(network(Quantized(Inside(integers()))), None, id="m_v1")
    for context in (object(), torch.ones(2000)):
        with pytest.raises(tcx.InvalidWeightsError, match=r"Quantized` with a `.*` in its context, whose value is not known"):
            tcx.cached(network(Quantized(integers(), [context])), None, id="m_v1")


def test_memory_without_an_address_is_not_read():
    for read in (lambda: _native.checksum(0, 8), lambda: _native.sample([(0, 8)], 2), lambda: _native.Fingerprint().memory(0, 8)):
        with pytest.raises(tcx.Error, match="8 bytes have no address"):
            read()
    assert _native.checksum(0, 0) == _native.checksum(1, 0)


def test_the_fingerprint_of_plain_weights_stays_as_it_is():
    weights = {"b": torch.arange(3), "a": torch.ones(2, 2), "c": torch.zeros(0), "d": torch.ones(1, dtype=torch.complex64)}
    assert fingerprint(weights) == "blake3:8107de1edce448341a9406497d7256561c5b3ab6be3fc9b55cca068b01810e5f"


@pytest.fixture
def mesh(tmp_path):
    """One process."""
    import torch.distributed as dist

    # Which torch does not install everywhere, and needs for this.
    pytest.importorskip("sympy")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_distributed_weights_are_told_apart_and_watched(directory, mesh):
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    def distributed(seed):
        torch.manual_seed(seed)
        own = frozen(torch.nn.Sequential(torch.nn.Linear(8, 4)))
        return parallelize_module(own, mesh, {"0": ColwiseParallel(output_layouts=Replicate())}).requires_grad_(False)

    one = distributed(0)
    with tcx.cached(one, directory, id="distributed_v1") as cached:
        assert torch.allclose(cached(X, ids=[1, 2, 3]), one(X))
    with tcx.cached(distributed(0), directory, id="distributed_v1") as cached:
        assert cached.coverage([1, 2, 3]).is_complete
    with pytest.raises(tcx.MismatchError):
        tcx.cached(distributed(1), directory, id="distributed_v1")
    with pytest.raises(tcx.Error, match="weight"), tcx.cached(one, directory, id="distributed_v1") as cached:
        one[0].weight.to_local().mul_(3)
        cached(X, ids=[4, 5, 6])


def test_weights_that_hold_their_values_in_others_cost_no_walk_for_each_batch():
    with tcx.cached(network(Quantized(integers())), None, id="m_v1") as cached:
        cached(X, ids=[1, 2, 3])
        walked = cached._computing.watch._walked
        cached(X, ids=[4, 5, 6])
        assert walked is not None and cached._computing.watch._walked is walked
