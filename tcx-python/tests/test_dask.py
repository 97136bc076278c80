"""The program of examples/cluster for Dask. `cargo xtask cluster` installs Dask, and sets `TCX_REQUIRE=dask`; other runs skip it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys

import pytest
import torch
from test_cluster import EXAMPLES

import tcx_cache as tcx


@pytest.fixture
def program():
    if importlib.util.find_spec("distributed") is None:
        assert not {"dask", "all"} & set(os.environ.get("TCX_REQUIRE", "").split(",")), "dask is not installed"
        pytest.skip("dask is not installed")
    spec = importlib.util.spec_from_file_location("dask_workers", EXAMPLES / "dask_workers.py")
    module = importlib.util.module_from_spec(spec)
    # Tasks are sent as names of this module.
    sys.modules["dask_workers"] = module
    spec.loader.exec_module(module)
    return module


def test_the_workers_of_dask_share_the_work_and_a_second_run_computes_nothing(program, directory):
    done = subprocess.run([sys.executable, str(EXAMPLES / "dask_workers.py"), str(directory)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    assert first == "the first run computed 2000 of 2000 samples in 2 workers"
    assert second == "the second run computed 0 of 2000 samples in 2 workers"
    ids = list(range(2000))
    with tcx.cached(program.network(), directory, id="encoder_v1", outputs=tcx.f32[8]) as cached:
        assert cached.coverage(ids).is_complete
        assert torch.allclose(cached.fetch(ids), program.network()(program.load(ids)), atol=1e-5)
