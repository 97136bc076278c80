"""Weights on a GPU: how they are read, watched, and freed. Skipped where there is none."""

import contextlib
import gc
import importlib.util
import time

import pytest

import tcx_cache as tcx
from conftest import frozen, skip
from test_cuda import Scaled, numbers, same

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def gpu():
    """Every test needs one."""
    if not torch.cuda.is_available():
        skip("cuda", "there is no CUDA device")


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_graph_may_be_captured_while_rows_wait_to_be_written(directory, mode):
    """The writer reads the weights at any time: this breaks neither the capture nor the rows."""
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1", flush_interval=0.2) as cached:
        cached(numbers(range(100)), ids=range(100))
        x, graph = torch.ones(1000, device="cuda"), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            y = x * 3
            time.sleep(1.0)
            y = y + 1
        graph.replay()
        assert torch.equal(y, torch.full((1000,), 4.0, device="cuda"))
        cached(numbers(range(100, 200)), ids=range(100, 200))
        cached.flush()
        assert same(cached.fetch(range(200)), range(200))


def test_a_graph_may_be_captured_while_an_epoch_is_read_ahead(directory):
    ids = list(range(2000))
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1") as cached:
        cached(numbers(ids), ids=ids)
        cached.flush()
        x = torch.ones(1000, device="cuda")
        torch.cuda.synchronize()
        for batch, rows in tcx.torch.epoch(cached, ids, 200, prefetch=4, device="cuda"):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = x * 3
                time.sleep(0.05)
            graph.replay()
            assert torch.equal(y, x * 3) and same(rows, batch)


def test_a_head_of_cuda_graphs_is_trained_on_an_epoch(directory):
    """The reading thread and the writer work while torch captures graphs in the loop."""
    if importlib.util.find_spec("triton") is None:
        skip("cuda", "triton, which torch compiles with for a GPU, is not installed")
    torch._dynamo.reset()
    ids, number = list(range(1000)), 5000
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1", flush_interval=0.02) as cached:
        cached(numbers(ids), ids=ids)
        head = torch.nn.Sequential(torch.nn.Linear(4096, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
        run = torch.compile(head, mode="reduce-overhead")
        for batch, rows in tcx.torch.epoch(cached, ids, 50, prefetch=4, device="cuda"):
            assert same(rows, batch)
            # Rows that wait to be written.
            cached(numbers([number, number + 1]), ids=[number, number + 1])
            number += 2
            run(rows).sum().backward()
            head.zero_grad(set_to_none=True)
        cached.flush()
        assert same(cached.fetch(range(5000, number)), range(5000, number))


@pytest.mark.parametrize("how", ["data", "foreach", "copy", "set"])
def test_weights_that_are_swapped_for_a_batch_give_no_rows(directory, how):
    """As a moving average is swapped in and out between two flushes."""
    module = Scaled().eval().cuda()
    saved = [own.detach().clone() for own in module.parameters()]
    swap = {
        "data": lambda values: [own.data.copy_(value) for own, value in zip(module.parameters(), values)],
        "foreach": lambda values: torch._foreach_copy_([own.data for own in module.parameters()], values),
        "copy": lambda values: [own.copy_(value) for own, value in zip(module.parameters(), values)],
        "set": lambda values: [setattr(own, "data", value.clone()) for own, value in zip(module.parameters(), values)],
    }[how]
    with contextlib.suppress(tcx.Error), torch.no_grad(), tcx.cached(module, directory, id="scaled_v1") as cached:
        cached(numbers([1, 2]), ids=[1, 2])
        swap([own * 1.5 for own in saved])
        with contextlib.suppress(tcx.Error):
            cached(numbers([3, 4]), ids=[3, 4])
        swap(saved)
        cached.flush()
    with tcx.cached(Scaled().eval().cuda(), directory, id="scaled_v1", outputs=tcx.f32[4096]) as cached:
        assert cached.verify([1, 2, 3, 4], numbers) == []


def test_weights_that_are_swapped_on_another_stream_are_noticed(directory):
    """The sample is read after what the module has computed, on the same stream."""
    module, stream = Scaled(busy=200_000_000).eval().cuda(), torch.cuda.Stream()
    with tcx.cached(module, directory, id="scaled_v1", flush_interval=3600) as cached:
        cached(numbers([1, 2]), ids=[1, 2])
        cached.flush()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), contextlib.suppress(tcx.ModuleViolationError):
            torch.cuda._sleep(200_000_000)
            module.weight.data.mul_(1.5)
            cached(numbers([3, 4]), ids=[3, 4])
        torch.cuda.synchronize()
        module.weight.data.fill_(2.0)
    with tcx.cached(module, directory, id="scaled_v1") as cached:
        assert cached.coverage([1, 2, 3, 4]).missing == [3, 4]


def test_weights_that_a_replayed_graph_writes_are_noticed(directory):
    module, graph = Scaled().eval().cuda(), torch.cuda.CUDAGraph()
    module.weight.mul_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        module.weight.mul_(1.5)
    with pytest.raises(tcx.Error, match="weight"):
        with tcx.cached(module, directory, id="scaled_v1") as cached:
            cached(numbers([1, 2]), ids=[1, 2])
            cached.flush()
            graph.replay()
            cached(numbers([3, 4]), ids=[3, 4])
            cached.flush()
    module.weight.data.fill_(2.0)
    with tcx.cached(module, directory, id="scaled_v1") as cached:
        assert cached.coverage([1, 2, 3, 4]).missing == [3, 4]


def test_a_module_that_leaves_a_gpu_frees_its_memory_there(directory):
    """As one does when all rows are stored, to make room for training."""
    module, found = frozen(torch.nn.Linear(4096, 4096, bias=False)).cuda(), torch.randn(4, 4096, device="cuda")
    with tcx.cached(module, directory, id="linear_v1") as cached:
        cached(found, ids=[1, 2, 3, 4])
        cached.flush()
        gc.collect()
        before = torch.cuda.memory_allocated()
        cached.to("cpu")
        cached.flush()
        gc.collect()
        assert torch.cuda.memory_allocated() <= before - (60 << 20)
