"""Values that are replaced: here, in other processes, while they are written, and after a restart."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading

import pytest

import tcx_cache as tcx

#: Processes that share nothing with this one.
OTHER = multiprocessing.get_context("forkserver")
OTHER.set_forkserver_preload(["torch", "pytest", "tcx_cache", "tcx_cache.modules.cached"])


def replace(directory, ids, value, inserts_first=False):
    with tcx.Cache(directory, flush_interval=3600) as cache:
        table = cache.table("r_v1", outputs=int)
        if inserts_first:
            table.fetch(ids, lambda missing: [0] * len(missing))
        try:
            table.replace(ids, [value] * len(ids))
        except tcx.SupersededError:
            # Another process has replaced them before they were written: this one learns of it.
            assert table.stored(ids) != [value] * len(ids)


def elsewhere(directory, ids, value):
    process = OTHER.Process(target=replace, args=(directory, ids, value))
    process.start()
    process.join()
    assert process.exitcode == 0


def reopened(directory, ids):
    with tcx.Cache(directory, mode="read_only") as cache:
        return cache.table("r_v1").stored(ids)


def test_a_value_that_another_process_has_replaced_is_replaced(directory):
    with tcx.Cache(directory) as cache:
        table = cache.table("r_v1", outputs=int)
        table.put(["a", "b"], [1, 1])
        table.flush()
        assert table.stored(["a"]) == [1]
        elsewhere(directory, ["a"], 2)
        # This process has not looked at the folder since.
        table.replace(["a"], [3])
        assert table.stored(["a", "b"]) == [3, 1]
    assert reopened(directory, ["a", "b"]) == [3, 1]


def test_a_value_that_another_process_has_stored_is_replaced(directory):
    with tcx.Cache(directory) as cache:
        table = cache.table("r_v1", outputs=int, ids=str)
        assert table.get(["a"]) is None
        elsewhere(directory, ["a"], 2)
        table.replace(["a"], [3])
        assert table.stored(["a"]) == [3]
    assert reopened(directory, ["a"]) == [3]


def test_a_value_that_waits_to_be_written_is_replaced(directory):
    replace(directory, ["a", "b"], 5, inserts_first=True)
    assert reopened(directory, ["a", "b"]) == [5, 5]


def test_a_replacement_is_durable_when_it_returns(directory):
    program = (
        "import os, sys, tcx_cache as tcx\n"
        "table = tcx.Cache(sys.argv[1], flush_interval=3600).table('r_v1', outputs=int)\n"
        "table.put(['a'], [1]); table.flush()\n"
        "table.replace(['a'], [2])\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(directory)], check=True, timeout=60)
    assert reopened(directory, ["a"]) == [2]


def test_replacements_while_rows_are_sealed_and_compacted_survive(directory):
    with tcx.Cache(directory, flush_interval=0.001) as cache:
        table = cache.table("r_v1", outputs=int, ids=int)
        stop = threading.Event()

        def disturb():
            number = 1000
            while not stop.is_set():
                table.put(list(range(number, number + 5)), [0] * 5)
                table.compact()
                number += 5

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            for round in range(1, 20):
                table.put([round], [-1])
                table.replace([round, 0], [round, round])
                assert table.stored([round, 0]) == [round, round]
        finally:
            stop.set()
            thread.join()
    assert reopened(directory, list(range(20))) == [19, *range(1, 20)]


def test_two_processes_that_replace_leave_one_value(directory):
    workers = [OTHER.Process(target=replace, args=(directory, list("abcdefgh"), value, True)) for value in (1, 2, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    found = reopened(directory, list("abcdefgh"))
    assert set(found) <= {1, 2, 3}, found


def test_replace_in_a_mode_that_stores_nothing_is_an_error(directory):
    replace(directory, ["a"], 1)
    for mode in ("read_only", "off"):
        with tcx.Cache(directory, mode=mode) as cache, pytest.raises(tcx.WrongModeError):
            cache.table("r_v1", outputs=int).replace(["a"], [2])


def test_an_id_that_is_twice_is_an_error(cache):
    table = cache.table("r_v1", outputs=int)
    for store in (table.put, table.replace):
        with pytest.raises(tcx.InvalidBatchError, match="an id is twice in the batch"):
            store(["a", "b", "a"], [1, 2, 3])
