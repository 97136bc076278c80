"""Handles of one network, and of its parts: threads, moves and weights that are not made yet."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity.unsaved import Scan


class Keeps(torch.nn.Module):
    """Keeps a feature outside of itself while it computes, as a hook does."""

    def __init__(self):
        super().__init__()
        kept = {}

        def run(x):
            kept["feature"] = x * 2
            time.sleep(0.002)
            return kept.pop("feature", x)

        self.run = run

    def forward(self, x):
        return self.run(x)


class Around(torch.nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


def in_threads(calls):
    """Runs functions at the same time. Returns what they return; one that waits forever fails."""
    found = [None] * len(calls)

    def run(number, call):
        found[number] = call()

    threads = [threading.Thread(target=run, args=own, daemon=True) for own in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread waits for another one"
    return found


def batches(cached, offset, expected):
    """Computes batches of one sample each, and returns how many rows are wrong."""
    wrong = 0
    for number in range(20):
        value = float(offset + number)
        wrong += cached(torch.full((1, 1), value), ids=[number]).item() != expected(value)
    return wrong


def test_handles_of_one_network_compute_one_after_the_other():
    part = Keeps()
    handles = [tcx.cached(frozen(own), None, id=f"m{number}_v1", outputs=tcx.f32[1]) for number, own in enumerate([part, Around(part), Around(torch.nn.Identity(), part)])]
    found = in_threads([lambda own=own, number=number: batches(own, 1000 * number, lambda value: value * 2) for number, own in enumerate(handles)])
    assert found == [0, 0, 0]


def test_a_handle_of_two_networks_waits_for_those_of_both():
    one, two = Keeps(), Keeps()
    parts = [one, two, Around(one, two), Around(two, one)]
    handles = [tcx.cached(frozen(own), None, id=f"m{number}_v1", outputs=tcx.f32[1]) for number, own in enumerate(parts)]
    factors = [2, 2, 4, 4]
    found = in_threads([lambda own=own, number=number: batches(own, 1000 * number, lambda value: value * factors[number]) for number, own in enumerate(handles)])
    assert found == [0, 0, 0, 0]


class Uses(torch.nn.Module):
    """Computes with a handle, which it has as a part."""

    def __init__(self, handle):
        super().__init__()
        self.handle = handle

    def forward(self, x):
        return self.handle(x, ids=[10_000 + int(own) for own in x[:, 0]]) + 1


def test_handles_within_networks_wait_for_no_thread_that_waits_for_them():
    part = frozen(Keeps())
    inner = tcx.cached(part, None, id="inner_v1", outputs=tcx.f32[1])
    outer = tcx.cached(Uses(inner).eval(), None, id="outer_v1", outputs=tcx.f32[1])
    found = in_threads(
        [
            lambda: batches(inner, 1000, lambda value: value * 2),
            lambda: batches(outer, 2000, lambda value: value * 2 + 1),
            lambda: batches(tcx.cached(part, None, id="third_v1", outputs=tcx.f32[1]), 3000, lambda value: value * 2),
        ]
    )
    assert found == [0, 0, 0]


class InThreads(torch.nn.Module):
    """Computes with handles in threads of its own."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, x, names):
        with ThreadPoolExecutor(len(self.parts)) as pool:
            return torch.stack([*pool.map(lambda part: part(x, ids=[*names]), self.parts)]).sum(0)


def test_a_module_may_compute_with_handles_in_threads_of_its_own():
    parts = [frozen(torch.nn.Linear(4, 2)) for _ in range(2)]
    handles = [tcx.cached(part, None, id=f"p{number}_v1") for number, part in enumerate(parts)]
    cached = tcx.cached(frozen(InThreads(*handles)), None, id="e_v1")
    x = torch.ones(1, 4)
    (found,) = in_threads([lambda: cached(x, tcx.per_sample(["a"]), ids=["a"])])
    assert torch.allclose(found, parts[0](x) + parts[1](x))


def test_a_part_that_a_module_also_has_without_its_handle_shares_its_lock():
    part = frozen(torch.nn.Linear(4, 4))
    handle = tcx.cached(part, None, id="p_v1")
    both = tcx.cached(frozen(Around(handle, part)), None, id="b_v1")
    only = tcx.cached(frozen(Around(handle)), None, id="o_v1")
    assert {*handle._computing.watch.locks} <= {*both._computing.watch.locks}
    assert not {*handle._computing.watch.locks} & {*only._computing.watch.locks}


class Moves(torch.nn.Module):
    """Keeps a tensor in an attribute, and moves it with its weights."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        self.positions = torch.ones(2)

    def _apply(self, fn):
        super()._apply(fn)
        self.positions = fn(self.positions)
        self._buffers = dict(self._buffers)
        return self

    def forward(self, x):
        return x * self.weight * self.positions


def test_a_handle_moves_what_its_module_moves():
    module = Moves().eval()
    cached = tcx.cached(module, None, id="m_v1", outputs=tcx.f32[2])
    cached(torch.ones(1, 2), ids=["a"])
    assert cached.to("meta") is cached
    assert module.positions.is_meta and module.weight.is_meta and cached.weight.is_meta
    module.register_buffer("late", torch.ones(1))
    assert [name for name, _ in cached.named_buffers()] == ["late"]


@pytest.mark.parametrize("make", [lambda: torch.nn.LazyLinear(2), lambda: torch.nn.Sequential(torch.nn.LazyBatchNorm1d())])
def test_a_weight_that_is_not_made_yet_is_named(make):
    module = make().eval()
    with pytest.raises(tcx.InvalidWeightsError, match=r"weight `(0\.)?(weight|running_mean)`: is not initialized; run one batch first"):
        tcx.cached(module, None, id="m_v1")
    module(torch.ones(2, 4))
    tcx.cached(frozen(module), None, id="m_v1")(torch.ones(2, 4), ids=["a", "b"])


def test_parts_that_methods_use_are_named_in_time_that_grows_with_their_number():
    module = Around(*[torch.nn.Linear(1, 1) for _ in range(3000)])
    module.runs = [part.forward for part in module.parts]
    scan = Scan(frozen(module))
    start = time.perf_counter()
    assert len(scan.used_parts) == 3000
    # It took more than a second.
    assert time.perf_counter() - start < 0.3
