"""Variables of a program that decide nothing of the outputs: what `forward` keeps for later, and what the user leaves out by its name."""

from __future__ import annotations

import types

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx

#: `%s` is the body of `forward`.
PROGRAM = """
import torch

head = torch.nn.Linear(2, 2)
count = torch.zeros(1)
last = torch.zeros(1)
features = {}
log = []

class Features(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def loss(self, x):
        return head(x).sum()

    def forward(self, x):
        global last
        %s
"""

X = torch.ones(1, 4)


def program(body):
    found = types.ModuleType("tcx_program")
    exec(PROGRAM % body, vars(found))
    return found


def features(found):
    torch.manual_seed(0)
    return frozen(found.Features())


def test_what_forward_keeps_in_a_global_is_its_own(directory):
    found = program("last = self.layer(x); return last + 1")
    with tcx.cached(features(found), directory, id="m_v1") as cached:
        for name in "abc":
            cached(X, ids=[name])
    # Nor is what it has kept a part of the identity.
    with tcx.cached(features(found), directory, id="m_v1") as cached:
        assert cached.coverage(["a", "b", "c"]).is_complete


def test_a_dict_that_forward_fills_is_its_own_whatever_else_is_set_again(directory):
    found = program("features['last'] = self.layer(x); log.append(1); return features['last'] + 1")
    with tcx.cached(features(found), directory, id="m_v1") as cached:
        cached(X, ids=["a"])
        cached(X, ids=["b"])
        found.log = []
        cached(X, ids=["c"])
        found.log = []
        assert cached(X, ids=["d"]).shape == (1, 2)


def test_a_dict_that_is_set_again_with_a_network_in_it_is_noticed():
    found = program("return self.layer(x) + (features['net'](x) if features else 0)")
    cached = tcx.cached(features(found), None, id="m_v1")
    cached(X, ids=["a"])
    found.features = {"net": frozen(torch.nn.Linear(4, 2))}
    with pytest.raises(tcx.ModuleViolationError, match="was added"):
        cached(X, ids=["b"])


def test_a_trainable_head_of_another_method_can_be_left_out(directory):
    found = program("return self.layer(x) if x.ndim else self.loss(x)")
    with pytest.raises(tcx.InvalidWeightsError, match=r"call `head.eval\(\)` before; or, .* pass `assume_stateless=\['head'\]`"):
        tcx.cached(features(found), directory, id="m_v1")
    with tcx.cached(features(found), directory, id="m_v1", assume_stateless=["head"]) as cached:
        cached(X, ids=["a"])
        found.head.weight.data.add_(1)
        found.head = torch.nn.Linear(2, 2)
        cached(X, ids=["b"])
        assert cached.view(1)(X, ids=["b"]).shape == (1, 2)
    # Another promise is another identity.
    found.head = frozen(torch.nn.Linear(2, 2))
    with pytest.raises(tcx.MismatchError, match="assumed stateless"):
        tcx.cached(features(found), directory, id="m_v1")


def test_a_counter_that_forward_changes_in_place_can_be_left_out(directory):
    found = program("count.add_(1); return self.layer(x)")
    cached = tcx.cached(features(found), None, id="m_v1")
    with pytest.raises(tcx.ModuleViolationError, match=r"`__class__.__globals__\[count\]`.* pass `assume_stateless=\['count'\]`"):
        cached(X, ids=["a"])
    with tcx.cached(features(found), directory, id="m_v1", assume_stateless=["count"]) as cached:
        for name in "abc":
            cached(X, ids=[name])


def test_a_name_that_leaves_nothing_out_is_refused_with_those_there_are():
    found = program("return self.layer(x) + count")
    for name in ["log", "layer.weight", "missing"]:
        with pytest.raises(tcx.InvalidSettingsError, match=rf"\(here: count\), found `{name}`"):
            tcx.cached(features(found), None, id="m_v1", assume_stateless=[name])


def test_variables_of_one_name_are_named_by_their_modules_in_any_order():
    import sys

    texts = set()
    for body in ["return left.of(x) + right.of(x)", "return right.of(x) + left.of(x)"]:
        parts = {}
        for name, value in (("tcx_left", 1.0), ("tcx_right", 2.0)):
            parts[name] = sys.modules[name] = types.ModuleType(name)
            exec(f"import torch\nmean = torch.full((2,), {value})\ndef of(x): return mean", vars(parts[name]))
        found = types.ModuleType("tcx_program")
        found.left, found.right = parts["tcx_left"], parts["tcx_right"]
        exec(PROGRAM % body, vars(found))
        cached = tcx.cached(features(found), None, id="m_v1")
        texts.add(str(cached._computing.watch.known.unsaved))
        for name in parts:
            sys.modules.pop(name)
    assert len(texts) == 1 and "[tcx_left:mean]" in texts.pop()
