"""The `state_dict` of a handle is that of the module inside, also where its class has one of its own."""

from __future__ import annotations

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx


class WithState(torch.nn.Module):
    """Has a number in its `state_dict`."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = torch.nn.Linear(4, 2), 1.0

    def get_extra_state(self):
        return torch.tensor(self.scale)

    def set_extra_state(self, state):
        self.scale = float(state)

    def forward(self, x):
        return self.layer(x) * self.scale


class Renamed(torch.nn.Linear):
    """Has its weights under other names in its `state_dict`."""

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[f"{prefix}w"] = self.weight.detach()
        destination[f"{prefix}b"] = self.bias.detach()

    def _load_from_state_dict(self, state, prefix, *others):
        state = {f"{prefix}weight": state[f"{prefix}w"], f"{prefix}bias": state[f"{prefix}b"]}
        super()._load_from_state_dict(state, prefix, *others)


class Nested(torch.nn.Linear):
    """Returns a `state_dict` of its own form."""

    def state_dict(self, *args, **kwargs):
        return {f"own.{name}": value for name, value in super().state_dict(*args, **kwargs).items()}

    def load_state_dict(self, state, *args, **kwargs):
        return super().load_state_dict({name.removeprefix("own."): value for name, value in state.items()}, *args, **kwargs)


MADE = [WithState, lambda: Renamed(4, 2), lambda: Nested(4, 2), lambda: torch.nn.Sequential(WithState(), torch.nn.BatchNorm1d(2)), lambda: torch.nn.BatchNorm1d(4)]


@pytest.mark.parametrize("make", MADE)
def test_the_state_dict_of_a_handle_is_that_of_its_module(make):
    module, other = frozen(make()), frozen(make())
    cached = tcx.cached(module, None, id="m_v1", outputs=tcx.f32[2])
    found, expected = cached.state_dict(), module.state_dict()
    assert list(found) == list(expected) and all(torch.equal(found[name], expected[name]) for name in expected)
    assert getattr(found, "_metadata", None) == getattr(expected, "_metadata", None)
    for strict in (True, False):
        loaded = cached.load_state_dict(other.state_dict(), strict=strict)
        assert not loaded.missing_keys and not loaded.unexpected_keys
    x = torch.randn(3, 4)
    assert torch.equal(module(x), other(x))
    with pytest.raises((RuntimeError, KeyError)):
        cached.load_state_dict({"unknown": torch.ones(1)})


@pytest.mark.parametrize("make", [own for own in MADE if own is not MADE[2]])
def test_a_module_that_has_a_handle_as_a_part_has_the_state_dict_that_it_has_with_the_module(make):
    module, other = frozen(make()), frozen(make())
    plain, around = torch.nn.Module(), torch.nn.Module()
    plain.part = module
    around.part = tcx.cached(module, None, id="m_v1", outputs=tcx.f32[2])
    found, expected = around.state_dict(), plain.state_dict()
    assert list(found) == list(expected) and all(torch.equal(found[name], expected[name]) for name in expected)
    assert found._metadata == expected._metadata
    changed = {f"part.{name}": value for name, value in other.state_dict().items()}
    assert not any(around.load_state_dict(changed))
    x = torch.randn(3, 4)
    assert torch.equal(module(x), other(x))


def test_a_number_that_is_loaded_through_a_handle_is_noticed():
    module = frozen(WithState())
    cached = tcx.cached(module, None, id="m_v1", outputs=tcx.f32[2])
    cached(torch.randn(2, 4), ids=["a", "b"])
    cached.load_state_dict({**module.state_dict(), "_extra_state": torch.tensor(2.0)})
    with pytest.raises(tcx.ModuleViolationError, match="`state_dict` entry `_extra_state`: changed"):
        cached(torch.randn(2, 4), ids=["c", "d"])
    with pytest.raises(tcx.ModuleViolationError, match="`state_dict` entry `_extra_state`: changed"):
        cached.close()
