"""Ends of processes and of calls: rows of threads that run longer, Ctrl-C, and forks in the middle."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import sys
import threading
import time

import pytest
import torch
from test_processes import LEFT, METHODS, in_child, inputs, join, network

import tcx_cache as tcx
from tcx_cache.runtime import locks


def compute_after_the_end(directory, opens_before):
    """In another process: a thread computes after the process has called what is registered for its end."""

    def work():
        if opens_before:
            LEFT.append(opened(directory, "linear_v1"))
        go.set()
        while not multiprocessing.util.is_exiting():
            time.sleep(0.001)
        # All that is registered has run.
        time.sleep(0.5)
        if not opens_before:
            LEFT.append(opened(directory, "linear_v1"))
        cached, table = LEFT
        cached(inputs([1, 2]), ids=[1, 2])
        table.put([1], [3])

    go = threading.Event()
    threading.Thread(target=work).start()
    go.wait()


def opened(directory, id):
    LEFT.append(tcx.cached(network(), directory, id=id, flush_interval=3600))
    return tcx.Cache(directory, flush_interval=3600).table("t_v1", outputs=int, ids=int)


@pytest.mark.parametrize("opens_before", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_rows_of_a_thread_that_runs_longer_than_its_worker_are_durable(directory, method, opens_before):
    worker = multiprocessing.get_context(method).Process(target=compute_after_the_end, args=(directory, opens_before))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    with tcx.Cache(directory) as cache:
        assert cache.module(network(), "linear_v1").coverage([1, 2]).is_complete
        assert cache.table("t_v1", outputs=int, ids=int).coverage([1]).is_complete


def test_a_fork_beside_a_thread_that_opens_tables_lists_all_locks():
    stop, kept = threading.Event(), []

    def work():
        while not stop.is_set():
            kept.append([locks.ProcessLock() for _ in range(50)])
            del kept[:-2]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(300):
            # As `os.fork` does, which only prints what they raise.
            locks._hold_all()
            locks._release_all()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)


def interrupted(work, number):
    """Runs a function with Ctrl-C at a line of the locks: the one with this number, of those that it runs. Returns whether it came there."""
    lines = 0

    def trace(frame, event, _argument):
        nonlocal lines
        if frame.f_code.co_filename != locks.__file__:
            return None
        lines += event == "line"
        if event == "line" and lines == number:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def in_thread(work):
    """Whether a function returns in another thread."""
    done = threading.Event()
    threading.Thread(target=lambda: (work(), done.set()), daemon=True).start()
    return done.wait(20)


class Uses(torch.nn.Module):
    """Computes with a handle, which it has as a part."""

    def __init__(self, handle):
        super().__init__()
        self.handle = handle

    def forward(self, x):
        return self.handle(x, ids=[int(own) for own in x[:, 0]])


@pytest.mark.parametrize("what", ["a module", "a module within another", "a table", "a table within another"])
def test_ctrl_c_leaves_no_lock_held(directory, what):
    cache, start = tcx.Cache(directory), 0
    cached = cache.module(network(), "linear_v1", outputs=tcx.f32[2])
    tables = [cache.table(f"t{number}_v1", outputs=int, ids=int) for number in range(2)]
    outer = cache.module(Uses(cached).eval(), "outer_v1", outputs=tcx.f32[2])
    calls = {
        "a module within another": lambda ids: outer(inputs(ids), ids=ids),
        "a module": lambda ids: cached(inputs(ids), ids=ids),
        "a table": lambda ids: tables[0].fetch(ids, lambda missing: missing),
        "a table within another": lambda ids: tables[0].fetch(ids, lambda missing: tables[1].fetch(missing, lambda own: own)),
    }
    call = calls[what]
    for number in range(1, 200):
        start += 3
        was_interrupted = interrupted(lambda start=start: call([start]), number)
        assert in_thread(lambda start=start: call([start + 1])), f"a lock is held after Ctrl-C at line {number}"
        if what == "a table within another":
            # Another thread waits for a lock only while it computes for no other.
            assert in_thread(lambda start=start: tables[1].fetch([start + 2], lambda own: own))
        if not was_interrupted:
            break
    assert number > 1 or what == "a module"


def test_an_epoch_that_a_forked_child_goes_on_with_is_an_error(directory):
    cached, order = tcx.cached(network(), directory, id="linear_v1"), list(range(40))
    ahead = tcx.torch.epoch(cached, order, 8, load=inputs, prefetch=1)
    first = next(ahead)

    def child():
        for _ in range(2):
            with pytest.raises(tcx.ForkedError, match="call `epoch` in this process, or pass `prefetch=0`"):
                next(ahead)
        ahead.close()
        own = tcx.torch.epoch(cached, order, 8, load=inputs)
        assert torch.allclose(torch.cat([rows for _, rows in own]), network()(inputs(order)))

    # More batches than are read ahead: the child would wait for the thread of its parent.
    for _ in range(3):
        assert join(in_child(child), seconds=20) == 0
    assert [ids for ids, _ in [first, *ahead]] == [order[start : start + 8] for start in range(0, 40, 8)]


def read_in_a_thread(directory, is_awaited):
    """In a worker: a thread reads an epoch, and the worker ends meanwhile. Its file says how the epoch ended."""

    def load(missing):
        if not is_awaited:
            return missing
        while not multiprocessing.util.is_exiting():
            time.sleep(0.001)
        # The loop waits for this batch when the worker ends its threads.
        time.sleep(0.3)
        return missing

    def work():
        table = tcx.Cache(directory / "cache").table("t_v1", outputs=int, ids=int)
        read = []
        try:
            for ids, _ in tcx.torch.epoch(table, list(range(100)), 10, load=load, prefetch=2):
                read += ids
                is_reading.set()
                time.sleep(0.05)
            found = str(len(read))
        except tcx.Error as error:
            found = str(error)
        (directory / "found").write_text(found)

    is_reading = threading.Event()
    threading.Thread(target=work).start()
    is_reading.wait(1)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_an_epoch_that_a_thread_reads_while_its_worker_ends_is_read_to_its_end_or_an_error(directory, is_awaited):
    directory.mkdir()
    worker = multiprocessing.get_context("fork").Process(target=read_in_a_thread, args=(directory, is_awaited))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert "let the main thread wait for the loop" in (directory / "found").read_text()


def test_an_epoch_that_is_closed_while_another_thread_waits_for_a_batch_ends_there(directory):
    table = tcx.Cache(directory).table("t_v1", outputs=int, ids=int)
    is_loading, go, found = threading.Event(), threading.Event(), []

    def load(missing):
        is_loading.set()
        go.wait(20)
        return missing

    ahead = tcx.torch.epoch(table, list(range(100)), 10, load=load, prefetch=2)
    waiting = threading.Thread(target=lambda: found.extend(ahead), daemon=True)
    waiting.start()
    is_loading.wait(20)
    ahead.close()
    go.set()
    waiting.join(20)
    assert not waiting.is_alive()
    assert found == []


def test_an_epoch_of_which_all_is_read_ahead_goes_on_when_its_process_ends(directory):
    table = tcx.Cache(directory).table("t_v1", outputs=int, ids=int)
    ahead = tcx.torch.epoch(table, list(range(100)), 10, load=lambda missing: missing, prefetch=20)
    ahead._reader.join(20)
    ahead._reader.end()
    assert [ids for ids, _ in ahead] == [list(range(start, start + 10)) for start in range(0, 100, 10)]
