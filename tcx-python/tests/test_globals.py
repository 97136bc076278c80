"""What the code of a class reaches by name is known: globals, variables of where it was defined, and the methods that it calls."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity.known import Known
from tcx_cache.identity.unsaved import Scan

ONES = torch.ones(1, 4)

#: A module of a program: a network at its top, and what uses it. `%s` is the body of `Features`.
PROGRAM = """
import functools
import types
import torch

model = torch.nn.Linear(4, 2)
encoder = torch.nn.Linear(4, 2)
mean = torch.zeros(2)
bank = {"model": model}
normal = torch.distributions.Normal(model.weight[0].detach(), 1.0)
settings = types.SimpleNamespace(nets=[model])

def encode(x):
    return model(x)

def twice(x, run=encode):
    return run(x)

def logged(function):
    @functools.wraps(function)
    def run(*args):
        return function(*args)
    return run

class Holds:
    weights = model.weight

class Calls:
    def __call__(self, x):
        return model(x)

class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return model(x)

class Decorated:
    def __init__(self, function):
        self.function = function

    def __get__(self, own, cls):
        return functools.partial(self.function, own)

calls, method, remembered = Calls(), model.forward, functools.partial(encode)

class Features(torch.nn.Module):
%s
"""

BODIES = {
    "global": "def forward(self, x): return model(x)",
    "container": "def forward(self, x): return bank['model'](x)",
    "object of torch": "def forward(self, x): return normal.log_prob(x)",
    "namespace": "def forward(self, x): return settings.nets[0](x)",
    "inner function": "def forward(self, x): return (lambda y: model(y))(x)",
    "decorator of torch": "@torch.no_grad()\n def forward(self, x): return model(x)",
    "decorator": "@logged\n def forward(self, x): return model(x)",
    "class of decorators": "@Decorated\n def run(self, x): return model(x)\n def forward(self, x): return self.run(x)",
    "function that is remembered": "@functools.lru_cache\n def net(self): return model\n def forward(self, x): return self.net()(x)",
    "function": "def forward(self, x): return encode(x)",
    "default": "def forward(self, x, run=encode): return run(x)",
    "default of a function": "def forward(self, x): return twice(x)",
    "default of a tensor": "def forward(self, x, w=model.weight): return x @ w.T",
    "partial": "def forward(self, x): return remembered(x)",
    "method of a network": "def forward(self, x): return method(x)",
    "object": "def forward(self, x): return calls(x)",
    "class": "def forward(self, x): return x @ Holds.weights.T",
    "function of autograd": "def forward(self, x): return Double.apply(x)",
    "method": "def run(self, x): return model(x)\n def forward(self, x): return self.run(x)",
    "property": "@property\n def net(self): return model\n def forward(self, x): return self.net(x)",
    "cached property": "@functools.cached_property\n def run(self): return encode\n def forward(self, x): return self.run(x)",
    "static method": "@staticmethod\n def run(x): return model(x)\n def forward(self, x): return self.run(x)",
    "class method": "@classmethod\n def run(cls, x): return model(x)\n def forward(self, x): return self.run(x)",
    "function that is an attribute": "def __init__(self):\n  super().__init__()\n  self.run = lambda x: model(x)\n def forward(self, x): return self.run(x)",
    "method that is an attribute": (
        "def __init__(self):\n  super().__init__()\n  self.run = self._run\n def _run(self, x): return self._inside(x)\n"
        " def _inside(self, x): return model(x)\n def forward(self, x): return self.run(x)"
    ),
}


class Session:
    """Has what refers to it."""

    def __init__(self, config=None):
        self.config, self.all = config or Session(self), {"session": self}


def program(body, name="tcx_program"):
    """A module of a program, as it is when it was imported."""
    torch.manual_seed(0)
    found = types.ModuleType(name)
    exec(compile(PROGRAM % f" {body}", f"{name}.py", "exec"), found.__dict__)
    frozen(found.model)
    frozen(found.encoder)
    return found


def changed(found):
    """The same with another weight."""
    with torch.no_grad():
        found.model.weight.add_(1)
    return found


def opened(found, directory):
    return tcx.cached(frozen(found.Features()), directory, id="m_v1")


def check_identity(make, directory):
    with opened(make(), directory) as cached:
        before = cached(ONES, ids=["a"])
    with opened(make(), directory) as cached:
        assert torch.equal(cached(ONES, ids=["a"]), before) and cached.coverage(["a"]).is_complete
    with pytest.raises(tcx.MismatchError):
        opened(changed(make()), directory)(ONES, ids=["a"])


@pytest.mark.parametrize("body", BODIES)
def test_a_network_that_code_reaches_is_part_of_the_identity(directory, body):
    check_identity(lambda: program(BODIES[body]), directory)


@pytest.mark.parametrize("body", BODIES)
def test_a_network_that_code_reaches_is_watched(directory, body):
    found = program(BODIES[body])
    cached = opened(found, directory)
    cached(ONES, ids=["a"])
    changed(found)
    with pytest.raises(tcx.ModuleViolationError, match="changed"):
        cached(ONES, ids=["b"])


@pytest.mark.parametrize(
    "body",
    [
        "return tcx_nets.model(x)",
        "return tcx_nets.encode(x)",
        "import tcx_nets as nets; return nets.model(x)",
        "from tcx_nets import model; return model(x)",
    ],
)
def test_a_network_of_an_imported_module_is_part_of_the_identity(directory, monkeypatch, body):
    def made(body):
        nets, own = program("pass", "tcx_nets"), types.ModuleType("tcx_user")
        monkeypatch.setitem(sys.modules, "tcx_nets", nets)
        exec(f"import torch, tcx_nets\nclass Features(torch.nn.Module):\n def forward(self, x):\n  {body}", own.__dict__)
        return types.SimpleNamespace(Features=own.Features, model=nets.model)

    check_identity(lambda: made(body), directory)


def test_what_a_class_was_defined_with_is_part_of_the_identity(directory):
    def made():
        torch.manual_seed(0)
        model = frozen(torch.nn.Linear(4, 2))

        class Features(torch.nn.Module):
            def forward(self, x):
                return model(x)

        return types.SimpleNamespace(Features=Features, model=model)

    check_identity(made, directory)


def test_a_variable_that_is_set_to_another_network_is_noticed(directory):
    found = program(BODIES["function"])
    cached = opened(found, directory)
    cached(ONES, ids=["a"])
    found.model = frozen(torch.nn.Linear(4, 2))
    with pytest.raises(tcx.ModuleViolationError, match=r"weight `__class__.__globals__\[model\].*`: changed"):
        cached(ONES, ids=["b"])


def test_a_network_that_is_set_later_is_noticed(directory):
    found = program("def forward(self, x): return x if late is None else late(x)")
    found.late = None
    cached = opened(found, directory)
    cached(ONES, ids=["a"])
    found.late = frozen(torch.nn.Linear(4, 4))
    with pytest.raises(tcx.ModuleViolationError, match="was added or removed"):
        cached(ONES, ids=["b"])


def test_variables_of_code_need_no_evaluation_mode_without_weights(directory):
    found = program("def forward(self, x): return relu(x)")
    found.relu = torch.nn.ReLU()
    opened(found, directory)(ONES, ids=["a"])
    trained = program(BODIES["global"])
    trained.model.train()
    with pytest.raises(tcx.InvalidWeightsError, match=r"its part `__class__.__globals__\[model\]` is in training mode"):
        opened(trained, directory)


def test_a_network_that_code_reaches_is_refused_where_rust_names_the_identity():
    module = frozen(program(BODIES["global"]).Features())
    with pytest.raises(tcx.InvalidWeightsError, match="that `state_dict` leaves out"):
        tcx.cached(module, None, id="m_v1", type_name="Features", fields={"layer": tcx.WEIGHTS})


def test_code_without_networks_adds_nothing_to_the_identity():
    found = program("def forward(self, x): return torch.relu(x) + offset")
    found.offset = 1
    module = frozen(found.Features())
    assert Known.of(module, Scan(module)).unsaved == ()


def test_a_part_that_its_class_names_has_the_name_that_it_has_in_the_module():
    found = program("def __init__(self):\n  super().__init__()\n  self.layer = model\n def forward(self, x): return model(x)")
    module = frozen(found.Features())
    scan = Scan(module)
    assert scan.used_parts == {"__class__.__globals__[model]": "layer"}
    assert [name for name in scan.all if "__globals__" in name] == []


def test_numbers_of_a_program_cost_no_walk_for_each_batch(directory):
    found = program("def forward(self, x):\n  global count\n  count += 1\n  return x * 2")
    found.count = 0
    cached = opened(found, directory)
    for number in range(3):
        cached(ONES, ids=[number])
    walked = cached._computing.watch._walked
    cached(ONES, ids=[3])
    assert cached._computing.watch._walked is walked


def test_code_is_read_once_as_long_as_it_reaches_the_same(monkeypatch):
    from tcx_cache.identity import code

    found = program(BODIES["function"])
    module, known = frozen(found.Features()), code.Code()
    Scan(module, known)
    monkeypatch.setattr(code, "_Reader", lambda bases: pytest.fail("reads again"))
    Scan(module, known)


def test_methods_of_containers_of_a_program_are_not_called(directory):
    class Lazy(dict):
        def values(self):
            raise AssertionError("loads all")

        items = __iter__ = values

    found = program("def forward(self, x): return x if bank else x")
    found.bank = Lazy(a=1)
    opened(found, directory)(ONES, ids=["a"])


def test_objects_of_a_program_that_refer_to_each_other_are_read_once(directory):
    found = program("def forward(self, x): return x if session else x")
    found.session = Session()
    opened(found, directory)(ONES, ids=["a"])


def test_constants_of_a_program_are_part_of_the_identity(directory):
    def made():
        found = program("def forward(self, x): return x - mean.sum()")
        found.model = types.SimpleNamespace(weight=found.mean)
        return found

    check_identity(made, directory)
