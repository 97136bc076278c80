"""The programs of examples/cluster under a real Slurm, whose daemons the test starts: `srun`, `sbatch`, and tasks that are killed.

`.ci/run` and `cargo xtask cluster` install Slurm where they can; without it, these tests are listed as skipped.
"""

from __future__ import annotations

import collections
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import slurm
from conftest import skip
from test_cluster import EXAMPLES, IN_RUST, START_RUST, check, environment, program  # noqa: F401

import tcx_cache as tcx


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Slurm, while the tests of this module run."""
    why = slurm.missing()
    if why is not None:
        skip("slurm", why)
    daemons = slurm.Slurm(tmp_path_factory.mktemp("slurm", numbered=True))
    # Its folder is below others that only this user may enter, unlike what munge wants.
    for folder in (daemons.folder, *daemons.folder.parents):
        if os.stat(folder).st_uid == os.getuid() and not os.stat(folder).st_mode & 0o005:
            folder.chmod(0o755)
    try:
        daemons.start()
        yield daemons
    finally:
        daemons.stop()


@pytest.mark.parametrize("way", ["shared", "sharded"])
def test_tasks_of_srun_share_the_work(cluster, check, directory, way):  # noqa: F811
    said = cluster.run("srun", "--ntasks=4", sys.executable, str(EXAMPLES / "fill.py"), str(directory), "--way", way)
    check(said, 4)
    if way == "sharded":
        assert sorted(re.findall(r"rank (\d) of 4: ", said)) == ["0", "1", "2", "3"]


def test_the_batch_script_runs_as_it_is(cluster, check, directory, tmp_path):  # noqa: F811
    # It asks for a GPU for each task, which the node does not have.
    script = tmp_path / "fill.sbatch"
    script.write_text(re.sub(r"^#SBATCH --(gpus|cpus)-per-task=\d+\n", "", (EXAMPLES / "fill.sbatch").read_text(), flags=re.MULTILINE))
    output = tmp_path / "output"
    # `--wait` returns the exit status of the job.
    cluster.run(
        "sbatch", "--wait", f"--output={output}", "--export=ALL,PYTHON=" + sys.executable + ",PROGRAM=" + str(EXAMPLES / "fill.py"), str(script), str(directory)
    )
    check(output.read_text(), 4)


def processes(cluster, task):
    """The processes of a task of a step that have its rank in their environment."""
    found = []
    for own in Path("/proc").iterdir():
        try:
            variables = (own / "environ").read_bytes().split(b"\0") if own.name.isdigit() else []
        except OSError:
            continue
        mine = f"SLURM_CONF={cluster.folder}/slurm.conf".encode()
        if mine in variables and f"SLURM_PROCID={task}".encode() in variables and b"SLURM_STEP_NUM_TASKS=4" in variables:
            found.append(int(own.name))
    return found


#: A worker that notes what it loads, so that the test can count what was computed twice.
NOTES = """
import os, sys, time, torch, tcx_cache as tcx
sys.path.insert(0, sys.argv[1])
from test_cluster import opened, inputs, note
def load(missing):
    time.sleep(0.05)
    note(sys.argv[3], " ".join(map(str, missing)))
    return inputs(missing)
report = opened(sys.argv[2]).warm_shared(range(2000), load, batch_size=10, range_size=100, expiry=6.0)
assert report.asked == 2000 and not report.stopped
"""


def test_the_other_tasks_complete_the_work_of_one_that_is_killed(cluster, directory, tmp_path, capsys):
    log = tmp_path / "log"
    command = ["srun", "--ntasks=4", "--kill-on-bad-exit=0", sys.executable, "-c", NOTES, str(Path(__file__).parent), str(directory), str(log)]
    step = subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (log.exists() and len(log.read_text().split()) > 300 and len(processes(cluster, 2)) > 0):
        assert time.monotonic() < deadline and step.poll() is None
        time.sleep(0.05)
    for process in processes(cluster, 2):
        os.kill(process, signal.SIGKILL)
    _, errors = step.communicate(timeout=240)
    # The status of srun is that of the task that was killed.
    assert step.returncode != 0 and "task 2: Killed" in errors, errors
    loaded = collections.Counter(map(int, log.read_text().split()))
    assert sorted(loaded) == list(range(2000))
    twice = sum(loaded.values()) - 2000
    with capsys.disabled():
        print(f"\nslurm: one of four tasks was killed, and {twice} of 2000 samples were computed twice ({twice / 20:.1f} %)")
    # Its part of 100, and what it had computed in the second before it was killed.
    assert twice <= 200
    with tcx.cached(torch_network(), directory, id="linear_v1", outputs=tcx.f32[2]) as cached:
        assert cached.coverage(range(2000)).is_complete


def torch_network():
    """The network of the workers."""
    from test_cluster import network

    return network()


@pytest.mark.skipif(not IN_RUST.is_file(), reason="the example in Rust is not here: run `cargo build -p tcx-library-examples --example cluster`")
@pytest.mark.parametrize("way", ["shared", "sharded"])
def test_tasks_in_rust_share_the_work(cluster, directory, way):
    said = cluster.run("srun", "--ntasks=4", *START_RUST, str(directory), way)
    computed = [int(own) for own in re.findall(r"^(\d+)$", said, re.MULTILINE)]
    assert len(computed) == 4 and sum(computed) == 2000, said
    if way == "sharded":
        assert sorted(re.findall(r"^rank (\d) of 4: ", said, re.MULTILINE)) == ["0", "1", "2", "3"]
    assert subprocess.run([*START_RUST, directory, way], env=environment(RANK="0", WORLD_SIZE="1"), capture_output=True, text=True).stdout.split()[-1] == "0"
