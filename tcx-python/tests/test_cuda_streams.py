"""Streams and graphs of a GPU beside threads, loaders and epochs. Skipped where there is none."""

import os
import random
import subprocess
import sys
import threading
import time

import pytest
from conftest import frozen, skip
from test_cuda import WIDTH, Scaled, numbers, same

import tcx_cache as tcx

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def gpu():
    """Every test needs one."""
    if not torch.cuda.is_available():
        skip("cuda", "there is no CUDA device")


POOL = torch.randn(4000, 64, generator=torch.Generator().manual_seed(5))


def inputs(ids):
    return POOL[torch.as_tensor([int(own) for own in ids])].cuda()


def network(seed=0):
    torch.manual_seed(seed)
    own = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 128), torch.nn.LayerNorm(128), torch.nn.Linear(128, 96))
    return frozen(own).cuda()


def same_bits(one, other):
    def as_bytes(rows):
        return rows.detach().cpu().contiguous().view(torch.uint8)

    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(as_bytes(one), as_bytes(other))


class Recorded(torch.nn.Module):
    """Notes what the module inside has returned for each number first: that is what is stored."""

    def __init__(self, inside, returned):
        super().__init__()
        self.inside = inside
        # Not an attribute with tensors, which would be weights.
        self.note = returned.setdefault
        self.lock = threading.Lock()

    def forward(self, numbers, inputs):
        output = self.inside(inputs)
        torch.cuda.synchronize()
        own = output.cpu().clone()
        with self.lock:
            for number, row in zip(numbers.tolist(), own):
                self.note(int(number), row.clone())
        return output


def as_returned(rows, ids, returned):
    return same_bits(rows, torch.stack([returned[own] for own in ids]))


class Graphed(torch.nn.Module):
    """Replays a graph: its inputs and outputs are in memory that it writes to again."""

    def __init__(self, inside, size=70):
        super().__init__()
        self.inside, self.size = inside, size

    def forward(self, found):
        if not hasattr(self, "graph"):
            self.source = torch.zeros(self.size, 64, device="cuda")
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.inside(self.source)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.target = self.inside(self.source)
        rows = len(found)
        self.source[:rows].copy_(found)
        self.graph.replay()
        return self.target[:rows]


class Buffer(torch.nn.Module):
    """Every output is in the same memory."""

    def __init__(self, inside, size=70):
        super().__init__()
        self.inside, self.size = inside, size

    def forward(self, found):
        if not hasattr(self, "memory"):
            self.memory = torch.empty(self.size, 96, device=found.device)
        self.memory[: len(found)].copy_(self.inside(found))
        return self.memory[: len(found)]


@pytest.mark.parametrize("kind", ["plain", "buffer", "graphed"])
def test_any_order_of_calls_in_threads_with_streams(directory, kind):
    inside = {"plain": network, "buffer": lambda: Buffer(network()), "graphed": lambda: Graphed(network())}[kind]()
    kept, failed, returned = [], [], {}
    end = time.monotonic() + 4

    def load(missing):
        return numbers(missing), inputs(missing)

    def work(seed):
        chance = random.Random(seed)
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                while time.monotonic() < end:
                    batch = [chance.randrange(3000) for _ in range(chance.randrange(1, 70))]
                    torch.cuda._sleep(chance.choice([0, 0, 2_000_000]))
                    what = chance.random()
                    if what < 0.4:
                        kept.append((batch, cached(*load(batch), ids=batch)))
                    elif what < 0.7:
                        kept.append((batch, cached.fetch(batch, load)))
                    elif what < 0.9:
                        kept.extend(tcx.torch.epoch(cached, batch, chance.randrange(5, 20), load=load, prefetch=chance.randrange(3), device="cuda"))
                    else:
                        cached.flush()
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            failed.append(error)

    with tcx.cached(Recorded(inside, returned).eval(), directory, id="threads_v1", ids=int, flush_interval=0.05) as cached:
        cached(*load([0, 1]), ids=[0, 1])
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        torch.cuda.synchronize()
        assert all(as_returned(rows, batch, returned) for batch, rows in kept)
        ids = cached.stored_ids()
        assert as_returned(cached.fetch(ids), ids, returned)


@pytest.mark.parametrize("how", ["epoch", "decorator"])
def test_rows_are_not_copied_to_a_gpu_while_a_graph_is_captured(directory, how):
    from tcx_cache.torchcachex import ArrowIPCCacheBackend, CacheModuleDecorator

    ids, module = list(range(64)), Scaled().eval().cuda()
    if how == "decorator":
        decorated = CacheModuleDecorator(module, ArrowIPCCacheBackend(str(directory), "scaled_v1"))
        found = numbers(ids)
        decorated(found, cache_ids=ids)

        def read():
            return decorated(found, cache_ids=ids)
    else:
        cached = tcx.cached(module, directory, id="scaled_v1")
        cached(numbers(ids), ids=ids)
        cached.flush()
        table = cached.__reduce__()[0](*cached.__reduce__()[1])

        def read():
            return next(iter(tcx.torch.epoch(table, ids, 64, prefetch=0, device="cuda")))

    torch.cuda.synchronize()
    with pytest.raises(tcx.InvalidBatchError, match="while a CUDA graph is captured"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            read()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_load_of_an_epoch_finds_what_the_caller_has_queued(directory, prefetch):
    ids = list(range(400))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1", outputs=tcx.f32[WIDTH]) as cached:
        there, table = torch.arange(400.0, device="cuda"), torch.zeros(400, device="cuda")
        torch.cuda.synchronize()

        def load(missing):
            return table[missing[0] : missing[-1] + 1] + 0

        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(1_000_000_000)
            table.copy_(there)
            found = list(tcx.torch.epoch(cached, ids, 50, load=load, prefetch=prefetch, device="cuda"))
        torch.cuda.synchronize()
        assert all(same(rows, batch) for batch, rows in found)
        assert same(cached.fetch(ids), ids)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", ["sharded", "shared"])
def test_threads_that_load_find_what_the_caller_has_queued(directory, how, workers):
    ids = list(range(400))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1", outputs=tcx.f32[WIDTH]) as cached:
        there, table = torch.arange(400.0, device="cuda"), torch.zeros(400, device="cuda")
        torch.cuda.synchronize()

        def load(missing):
            return table[missing[0] : missing[-1] + 1] + 0

        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(1_000_000_000)
            table.copy_(there)
            if how == "sharded":
                cached.warm_sharded(ids, load, rank=tcx.Rank(0, 1), batch_size=20, workers=workers, progress=False)
            else:
                cached.warm_shared(ids, load, batch_size=20, workers=workers)
        torch.cuda.synchronize()
        assert same(cached.fetch(ids), ids)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_load_finds_what_the_body_of_the_loop_has_queued(directory, prefetch):
    """Each batch is loaded from a table into which the loop writes: what it wrote four batches before is there."""
    size, ids, failed, found = 20, list(range(400)), [], []

    def load(missing):
        # What is read ahead may be newer by now, and not older.
        number = missing[0] // size
        failed.append(torch.relu(number - 4 - written))
        return numbers(missing)

    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1", outputs=tcx.f32[WIDTH]) as cached:
        written = torch.full((), -1.0, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            for number, (batch, rows) in enumerate(tcx.torch.epoch(cached, ids, size, load=load, prefetch=prefetch, device="cuda")):
                torch.cuda._sleep(50_000_000)
                written.fill_(number)
                found.append((batch, rows))
        torch.cuda.synchronize()
        assert all(same(rows, batch) for batch, rows in found)
        assert len(failed) == 20 and not any(own.item() for own in failed)


def test_an_epoch_is_refused_while_a_graph_is_captured(directory):
    ids = list(range(64))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        ahead = tcx.torch.epoch(cached, ids, 8, prefetch=2, device="cuda")
        time.sleep(1)
        torch.cuda.synchronize()
        with pytest.raises(tcx.InvalidBatchError, match="while a CUDA graph is captured"):
            # The thread goes on reading ahead.
            with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
                next(ahead)
        assert same(cached.fetch(ids), ids)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_thread_of_an_epoch_has_the_autocast_of_the_caller_for_a_gpu(directory, prefetch):
    module, found = frozen(torch.nn.Linear(64, 64)).cuda(), torch.randn(8, 64, device="cuda")
    with tcx.cached(module, directory, id="linear_v1", config={"autocast": torch.bfloat16}) as cached:
        with torch.autocast("cuda", torch.bfloat16):
            epoch = tcx.torch.epoch(cached, range(8), 4, load=lambda missing: found[missing], prefetch=prefetch, device="cuda")
            rows = torch.cat([rows for _, rows in epoch])
            assert rows.dtype == torch.bfloat16 and torch.allclose(rows.float(), module(found).float(), atol=1e-2)


ALLOCATES = """
import sys, torch, tcx_cache as tcx
sys.path.insert(0, {tests!r})
from test_cuda import Scaled, numbers, same
assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
cached, ids = tcx.cached(Scaled().eval().cuda(), sys.argv[1], id="scaled_v1"), list(range(400))
cached(numbers(ids), ids=ids)
for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
    for device in (None, "cuda"):
        with torch.cuda.stream(stream):
            for batch, rows in tcx.torch.epoch(cached, ids, 20, prefetch=2, device=device):
                torch.cuda._sleep(2_000_000)
                assert same(rows, batch)
cached.close()
print("done")
"""


def test_an_epoch_gives_no_warning_with_the_allocator_of_the_driver(tmp_path):
    program = tmp_path / "allocates.py"
    program.write_text(ALLOCATES.format(tests=os.path.dirname(__file__)))
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    done = subprocess.run([sys.executable, program, tmp_path / "cache"], capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stdout) == (0, "done\n") and "record_stream" not in done.stderr, done.stderr
