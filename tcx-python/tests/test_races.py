"""Another process creates the folder, stores rows or changes them, between two steps of this one."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx

#: Processes that share nothing with this one.
OTHER = multiprocessing.get_context("forkserver")
OTHER.set_forkserver_preload(["torch", "pytest", "tcx_cache", "tcx_cache.modules.cached"])


def table(directory, ids, values, outputs=None, metadata=None):
    with tcx.Cache(directory) as cache:
        cache.table("t_v1", outputs=outputs, metadata=metadata).fetch(ids, lambda missing: values)


def elsewhere(*args):
    """In another process, at once."""
    process = OTHER.Process(target=table, args=args)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_the_first_batch_has_the_columns_that_another_process_was_faster_with(directory):
    with tcx.Cache(directory) as cache:
        own = cache.table("t_v1")

        def slow(missing):
            if "t_v1" not in cache.modules():
                elsewhere(directory, ["a", "z"], ["other", None], tcx.optional(str))
            return ["own"] * len(missing)

        # The row of the other process is found, and not computed again in another way.
        assert own.fetch(["a", "b"], slow) == ["other", "own"]
    assert tcx.Cache(directory).table("t_v1").stored(["a", "b", "z"]) == ["other", "own", None]


def test_a_first_batch_with_other_columns_is_refused_with_both_sides(directory):
    with tcx.Cache(directory) as cache:
        own = cache.table("t_v1")

        def slow(missing):
            if "t_v1" not in cache.modules():
                elsewhere(directory, ["a"], torch.ones(1, 3))
            return torch.ones(len(missing), 2)

        with pytest.raises(tcx.InvalidOutputError, match=r"expected f32 \[3\], found f32 \[2\]"):
            own.fetch(["a"], slow)
        assert torch.equal(own.stored(["a"]), torch.ones(1, 3))
        own.fetch(["b"], lambda missing: torch.zeros(1, 3))
    assert tcx.Cache(directory).table("t_v1").coverage(["a", "b"]).is_complete


def test_a_first_batch_for_another_identity_is_refused(directory):
    with tcx.Cache(directory) as cache:
        own = cache.table("t_v1", metadata={"version": 1})

        def slow(missing):
            if "t_v1" not in cache.modules():
                elsewhere(directory, ["a"], [5], None, {"version": 2})
            return [1] * len(missing)

        for _ in range(2):
            with pytest.raises(tcx.MismatchError, match="`version`: 2i64 in the cache, 1i64 in the code"):
                own.fetch(["a"], slow)


def test_the_type_of_ids_is_that_of_the_folder_that_another_process_was_faster_with(directory):
    with tcx.Cache(directory) as cache:
        own = cache.table("t_v1")

        def slow(missing):
            if "t_v1" not in cache.modules():
                elsewhere(directory, [1, 2], [1, 2])
            return [7] * len(missing)

        with pytest.raises((tcx.InvalidBatchError, tcx.MismatchError), match="are i64, found String|int"):
            own.fetch(["1"], slow)
        with pytest.raises(tcx.InvalidBatchError, match="id 0 of the batch is str, expected int"):
            own.fetch(["1"], slow)
        assert own.fetch([1, 3], slow) == [1, 7]


def test_the_type_of_ids_is_looked_up_before_a_batch(directory):
    own = tcx.Cache(directory).table("t_v1")
    elsewhere(directory, [1, 2], [1, 2])
    calls = []
    with pytest.raises(tcx.InvalidBatchError, match="id 0 of the batch is str, expected int"):
        own.fetch(["1"], lambda missing: calls.append(missing))
    assert own.fetch([1, 2], lambda missing: calls.append(missing)) == [1, 2] and not calls


def test_handles_of_one_process_that_infer_and_declare_the_same_columns_share_rows(directory):
    with tcx.Cache(directory, flush_interval=3600) as cache:
        declared = cache.table("t_v1", outputs=tcx.f32[2], ids=str)
        inferred = cache.table("t_v1")
        declared.put(["a"], torch.ones(1, 2))
        assert torch.equal(inferred.fetch(["a", "b"], lambda missing: torch.zeros(len(missing), 2)), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
        assert torch.equal(declared.stored(["b"]), torch.zeros(1, 2))
    assert tcx.Cache(directory).table("t_v1", outputs=tcx.f32[2]).coverage(["a", "b"]).is_complete


def test_other_columns_of_another_process_are_an_error_at_the_next_batch_and_not_later(directory):
    with tcx.Cache(directory, flush_interval=3600, refresh_every=0) as cache:
        own = cache.table("t_v1", outputs=tcx.f32[3], ids=str)
        assert own.fetch(["a"], lambda missing: torch.ones(1, 3)).shape == (1, 3), "no process has stored anything yet"
        elsewhere(directory, ["z"], torch.ones(1, 2))
        # A folder is listed ten times a second at most.
        time.sleep(0.2)
        for _ in range(2):
            with pytest.raises(tcx.MismatchError, match=r"`value`: f32 \[2\] in the cache, f32 \[3\] in the code"):
                own.fetch(["b"], lambda missing: torch.ones(1, 3))
        with pytest.raises(tcx.MismatchError):
            own.flush()
        with pytest.raises(tcx.MismatchError):
            cache.close()


def race(directory, rows, value, started):
    with tcx.Cache(directory, flush_interval=3600) as cache:
        own = cache.table("t_v1")
        started.wait()
        try:
            own.fetch([f"{value}"], lambda missing: torch.full((1, rows), float(value)))
            own.flush()
        except (tcx.MismatchError, tcx.InvalidOutputError, tcx.ReplacedError) as error:
            print(f"refused: {error}", flush=True)
            os._exit(7)


def test_of_processes_that_start_with_different_columns_each_stores_its_rows_or_learns_of_it(directory):
    started = OTHER.Barrier(3)
    workers = [OTHER.Process(target=race, args=(directory, rows, value, started)) for value, rows in enumerate((2, 2, 3))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    codes = [worker.exitcode for worker in workers]
    assert set(codes) <= {0, 7} and 0 in codes, codes
    stored = tcx.Cache(directory).table("t_v1")
    for value, code in enumerate(codes):
        assert stored.coverage([f"{value}"]).is_complete == (code == 0), codes


def network():
    torch.manual_seed(0)
    return frozen(torch.nn.Linear(4, 2))


def warm(directory, ids, outputs):
    with tcx.cached(network(), directory, id="m_v1", outputs=outputs, ids=int) as cached:
        cached.warm(ids, lambda missing: torch.tensor([[float(own)] * 4 for own in missing]), progress=False)


@pytest.mark.parametrize("outputs", [None, tcx.f32[2]])
@pytest.mark.parametrize("is_full", [False, True])
def test_a_forked_worker_looks_up_before_it_loads(directory, outputs, is_full):
    if is_full:
        warm(directory, [100], outputs)
    cached = tcx.cached(network(), directory, id="m_v1", outputs=outputs, ids=int, refresh_every=3600)
    cached.coverage([1])
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            found = cached.fetch([1, 2], lambda missing: pytest.fail(f"loads {missing}"))
            assert torch.allclose(found, network()(torch.tensor([[1.0] * 4, [2.0] * 4])))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.read(ready[0], 1)
    process = OTHER.Process(target=warm, args=(directory, [1, 2], outputs))
    process.start()
    process.join()
    assert process.exitcode == 0
    os.write(go[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_worker_loads_once_what_only_its_parent_has(directory):
    cached = tcx.cached(network(), directory, id="m_v1", flush_interval=3600)
    cached(torch.ones(2, 4), ids=[1, 2])
    child = os.fork()
    if not child:
        calls = []
        cached.fetch([1, 3], lambda missing: calls.append(missing) or torch.ones(len(missing), 4))
        os._exit(0 if calls == [[1, 3]] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
