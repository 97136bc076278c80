"""Calls that share work, in one process: ids in every form, settings, ends, and what is refused."""

from __future__ import annotations

import collections
import os
import threading
import tracemalloc
from pathlib import Path

import numpy
import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.engine.rows import Rows
from tcx_cache.sharing.settings import range_size

CASES = Path(__file__).parents[2] / "tcx/src/cached/warm/shared/rank_cases.txt"
EACH = tcx.Rank(0, 1)


def network():
    torch.manual_seed(0)
    return frozen(torch.nn.Linear(4, 2))


def inputs(numbers):
    return torch.tensor([[float(number), 1.0, -float(number), 2.0] for number in numbers])


def opened(place, **settings):
    return tcx.cached(network(), place, id="linear_v1", **settings)


def is_right(cached, ids):
    return torch.allclose(cached.fetch(list(ids)), network()(inputs(ids)), atol=1e-4)


def cases():
    lines = [line.split(" => ") for line in CASES.read_text().splitlines() if " => " in line]
    assert len(lines) > 15
    return lines


@pytest.mark.parametrize(("variables", "expected"), cases())
def test_launchers_say_the_rank_as_in_rust(variables, expected):
    environment = dict(variable.split("=", 1) for variable in variables.split(" "))
    if not expected.startswith("refused: "):
        assert str(tcx.Rank.from_env(environment)) == expected
        return
    with pytest.raises(tcx.InvalidSettingsError) as refused:
        tcx.Rank.from_env(environment)
    assert expected.removeprefix("refused: ") in str(refused.value)


def test_a_rank_is_below_the_number_of_processes():
    for rank, world in ((2, 2), (-1, 2), (0, 0), (True, 2), ("0", 2)):
        with pytest.raises(tcx.InvalidSettingsError):
            tcx.Rank(rank, world)


def test_a_work_range_is_as_long_as_in_rust():
    assert [range_size(None, ids) for ids in (0, 1000, 262_144, 266_240, 100_000_000, None)] == [64, 64, 64, 128, 24_448, 4096]


def of_every_form(tmp_path, ids):
    lines = tmp_path / "ids.txt"
    lines.write_bytes(b"\r\n".join(str(own).encode() for own in ids) + b"\n\n")
    return {
        "list": list(ids),
        "tuple": tuple(ids),
        "range": ids,
        "array": numpy.array(ids, dtype=numpy.int32),
        "tensor": torch.tensor(ids),
        "deque": collections.deque(ids),
        "position": tcx.Sequence.by_position(len(ids), lambda position: ids[position]),
        "repeated": tcx.Sequence.repeated(lambda: iter(ids)),
        "path": lines,
        "lines": tcx.Sequence.lines(str(lines)),
    }


@pytest.mark.parametrize("form", ["list", "tuple", "range", "array", "tensor", "deque", "position", "repeated", "path", "lines"])
def test_ids_of_every_form_are_computed_once_by_both_calls(tmp_path, form):
    ids = range(5, 205)
    for call in ("shared", "sharded"):
        cached, given = opened(tmp_path / call), of_every_form(tmp_path, ids)[form]
        warm = cached.warm_shared if call == "shared" else lambda *args, **kwargs: cached.warm_sharded(*args, rank=EACH, progress=False, **kwargs)
        for computed in (200, 0):
            report = warm(given, inputs, range_size=64, batch_size=50)
            assert (report.asked, report.computed, report.stopped) == (200, computed, False)
        stored = [str(own) for own in ids] if form in ("path", "lines") else list(ids)
        assert cached.stats()["rows_sealed"] == 200, "durable"
        assert torch.allclose(cached.fetch(stored), network()(inputs(ids)), atol=1e-4)


def test_a_range_and_a_function_of_a_hundred_million_ids_take_no_memory(directory):
    cached, read = opened(directory, outputs=tcx.f32[2]), []

    def by_position(position):
        read.append(position)
        return position

    rank = tcx.Rank(5, 500_000)
    expected = [*range(500, 600), *range(50_000_500, 50_000_600)]
    tracemalloc.start()
    for ids in (range(100_000_000), tcx.Sequence.by_position(100_000_000, by_position)):
        report = cached.warm_sharded(ids, inputs, rank=rank, range_size=100, progress=False)
        assert report.asked == 200
    stop = threading.Event()

    def stops(missing):
        stop.set()
        return inputs(missing)

    report = cached.warm_shared(range(100_000_000), stops, stop=stop)
    assert (report.asked, report.stopped) == (100_000_000, True) and report.computed == 64
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 << 20
    assert read == expected and cached.coverage(expected).is_complete


def test_ids_without_an_order_and_those_that_are_read_once_are_refused(directory, tmp_path):
    cached = opened(directory)
    for ids, why in (
        ({1, 2}, "a set has no order that all workers have"),
        ({1: 2}, "a dict has no order"),
        ((own for own in [1]), "a generator can be read only once; pass `tcx.Sequence.repeated"),
        ("ids.txt", "found one str; pass a list, or `tcx.Sequence.lines"),
        (7, "found int; pass `tcx.Sequence.by_position"),
    ):
        for call in (cached.warm_shared, cached.warm_sharded):
            with pytest.raises(tcx.InvalidBatchError, match=why):
                call(ids, inputs)
    with pytest.raises(tcx.LoaderError, match=r"cannot read ids from .*missing\.txt"):
        cached.warm_shared(tmp_path / "missing.txt", inputs)
    with pytest.raises(tcx.InvalidBatchError, match="a number of ids"):
        tcx.Sequence.by_position(-1, str)


def test_modes_and_settings_that_make_no_sense_are_refused(directory):
    ids = range(10)
    for mode in ("read_only", "off"):
        for call in ("warm_shared", "warm_sharded"):
            with pytest.raises(tcx.WrongModeError, match=f"cannot fill the cache: this handle has mode `{mode}`"):
                getattr(opened(directory, mode=mode), call)(ids, inputs)
    with pytest.raises(tcx.WrongModeError, match="in mode `recompute`: each handle computes every sample"):
        opened(directory, mode="recompute").warm_shared(ids, inputs)
    cached = opened(directory)
    for settings, why in (
        ({"range_size": 0}, "`range_size` is 0; expected a whole number from 1"),
        ({"range_size": 1 << 63}, "`range_size` is 9223372036854775808; expected a whole number from 1"),
        ({"workers": 0}, "`workers` is 0"),
        ({"expiry": 0.01}, "`expiry` is 0.01: expected 0.1 seconds or more"),
    ):
        with pytest.raises(tcx.InvalidSettingsError, match=why):
            cached.warm_shared(ids, inputs, **settings)
    with pytest.raises(tcx.InvalidSettingsError, match="set 1048576 or more"):
        cached.warm_shared(range(1 << 40), inputs, range_size=1)
    with pytest.raises(tcx.InvalidSettingsError, match="the environment names no rank"):
        cached.warm_sharded(ids, inputs)
    assert not directory.exists()


def test_no_ids_are_no_work(directory):
    cached = opened(directory)
    assert cached.warm_shared([], inputs).computed == 0
    assert cached.warm_sharded([], inputs, rank=EACH).asked == 0
    assert opened(directory / "other", outputs=tcx.f32[2], ids=int).warm_shared([], inputs).asked == 0


def test_ranks_divide_the_ids_and_a_later_call_reports_what_one_has_left(directory):
    cached = opened(directory)

    def run(rank):
        return cached.warm_sharded(range(1000), inputs, rank=tcx.Rank(rank, 3), range_size=70, progress=False)

    first = [run(rank) for rank in (0, 2)]
    assert all(report.computed == report.asked for report in first)
    left = 1000 - sum(report.asked for report in first)
    assert [run(rank).computed for rank in range(3)] == [0, left, 0], "rank 1 had died"
    assert is_right(cached, range(1000))
    assert str(run(1)) == f"rank 1 of 3: 0 of {left} samples computed"


def test_threads_of_a_process_share_a_cache_in_memory_and_each_sample_is_loaded_once():
    cache, loaded, reports = tcx.Cache(None), [], []
    ids = range(640)

    def load(missing):
        loaded.extend(missing)
        return inputs(missing)

    # Their weights come from one generator of random numbers, which is not to be shared by threads.
    networks = [network() for _ in range(3)]

    def work(own):
        reports.append(cache.module(own, "linear_v1", outputs=tcx.f32[2]).warm_shared(ids, load, range_size=64, expiry=60))

    threads = [threading.Thread(target=work, args=(own,)) for own in networks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(loaded) == list(ids)
    assert sum(report.computed for report in reports) == 640 and {report.asked for report in reports} == {640}


def test_a_report_says_what_workers_did(directory):
    report = opened(directory).warm_shared(range(1500), inputs, range_size=500)
    (own,) = report.workers
    # The first batch decides the columns, and is found later.
    assert (own.process, own.ranges, own.computed, own.found, own.taken_over) == (os.getpid(), 3, 1500, 64, 0)
    assert str(report) == f"1,500 of 1,500 samples computed here\n{own.host}, process {os.getpid()}: 1,500 computed, 64 found, 3 work ranges"


def test_threads_load_ahead_of_the_computation(directory):
    both = threading.Barrier(2)

    def load(missing):
        # It passes if two batches are loaded at the same time.
        both.wait(60)
        return inputs(missing)

    ids = range(400)
    for number, call in enumerate(("warm_shared", "warm_sharded")):
        cached = opened(directory / call, outputs=tcx.f32[2])
        rank = {"rank": EACH, "progress": False} if number else {}
        assert getattr(cached, call)(ids, load, batch_size=25, range_size=100, workers=2, **rank).computed == 400
        assert is_right(cached, ids)


def test_more_threads_than_a_machine_has_use_for_are_refused(directory):
    cached = opened(directory)
    for workers in (1025, 1 << 40):
        with pytest.raises(tcx.InvalidSettingsError, match=f"`workers` is {workers}; expected at most 1024 threads"):
            cached.warm_sharded(range(10), inputs, rank=EACH, workers=workers, progress=False)
        with pytest.raises(tcx.InvalidSettingsError, match=f"`workers` is {workers}; expected at most 1024 threads"):
            cached.warm_shared(range(10), inputs, workers=workers)
    with pytest.raises(tcx.InvalidSettingsError, match="`workers` is 0; expected a whole number"):
        cached.warm_shared(range(10), inputs, workers=0)
    assert cached.warm_shared(range(10), inputs, workers=1024).computed == 10


@pytest.mark.parametrize("workers", [1, 3])
def test_a_request_to_stop_ends_it_and_what_was_computed_is_durable(directory, workers):
    stop = threading.Event()

    def load(missing):
        if 200 in missing:
            stop.set()
        return inputs(missing)

    cached = opened(directory, flush_interval=3600)
    report = cached.warm_sharded(range(1000), load, rank=EACH, batch_size=10, range_size=100, workers=workers, stop=stop, progress=False)
    assert report.stopped and 210 <= report.computed <= 210 + 10 * workers
    assert cached.stats()["rows_sealed"] == report.computed, "durable"
    shared = cached.warm_shared(range(1000), inputs, stop=stop)
    assert shared.stopped and shared.computed == 0


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_was_computed_before_an_error_is_durable_and_the_next_call_continues(directory, error, workers):
    def failing(missing):
        if any(own >= 300 for own in missing):
            raise error("no input")
        return inputs(missing)

    cached = opened(directory, flush_interval=3600)
    with pytest.raises(error):
        cached.warm_sharded(range(500), failing, rank=EACH, batch_size=10, range_size=50, workers=workers, progress=False)
    assert cached.stats()["rows_sealed"] == 300, "durable"
    with pytest.raises(error):
        cached.warm_shared(range(500), failing, batch_size=10, range_size=50, workers=workers)
    report = cached.warm_shared(range(500), inputs, batch_size=10, range_size=50)
    assert report.computed == 200 and is_right(cached, range(500))


def test_other_ids_under_the_same_name_are_refused_while_a_worker_is_alive(directory):
    cached, waits, goes = opened(directory, outputs=tcx.f32[2]), threading.Event(), threading.Event()

    def slow(missing):
        waits.set()
        goes.wait(60)
        return inputs(missing)

    thread = threading.Thread(target=lambda: cached.warm_shared(range(100), slow, expiry=1))
    thread.start()
    assert waits.wait(60)
    try:
        other = opened(directory, outputs=tcx.f32[2])
        with pytest.raises(tcx.InvalidBatchError, match="cannot share the job `warm` of `linear_v1` .* 100 of ids, here 50"):
            other.warm_shared(range(50), inputs, expiry=1)
        assert other.warm_shared(range(50), inputs, job="other").asked == 50
    finally:
        goes.set()
        thread.join()
    assert is_right(cached, range(100))


def test_views_are_jobs_of_their_own(directory):
    cached = opened(directory)
    assert cached.view(1).warm_shared(range(100), inputs).computed == 100
    assert cached.coverage(range(100)).stored == 0 and cached.view(1).coverage(range(100)).is_complete


def test_repeated_ids_are_computed_once(directory):
    loaded = []

    def load(missing):
        loaded.extend(missing)
        return inputs(missing)

    report = opened(directory).warm_shared([1, 2, 1, 3, 2] * 40, load, batch_size=2, range_size=50)
    assert (report.asked, report.computed, sorted(loaded)) == (200, 3, [1, 2, 3])


def test_what_a_full_folder_does_not_keep_is_reported(directory):
    opened(directory).warm(range(10), inputs, progress=False)
    opened(directory).flush()
    full = opened(directory, max_bytes=1, when_full="stop_writing")
    with pytest.warns(UserWarning, match="its folder has reached `max_bytes`"):
        report = full.warm_sharded(range(30), inputs, rank=EACH, progress=False)
    assert (report.computed, report.not_kept) == (20, 20)
    assert str(report) == "rank 0 of 1: 20 of 30 samples computed, 20 not kept"
    with pytest.raises(tcx.FullError, match="so no worker can finish the job; make room, or raise `max_bytes`"):
        full.warm_shared(range(30), inputs)


def test_what_a_failed_flush_may_have_lost_is_not_reported(directory, monkeypatch):
    cached, flush, failures = opened(directory, outputs=tcx.f32[2]), Rows.flush, [tcx.IoError("rows are lost")]

    def fails_once(rows):
        if failures:
            raise failures.pop()
        flush(rows)

    monkeypatch.setattr(Rows, "flush", fails_once)
    with pytest.raises(tcx.IoError, match="rows are lost"):
        cached.warm_shared(range(200), inputs, range_size=50)
    (record,) = (Path(directory) / "linear_v1/leases").glob("worker-*")
    assert "done" not in record.read_text() and "state left" in record.read_text()
    assert cached.warm_shared(range(200), inputs, range_size=50).asked == 200
    (_, done) = sorted((Path(directory) / "linear_v1/leases").glob("worker-*"), key=lambda path: path.stat().st_mtime)
    assert "done" in done.read_text()


def test_a_child_of_a_worker_leaves_its_job_alone(directory):
    cached = opened(directory, outputs=tcx.f32[2])

    def load(missing):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # A job of its own, while that of the parent goes on.
                status = int(cached.warm_shared(range(1000, 1010), inputs, job="child").asked != 10)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return inputs(missing)

    report = cached.warm_shared(range(128), load)
    assert report.computed == 128 and report.workers[0].ranges == 2
    cached.refresh()
    assert is_right(cached, [*range(128), *range(1000, 1010)])


def test_the_progress_of_a_job_is_what_its_workers_report(directory):
    cached = opened(directory, outputs=tcx.f32[2])
    cache = tcx.Cache(directory)
    assert cache.jobs("linear_v1") == []
    seen = []

    def load(missing):
        seen.extend(cache.jobs("linear_v1"))
        return inputs(missing)

    cached.warm_shared(range(200), load, range_size=64, batch_size=50)
    first, (job,) = seen[0], cache.jobs("linear_v1")
    assert (first.job, first.ended, first.ids, first.finished, len(first.workers)) == ("warm", False, 200, 0, 1)
    assert (job.ended, job.finished, job.round) == (True, 200, 0)
    (worker,) = job.workers
    assert (worker.process, worker.computed, worker.has_left, worker.is_gone) == (os.getpid(), 200, True, False)
    assert worker.expiry == 120 and worker.silent < 60
    assert str(job) == "job warm: 200 of 200 rows, ended, 1 worker"
    assert str(first).startswith("job warm: 0 of 200 rows, ") and str(first).endswith(" rows/s, 1 worker")
    assert tcx.Cache(None).jobs("linear_v1") == []
