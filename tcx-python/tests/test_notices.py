"""What the engine reports of its own accord, and that no message names what only a program in Rust has."""

from __future__ import annotations

import ast
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.errors import in_python

ROOT = Path(__file__).parents[2]
#: Paths such as `WhenFull::EvictOldest`, names of types and of crates, calls of a builder, attributes.
RUST = re.compile(
    r"\w::\w|\b(?!PyTorch|NaN)[A-Z][a-z]+[A-Z]\w*|\btracing|\bbuilder\b|\bcrates?\b|\bcargo\b|\btraits?\b|#\[|`\w+!`|\bpredicate\b"
)
#: Comments, raw strings, strings and characters.
TOKENS = re.compile(r"//[^\n]*|/\*.*?\*/|r(#*)\"(?P<raw>.*?)\"\1|\"(?P<text>(?:[^\"\\]|\\.)*)\"|'(?:[^'\\]|\\.)'", re.DOTALL)
#: What a program in Python never gets: texts for subscribers of `tracing`, reports of the command, formats for debugging.
NOT_SHOWN = re.compile(r"reported once, set up `tracing_subscriber`|^BatchTimes\(")


def texts(source):
    """The messages in a file in Rust, without those of its tests."""
    source = re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", source)[0]
    # Reasons of lints and of what cannot happen are no messages.
    source = re.sub(r"(?:reason = |expect\()\"(?:[^\"\\]|\\.)*\"", "", source)
    for found in TOKENS.finditer(source):
        text = found["text"] if found["text"] is not None else found["raw"]
        if text is not None and " " in text:
            yield re.sub(r"\\\n\s*", "", text)


def is_product(path):
    return not {"testing", "tests"} & {*path.parts} and path.name != "tests.rs"


def test_no_message_that_reaches_python_names_an_api_of_rust():
    sources = [own for folder in ("tcx-store/src", "tcx-python/src") for own in (ROOT / folder).rglob("*.rs") if is_product(own)]
    assert len(sources) > 50
    named, translated = [], 0
    for path in sources:
        for text in texts(path.read_text()):
            if RUST.search(in_python(text)) and not NOT_SHOWN.search(text):
                named.append(f"{path}: {text}")
            translated += in_python(text) != text
    assert not named, named
    assert translated >= 2, "the messages that are translated are as the engine has them"


def test_no_message_of_the_python_part_names_an_api_of_rust():
    named = []
    for path in (Path(tcx.__file__).parent).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("warn", "print", "_fail"))
            for own in ast.walk(node) if is_call else ():
                if isinstance(own, ast.Constant) and isinstance(own.value, str) and RUST.search(own.value):
                    named.append(f"{path}: {own.value}")
    assert not named, named


def test_settings_are_compared_as_they_are_written_in_python(directory):
    with tcx.Cache(directory, max_bytes=1 << 20, memory_cache_policy="lru") as cache:
        table = cache.table("t_v1", outputs=int)
        table.put(["a"], [1])
        other = tcx.Cache(directory, max_bytes=1 << 20, when_full="evict_oldest", memory_cache_policy="scan_resistant")
        with pytest.raises(tcx.InvalidSettingsError) as error:
            other.table("t_v1", outputs=int, ids=str)
    message = str(error.value)
    assert '`when_full` is "stop_writing", requested "evict_oldest"' in message
    assert '`memory_cache_policy` is "lru", requested "scan_resistant"' in message
    assert in_python("`max_bytes` is none, requested 5; `flush_interval` is 1.5s, requested 5s") == (
        "`max_bytes` is None, requested 5; `flush_interval` is 1.5s, requested 5s"
    )


def test_ids_without_prefixes_are_refused_in_the_words_of_python(cache):
    table = cache.table("t_v1", outputs=int, ids=int)
    table.put([1], [1])
    with pytest.raises(tcx.InvalidBatchError, match="ids of `t_v1` are int, which have no prefix: pass the ids to `invalidate`"):
        table.invalidate_prefix("1")


@pytest.fixture
def damaged(directory):
    """A cache with a segment that is damaged."""
    with tcx.Cache(directory) as cache:
        cache.table("t_v1", outputs=tcx.f32[64]).put(["a"], torch.ones(1, 64))
    (segment,) = (directory / "t_v1").glob("seg-*.arrow")
    content = bytearray(segment.read_bytes())
    middle = len(content) // 4
    content[middle : middle + 64] = bytes(own ^ 0xFF for own in content[middle : middle + 64])
    segment.unlink()
    segment.write_bytes(content)
    return directory


def test_what_the_engine_reports_goes_to_the_logger_of_the_package(damaged, caplog):
    with caplog.at_level(logging.WARNING, logger="tcx_cache"), tcx.Cache(damaged) as cache:
        assert cache.table("t_v1", outputs=tcx.f32[64]).get(["a"]) is None
    records = [own for own in caplog.records if own.name == "tcx_cache"]
    assert {own.levelname for own in records} == {"WARNING"}
    assert all("damaged segment " in own.getMessage() and "run `tcx verify --repair`" in own.getMessage() for own in records)


def test_ctrl_c_while_a_report_is_logged_is_raised_when_the_call_ends(damaged):
    class Interrupted(logging.Handler):
        def emit(self, record):
            raise KeyboardInterrupt

    logger, handler = logging.getLogger("tcx_cache"), Interrupted()
    with tcx.Cache(damaged) as cache:
        logger.addHandler(handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                cache.table("t_v1", outputs=tcx.f32[64])
                sum(range(1000))
        finally:
            logger.removeHandler(handler)


PROGRAM = """
import os, sys, tcx_cache as tcx
{before}
with tcx.Cache(sys.argv[1]) as cache:
    table = cache.table("t_v1", outputs=tcx.f32[64])
    assert table.get(["a"]) is None
    {after}
"""


@pytest.mark.parametrize(
    ("before", "after", "reports"),
    [
        ("", "", 1),
        ("import logging; logging.basicConfig(stream=sys.stdout, format='%(name)s: %(message)s')", "", 0),
        ("import logging; logging.getLogger('tcx_cache').disabled = True", "", 0),
        # A child of `fork` does not repeat what its parent reports.
        ("", "child = os.fork()\n    if child: os.waitpid(child, 0)\n    table.get(['a'])\n    if not child: os._exit(0)", 1),
    ],
)
def test_the_first_report_of_a_kind_goes_to_stderr_where_logging_is_not_set_up(damaged, before, after, reports):
    program = PROGRAM.format(before=before, after=after)
    # From 3.12 on, Python warns of `fork` in a process with threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(damaged)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == reports, done.stderr
    for line in lines:
        assert line.startswith("tcx: damaged segment ") and line.endswith("(reported once, set up the logger `tcx_cache` to see every report)")
    assert done.stdout.startswith("tcx_cache: damaged segment ") == ("basicConfig" in before)
