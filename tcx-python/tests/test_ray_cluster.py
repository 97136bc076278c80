"""A Ray cluster of three nodes on this machine, with a near tier each, fills a cache in an object store and loses a node on the way.

`cargo xtask cluster` installs Ray, and sets `TCX_REQUIRE=ray`; other runs skip it.
"""

from __future__ import annotations

import collections
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_cluster import EXAMPLES, IN_RUST, START_RUST, noted
from test_object_store import environment, needs_server, server  # noqa: F401
from test_rust import MODEL

import tcx_cache as tcx

TEXTS = int(os.environ.get("TCX_TEXTS", "20000"))
EXPIRY = 8.0

#: The worker of the example, which notes what it loads: the test counts what was computed twice.
WORKER = """
import sys, torch
tests, examples, cache, model, log, texts, expiry = sys.argv[1:]
sys.path[:0] = [tests, examples]
import embed
from test_cluster import note
torch.set_num_threads(1)
def load(missing):
    note(log, " ".join(map(str, missing)))
    return [embed.text(own) for own in missing]
with embed.opened(cache, model) as cached:
    print(cached.warm_shared(range(int(texts)), load, batch_size=32, expiry=float(expiry)))
"""


@pytest.fixture
def nodes(tmp_path, environment):  # noqa: F811
    """Three nodes: the near tier of each, and the address of the cluster."""
    if importlib.util.find_spec("ray") is None:
        assert not {"ray", "all"} & set(os.environ.get("TCX_REQUIRE", "").split(",")), "ray is not installed"
        pytest.skip("ray is not installed")
    from ray.cluster_utils import Cluster

    tiers = [tmp_path / f"node{number}" for number in range(3)]

    def settings(tier):
        return {"num_cpus": 1, "object_store_memory": 100 << 20, "env_vars": {"TCX_NEAR_TIER": str(tier)}}

    cluster = Cluster(initialize_head=True, head_node_args={**settings(tiers[0]), "include_dashboard": False})
    try:
        for tier in tiers[1:]:
            cluster.add_node(**settings(tier))
        yield tiers, cluster.address
    finally:
        cluster.shutdown()


def start(address, *arguments):
    """The example, as the driver of a cluster."""
    variables = {**os.environ, "RAY_ADDRESS": address, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(EXAMPLES / "ray_actors.py"), *map(str, arguments)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lose(tier):
    """Kills every process of a node: its agents, its actor and the worker. How many those were."""
    variable, killed = f"TCX_NEAR_TIER={tier}".encode(), 0
    for own in Path("/proc").iterdir():
        try:
            if own.name.isdigit() and variable in (own / "environ").read_bytes().split(b"\0"):
                os.kill(int(own.name), signal.SIGKILL)
                killed += 1
        except OSError:
            pass
    return killed


@needs_server
@pytest.mark.skipif(not MODEL.is_file(), reason="the model is not here: run `cargo xtask setup --model`")
def test_a_cluster_that_loses_a_node_completes_the_cache(nodes, server, tmp_path, capsys):  # noqa: F811
    tiers, address = nodes
    log = tmp_path / "log"
    arguments = [Path(__file__).parent, EXAMPLES, server.url, MODEL.parent, log, TEXTS, EXPIRY]
    driver = start(address, server.url, "embedding_v1", "--workers", 3, "--every", 2, "--", sys.executable, "-c", WORKER, *arguments)
    deadline = time.monotonic() + 1000
    while len(noted(log)) < TEXTS // 3 or not list(tiers[2].rglob("seg-*")):
        assert time.monotonic() < deadline and driver.poll() is None, driver.communicate()
        time.sleep(0.1)
    assert lose(tiers[2]) >= 3
    said, errors = driver.communicate(timeout=1500)
    assert driver.returncode == 0, f"{said}\n{errors}"
    assert re.search(r"^3 workers, 1 lost, 0 failed, ", said, re.MULTILINE), said
    assert re.search(rf"^job warm: [\d,]+ of {TEXTS:,} rows, [\d,]+ rows/s, 3 workers", said, re.MULTILINE), said

    loaded = collections.Counter(map(int, noted(log)))
    assert sorted(loaded) == list(range(TEXTS))
    twice = sum(loaded.values()) - TEXTS
    with capsys.disabled():
        print(f"\nray: one of three nodes was lost, and {twice} of {TEXTS} samples were computed twice ({100 * twice / TEXTS:.2f} %)")
    assert twice <= TEXTS // 20

    # A machine that comes later reads them, and finds nothing damaged.
    sys.path.insert(0, str(EXAMPLES))
    import embed

    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("TCX_NEAR_TIER", str(tmp_path / "later"))
        with embed.opened(server.url, str(MODEL.parent), "read_only") as cached:
            assert cached.coverage(range(TEXTS)).is_complete
            some = list(range(0, TEXTS, 501))
            rows = cached.fetch(some)
        assert torch.allclose(rows, embed.Embedding(str(MODEL.parent)).eval()([embed.text(own) for own in some]), atol=1e-5)
        (job,) = tcx.Cache(server.url).jobs("embedding_v1")
        assert job.ended and job.finished == job.ids == TEXTS and len(job.workers) == 3
        program = "from tcx_cache._command import main; main()"
        verified = subprocess.run([sys.executable, "-c", program, "verify", server.url], capture_output=True, text=True, timeout=300)
    assert verified.returncode == 0 and "embedding_v1: good" in verified.stdout, verified


@pytest.mark.skipif(not IN_RUST.is_file(), reason="the example in Rust is not here: run `cargo build -p tcx-library-examples --example cluster`")
def test_actors_run_a_program_in_rust(nodes, directory):
    _, address = nodes
    driver = start(address, directory, "lengths_v1", "--workers", 3, "--every", 1, "--", *START_RUST, directory)
    said, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, f"{said}\n{errors}"
    assert "job warm: 2,000 of 2,000 rows, ended, 3 workers" in said and "3 workers, 0 lost, 0 failed, " in said, said
    (job,) = tcx.Cache(directory).jobs("lengths_v1")
    assert sum(worker.computed for worker in job.workers) == 2000, "each sample is computed once"
