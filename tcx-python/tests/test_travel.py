"""Handles in other processes and threads: what they may compute, and on which device."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx


def square():
    """A network whose inputs look like its outputs."""
    torch.manual_seed(0)
    return frozen(torch.nn.Linear(4, 4))


def ones(missing):
    return torch.ones(len(missing), 4)


def test_inputs_are_never_taken_for_rows_where_the_network_did_not_travel(directory):
    cached = tcx.cached(square(), directory, id="m_v1")
    cached(torch.randn(2, 4), ids=["a", "b"])
    cached.flush()
    for travelled in [pickle.loads(pickle.dumps(cached)), pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(cached)))), pickle.loads(pickle.dumps(cached)).view(1)]:
        with pytest.raises(tcx.InvalidBatchError, match="1 samples are missing, and this handle has the rows of a cached module without its network"):
            travelled.fetch(["c"], ones)
        with pytest.raises(tcx.InvalidBatchError, match="without its network"):
            travelled.warm(["c"], ones, progress=False)
        with pytest.raises(tcx.InvalidBatchError, match="without its network"):
            tcx.torch.FeatureDataset(travelled, ["c"], load=ones)[0]
    assert torch.equal(pickle.loads(pickle.dumps(cached)).fetch(["a"], ones), cached.fetch(["a"]))
    assert torch.equal(cached.fetch(["c"], ones), square()(ones(["c"])))


def test_a_data_loader_that_spawns_workers_never_stores_inputs(directory):
    cached = tcx.cached(square(), directory, id="m_v1")
    cached(torch.randn(2, 4), ids=[0, 1])
    dataset = tcx.torch.FeatureDataset(cached, [0, 1, 2, 3], load=ones)
    loader = torch.utils.data.DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(tcx.InvalidBatchError, match="without its network"):
        list(loader)
    cached.refresh()
    assert cached.coverage([2, 3]).stored == 0


def test_a_cache_in_memory_says_that_it_does_not_travel():
    cache = tcx.Cache(None)
    with pytest.raises(tcx.InvalidSettingsError, match="`t_v1` is in a cache in memory.*cannot be pickled; use a directory"):
        pickle.dumps(cache.table("t_v1", outputs=int))
    with pytest.raises(tcx.InvalidSettingsError, match="`m_v1` is in a cache in memory"):
        pickle.dumps(cache.module(square(), "m_v1"))


def test_a_list_that_all_samples_share_stays_as_it_is_in_the_identity():
    class Scaled(torch.nn.Module):
        def forward(self, x, factors):
            factors[0] += 1
            return x * (factors[0] - 1)

    factors = [2.0]
    cached = tcx.cached(Scaled().eval(), None, id="m_v1", shared={"factors": factors})
    inputs = torch.ones(2, 4)
    for ids in (["a", "b"], ["c", "d"]):
        assert torch.equal(cached(inputs, ids=ids), inputs * 2)
        factors[0] = 7.0


def test_a_forked_child_of_a_process_that_has_used_cuda_gets_rows_on_the_cpu(directory, monkeypatch):
    cached = tcx.cached(square(), directory, id="m_v1")
    expected = cached(torch.ones(2, 4), ids=["a", "b"])
    cached._output_device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert torch.equal(cached.fetch(["a", "b"]), expected)


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_a_batch_size_that_is_no_positive_integer_is_refused(cache, size):
    table = cache.table("t_v1", outputs=int)
    with pytest.raises(tcx.InvalidBatchError, match="batch_size: expected a positive integer"):
        table.warm(["a"], lambda missing: [1], batch_size=size, progress=False)
    with pytest.raises(tcx.InvalidBatchError, match="batch_size: expected a positive integer"):
        tcx.torch.epoch(table, ["a"], size)


PROGRAM = """
import sys, torch, tcx_cache as tcx
from tcx_cache.engine.handle import Handle
cache = tcx.Cache(sys.argv[1], flush_interval=3600)
tables = [cache.table(f"t{number}_v1", outputs=int) for number in range(3)]
for table in tables:
    table.put(["a"], [1])
failing = {id(tables[0]._rows.handle), id(tables[1]._rows.handle)}
flush = Handle.flush_at_exit
def broken(self):
    if id(self) in failing:
        raise ValueError("broken")
    flush(self)
Handle.flush_at_exit = broken
"""


def test_an_error_at_the_end_of_a_program_keeps_no_other_table_from_being_flushed(directory):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(directory)], capture_output=True, text=True, timeout=120)
    assert done.stderr.count("tcx: rows are lost: broken") == 2
    assert list(directory.glob("t2_v1/seg-*"))


def test_a_program_may_end_while_an_epoch_is_read_ahead(directory):
    program = (
        "import sys, torch, tcx_cache as tcx\n"
        "table = tcx.Cache(sys.argv[1]).table('t_v1', outputs=tcx.f32[256])\n"
        "large = torch.ones(1500, 1500)\n"
        "load = lambda missing: (large @ large)[:len(missing), :256]\n"
        "ahead = tcx.torch.epoch(table, list(range(10000)), 10, load=load, prefetch=1000)\n"
        "print(len(next(iter(ahead))[0]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(directory)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "10"), done.stderr


def test_an_epoch_that_is_closed_has_no_more_batches(cache):
    table = cache.table("t_v1", outputs=int)
    ahead = iter(tcx.torch.epoch(table, list(range(100)), 10, load=lambda missing: [1] * len(missing), prefetch=2))
    assert len(next(ahead)[0]) == 10
    ahead.close()
    assert list(ahead) == []
