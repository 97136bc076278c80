"""Lists of ids that are not in memory: what is read again, and what is refused."""

from __future__ import annotations

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx


def network():
    torch.manual_seed(0)
    return frozen(torch.nn.Linear(4, 2))


def inputs(numbers):
    return torch.tensor([[float(number), 1.0, -float(number), 2.0] for number in numbers])


@pytest.fixture
def cached(directory):
    return tcx.cached(network(), directory, id="linear_v1", outputs=tcx.f32[2])


def test_a_file_that_was_missing_is_read_in_the_next_call(cached, tmp_path):
    path = tmp_path / "ids.txt"
    ids = tcx.Sequence.lines(path)
    with pytest.raises(tcx.LoaderError, match="cannot read ids from"):
        cached.warm_shared(ids, inputs)
    path.write_text("\n".join(map(str, range(100))))
    report = cached.warm_shared(ids, inputs)
    assert (report.asked, report.computed) == (100, 100)


def test_a_rank_that_is_interrupted_while_it_skips_ids_has_its_part_in_the_next_call(cached):
    interrupts = [50]

    def ids():
        for number in range(300):
            if number in interrupts:
                interrupts.clear()
                raise KeyboardInterrupt
            yield number

    sequence = tcx.Sequence.repeated(ids)

    def run():
        return cached.warm_sharded(sequence, inputs, rank=tcx.Rank(1, 2), range_size=100, progress=False)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert run().computed == 100
    assert cached.coverage(range(100, 200)).is_complete


def test_ids_are_at_their_positions_after_an_error():
    fails = [True]

    def ids():
        for number in range(60):
            if number == 30 and fails:
                raise OSError(fails.pop())
            yield number

    sequence = tcx.Sequence.repeated(ids)
    assert sequence.read(0, 10) == list(range(10))
    with pytest.raises(OSError, match="True"):
        sequence.read(20, 20)
    assert sequence.read(40, 20) == list(range(40, 60))
    assert sequence.read(60, 1) == [] and sequence.length == 60


def test_a_sequence_has_the_same_work_ranges_in_each_call(cached):
    # Another worker may make its first call while this one makes its second.
    sequence = tcx.Sequence.repeated(lambda: iter(range(5000)))
    for computed in (5000, 0):
        report = cached.warm_shared(sequence, inputs, batch_size=1000)
        assert (report.asked, report.computed, report.workers[0].ranges) == (5000, computed, 2)
