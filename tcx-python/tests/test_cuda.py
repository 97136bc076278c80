"""Modules and epochs on a GPU. Skipped where there is none."""

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
    return (torch.tensor([2.0 * own for own in ids])[:, None].expand(len(ids), WIDTH)).to(dtype)


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
