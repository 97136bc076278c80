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

cache, table = tcx.Cache("place"), tcx.Cache("place").table("t")
tcx.Cache("place", mode=1)
cache.table(3)
table.put(["a"])
report: str = table.warm(["a"], len)
count: str = table.coverage(["a"]).is_complete
tcx.Cache("place").tabel("x")
tcx.cached(3, "place", id="x")
number: int = cache.table("t", outputs=str).fetch(["a"])[0]
pooled: list[int] = cache.table("t", outputs=tcx.f32[4]).stored(["a"])
cache.table("t", outputs=int).get(["a"])[0]
"""


def test_a_program_with_annotations_runs(directory):
    typed_program.main(directory)


@pytest.mark.skipif(not os.environ.get("TCX_EXAMPLES"), reason="mypy takes a while: `cargo xtask python` runs it")
def test_wrong_uses_are_found(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    place = str(next(iter(tcx_cache.__path__)) + "/..")
    arguments = ["--no-incremental", "--cache-dir", str(tmp_path / "cache"), "--ignore-missing-imports", "--follow-imports", "silent"]
    # Where the package is installed, mypy finds it, and refuses to be shown the place.
    env = {} if "site-packages" in place else {"MYPYPATH": place}
    done = subprocess.run([sys.executable, "-m", "mypy", *arguments, str(program)], env=env, capture_output=True, text=True, timeout=600)
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == set(range(5, 15)), done.stdout + done.stderr
