"""Networks that processes compute together choose the same samples in each of them, and inputs keep their gradients or are refused."""

from __future__ import annotations

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx


class Notes(torch.nn.Module):
    """Keeps which samples it is called with."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x):
        self.calls.append([int(own) for own in x[:, 0]])
        return x * 2


def chosen(ids, recheck=0.0):
    """The samples that a process computes, batch after batch."""
    module = frozen(Notes())
    with tcx.cached(module, None, id="m_v1", outputs=tcx.f32[1], recheck=recheck) as cached:
        for start in range(0, len(ids), 64):
            part = ids[start : start + 64]
            cached(torch.arange(start, start + len(part)).float()[:, None], ids=part)
    return module.calls


@pytest.mark.parametrize("recheck", [0.0, 0.01])
def test_processes_with_the_same_ids_compute_the_same_samples_again(recheck):
    ids = [f"sample {number}" for number in range(640)]
    first = chosen(ids, recheck)
    assert all(chosen(ids, recheck) == first for _ in range(3))
    assert len({tuple(map(tuple, chosen([f"{seed} {own}" for own in ids], recheck))) for seed in range(5)}) > 1, "other ids, other samples"


@pytest.mark.parametrize("place", ["argument", "keyword", "dict"])
@pytest.mark.parametrize("is_first", [False, True])
def test_inputs_that_track_gradients_are_refused_in_each_batch(linear, place, is_first):
    class Takes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear

        def forward(self, x):
            return self.layer(x["x"] if isinstance(x, dict) else x)

    def call(x, ids):
        return cached(x=x, ids=ids) if place == "keyword" else cached({"x": x} if place == "dict" else x, ids=ids)

    x = torch.ones(2, 4)
    tracked = x.clone().requires_grad_()
    cached = tcx.cached(frozen(Takes()), None, id="m_v1")
    if is_first:
        with torch.no_grad():
            call(tracked, ["y", "z"])
    call(x, ["a", "b"])
    for ids in (["a", "b"], ["c", "d"], ["a", "e"]):
        with pytest.raises(tcx.InvalidBatchError, match="an input tracks gradients"):
            call(tracked, ids)
    # Without gradients, none are lost.
    with torch.no_grad():
        assert torch.equal(call(tracked, ["a", "c"]), linear(tracked))
    assert not call(tracked.detach(), ["c", "d"]).requires_grad


def test_loaded_inputs_that_track_gradients_are_refused_in_each_batch(linear):
    cached = tcx.cached(linear, None, id="m_v1")
    cached.fetch(["a"], lambda missing: torch.ones(1, 4))
    with pytest.raises(tcx.InvalidBatchError, match="an input tracks gradients"):
        cached.fetch(["b"], lambda missing: torch.ones(1, 4, requires_grad=True))


def test_inputs_that_track_gradients_are_passed_on_where_gradients_are_waived(linear):
    cached = tcx.cached(linear, None, id="m_v1", allow_gradients=True)
    for ids in (["a", "b"], ["c", "d"], ["a", "b"]):
        assert not cached(torch.ones(2, 4, requires_grad=True), ids=ids).requires_grad
