"""The program of examples/cluster for Ray Data. `cargo xtask cluster` installs Ray, and sets `TCX_REQUIRE=ray`; other runs skip it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tcx_cache as tcx

PROGRAM = Path(__file__).parents[2] / "examples/cluster/ray_data.py"


@pytest.fixture
def program():
    if importlib.util.find_spec("ray") is None:
        assert not {"ray", "all"} & set(os.environ.get("TCX_REQUIRE", "").split(",")), "ray is not installed"
        pytest.skip("ray is not installed")
    spec = importlib.util.spec_from_file_location("ray_data", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_actors_of_ray_data_share_a_cache_and_a_second_run_computes_nothing(program, directory):
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([sys.executable, str(PROGRAM), str(directory)], env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["the first run computed 2000 of 2000 samples", "the second run computed 0 of 2000 samples"]
    ids = list(range(2000))
    with tcx.cached(program.network(), directory, id="encoder_v1", outputs=tcx.f32[8]) as cached:
        assert cached.coverage(ids).is_complete
        assert torch.allclose(cached.fetch(ids), program.network()(program.load(ids)), atol=1e-5)
