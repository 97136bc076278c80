"""The program `tcx` that comes with the package, on caches that Python has filled."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import tcx_cache as tcx

SCRIPT = Path(sys.prefix) / "bin/tcx"
PROGRAM = [sys.executable, "-c", "from tcx_cache._command import main; main()"]


def command(*arguments, input=None):
    """Runs it as the installed program does."""
    return subprocess.run([*PROGRAM, *map(str, arguments)], input=input, capture_output=True, text=True, timeout=60)


@pytest.fixture
def filled(directory, linear):
    """A cache with a module of three rows and a table of two."""
    with tcx.Cache(directory) as cache:
        cache.module(linear, "linear_v1")(torch.randn(3, 4), ids=["a", "b", "c"])
        cache.table("lengths_v1", outputs=int, metadata={"tokenizer": "words"}).put(["x", "y"], [1, 2])
    return directory


def test_it_lists_and_describes_what_python_has_filled(filled, linear):
    listed = command("ls", filled)
    assert listed.returncode == 0 and not listed.stderr, listed.stderr
    assert "linear_v1" in listed.stdout and "lengths_v1" in listed.stdout
    modules = {own["id"]: own for own in json.loads(command("ls", filled, "--json").stdout)["modules"]}
    assert modules["linear_v1"]["rows"] == 3 and modules["lengths_v1"]["rows"] == 2
    info = command("info", filled, "linear_v1")
    assert info.returncode == 0 and tcx.fingerprint(linear.state_dict())[:15] in info.stdout
    shown = command("info", filled, "lengths_v1").stdout
    assert "tokenizer" in shown and '"words"' in shown


def test_its_exit_codes_are_those_of_the_command(filled, tmp_path):
    assert command("verify", filled).returncode == 0
    covered = command("coverage", filled, "linear_v1", "-", input="a\nb\n")
    assert covered.returncode == 0 and "2 of 2" in covered.stdout
    missing = command("coverage", filled, "linear_v1", "-", "--json", input="a\nz\n")
    assert missing.returncode == 1 and json.loads(missing.stdout)["present"] == 1
    for arguments, code, message in [
        (["ls", tmp_path / "nowhere"], 3, "nowhere"),
        (["ls", filled / "linear_v1"], 3, "linear_v1"),
        (["info", filled, "other_v1"], 3, "other_v1"),
        (["list", filled], 2, "unrecognized subcommand"),
        (["rm", filled, "linear_v1"], 7, "pass --yes"),
    ]:
        done = command(*arguments)
        assert done.returncode == code and message in done.stderr, (arguments, done)
    (segment,) = (filled / "linear_v1").glob("seg-*")
    segment.chmod(0o644)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    damaged = command("verify", filled)
    assert damaged.returncode == 1 and segment.name in damaged.stdout + damaged.stderr


def test_its_help_and_version_are_those_of_the_command():
    assert command("--version").stdout == f"tcx {tcx.__version__}\n"
    assert "Usage: tcx " in command("--help").stdout
    assert "_tcx()" in command("completions", "bash").stdout


@pytest.mark.skipif(not SCRIPT.is_file(), reason="the package was not installed from its wheel")
def test_the_wheel_installs_the_program(filled):
    assert os.access(SCRIPT, os.X_OK)
    done = subprocess.run([str(SCRIPT), "ls", str(filled)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "linear_v1" in done.stdout, done.stderr
    pushed = subprocess.run([str(SCRIPT), "push", str(filled), "nowhere"], capture_output=True, text=True, timeout=60)
    assert pushed.returncode == 2 and "expected the URL of an object store" in pushed.stderr


def test_a_reader_that_closes_the_pipe_is_no_failure(filled):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PROGRAM, "ls", str(filled)], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_it(filled):
    leader, follower = pty.openpty()
    # On a terminal, `top` prints until it is interrupted.
    running = subprocess.Popen([*PROGRAM, "top", str(filled), "--every", "1h"], stdout=follower, stderr=follower)
    os.close(follower)
    assert os.read(leader, 1)
    time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == -signal.SIGINT
    os.close(leader)


def test_it_imports_no_torch(filled):
    program = f"import sys; from tcx_cache import _native; _native.command(['tcx', 'ls', {str(filled)!r}]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == 0
