"""What threads that load and compute take over of their caller: what it has queued on a GPU, and autocast. A stand-in is the GPU."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.tensors import streams
from tcx_cache.torch import streams as copied
from tcx_cache.torch.epoch import moved
from tcx_cache.torchcachex import ArrowIPCCacheBackend, CacheModuleDecorator


class Stream:
    """What a thread has queued on it, as a number, and the events for which it waits."""

    def __init__(self, device=None):
        self.queued, self.awaited, self.device = 0, [], device

    def record_event(self):
        return self, self.queued

    def wait_event(self, event):
        self.awaited.append(event)

    def wait_stream(self, other):
        self.awaited.append(other.record_event())

    def synchronize(self):
        """There is nothing to wait for."""


class Cuda:
    """Two GPUs, on each of which every thread has a stream of its own."""

    def __init__(self):
        self.is_capturing = False
        self._own = threading.local()

    Stream = Stream

    def current_stream(self, device=None):
        return self._own.__dict__.setdefault(int(getattr(device, "index", device) or 0), Stream())

    @contextlib.contextmanager
    def stream(self, stream):
        before, self._own.__dict__[0] = self.current_stream(), stream
        yield
        self._own.__dict__[0] = before

    def is_initialized(self):
        return True

    def current_device(self):
        return 0

    def set_device(self, device):
        """One is current."""

    def device_count(self):
        return 2

    def is_current_stream_capturing(self):
        return self.is_capturing


@pytest.fixture
def cuda(monkeypatch):
    """A GPU, as far as streams go."""
    own = Cuda()
    monkeypatch.setattr(streams, "_cuda", lambda: own)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda device: True, raising=False)
    return own


def ones(missing):
    return torch.ones(len(missing), 4)


def test_a_load_of_an_epoch_waits_for_what_the_loop_has_queued(linear, cuda):
    own, loads = [cuda.current_stream(device) for device in (0, 1)], []

    def load(missing):
        assert threading.current_thread() is not threading.main_thread()
        loads.append([cuda.current_stream(device).awaited[-1] for device in (0, 1)])
        return ones(missing)

    own[1].queued = 10
    with tcx.cached(linear, None, id="linear_v1") as cached:
        for _ in tcx.torch.epoch(cached, range(12), 2, load=load, prefetch=1):
            own[0].queued += 1
    assert len(loads) == 6 and all([stream for stream, _ in load] == own for load in loads)
    # At most two batches are read ahead of the one that the loop has.
    assert all(first[1] >= number - 2 and second[1] == 10 for number, (first, second) in enumerate(loads))


@pytest.mark.parametrize("how", ["sharded", "shared"])
def test_threads_that_load_wait_for_what_their_caller_has_queued(directory, linear, cuda, how):
    own, loads = [cuda.current_stream(device) for device in (0, 1)], []
    own[0].queued, own[1].queued = 5, 10

    def load(missing):
        if threading.current_thread() is not threading.main_thread():
            loads.append([cuda.current_stream(device).awaited[-1] for device in (0, 1)])
        return ones(missing)

    with tcx.cached(linear, directory, id="linear_v1", outputs=tcx.f32[2], ids=int) as cached:
        if how == "sharded":
            cached.warm_sharded(range(40), load, rank=tcx.Rank(0, 1), batch_size=4, workers=3, progress=False)
        else:
            cached.warm_shared(range(40), load, batch_size=4, workers=3)
    assert loads and all(load == [(own[0], 5), (own[1], 10)] for load in loads)


class OnGpu(torch.Tensor):
    """A tensor that notes the streams that use it beside the one that its memory is from."""

    is_cuda = True
    device = torch.device("cuda:0")

    def record_stream(self, stream):
        self.used_by = [*getattr(self, "used_by", []), stream]


@pytest.mark.parametrize("is_copied", [False, True])
def test_rows_are_kept_for_streams_other_than_their_own_only(cuda, monkeypatch, is_copied):
    """An allocator warns of the others."""
    monkeypatch.setattr(copied, "_cuda", cuda)
    one, other, copies = cuda.current_stream(), Stream(), copied.Copies(torch.device("cuda:0"))

    def sent():
        rows = torch.ones(2).as_subclass(OnGpu)
        return copies.send(lambda: rows, lambda own: own + 1 if is_copied else own)

    assert getattr(sent().take(), "used_by", []) == ([one] if is_copied else [])
    assert len(one.awaited) == 1
    with cuda.stream(other):
        # The thread that has read them had its own stream.
        found = sent()
    assert getattr(found.take(), "used_by", []) == [one]
    found = sent()
    with cuda.stream(other):
        assert found.take().used_by == [other] and len(other.awaited) == 1
        cuda.is_capturing = True
        with pytest.raises(tcx.InvalidBatchError, match="while a CUDA graph is captured"):
            found.take()


def test_nothing_waits_for_what_is_captured(linear, cuda):
    cuda.is_capturing = True
    queued = streams.Queued()
    queued.wait()
    assert cuda.current_stream().awaited == []
    cuda.is_capturing = False
    queued.note()
    queued.wait()
    assert len(cuda.current_stream().awaited) == 1


def test_rows_are_not_copied_to_a_gpu_while_a_graph_is_captured(directory, linear, cuda):
    with tcx.Cache(directory).table("t_v1", outputs=tcx.f32[2]) as table:
        table.put(["a", "b"], torch.ones(2, 2))
        cuda.is_capturing = True
        with pytest.raises(tcx.InvalidBatchError, match="^rows were asked for while a CUDA graph is captured"):
            next(iter(tcx.torch.epoch(table, ["a", "b"], 2, prefetch=0, device="cuda:0")))
        with pytest.raises(tcx.InvalidBatchError, match="while a CUDA graph is captured"):
            moved({"one": [torch.ones(2)]}, torch.device("cuda:0"))
        assert moved({"one": [torch.ones(2)]}, torch.device("cpu"))["one"][0].tolist() == [1, 1]


def test_the_decorator_computes_nothing_while_a_graph_is_captured(directory, cuda):
    class Lengths(torch.nn.Module):
        calls = 0

        def forward(self, texts):
            self.calls += 1
            return torch.tensor([[float(len(text))] for text in texts])

    module = Lengths().eval()
    decorated = CacheModuleDecorator(module, ArrowIPCCacheBackend(str(directory), "lengths_v1"), map_location_on_read="cuda:0")
    cuda.is_capturing = True
    with pytest.raises(tcx.InvalidBatchError, match="module `lengths_v1`: rows were asked for while a CUDA graph is captured"):
        decorated(["a", "bb"], cache_ids=["a", "bb"])
    assert module.calls == 0


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_thread_of_an_epoch_computes_with_the_autocast_of_the_caller(linear, prefetch):
    with tcx.cached(linear, None, id="linear_v1", config={"autocast": torch.bfloat16}) as cached:
        with torch.autocast("cpu", torch.bfloat16):
            found = list(tcx.torch.epoch(cached, range(8), 4, load=ones, prefetch=prefetch))
        assert [rows.dtype for _, rows in found] == [torch.bfloat16] * 2
        # It is that of the call, and not that of the loop.
        ahead = tcx.torch.epoch(cached, range(100, 108), 4, load=ones, prefetch=2)
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(tcx.ModuleViolationError, match="autocast is not active"):
            next(ahead)


def test_threads_that_load_have_the_autocast_of_their_caller(directory, linear):
    seen = []

    def load(missing):
        if threading.current_thread() is not threading.main_thread():
            seen.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()))
        return ones(missing)

    with tcx.cached(linear, directory, id="linear_v1", outputs=tcx.bf16[2], ids=int, config={"autocast": torch.bfloat16}) as cached:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            cached.warm_sharded(range(40), load, rank=tcx.Rank(0, 1), batch_size=4, workers=2, progress=False)
    assert seen and set(seen) == {(True, torch.bfloat16, False)}


@pytest.mark.parametrize("prefetch", [0, 1])
def test_the_thread_of_an_epoch_has_the_default_device_of_the_caller(linear, prefetch):
    devices = []

    def load(ids):
        devices.append(torch.ones(1).device.type)
        return torch.ones(len(ids), 4, device="cpu")

    with tcx.cached(linear, None, id="linear_v1", outputs=tcx.f32[2]) as cached:
        with torch.device("meta"):
            epoch = tcx.torch.epoch(cached, ["a"], batch_size=1, load=load, prefetch=prefetch)
            [(_, rows)] = epoch
        assert devices == ["meta"] and rows.device.type == "cpu"
        [*tcx.torch.epoch(cached, ["b"], batch_size=1, load=load, prefetch=prefetch)]
        assert devices == ["meta", "cpu"]


def test_threads_that_load_have_the_default_device_of_their_caller(directory, linear):
    devices = []

    def load(ids):
        devices.append((threading.current_thread().name, torch.ones(1).device.type))
        return torch.ones(len(ids), 4, device="cpu")

    with tcx.cached(linear, directory, id="linear_v1", outputs=tcx.f32[2], ids=int) as cached:
        torch.set_default_device("meta")
        try:
            cached.warm_shared(range(4), load, batch_size=1, workers=2)
        finally:
            torch.set_default_device(None)
    assert len(devices) == 4 and all(name.startswith("tcx-load") and device == "meta" for name, device in devices)
