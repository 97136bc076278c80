"""What a module of `torch.fx` computes is a graph: it is known, and another one is noticed."""

from __future__ import annotations

import operator

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx

ONES = torch.ones(1, 4)


class Sum(torch.nn.Module):
    """A layer and what is done with its output."""

    def __init__(self, do):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.do = torch.nn.Linear(4, 2), do

    def forward(self, x):
        return self.do(self.layer(x), 3)


def traced(do):
    return frozen(torch.fx.symbolic_trace(Sum(do)))


@pytest.mark.parametrize("around", [lambda own: own, torch.nn.Sequential], ids=["itself", "a part"])
def test_a_graph_is_part_of_the_identity(directory, around):
    def opened(do):
        return tcx.cached(frozen(around(traced(do))), directory, id="m_v1")

    with opened(operator.add) as cached:
        before = cached(ONES, ids=["a"])
    with opened(operator.add) as cached:
        assert torch.equal(cached(ONES, ids=["a"]), before) and cached.coverage(["a"]).is_complete
    with pytest.raises(tcx.MismatchError, match="`graph`"):
        opened(operator.mul)(ONES, ids=["a"])


def test_a_graph_that_is_compiled_again_is_noticed(directory):
    module = traced(operator.add)
    cached = tcx.cached(module, directory, id="m_v1", flush_interval=3600)
    cached(ONES, ids=["a"])
    module.recompile()
    cached(ONES, ids=["b"])
    for node in module.graph.nodes:
        if node.target is operator.add:
            node.target = operator.mul
    module.recompile()
    with pytest.raises(tcx.ModuleViolationError, match="its graph changed"):
        cached(ONES, ids=["c"])
    with pytest.raises(tcx.ModuleViolationError):
        cached.flush()
