"""After each batch, a sample of the weights is compared, on a GPU too. Without one, weights on the CPU are taken for some of a GPU."""

from __future__ import annotations

import contextlib

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity import sample

WIDTH = 300


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    """All weights count as some of a GPU."""
    monkeypatch.setattr(sample, "is_on_gpu", lambda tensor: True)


class Scaled(torch.nn.Module):
    """Multiplies with a weight of any type."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        own = self.weight.real if self.weight.is_complex() else self.weight
        return x[:, None] * own.float().reshape(-1)[:WIDTH]


DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int16, torch.uint8, torch.bool, torch.complex64, torch.complex128]
SWAPS = {
    "data": lambda own, values: own.data.copy_(values),
    "foreach": lambda own, values: torch._foreach_copy_([own.data], [values]),
}


def numbers(ids):
    return torch.tensor([float(own) for own in ids])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", SWAPS)
def test_weights_that_are_swapped_for_a_batch_give_no_rows(directory, dtype, how):
    """As a moving average is swapped in and out between two flushes."""
    module = Scaled(torch.ones(WIDTH, dtype=dtype)).eval()
    saved = module.weight.clone()
    with tcx.cached(module, directory, id="scaled_v1", flush_interval=3600) as cached:
        cached(numbers([1, 2]), ids=[1, 2])
        cached.flush()
        SWAPS[how](module.weight, torch.zeros_like(saved) if dtype == torch.bool else saved * 3)
        with contextlib.suppress(tcx.ModuleViolationError):
            cached(numbers([3, 4]), ids=[3, 4])
        SWAPS[how](module.weight, saved)
    with tcx.cached(Scaled(saved).eval(), directory, id="scaled_v1") as cached:
        assert cached.coverage([1, 2, 3, 4]).missing == [3, 4]


FORMS = {
    "transposed": lambda: torch.ones(20, WIDTH).t(),
    "channels last": lambda: torch.ones(4, 3, 5, 5).to(memory_format=torch.channels_last),
    "a number": lambda: torch.ones(()),
    "long": lambda: torch.ones(4096, 256),
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_any_form_are_sampled(form):
    weight = FORMS[form]()
    found = sample.Sample([weight, torch.zeros(0), torch.ones(3).expand(4, 3), torch.ones(2, dtype=torch.complex64).conj()])
    assert not found.is_other()
    weight.data.mul_(1.5)
    assert found.is_other()
    weight.data.div_(1.5)
    assert not found.is_other()


def test_a_sample_is_spread_over_rows_and_columns():
    weight = torch.zeros(1024, 1024)
    found = sample.Sample([weight])
    for part in (weight[:8], weight[-8:], weight[:, :16], weight[:, -16:], weight[500:508]):
        part.data.fill_(1)
        assert found.is_other()
        part.data.fill_(0)
    assert sum(len(own) for own in found._found) <= 1 << 14


def test_values_that_equal_nothing_are_the_same():
    weight = torch.tensor([float("nan"), 0.0])
    found = sample.Sample([weight])
    assert not found.is_other()
    weight.data[1] = -0.0
    assert found.is_other()


def test_nothing_is_read_while_this_thread_captures_a_graph(monkeypatch):
    weight = torch.ones(3)
    found = sample.Sample([weight])
    weight.data.fill_(2)
    monkeypatch.setattr(sample, "is_capturing", lambda: True)
    assert not found.is_other()


def test_a_network_whose_weights_stay_computes_all_batches(directory):
    network = frozen(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(64, 5)))
    images = torch.randn(20, 3, 6, 6)
    network.half().float().to(memory_format=torch.channels_last)
    with tcx.cached(network, directory, id="m_v1") as cached:
        for start in range(0, 20, 5):
            cached(images[start : start + 5], ids=list(range(start, start + 5)))
        assert torch.equal(cached.fetch(range(20)), torch.cat([network(images[start : start + 5]) for start in range(0, 20, 5)]))
