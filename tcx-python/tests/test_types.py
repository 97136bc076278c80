"""Types: the program that `mypy --strict` checks runs, and wrong uses are found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typed_program

import tcx_cache

pytest.importorskip("mypy")

WRONG = """
import tcx_cache as tcx

cache = tcx.Cache("place", mode=1)
table = cache.table(3)
table.put(["a"])
report: str = table.warm(["a"], len)
count: str = table.coverage(["a"]).is_complete
tcx.Cache("place").tabel("x")
"""


def test_a_program_with_annotations_runs(directory):
    typed_program.main(directory)


@pytest.mark.skipif(not os.environ.get("TCX_EXAMPLES"), reason="mypy takes a while: `cargo xtask python` runs it")
def test_wrong_uses_are_found(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    place = str(next(iter(tcx_cache.__path__)) + "/..")
    arguments = ["--no-incremental", "--cache-dir", str(tmp_path / "cache"), "--ignore-missing-imports", "--follow-imports", "silent"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments, str(program)], env={"MYPYPATH": place}, capture_output=True, text=True, timeout=600
    )
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == {4, 5, 6, 7, 8, 9}, done.stdout + done.stderr
