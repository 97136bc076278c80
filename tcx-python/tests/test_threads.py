"""Other threads of a program run while rows are looked up, copied and written."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

import tcx_cache as tcx


@pytest.fixture
def patient():
    """Python takes the GIL from no thread: another one runs only if a call lets go of it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    yield
    sys.setswitchinterval(before)


def lets_others_run(call):
    """Whether another thread that waits for the GIL runs during a call, in one of many."""
    for _ in range(200):
        go, went = threading.Event(), []
        thread = threading.Thread(target=lambda go=go, went=went: (go.wait(), went.append(True)))
        thread.start()
        go.set()
        was_there = bool(went)
        call()
        has_run = bool(went)
        thread.join()
        if has_run and not was_there:
            return True
    return False


@pytest.mark.parametrize("name", ["lookup", "insert", "fingerprint", "flush"])
def test_calls_let_go_of_the_gil(directory, patient, name):
    large = torch.ones(512, 4096)
    with tcx.Cache(directory) as cache:
        table = cache.table("t_v1", outputs=tcx.f32[4096], ids=int)
        table.put(list(range(512)), large)
        table.flush()
        store = table._rows.required().reader
        keys = table._rows.pack(list(range(512)), 0)
        calls = {
            "lookup": lambda: store.lookup(keys, [(0, large.data_ptr(), large.nbytes)]),
            "insert": lambda: tcx._native.Column.dense(large.data_ptr(), large.nbytes),
            "fingerprint": lambda: tcx._native.checksum(large.data_ptr(), large.nbytes),
            "flush": store.flush,
        }
        assert not lets_others_run(lambda: sum(range(1000))), "the test sees a thread that runs by itself"
        assert lets_others_run(calls[name])
