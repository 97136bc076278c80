"""Processes: forked, spawned and served ones, after the cache was opened and used."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.torch import FeatureDataset

METHODS = ["fork", "spawn", "forkserver"]
#: 10,000 for the long form: `TCX_FORKS=10000`.
FORKS = int(os.environ.get("TCX_FORKS", "50"))


LEFT: list[object] = []


def network():
    torch.manual_seed(0)
    return frozen(torch.nn.Linear(4, 2))


def inputs(numbers):
    return torch.tensor([[number, 1.0, -number, 2.0] for number in numbers]).float()


def read(table, expected, found):
    """In another process: all rows are found, and right."""
    found.put(bool(torch.equal(table.stored(list(range(8))), expected)))


def compute(directory, numbers, found):
    """In another process: some rows are computed, and kept though the process does not flush."""
    cached = tcx.cached(network(), directory, id="linear_v1", flush_interval=3600)
    # A handle that is dropped writes its rows: this one is left as a program leaves it.
    LEFT.append(cached)
    rows = cached(inputs(numbers), ids=numbers)
    found.put(bool(torch.equal(rows, network()(inputs(numbers)))))


@pytest.mark.parametrize("method", METHODS)
def test_another_process_reads_through_a_handle_that_travelled(directory, method):
    cached = tcx.cached(network(), directory, id="linear_v1")
    expected = cached(inputs(range(8)), ids=list(range(8)))
    cached.flush()
    context = multiprocessing.get_context(method)
    found = context.SimpleQueue()
    # A child of `fork` has the handle itself; what was pickled is a table.
    target = read_cached if method == "fork" else read
    process = context.Process(target=target, args=(cached, expected, found))
    process.start()
    assert found.get() is True
    process.join()
    assert process.exitcode == 0


def read_cached(cached, expected, found):
    found.put(bool(torch.equal(cached.fetch(list(range(8))), expected)))


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_a_worker_are_durable_when_it_ends(directory, method):
    context = multiprocessing.get_context(method)
    found = context.SimpleQueue()
    workers = [context.Process(target=compute, args=(directory, list(range(start, start + 5)), found)) for start in (0, 3, 6)]
    for worker in workers:
        worker.start()
    assert [found.get() for _ in workers] == [True] * 3
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    cached = tcx.cached(network(), directory, id="linear_v1")
    assert cached.coverage(list(range(11))).is_complete
    assert torch.allclose(cached.fetch(list(range(11))), network()(inputs(range(11))))


def in_child(work):
    """Runs a function in a forked child; its status is 0 if the function succeeds."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def join(child, seconds=60):
    deadline, is_late = time.monotonic() + seconds, False
    while not is_late:
        # The process itself may have been stopped for a while.
        is_late = time.monotonic() >= deadline
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hung")


class Guarded(torch.nn.Module):
    """Has a mutex, as the tensors of torch have: a child of a fork never sees a thread of its parent release it."""

    def __init__(self):
        super().__init__()
        self.mutex, self.started = threading.Lock(), threading.Event()

    def forward(self, x):
        with self.mutex:
            self.started.set()
            time.sleep(0.1)
            return x * 2


def test_a_fork_waits_until_no_thread_is_within_a_network(directory):
    module = Guarded().eval()
    cached = tcx.cached(module, directory, id="guarded_v1", outputs=tcx.f32[4])
    thread = threading.Thread(target=lambda: cached(inputs([1]), ids=[1]))
    thread.start()
    module.started.wait()
    assert join(in_child(lambda: cached(inputs([2]), ids=[2])), seconds=10) == 0
    thread.join()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_while_a_fork_waits_leaves_no_lock_held(directory):
    module = Guarded().eval()
    cached = tcx.cached(module, directory, id="guarded_v1", outputs=tcx.f32[4])
    others = [tcx.cached(network(), directory, id=f"other{number}_v1", outputs=tcx.f32[2]) for number in range(4)]
    thread = threading.Thread(target=lambda: cached(inputs([1]), ids=[1]))
    thread.start()
    module.started.wait()
    # Before the network is done, for which the fork waits.
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        child = in_child(lambda: None)
    except KeyboardInterrupt:
        child = None
    finally:
        signal.signal(signal.SIGALRM, before)
    thread.join()
    if child is not None:
        join(child)
    done = threading.Event()
    threading.Thread(target=lambda: (*(own(inputs([2]), ids=[2]) for own in [cached, *others]), done.set()), daemon=True).start()
    assert done.wait(30), "a lock is held"


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_network_may_fork(directory):
    class Forking(torch.nn.Module):
        def forward(self, x):
            assert join(in_child(lambda: None)) == 0
            return x

    cached = tcx.cached(Forking().eval(), directory, id="forking_v1", outputs=tcx.f32[4])
    assert torch.equal(cached(inputs([1]), ids=[1]), inputs([1]))


def test_forks_while_threads_look_up_and_compute_neither_hang_nor_lose_nor_mix_rows(directory):
    cached = tcx.cached(network(), directory, id="linear_v1", flush_interval=0.01, flush_bytes=4096)
    # One for each thread and one for the children: a thread may be within its network at a fork, whose tensors stay locked in the child.
    expected, *of_threads = network(), network(), network()
    stop, failures = threading.Event(), []

    def work(seed):
        generator, expected = torch.Generator().manual_seed(seed), of_threads[seed]
        while not stop.is_set():
            numbers = torch.randint(0, 5000, (8,), generator=generator).tolist()
            if not torch.allclose(cached(inputs(numbers), ids=numbers), expected(inputs(numbers))):
                failures.append(numbers)

    def child(number):
        numbers = [number % 5000, (7 * number) % 5000, 100_000 + number]
        rows = cached(inputs(numbers), ids=numbers)
        assert torch.allclose(rows, expected(inputs(numbers)))
        cached.flush()

    torch.set_num_threads(1)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(FORKS):
            assert join(in_child(lambda number=number: child(number))) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    cached.flush()
    cached.refresh()
    own = list(range(100_000, 100_000 + FORKS))
    assert cached.coverage(own).is_complete, "rows that children have flushed are lost"
    assert torch.allclose(cached.fetch(own), network()(inputs(own)))
    cached.close()


def test_a_child_leaves_the_rows_of_its_parent_alone(directory):
    cached = tcx.cached(network(), directory, id="linear_v1", flush_interval=3600)
    cached(inputs([1, 2]), ids=[1, 2])

    def child():
        cached.flush()
        cached.close()

    assert join(in_child(child)) == 0
    assert not list(directory.glob("linear_v1/seg-*"))
    cached.flush()
    assert list(directory.glob("linear_v1/seg-*"))


@pytest.mark.parametrize("method", METHODS)
def test_a_data_loader_reads_batches_in_workers(directory, method):
    cached = tcx.cached(network(), directory, id="linear_v1")
    ids = list(range(40))
    cached.warm(ids, inputs, progress=False)
    cached.flush()
    dataset = FeatureDataset(cached, ids, targets=torch.arange(40))
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=8, shuffle=True, num_workers=2, multiprocessing_context=method
    )
    seen = []
    for rows, labels in loader:
        assert torch.allclose(rows, network()(inputs(labels.tolist())))
        seen += labels.tolist()
    assert sorted(seen) == ids
    single, label = dataset[3]
    assert torch.allclose(single, network()(inputs([3]))[0]) and label == 3
    with pytest.raises(tcx.InvalidBatchError, match="one of them with id 99"):
        FeatureDataset(cached, [1, 99])[1]


def are_shared(batches):
    """Whether the rows that a worker has read are in shared memory, before it sends them; and its batch."""
    rows = batches[0].value
    return [rows["dense"].is_shared(), *(row.is_shared() for row in rows["ragged"])], rows


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_that_a_worker_reads_are_sent_without_a_copy(directory, workers):
    table = tcx.Cache(directory).table("t_v1", outputs={"dense": tcx.f32[3], "ragged": tcx.f16[None]}, ids=int)
    ragged = [torch.full((number % 3 + 1,), float(number)).half() for number in range(16)]
    table.put(range(16), {"dense": inputs(range(16))[:, :3], "ragged": ragged})
    dataset = FeatureDataset(table, range(16))
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=are_shared)
    for number, (shared, rows) in enumerate(loader):
        assert shared == [workers > 0] * 5
        assert torch.equal(rows["dense"], inputs(range(4 * number, 4 * number + 4))[:, :3])
        assert all(torch.equal(one, other) for one, other in zip(rows["ragged"], ragged[4 * number :]))
    assert not table.stored([1])["dense"].is_shared()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_has_rows_on_the_cpu_wherever_the_module_puts_them(directory, workers):
    """A loader pins them, which it cannot with rows on a GPU."""
    cached, ids = tcx.cached(network(), directory, id="linear_v1", output_device="meta"), list(range(16))
    assert cached(inputs(ids), ids=ids).is_meta and cached.fetch(ids).is_meta
    dataset = FeatureDataset(cached, [*ids, 99], load=inputs)
    rows = torch.cat(list(torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=workers)))
    assert torch.allclose(rows, network()(inputs([*ids, 99]))) and dataset[0].device.type == "cpu"


def test_a_data_loader_of_the_default_kind_fills_the_cache(directory):
    cached = tcx.cached(network(), directory, id="linear_v1", flush_interval=3600)
    dataset = FeatureDataset(cached, list(range(64)), load=inputs)
    for _ in range(2):
        loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2)
        rows = torch.cat(list(loader))
        assert torch.allclose(rows, network()(inputs(range(64))))
    cached.refresh()
    assert cached.coverage(list(range(64))).is_complete


@pytest.mark.parametrize("prefetch", [0, 3])
def test_an_epoch_is_read_ahead_in_its_order(directory, prefetch):
    cached = tcx.cached(network(), directory, id="linear_v1")
    order = torch.randperm(50).tolist()
    batches = list(tcx.torch.epoch(cached, order, 8, load=inputs, prefetch=prefetch))
    assert [number for ids, _ in batches for number in ids] == order and len(batches) == 7
    assert torch.allclose(torch.cat([rows for _, rows in batches]), network()(inputs(order)))
    assert len(list(tcx.torch.epoch(cached, order, 8, drop_last=True, prefetch=prefetch))) == 6
    with pytest.raises(tcx.InvalidBatchError, match="one of them with id 1000"):
        list(tcx.torch.epoch(cached, [*order, 1000], 8, prefetch=prefetch))
    ahead = tcx.torch.epoch(cached, order, 8, prefetch=2)
    next(iter(ahead))
    del ahead


PROGRAM = """
import sys, torch, tcx_cache as tcx
torch.manual_seed(0)
network = torch.nn.Linear(4, 2).eval().requires_grad_(False)
cached = tcx.cached(network, sys.argv[1], id="linear_v1", flush_interval=3600)
cached(torch.ones(2, 4), ids=["a", "b"])
"""


def test_rows_are_durable_when_the_program_ends(directory):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(directory)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert tcx.cached(network(), directory, id="linear_v1").coverage(["a", "b"]).is_complete


def test_a_program_ends_with_a_report_of_lost_rows(directory):
    program = PROGRAM + "network.weight.data.add_(1)\n"
    done = subprocess.run([sys.executable, "-c", program, str(directory)], capture_output=True, text=True, timeout=120)
    assert "2 computed rows were not kept: weight `weight`: changed in place" in done.stderr
    assert not list(directory.glob("linear_v1/seg-*"))


def test_importing_the_package_imports_neither_torch_nor_numpy():
    program = "import sys, tcx_cache; print([name for name in ('torch', 'numpy', 'pyarrow') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
