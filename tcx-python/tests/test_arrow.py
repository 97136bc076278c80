"""Tables of Arrow, and DLPack."""

from __future__ import annotations

import numpy
import pytest
import torch

import tcx_cache as tcx

pa = pytest.importorskip("pyarrow")

OUTPUTS = {
    "dense": tcx.f32[2, 3],
    "bf": tcx.bf16[4],
    "truth": tcx.bool[2],
    "one": tcx.i16[()],
    "tokens": tcx.f16[None, 2],
    "maps": tcx.optional(tcx.i64[None, 2, None]),
    "text": tcx.optional(str),
    "blob": bytes,
    "inner": {"count": int, "score": tcx.optional(float)},
    "rare": tcx.optional(tcx.f64[2]),
}


def values(rows):
    return {
        "dense": torch.randn(rows, 2, 3),
        "bf": torch.randn(rows, 4).bfloat16(),
        "truth": torch.rand(rows, 2) > 0.5,
        "one": torch.arange(rows, dtype=torch.int16),
        "tokens": [torch.randn(row % 3, 2).half() for row in range(rows)],
        "maps": [None if row % 2 else torch.randint(0, 9, (row % 3, 2, 1 + row % 4)) for row in range(rows)],
        "text": [None if row % 3 else f"text {row}" for row in range(rows)],
        "blob": [bytes([row]) * row for row in range(rows)],
        "inner": {"count": list(range(rows)), "score": [None if row % 2 else row / 2 for row in range(rows)]},
        "rare": [None if row % 2 else torch.randn(2).double() for row in range(rows)],
    }


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_rows_go_to_arrow_and_back_bit_for_bit(cache):
    given = values(7)
    table = cache.table("a_v1", outputs=OUTPUTS)
    ids = [f"s{row}" for row in range(7)]
    table.put(ids, given)
    arrow = tcx.arrow.table(table, ids)
    assert arrow.num_rows == 7 and arrow.schema.field("bf").metadata == {b"tcx.dtype": b"bfloat16"}
    assert arrow.schema.field("dense").type == pa.fixed_shape_tensor(pa.float32(), [2, 3])
    arrow.validate(full=True)
    back = cache.table("b_v1", outputs=OUTPUTS)
    assert tcx.arrow.put(back, arrow) == 7
    assert same(back.stored(ids), table.stored(ids)) and same(back.stored(ids), given)
    assert tcx.arrow.put(back, arrow) == 0 and tcx.arrow.put(back, arrow, replaces=True) == 7


class Capsule:
    """A table of another library, which has the C data interface only."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_tables_of_other_libraries_come_in_by_the_c_data_interface(cache):
    data = pa.table({"key": [1, 2, 3], "x": [1.5, 2.5, 3.5], "y.z": ["a", "b", None], "v": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2))})
    table = cache.table("c_v1")
    assert tcx.arrow.put(table, Capsule(data), id_column="key") == 3
    found = table.stored([3, 1])
    assert found["x"].tolist() == [3.5, 1.5] and found["y"]["z"] == [None, "a"]
    assert torch.equal(found["v"], torch.tensor([[5.0, 6.0], [1.0, 2.0]]))
    with pytest.raises(tcx.InvalidBatchError, match="the table has no column `id` of ids"):
        tcx.arrow.put(table, data)
    with pytest.raises(tcx.InvalidOutputError, match="the table has no column `y.z`, which is declared"):
        tcx.arrow.put(table, data.drop(["y.z"]), id_column="key")


def test_other_readers_open_the_segments(directory):
    with tcx.Cache(directory) as cache:
        cache.table("s_v1", outputs={"x": tcx.f32[3]}).put(["a", "b"], {"x": torch.arange(6.0).reshape(2, 3)})
    (segment,) = (directory / "s_v1").glob("seg-*")
    read = pa.ipc.open_file(pa.memory_map(str(segment))).read_all()
    assert read.column("x").combine_chunks().to_numpy_ndarray().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_rows_go_to_other_libraries_by_dlpack_and_own_their_memory(cache):
    table = cache.table("d_v1", outputs=tcx.f32[3])
    table.put([1, 2], torch.arange(6.0).reshape(2, 3))
    table.flush()
    shared = numpy.from_dlpack(table.stored([1, 2]))
    assert shared.tolist() == [[0, 1, 2], [3, 4, 5]]
    torch.from_dlpack(table.stored([1])).zero_()
    assert table.stored([1]).tolist() == [[0, 1, 2]]
