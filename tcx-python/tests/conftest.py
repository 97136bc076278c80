"""What tests share."""

from __future__ import annotations

import pytest
import torch

import tcx_cache as tcx


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
