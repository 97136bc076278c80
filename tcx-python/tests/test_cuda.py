"""Modules and epochs on a GPU. Skipped where there is none."""

import importlib.util
import os
import subprocess
import sys
import threading

import pytest

import tcx_cache as tcx
from conftest import skip

torch = pytest.importorskip("torch")

WIDTH = 4096


@pytest.fixture(autouse=True)
def gpu():
    """Every test needs one."""
    if not torch.cuda.is_available():
        skip("cuda", "there is no CUDA device")


class Scaled(torch.nn.Module):
    """Row `i` is `i` everywhere, twice; the work before it keeps the stream busy."""

    def __init__(self, dtype=None, busy=0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((WIDTH,), 2.0), requires_grad=False)
        self.dtype, self.busy, self.rows = dtype, busy, 0

    def forward(self, numbers):
        self.rows += len(numbers)
        if self.busy:
            torch.cuda._sleep(self.busy)
        output = numbers[:, None].to(self.weight) * self.weight
        return output if self.dtype is None else output.to(self.dtype)


def numbers(ids):
    return torch.tensor([float(own) for own in ids], device="cuda")


def expected(ids, dtype=torch.float32):
    return (torch.tensor([2.0 * own for own in ids], device="cpu")[:, None].expand(len(ids), WIDTH)).to(dtype)


def same(rows, ids, dtype=torch.float32):
    return torch.equal(rows.cpu(), expected(ids, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_a_module_on_a_gpu_are_served_on_it_bit_for_bit(directory, dtype):
    module = Scaled(dtype).eval().cuda()
    ids = list(range(100))
    with tcx.cached(module, directory, id="scaled_v1") as cached:
        computed = cached(numbers(ids), ids=ids)
        computed_rows = module.rows
        served = cached(numbers(ids), ids=torch.tensor(ids, device="cuda"))
        assert module.rows == computed_rows
        for rows in (computed, served):
            assert rows.is_cuda and rows.dtype == dtype and same(rows, ids, dtype)


def test_rows_that_are_computed_on_another_stream_are_stored_as_they_are(directory):
    module = Scaled(busy=200_000_000).eval().cuda()
    ids = list(range(64))
    with tcx.cached(module, directory, id="scaled_v1") as cached:
        with torch.cuda.stream(torch.cuda.Stream()):
            assert same(cached(numbers(ids), ids=ids), ids)
        cached.flush()
    with tcx.cached(module, directory, id="scaled_v1") as cached:
        assert same(cached.fetch(ids), ids)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("kind", ["module", "table"])
def test_an_epoch_is_right_on_any_stream_while_the_gpu_is_busy(directory, kind, prefetch):
    ids = list(range(2000))
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0)).tolist()
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        cached.flush()
        source = cached if kind == "module" else cached.__reduce__()[0](*cached.__reduce__()[1])
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            sums = []
            with torch.cuda.stream(stream):
                for batch, rows in tcx.torch.epoch(source, order, 50, prefetch=prefetch, device="cuda"):
                    # What copies are queued behind on the default stream.
                    with torch.cuda.stream(torch.cuda.default_stream()):
                        torch.cuda._sleep(20_000_000)
                    sums.append((batch, rows.sum(dim=1, dtype=torch.float64), rows[:, ::97].clone()))
                    del rows
            torch.cuda.synchronize()
            assert len(sums) == 40
            for batch, total, some in sums:
                assert torch.equal(total.cpu(), expected(batch).sum(dim=1, dtype=torch.float64))
                assert torch.equal(some.cpu(), expected(batch)[:, ::97])


def test_weights_that_change_on_a_gpu_are_noticed(directory):
    changes = [
        lambda weight: weight.data.fill_(3.0),
        lambda weight: weight.data.copy_(torch.full((WIDTH,), 3.0)),
        lambda weight: setattr(weight, "data", torch.full((WIDTH,), 3.0, device="cuda")),
        lambda weight: torch.nn.init.constant_(weight, 3.0),
    ]
    for number, change in enumerate(changes):
        module = Scaled().eval().cuda()
        with pytest.raises(tcx.Error, match="weight"):
            with tcx.cached(module, f"{directory}/{number}", id="scaled_v1") as cached:
                cached(numbers([1, 2]), ids=[1, 2])
                change(module.weight)
                cached(numbers([3, 4]), ids=[3, 4])
                cached.flush()


def test_a_module_that_moves_to_a_gpu_serves_the_same_rows_on_it(directory):
    module = Scaled().eval()
    with tcx.cached(module, directory, id="scaled_v1") as cached:
        cached(numbers([1, 2]).cpu(), ids=[1, 2])
        cached.to("cuda")
        rows = cached(numbers([1, 2]), ids=[1, 2])
        assert rows.is_cuda and same(rows, [1, 2]) and module.rows <= 6
        assert cached.verify([1, 2], numbers) == []


def test_forked_workers_look_up_what_a_process_that_uses_cuda_has_stored(directory):
    ids = list(range(200))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        cached.flush()
        dataset = tcx.torch.FeatureDataset(cached, ids)
        loader = torch.utils.data.DataLoader(dataset, batch_size=20, num_workers=2, multiprocessing_context="fork")
        assert torch.equal(torch.cat(list(loader)), expected(ids))


def test_rows_under_autocast_are_not_taken_for_those_without(directory):
    module = torch.nn.Linear(64, 64).eval().requires_grad_(False).cuda()
    inputs = torch.randn(8, 64, device="cuda")
    ids = list(range(8))
    with tcx.cached(module, directory, id="linear_v1") as cached:
        plain = cached(inputs, ids=ids)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            try:
                rows = cached(inputs, ids=[own + 100 for own in ids])
            except tcx.Error:
                return
            assert rows.dtype == plain.dtype
            assert torch.equal(rows, module(inputs).to(rows.dtype)) is False


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_epoch_on_the_cpu_has_the_rows_of_a_module_on_a_gpu(directory, prefetch):
    ids = list(range(1000))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        for batch, rows in tcx.torch.epoch(cached, ids, 50, prefetch=prefetch, device="cpu"):
            assert not rows.is_cuda and same(rows, batch)
            # What the next copies are queued behind.
            torch.cuda._sleep(50_000_000)


class Aside(torch.nn.Module):
    """Computes on a stream of its own, for which no other waits."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((WIDTH,), 2.0), requires_grad=False)
        self.stream = torch.cuda.Stream()

    def forward(self, numbers):
        self.stream.wait_stream(torch.cuda.current_stream())
        numbers.record_stream(self.stream)
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(100_000_000)
            return numbers[:, None] * self.weight


def test_rows_of_a_stream_for_which_none_waits_are_stored_as_they_are(directory):
    ids = list(range(64))
    with tcx.cached(Aside().eval().cuda(), directory, id="aside_v1") as cached:
        for start in range(0, 64, 16):
            cached(numbers(ids[start : start + 16]), ids=ids[start : start + 16])
        assert cached.verify(ids, numbers) == []
        assert same(cached.fetch(ids), ids)
    with tcx.Cache(directory).table("put_v1", outputs=tcx.f32[WIDTH]) as table:
        table.put(ids, Aside().cuda()(numbers(ids)))
        assert same(table.stored(ids), ids)


def test_inputs_that_threads_load_on_a_gpu_are_there_on_the_stream_of_the_caller(directory):
    def load(missing):
        torch.cuda._sleep(50_000_000)
        return numbers(missing) + 1

    ids = list(range(400))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        with torch.cuda.stream(torch.cuda.Stream()):
            cached.warm_sharded(ids, load, rank=tcx.Rank(0, 1), batch_size=20, workers=3, progress=False)
        assert same(cached.fetch(ids), [own + 1 for own in ids])


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_rows_of_a_compiled_module_are_those_of_the_module(directory, mode):
    if importlib.util.find_spec("triton") is None:
        skip("cuda", "triton, which torch compiles with for a GPU, is not installed")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)).eval().requires_grad_(False).cuda()
    compiled = torch.compile(module, mode=mode)
    inputs, ids = torch.randn(64, 64, device="cuda"), list(range(64))
    with tcx.cached(compiled, directory, id="compiled_v1") as cached:
        computed = [cached(inputs[start : start + 16], ids=ids[start : start + 16]) for start in range(0, 64, 16)]
        assert torch.equal(cached.fetch(ids), torch.cat(computed))
        assert torch.allclose(cached.fetch(ids), module(inputs), atol=1e-4)
        assert cached.verify(ids, lambda found: inputs[found]) == []
    with tcx.cached(module, directory, id="compiled_v1") as plain:
        assert torch.equal(plain.fetch(ids), torch.cat(computed))


def test_rows_are_refused_while_a_graph_is_captured(directory):
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers([1, 2]), ids=[1, 2])
        with pytest.raises(tcx.InvalidBatchError, match="while a CUDA graph is captured"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                cached.fetch([1, 2])
        assert same(cached.fetch([1, 2]), [1, 2])


def test_autocast_for_the_cpu_is_none_for_a_gpu(directory):
    module = torch.nn.Linear(64, 64).eval().requires_grad_(False).cuda()
    inputs = torch.randn(8, 64, device="cuda")
    with tcx.cached(module, directory, id="linear_v1", config={"autocast": torch.bfloat16}) as cached:
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(tcx.ModuleViolationError, match="autocast is active for cpu .* weights are on cuda"):
            cached(inputs, ids=list(range(8)))
        with torch.autocast("cpu", torch.bfloat16), torch.autocast("cuda", torch.float16):
            with pytest.raises(tcx.ModuleViolationError, match="autocast casts to torch.float16"):
                cached(inputs, ids=list(range(8)))
        with torch.autocast("cuda", torch.bfloat16):
            rows = cached(inputs, ids=list(range(8)))
            assert rows.dtype == torch.bfloat16 and torch.equal(rows, module(inputs))


class Mixed(torch.nn.Module):
    """Columns of several kinds."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((512,), 2.0), requires_grad=False)

    def forward(self, numbers):
        torch.cuda._sleep(10_000_000)
        wide = numbers[:, None] * self.weight
        ragged = [row[: 1 + int(row[0]) % 3] for row in wide]
        return {"wide": wide, "truth": wide % 4 == 0, "whole": wide.long(), "half": (wide, wide.bfloat16()), "ragged": ragged}


MIXED = {
    "wide": tcx.f32[512],
    "truth": tcx.bool[512],
    "whole": tcx.i64[512],
    "half": (tcx.f32[512], tcx.bf16[512]),
    "ragged": tcx.f32[None],
}


def test_columns_of_every_kind_are_right_on_busy_streams(directory):
    def check(batch, rows):
        wide = torch.tensor([2.0 * own for own in batch])[:, None].expand(len(batch), 512)
        assert torch.equal(rows["wide"].cpu(), wide) and torch.equal(rows["half"][0].cpu(), wide)
        assert torch.equal(rows["truth"].cpu(), wide % 4 == 0) and torch.equal(rows["whole"].cpu(), wide.long())
        assert torch.equal(rows["half"][1].cpu(), wide.bfloat16())
        assert all(part.tolist() == [2.0 * own] * (1 + 2 * own % 3) for own, part in zip(batch, rows["ragged"]))
        assert rows["wide"].is_cuda and rows["truth"].is_cuda and rows["ragged"][0].is_cuda

    ids = list(range(300))
    with tcx.cached(Mixed().eval().cuda(), directory, id="mixed_v1", outputs=MIXED) as cached:
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                check(ids, cached(numbers(ids), ids=ids))
                for batch, rows in tcx.torch.epoch(cached, ids[::-1], 30, device="cuda"):
                    with torch.cuda.stream(torch.cuda.default_stream()):
                        torch.cuda._sleep(20_000_000)
                    check(batch, rows)


def test_pinned_memory_is_not_used_again_before_its_copy_has_ended(directory):
    ids = list(range(4096))
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(1)).tolist() * 2
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        for start in range(0, len(ids), 512):
            cached(numbers(ids[start : start + 512]), ids=ids[start : start + 512])
        cached.flush()
        source = cached.__reduce__()[0](*cached.__reduce__()[1])
        sums = []
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for batch, rows in tcx.torch.epoch(source, order, 64, prefetch=8, device="cuda"):
                torch.cuda._sleep(2_000_000)
                sums.append((batch, rows.double().sum(dim=1), rows.amin(dim=1), rows.amax(dim=1)))
                size = rows.shape
                del rows
                # What it would be overwritten with.
                torch.empty(size, pin_memory=True).fill_(-1)
                torch.empty(size, device="cuda").fill_(-1)
                found = cached.fetch(batch)
                sums.append((batch, found.double().sum(dim=1), found.amin(dim=1), found.amax(dim=1)))
                del found
        torch.cuda.synchronize()
        for batch, total, least, most in sums:
            number = torch.tensor([2.0 * own for own in batch])
            assert torch.equal(total.cpu(), number.double() * WIDTH) and torch.equal(least.cpu(), number) and torch.equal(most.cpu(), number)


def test_threads_with_streams_of_their_own_get_their_rows(directory):
    ids = list(range(1000))
    failed = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                batch = torch.randint(0, 1200, (64,), generator=generator).tolist()
                torch.cuda._sleep(1_000_000)
                rows = cached.fetch(batch, numbers)
                if not same(rows, batch):
                    failed.append(batch)

    with tcx.cached(Scaled(busy=2_000_000).eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert same(cached.fetch(range(1000), None), ids)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_ids_may_be_on_a_gpu(directory, dtype):
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        with torch.cuda.stream(torch.cuda.Stream()):
            for start in range(5):
                torch.cuda._sleep(50_000_000)
                ids = torch.arange(start * 10, start * 10 + 20, device="cuda", dtype=dtype)
                assert same(cached(ids.float(), ids=ids), ids.tolist())
        assert cached.coverage(torch.arange(60, device="cuda")).is_complete


def test_an_optimizer_on_a_gpu_is_noticed(directory):
    module = torch.nn.Linear(8, 8).eval().cuda()
    inputs = torch.randn(4, 8, device="cuda")
    cached = tcx.cached(module, directory, id="linear_v1", allow_gradients=True, flush_interval=3600)
    cached(inputs, ids=[0, 1, 2, 3])
    for optimizer in (torch.optim.SGD(module.parameters(), 0.1), torch.optim.Adam(module.parameters(), 0.1, fused=True)):
        module(inputs).sum().backward()
        optimizer.step()
        with pytest.raises(tcx.ModuleViolationError, match="weight"):
            cached(inputs, ids=[4, 5, 6, 7])
    with pytest.raises(tcx.Error, match="weight"):
        cached.close()


def test_a_default_device_changes_nothing(directory):
    torch.set_default_device("cuda")
    try:
        ids = list(range(64))
        with tcx.cached(Scaled().eval(), directory, id="scaled_v1") as cached:
            assert same(cached(numbers(ids), ids=ids), ids)
            assert same(cached.fetch(ids), ids) and cached.verify(ids, numbers) == []
            assert all(same(rows, batch) for batch, rows in tcx.torch.epoch(cached, ids, 8, device="cuda"))
    finally:
        torch.set_default_device(None)


def test_a_missing_sample_in_a_forked_worker_is_an_error_and_not_a_wrong_row(directory):
    ids = list(range(20))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        dataset = tcx.torch.FeatureDataset(cached, list(range(40)), load=numbers)
        loader = torch.utils.data.DataLoader(dataset, batch_size=20, num_workers=1, multiprocessing_context="fork")
        found = iter(loader)
        assert torch.equal(next(found), expected(ids))
        with pytest.raises(RuntimeError):
            next(found)
        assert same(cached.fetch(range(40), numbers), range(40))


def test_spawned_workers_and_their_pinned_batches_are_right(directory):
    ids = list(range(200))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        dataset = tcx.torch.FeatureDataset(cached, ids)
        loader = torch.utils.data.DataLoader(dataset, batch_size=20, num_workers=2, multiprocessing_context="spawn", pin_memory=True)
        rows = torch.cat([batch.to("cuda", non_blocking=True) for batch in loader])
        assert same(rows, ids)


ENDS = """
import sys, torch, tcx_cache as tcx
sys.path.insert(0, {tests!r})
from test_cuda import Scaled, numbers
how, place = sys.argv[1:]
cached = tcx.cached(Scaled().eval().cuda(), place, id="scaled_v1")
ids = list(range(2000))
cached(numbers(ids), ids=ids)
if how == "epoch":
    for batch, rows in tcx.torch.epoch(cached, ids, 20, prefetch=4, device="cuda"):
        if batch[0] >= 100:
            break
    found = tcx.torch.epoch(cached, ids, 20, prefetch=4, device="cuda")
    next(found)
print("done")
"""


@pytest.mark.parametrize("how", ["open", "epoch"])
def test_a_process_ends_well_with_an_open_cache_on_a_gpu(tmp_path, how):
    program = tmp_path / "ends.py"
    program.write_text(ENDS.format(tests=os.path.dirname(__file__)))
    for number in range(3):
        done = subprocess.run([sys.executable, program, how, tmp_path / str(number)], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
        with tcx.cached(Scaled().eval().cuda(), tmp_path / str(number), id="scaled_v1") as cached:
            assert same(cached.fetch(range(2000)), range(2000))
