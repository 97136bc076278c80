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


def test_verify_may_run_beside_a_thread_that_computes(directory):
    class Reuses(torch.nn.Module):
        """Every output is in the same memory."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4), requires_grad=False)

        def forward(self, found):
            if not hasattr(self, "memory"):
                self.memory = torch.empty(64, 4)
            self.memory[: len(found)].copy_(found[:, None] * self.weight)
            return self.memory[: len(found)]

    def load(ids):
        return torch.tensor([float(own) for own in ids])

    stop, ids = threading.Event(), list(range(64))

    def work():
        number = 1000
        while not stop.is_set():
            batch = list(range(number, number + 64))
            cached(load(batch), ids=batch)
            number += 64

    with tcx.cached(Reuses().eval(), directory, id="reuses_v1") as cached:
        cached(load(ids), ids=ids)
        thread = threading.Thread(target=work)
        thread.start()
        try:
            found = [cached.verify(ids, load) for _ in range(50)]
        finally:
            stop.set()
            thread.join()
        assert not any(found)
