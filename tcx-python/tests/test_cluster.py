"""Processes that fill one cache: spawned ones, one of which is killed, and those of torchrun, Slurm and Kubernetes."""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.engine.rows import Rows

EXAMPLES = Path(__file__).parents[2] / "examples/cluster"
#: After this time without a sign of life, a worker counts as gone. It is far longer than a busy machine suspends one.
EXPIRY = 6.0
RANGE, SAMPLES = 60, 600


def network():
    torch.manual_seed(0)
    return frozen(torch.nn.Linear(4, 2))


def inputs(numbers):
    return torch.tensor([[float(number), 1.0, -float(number), 2.0] for number in numbers])


def opened(directory):
    return tcx.cached(network(), directory, id="linear_v1", outputs=tcx.f32[2])


def note(log, text):
    """Appends a line, at once and whole."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{text}\n".encode())
    os.close(file)


def noted(log):
    return log.read_text().split() if log.exists() else []


def until(condition):
    """Waits for what another process does."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def work(directory, log, is_victim):
    """A worker, which notes what it loads. A victim waits in its first work range to be killed."""
    loads = []

    def load(missing):
        loads.append(missing)
        if is_victim and len(loads) == 4:
            note(log, "stuck")
            time.sleep(1000)
        note(log, " ".join(map(str, missing)))
        return inputs(missing)

    report = opened(directory).warm_shared(range(SAMPLES), load, batch_size=10, range_size=RANGE, expiry=EXPIRY)
    assert report.asked == SAMPLES and not report.stopped


def test_others_take_over_from_a_worker_that_is_killed_and_compute_at_most_its_part_again(directory, tmp_path):
    context, log = multiprocessing.get_context("spawn"), tmp_path / "log"
    victim = context.Process(target=work, args=(directory, log, True))
    victim.start()
    until(lambda: "stuck" in noted(log))
    others = [context.Process(target=work, args=(directory, log, False)) for _ in range(2)]
    for other in others:
        other.start()
    until(lambda: len(noted(log)) > RANGE)
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    assert victim.exitcode == -signal.SIGKILL
    for other in others:
        other.join()
        assert other.exitcode == 0
    loaded = collections.Counter(int(own) for own in noted(log) if own != "stuck")
    assert sorted(loaded) == list(range(SAMPLES))
    assert sum(loaded.values()) - SAMPLES <= RANGE, "samples that were computed again"
    cached = opened(directory)
    assert cached.coverage(range(SAMPLES)).is_complete
    assert torch.allclose(cached.fetch(list(range(SAMPLES))), network()(inputs(range(SAMPLES))), atol=1e-4)
    assert cached.warm_shared(range(SAMPLES), inputs, range_size=RANGE).computed == 0


WAITING = """
import signal, sys, torch, tcx_cache as tcx
# A shell's background jobs ignore it, and so do their children.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
from test_cluster import opened, inputs, note
def load(missing):
    note(sys.argv[3], "loads")
    return inputs(missing)
try:
    opened(sys.argv[2]).warm_shared(range(128), load)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_worker_that_waits_for_others(directory, tmp_path):
    log = tmp_path / "log"
    interrupted = []

    def load(missing):
        if not interrupted:
            # This worker has leased one of two ranges. The other worker computes the second, and then waits for the first.
            place = str(Path(__file__).parent)
            other = subprocess.Popen([sys.executable, "-c", WAITING, place, str(directory), str(log)], stdout=subprocess.PIPE, text=True)
            until(lambda: noted(log))
            until(lambda: reader.coverage(range(128)).stored == 64 or reader.refresh())
            other.send_signal(signal.SIGINT)
            interrupted.append(other.communicate(timeout=60)[0])
        return inputs(missing)

    reader = tcx.cached(network(), directory, id="linear_v1", outputs=tcx.f32[2], mode="read_only")
    report = opened(directory).warm_shared(range(128), load)
    assert interrupted == ["interrupted\n"]
    assert report.computed == 64 and len(report.workers) == 2


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("fill", EXAMPLES / "fill.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(program, directory):
    """Checks that the cache is complete and right, and that the processes computed every sample once, by their reports."""

    def check(output, processes, samples=2000):
        reports = re.findall(r"([\d,]+) of [\d,]+ samples computed(?: here)?$", output, re.MULTILINE)
        assert len(reports) == processes, output
        assert sum(int(report.replace(",", "")) for report in reports) == samples, output
        with tcx.cached(program.network(), directory, id="encoder_v1", outputs=tcx.f32[8]) as cached:
            ids = list(range(samples))
            assert cached.coverage(ids).is_complete
            assert torch.allclose(cached.fetch(ids), program.network()(program.load(ids)), atol=1e-5)

    return check


def environment(**variables):
    """That of a process which no launcher has started."""
    launchers = ("RANK", "WORLD_SIZE", "SLURM_", "JOB_COMPLETION")
    return {name: value for name, value in os.environ.items() if not name.startswith(launchers)} | variables


@pytest.mark.parametrize("way", ["shared", "sharded"])
def test_torchrun(check, directory, way):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "fill.py"), str(directory), "--way", way], env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    check(done.stdout, 2)


#: Stands in for the one of Slurm: starts as many tasks as the script asks for, with the variables that srun sets.
SRUN = """#!/bin/bash
[ "$1" = --kill-on-bad-exit=0 ] && shift
for ((task = 0; task < SLURM_NTASKS; task++)); do
    SLURM_PROCID=$task SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$SLURM_NTASKS "$@" &
    tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || exit 1; done
"""


@pytest.mark.parametrize("way", ["shared", "sharded"])
def test_slurm(check, directory, tmp_path, way):
    srun = tmp_path / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    script = EXAMPLES / "fill.sbatch"
    assert re.search(r"^#SBATCH --ntasks=4$", script.read_text(), re.MULTILINE)
    variables = {"SLURM_NTASKS": "2", "SLURM_SUBMIT_DIR": str(EXAMPLES), "PYTHON": sys.executable, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    # The script's own process has the rank 0 in Slurm.
    found = environment(**variables, SLURM_PROCID="0")
    done = subprocess.run(["bash", str(script), str(directory), "--way", way], env=found, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    check(done.stdout, 2)
    if way == "sharded":
        assert "rank 0 of 2: " in done.stdout and "rank 1 of 2: " in done.stdout
        alone = subprocess.run([sys.executable, str(EXAMPLES / "fill.py"), str(directory), "--way", way], env=found, capture_output=True, text=True, timeout=300)
        assert alone.returncode == 1 and "start the program with srun" in alone.stderr


def test_an_indexed_job_of_kubernetes(check, directory):
    manifest = (EXAMPLES / "fill.yaml").read_text()

    def value(name):
        (found,) = re.findall(rf"^ *{name}: *(.+)$", manifest, re.MULTILINE)
        return found

    assert value("completionMode") == "Indexed" and value("restartPolicy") == "Never"
    (completions,) = re.findall(r'- name: JOB_COMPLETIONS\n +value: "(\d+)"', manifest)
    assert completions == value("completions")
    _, _, mounted, *rest = re.findall(r'"([^"]*)"', value("command"))
    assert mounted == value("mountPath")
    pods = [
        subprocess.Popen(
            [sys.executable, str(EXAMPLES / "fill.py"), str(directory), *rest],
            env=environment(JOB_COMPLETION_INDEX=str(index), JOB_COMPLETIONS=completions),
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(int(completions))
    ]
    outputs = [pod.communicate(timeout=300)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0] * len(pods)
    check("".join(outputs), len(pods))


def test_a_process_that_is_asked_to_stop_keeps_what_it_has_computed(program, directory):
    command = [sys.executable, str(EXAMPLES / "fill.py"), str(directory), "--samples", "100000000"]
    filling = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    until(lambda: list(directory.glob("encoder_v1/seg-*")))
    filling.send_signal(signal.SIGTERM)
    output, _ = filling.communicate(timeout=120)
    assert filling.returncode == 75
    (computed,) = re.findall(r"^([\d,]+) of 100,000,000 samples computed here, stopped early$", output, re.MULTILINE)
    with tcx.cached(program.network(), directory, id="encoder_v1", outputs=tcx.f32[8]) as cached:
        assert len(cached.stored_ids()) == int(computed.replace(",", "")) > 0


#: The example of the same name in Rust, which is a worker if it is started with a directory.
IN_RUST = Path(os.environ.get("TCX_CLUSTER") or EXAMPLES.parents[1] / "target/debug/examples/cluster")
#: Starts it, with libtorch in the library path: all programs of the workspace are linked with it.
START_RUST = [str(EXAMPLES.parents[1] / ".cargo/with-libtorch.sh"), str(IN_RUST)]


class Lengths(torch.nn.Module):
    def forward(self, texts):
        return torch.tensor([len(text) for text in texts])


@pytest.mark.skipif(not IN_RUST.is_file(), reason="the example in Rust is not here: run `cargo build -p tcx-library-examples --example cluster`")
def test_workers_in_rust_and_in_python_share_a_job(directory):
    rust = subprocess.Popen([*START_RUST, directory], stdout=subprocess.PIPE, text=True)
    # A job, a worker and a lease. The worker stops until the other one is at work.
    until(lambda: len(list(directory.glob("lengths_v1/leases/*"))) >= 3)
    rust.send_signal(signal.SIGSTOP)
    lengths = tcx.cached(Lengths().eval(), directory, id="other_v1", outputs=tcx.i64[()], ids=int)
    # A struct without weights has no counterpart in Python: the rows are those of the folder, with its identity.
    vars(lengths)["_rows"] = Rows.existing(dataclasses.replace(lengths._rows.opening, module="lengths_v1"), None)

    def load(missing):
        rust.send_signal(signal.SIGCONT)
        return [f"text {own}" for own in missing]

    report = lengths.warm_shared(range(2000), load, batch_size=10, range_size=50)
    began, computed = rust.communicate(timeout=120)[0].split()
    assert (began, rust.returncode) == ("began", 0)
    assert report.computed > 0 and int(computed) > 0 and report.computed + int(computed) == 2000
    assert {worker.process for worker in report.workers} == {os.getpid(), rust.pid}
    assert lengths.fetch([0, 10, 1999]).tolist() == [6, 7, 9]
