"""Modules that hold their own handles are collected, with the threads and the files of their caches."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time
import weakref

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx

INPUTS = torch.ones(2, 4)


class Holding(torch.nn.Module):
    """Has a weight, and a list and a dict that a walk through it reads."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.sizes, self.names = [4, 2], {"layer": "linear"}

    def forward(self, x):
        return self.layer(x)


def as_attribute(module):
    """How the module holds its handle: a function that gives it the handle."""
    return lambda cached: setattr(module, "cached", cached)


def beside_its_parts(module):
    return lambda cached: object.__setattr__(module, "cached", cached)


def in_forward(module):
    held, computed = [], module.forward
    module.forward = lambda x: computed(x) if held else None
    return held.append


def threads():
    """The threads of tcx in this process."""
    found = set()
    for own in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{own}/comm") as name:
            found |= {own} if name.read().startswith("tcx") else set()
    return found


def files(directory):
    """The files in a directory that this process has open or mapped."""
    with open("/proc/self/maps") as maps:
        found = [line for line in maps if str(directory) in line]
    for own in os.listdir("/proc/self/fd"):
        # The descriptor of this listing is gone, for one.
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{own}"))
    return [name for name in found if str(directory) in name]


@pytest.mark.parametrize("way", [as_attribute, beside_its_parts, in_forward])
def test_a_module_that_holds_its_own_handle_is_collected(directory, way):
    gc.collect()
    earlier = threads()
    module = frozen(Holding())
    hold = way(module)
    cached = tcx.cached(module, directory, id="holding_v1", flush_interval=3600)
    hold(cached)
    for number in range(3):
        assert torch.equal(cached(INPUTS * number, ids=[f"a{number}", f"b{number}"]), module.layer(INPUTS * number))
    cached.flush()
    assert torch.equal(cached.fetch(["b2"]), module.layer(INPUTS * 2)[1:])
    assert files(directory) and threads() - earlier
    alive = weakref.ref(module), weakref.ref(cached), weakref.ref(module.layer.weight)
    del module, cached, hold
    gc.collect()
    assert [own() for own in alive] == [None] * 3
    # The kernel lists a thread for a moment after it was waited for.
    deadline = time.monotonic() + 60
    while (files(directory) or threads() - earlier) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not files(directory) and not threads() - earlier


def test_a_module_whose_rows_wait_to_be_written_is_kept_until_they_are(directory):
    module = frozen(Holding())
    cached = tcx.cached(module, directory, id="holding_v1", flush_interval=3600)
    beside_its_parts(module)(cached)
    cached(INPUTS, ids=["a", "b"])
    alive, rows = weakref.ref(module), cached._rows
    del module, cached
    gc.collect()
    assert alive() is not None, "the writer asks whether its weights are unchanged"
    rows.flush()
    gc.collect()
    assert alive() is None
    rows.close()


PROGRAM = """
import sys, torch, tcx_cache as tcx
sys.path.insert(0, sys.argv[2])
from test_garbage import Holding
torch.manual_seed(0)
module = Holding().eval().requires_grad_(False)
module.cached = tcx.cached(module, sys.argv[1], id="holding_v1", flush_interval=3600)
module.cached(torch.ones(2, 4), ids=["a", "b"])
del module
"""


def test_rows_of_a_module_that_holds_its_own_handle_are_durable_when_the_program_ends(directory):
    arguments = [sys.executable, "-c", PROGRAM, str(directory), os.path.dirname(__file__)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    torch.manual_seed(0)
    assert tcx.cached(frozen(Holding()), directory, id="holding_v1").coverage(["a", "b"]).is_complete


def test_what_was_read_of_a_module_is_shown_to_the_garbage_collector(directory):
    module = frozen(Holding())
    cached = tcx.cached(module, directory, id="holding_v1")
    cached(INPUTS, ids=["a", "b"])
    computing = cached._computing
    walked, attestation = computing.watch._walked, computing.attestation()
    cached.flush()
    referred = [id(own) for own in gc.get_referents(walked.contents)]
    assert {id(module), id(module.layer), id(module.sizes), id(module.names), id(vars(module))} <= {*referred}
    assert computing in [getattr(own, "__self__", None) for own in gc.get_referents(attestation)]


def test_a_cache_keeps_no_handle_that_nothing_refers_to(directory):
    with tcx.Cache(directory, flush_interval=3600) as cache:
        kept = cache.module(frozen(Holding()), "holding_v1").view(1)
        rows = []
        for number in range(3):
            table = cache.table("t_v1", outputs=int, ids=int)
            table.put([number], [number])
            rows.append(weakref.ref(table._rows))
        del table
        gc.collect()
        assert [own() for own in rows] == [None] * 3
        kept(INPUTS, ids=["a", "b"])
        assert not list(directory.glob("holding_v1/seg-*"))
        # A view has the rows of its handle.
        cache.flush()
        assert list(directory.glob("holding_v1/seg-*"))
    assert kept.is_closed
    assert tcx.Cache(directory).table("t_v1", outputs=int, ids=int).coverage(range(3)).is_complete


WHILE_WEIGHTS_ARE_LOOKED_AT = """
import sys, torch, tcx_cache as tcx
network = lambda: torch.nn.Linear(4, 4).eval().requires_grad_(False)
torch.manual_seed(0)
backbone = tcx.cached(network(), sys.argv[1], id="backbone_v1", outputs=tcx.f32[4])
head = tcx.cached(network(), sys.argv[1], id="head_v1", outputs=tcx.f32[4], after=backbone, flush_interval=3600)
head(torch.ones(2, 4), ids=["a", "b"])
with backbone._computing.watch._lock.own:
    # As the garbage collector may do in a thread that looks at the weights. The writer asks whether those of both are unchanged.
    del head
"""


def test_a_handle_that_is_dropped_while_weights_are_looked_at_waits_for_no_lock(directory):
    program = [sys.executable, "-c", WHILE_WEIGHTS_ARE_LOOKED_AT, str(directory)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert tcx.Cache(directory).modules() == ["head_v1"] and list(directory.glob("head_v1/seg-*"))


WHILE_A_DROPPED_HANDLE_WAITS = """
import sys, threading, time, torch, tcx_cache as tcx
from pathlib import Path
network = lambda: torch.nn.Linear(4, 4).eval().requires_grad_(False)
torch.manual_seed(0)
with tcx.Cache(sys.argv[1], flush_interval=3600) as cache:
    backbone = cache.module(network(), "backbone_v1", outputs=tcx.f32[4])
    head = cache.module(network(), "head_v1", outputs=tcx.f32[4], after=backbone)
    head(torch.ones(2, 4), ids=["a", "b"])
    held = threading.Event()
    def look():
        with backbone._computing.watch._lock.own:
            held.set()
            time.sleep(7)
    threading.Thread(target=look).start()
    held.wait()
    # It is waited for, but not for so long.
    del head
    assert not list(Path(sys.argv[1]).glob("head_v1/seg-*"))
    cache.flush()
    assert list(Path(sys.argv[1]).glob("head_v1/seg-*"))
"""


def test_a_flush_waits_for_the_rows_of_handles_that_were_dropped(directory):
    program = [sys.executable, "-c", WHILE_A_DROPPED_HANDLE_WAITS, str(directory)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
