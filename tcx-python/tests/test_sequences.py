"""Lists of ids that are not in memory: what is read again, and what is refused."""

from __future__ import annotations

import threading
import time

import numpy as np
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


def test_lines_are_those_that_a_rust_program_reads(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_bytes(b"a\r\n\r\n\nb\n c\r\r\nd\r")
    assert tcx.Sequence.lines(path).read(0, 9) == ["a", "b", " c\r", "d\r"]


def test_the_length_of_a_sequence_may_be_a_number_of_numpy():
    ids = tcx.Sequence.by_position(np.int64(3), str)
    assert (ids.length, type(ids.length)) == (3, int)
    with pytest.raises(tcx.InvalidBatchError, match="found True"):
        tcx.Sequence.by_position(True, str)


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


def same_each_time():
    ids = iter(range(400))
    return lambda: ids


def shuffled():
    orders = iter([range(400), range(399, -1, -1)])
    return lambda: iter(next(orders))


@pytest.mark.parametrize("begin", [same_each_time, shuffled])
def test_a_function_that_does_not_make_the_same_ids_again_is_refused(cached, begin):
    with pytest.raises(tcx.InvalidBatchError, match=r"other ids than at the first reading; its function must make a new iterator each time"):
        cached.warm_shared(tcx.Sequence.repeated(begin()), inputs, range_size=100)
    assert cached.coverage(range(400)).stored == 0


def test_a_function_of_the_position_that_changes_is_refused(cached):
    numbers = iter(range(10_000))
    with pytest.raises(tcx.InvalidBatchError, match="other ids than at the first reading; its function must return the same id for a position each time"):
        cached.warm_shared(tcx.Sequence.by_position(100, lambda _: next(numbers)), inputs)


def test_a_worker_that_takes_over_ids_which_it_has_passed_compares_them(directory, cached):
    other, waits, goes = tcx.cached(network(), directory, id="linear_v1", outputs=tcx.f32[2]), threading.Event(), threading.Event()

    def failing(missing):
        if 100 in missing:
            waits.set()
            goes.wait(60)
            raise OSError("no input")
        return inputs(missing)

    def fails():
        with pytest.raises(OSError, match="no input"):
            other.warm_shared(tcx.Sequence.repeated(lambda: iter(range(400))), failing, range_size=100, batch_size=100, expiry=4)

    thread = threading.Thread(target=fails)
    thread.start()
    assert waits.wait(60)
    orders = iter([range(400), [*range(200, 400), *range(200)]])

    def load(missing):
        if 300 in missing:
            goes.set()
            thread.join()
        return inputs(missing)

    try:
        with pytest.raises(tcx.InvalidBatchError, match="other ids than at the first reading"):
            cached.warm_shared(tcx.Sequence.repeated(lambda: iter(next(orders))), load, range_size=100, batch_size=100, expiry=4)
    finally:
        goes.set()
        thread.join()
    assert cached.warm_shared(range(400), inputs, range_size=100).asked == 400
    assert cached.coverage(range(400)).is_complete


def test_a_column_of_a_file_is_read_in_any_order_without_all_of_it(directory, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    names = [f"images/{number}.jpg" for number in range(3000)]
    table = pyarrow.table({"label": list(range(3000)), "id": names})
    parquet, arrow = tmp_path / "ids.parquet", tmp_path / "ids.arrow"
    pyarrow.parquet.write_table(table, parquet, row_group_size=1000)
    with pyarrow.ipc.new_file(arrow, table.schema) as file:
        file.write_table(table, max_chunksize=700)
    for path in (parquet, arrow):
        column = tcx.Sequence.column(path)
        assert column.length == 3000
        for start, count in ((2900, 200), (0, 1), (699, 2), (999, 1002), (3000, 5)):
            assert column.read(start, count) == names[start : start + count]
        assert tcx.Sequence.column(path, "label").read(1000, 2) == [1000, 1001]
        with pytest.raises(tcx.InvalidBatchError, match="no column `name`; its columns are label, id"):
            tcx.Sequence.column(path, "name")
    with pytest.raises(tcx.LoaderError, match="cannot read ids from"):
        tcx.Sequence.column(tmp_path / "none.parquet")
    holes = tmp_path / "holes.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"number": [1, None]}), holes)
    with pytest.raises(tcx.InvalidBatchError, match="contains nulls"):
        tcx.Sequence.column(holes).read(0, 2)
    table = tcx.Cache(directory).table("lengths_v1", outputs=int, ids=str)
    assert table.coverage(names[:1]).missing == names[:1]


class Slow:
    """A file of pyarrow that notes whether several threads read it at once."""

    def __init__(self, file):
        self.file, self.reading, self.most = file, 0, 0

    def read_row_group(self, *args, **kwargs):
        self.reading += 1
        self.most = max(self.most, self.reading)
        time.sleep(0.01)
        self.reading -= 1
        return self.file.read_row_group(*args, **kwargs)


def test_several_threads_read_a_column_one_at_a_time_each_its_own_part(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(400))}), tmp_path / "ids.parquet", row_group_size=100)
    column, wrong = tcx.Sequence.column(tmp_path / "ids.parquet"), []
    column._parquet = slow = Slow(column._parquet)

    def read(own):
        for number in range(8):
            start = 100 * ((own + number) % 4)
            if column.read(start, 2) != [start, start + 1]:
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and slow.most == 1
