"""What tests share."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

import tcx_cache as tcx

#: `cargo xtask python` draws this many examples at random; other runs draw few, and the same ones each time.
EXAMPLES = os.environ.get("TCX_EXAMPLES")
settings.register_profile(
    "tcx", max_examples=int(EXAMPLES or 60), derandomize=EXAMPLES is None, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("tcx")


def skip(what, why):
    """Skips a test that needs a program, and lists it among those of `cargo xtask test`; fails where `TCX_REQUIRE` contains it."""
    assert not {what, "all"} & set(os.environ.get("TCX_REQUIRE", "").split(",")), f"`TCX_REQUIRE` contains {what} or all, but {why}"
    if "TCX_SKIPS" in os.environ:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].split(" ")[0]
        with open(os.environ["TCX_SKIPS"], "a") as file:
            file.write(f"{what}\t{test}\t{why}\n")
    pytest.skip(why)


@pytest.fixture
def directory(tmp_path):
    """A new cache directory."""
    return tmp_path / "cache"


@pytest.fixture
def linear():
    """A frozen network."""
    torch.manual_seed(0)
    return frozen(torch.nn.Linear(4, 2))


def frozen(module):
    """A module that can be cached."""
    return module.eval().requires_grad_(False)


@pytest.fixture
def cache(directory):
    """An open cache."""
    with tcx.Cache(directory) as cache:
        yield cache
