"""Handles in functions that `torch.compile` compiles."""

from __future__ import annotations

import random
import subprocess
import sys
import types

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.runtime import untraced


class Outer(torch.nn.Module):
    """A trained model with a frozen part."""

    def __init__(self, inside):
        super().__init__()
        self.inside, self.head = inside, torch.nn.Linear(2, 2)

    def forward(self, x, ids):
        return self.head(self.inside(x, ids=ids).relu() + 1)


@pytest.fixture
def dynamo():
    """The compiler, which comes without one of its dependencies here and there."""
    for needed in ("sympy", "filelock", "networkx"):
        pytest.importorskip(needed, reason="torch compiles with it")
    import torch._dynamo

    torch._dynamo.reset()
    return torch._dynamo


@pytest.mark.parametrize("kind", ["list", "tensor", "str"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_compiled_model_may_contain_a_cached_module(directory, linear, dynamo, kind, dynamic):
    chance, pool = random.Random(1), torch.randn(300, 4)
    with tcx.cached(linear, directory, id="linear_v1") as cached:
        outer = Outer(cached)
        compiled = torch.compile(outer, backend="eager", dynamic=dynamic)
        for step in range(30):
            batch = [chance.randrange(300) for _ in range(8 if step < 15 else chance.randrange(1, 12))]
            ids = {"list": batch, "tensor": torch.tensor(batch), "str": [f"id {own}" for own in batch]}[kind]
            assert torch.allclose(compiled(pool[batch], ids), outer.head(linear(pool[batch]).relu() + 1), atol=1e-5)


def test_the_compiler_looks_at_nothing_that_a_handle_calls(directory, linear, dynamo):
    frames, pool = [], torch.randn(8, 4)

    def backend(graph, _):
        frames.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    with tcx.Cache(directory) as cache:
        cached, table = cache.module(linear, "linear_v1"), cache.table("t_v1", outputs=tcx.f32[2])

        @torch.compile(backend=backend)
        def loop(ids, x):
            found = cached(x, ids=ids) + cached.fetch(ids)
            table.put(ids, found + 1)
            return table.stored(ids) + table.get(ids) + table.fetch(ids, None)

        for start in range(0, 8, 2):
            ids = torch.arange(start, start + 2)
            assert torch.allclose(loop(ids, pool[ids]), 3 * (2 * linear(pool[ids]) + 1), atol=1e-5)
    # Sums, and nothing of what computes and checks rows.
    assert {len(own) for own in frames} <= {1, 2} and len(frames) <= 8


def test_a_handle_does_not_import_the_compiler():
    program = (
        "import sys, tcx_cache as tcx; table = tcx.Cache(None).table('t_v1', outputs=int); table.put(['a'], [1]); assert 'torch' not in sys.modules\n"
        "import torch; cached = tcx.cached(torch.nn.Linear(4, 2).eval().requires_grad_(False), None, id='linear_v1')\n"
        "cached(torch.ones(1, 4), ids=[1]), table.stored(['a']); assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_function_is_disabled_when_the_compiler_is_there(monkeypatch):
    """As with a torch that is old, or is imported after tcx."""
    calls = []
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setattr(untraced, "_skip", lambda function: False)

    @untraced.untraced
    def double(number):
        """Twice the number."""
        return 2 * number

    def disable(function):
        return lambda *args: calls.append(args) or function(*args)

    assert double(1) == 2 and double.__doc__ == "Twice the number."
    monkeypatch.setitem(sys.modules, "torch._dynamo", types.ModuleType("torch._dynamo"))
    # While it is imported.
    assert double(2) == 4
    monkeypatch.setattr(sys.modules["torch._dynamo"], "disable", disable, raising=False)
    assert double(3) == 6 and double(4) == 8 and calls == [(3,), (4,)]
