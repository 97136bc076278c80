"""Loaders, epochs and errors of a process that uses a GPU. Skipped where there is none."""

import contextlib
import gc
import subprocess
import sys
import threading
import time

import pytest
from conftest import skip
from test_cuda import Scaled, expected, numbers, same

import tcx_cache as tcx

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def gpu():
    """Every test needs one."""
    if not torch.cuda.is_available():
        skip("cuda", "there is no CUDA device")


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("context", [None, "fork", "spawn"])
def test_loaders_have_the_rows_of_a_module_on_a_gpu(directory, context, pinned):
    """The `Trainer` of transformers pins memory and has no workers by default."""
    ids = list(range(400))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        dataset = tcx.torch.FeatureDataset(cached, ids, targets=torch.arange(400))
        options = {"num_workers": 2, "multiprocessing_context": context, "persistent_workers": True} if context else {}
        loader = torch.utils.data.DataLoader(dataset, batch_size=40, shuffle=True, pin_memory=pinned, **options)
        for _ in range(2):
            for rows, targets in loader:
                torch.cuda._sleep(2_000_000)
                assert same(rows.to("cuda", non_blocking=True), targets.tolist())


def test_forks_beside_threads_that_compute_on_a_gpu(directory):
    ids, stop, failed = list(range(400)), threading.Event(), []

    def work(seed):
        number = 10_000 * (seed + 1)
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                while not stop.is_set():
                    batch = list(range(number, number + 30))
                    assert same(cached(numbers(batch), ids=batch), batch)
                    number += 30
                    assert all(same(rows, own) for own, rows in tcx.torch.epoch(cached, ids, 100, device="cuda"))
        except BaseException as error:
            failed.append(error)

    with tcx.cached(Scaled(busy=1_000_000).eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
        dataset = tcx.torch.FeatureDataset(cached, ids)
        for thread in threads:
            thread.start()
        try:
            for _ in range(8):
                loader = torch.utils.data.DataLoader(dataset, batch_size=50, num_workers=2, multiprocessing_context="fork", pin_memory=True)
                assert torch.equal(torch.cat(list(loader)), expected(ids))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failed == []


@pytest.mark.parametrize("how", ["break", "raise", "drop", "close"])
def test_an_epoch_that_ends_early_leaves_nothing_behind(directory, how):
    ids = list(range(2000))

    def turn():
        epoch = tcx.torch.epoch(cached, ids, 50, prefetch=3, device="cuda")
        if how == "drop":
            return
        for batch, rows in epoch:
            torch.cuda._sleep(5_000_000)
            assert same(rows, batch)
            if batch[0] > 300:
                if how == "raise":
                    raise KeyError("of the loop")
                break
        if how == "close":
            epoch.close()
            assert list(epoch) == []

    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        cached.flush()
        gc.collect()
        before, threads = torch.cuda.memory_allocated(), threading.active_count()
        for _ in range(10):
            with torch.cuda.stream(torch.cuda.Stream()), contextlib.suppress(KeyError):
                turn()
        end = time.monotonic() + 5
        while threading.active_count() > threads and time.monotonic() < end:
            time.sleep(0.05)
        gc.collect()
        torch.cuda.synchronize()
        assert threading.active_count() <= threads and torch.cuda.memory_allocated() <= before + (1 << 20)


ASSERTS = """
import sys, torch, tcx_cache as tcx
class Picks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((100,), 2.0), requires_grad=False)
    def forward(self, found):
        return self.weight[found.long()][:, None] * found[:, None]
cached = tcx.cached(Picks().eval().cuda(), sys.argv[1], id="picks_v1")
if "read" in sys.argv:
    ids = cached.stored_ids()
    print(ids == list(range(90)) and (cached.fetch(ids)[:, 0].tolist() == [2.0 * own for own in ids]))
    sys.exit()
cached(torch.arange(90.0, device="cuda"), ids=list(range(90)))
cached.flush()
try:
    cached(torch.full((10,), 1e6, device="cuda"), ids=list(range(1000, 1010)))
except Exception as error:
    print(type(error).__name__)
"""


def test_an_assertion_on_the_gpu_loses_no_row_that_is_durable(tmp_path):
    """No call of CUDA succeeds after it. Rows that were not durable then are lost, since the weights cannot be read any more."""
    program = tmp_path / "asserts.py"
    program.write_text(ASSERTS)
    done = subprocess.run([sys.executable, program, tmp_path / "cache"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout, done.stderr
    read = subprocess.run([sys.executable, program, tmp_path / "cache", "read"], capture_output=True, text=True, timeout=120)
    assert read.stdout == "True\n", read.stderr
