"""The program of examples/cluster for Spark. `cargo xtask cluster` installs PySpark, and sets `TCX_REQUIRE=spark`; other runs skip it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
from test_cluster import EXAMPLES

import tcx_cache as tcx


@pytest.fixture
def program():
    if importlib.util.find_spec("pyspark") is None:
        assert not {"spark", "all"} & set(os.environ.get("TCX_REQUIRE", "").split(",")), "pyspark is not installed"
        pytest.skip("pyspark is not installed")
    spec = importlib.util.spec_from_file_location("spark_map", EXAMPLES / "spark_map.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tasks_of_spark_share_a_cache_and_a_second_run_computes_nothing(program, directory, tmp_path):
    # Spark finds the address of this machine by its name, which may have none.
    variables = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [sys.executable, str(EXAMPLES / "spark_map.py"), str(directory)]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["the first run computed 2000 of 2000 samples", "the second run computed 0 of 2000 samples"]
    ids = list(range(2000))
    with tcx.cached(program.network(), directory, id="encoder_v1", outputs=tcx.f32[8]) as cached:
        assert cached.coverage(ids).is_complete
        assert torch.allclose(cached.fetch(ids), program.network()(program.load(ids)), atol=1e-5)
