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
    assert arrow.num_rows == 7 and arrow.schema.field("bf").metadata == {b"tcx.dtype": b"bf16"}
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


def test_the_segments_of_a_cache_come_in_as_other_readers_show_them(directory):
    given, ids = values(5), [f"s{row}" for row in range(5)]
    with tcx.Cache(directory) as cache:
        cache.table("s_v1", outputs=OUTPUTS).put(ids, given)
        cache.table("t_v1", outputs={"truth": bool, "flag": tcx.bool[()]}).put([1, 2], {"truth": [True, False], "flag": torch.tensor([False, True])})
        cache.flush()
        for name, expected, own in [("s", given, ids), ("t", {"truth": [True, False], "flag": torch.tensor([False, True])}, [1, 2])]:
            (segment,) = (directory / f"{name}_v1").glob("seg-*")
            read = pa.ipc.open_file(pa.memory_map(str(segment))).read_all()
            outputs = OUTPUTS if name == "s" else {"truth": bool, "flag": tcx.bool[()]}
            other = cache.table(f"other_{name}", outputs=outputs)
            assert tcx.arrow.put(other, read, id_column="__key") == len(own)
            assert same(other.stored(own), expected)


def test_rows_go_to_other_libraries_by_dlpack_and_own_their_memory(cache):
    table = cache.table("d_v1", outputs=tcx.f32[3])
    table.put([1, 2], torch.arange(6.0).reshape(2, 3))
    table.flush()
    shared = numpy.from_dlpack(table.stored([1, 2]))
    assert shared.tolist() == [[0, 1, 2], [3, 4, 5]]
    torch.from_dlpack(table.stored([1])).zero_()
    assert table.stored([1]).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_the_versioned_form_of_dlpack_says_that_rows_may_be_written(directory, arrays):
    with tcx.Cache(directory, arrays=arrays) as cache:
        table = cache.table("d_v1", outputs=tcx.f32[3])
        table.put([1, 2], numpy.arange(6, dtype="f4").reshape(2, 3))
        table.flush()
        rows = table.stored([1, 2])
        assert "dltensor_versioned" in repr(rows.__dlpack__(max_version=(1, 0)))
        shared = numpy.from_dlpack(rows)
        assert shared.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert shared.ctypes.data == (rows.data_ptr() if arrays == "torch" else rows.ctypes.data)
        rows[0, 0] = 9
        assert table.stored([1]).tolist() == [[0, 1, 2]]


TENSOR = pa.fixed_shape_tensor(pa.float32(), [2])


def tensors(rows, of=TENSOR, size=2):
    return pa.ExtensionArray.from_storage(of, pa.array(rows, pa.list_(pa.float32(), size)))


def stored(cache, data, ids, outputs=None):
    table = cache.table("s_v1", outputs=outputs)
    tcx.arrow.put(table, data)
    return table.stored(ids)


def test_slices_and_chunks_come_in_by_their_rows(cache):
    data = pa.table(
        {
            "id": ["a", "b", "c", "d"],
            "tensor": tensors([[1, 2], [3, 4], [5, 6], [7, 8]]),
            "fixed": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.int16(), 2)),
            "ragged": pa.array([[1], [2, 3], [], [4]], pa.large_list(pa.float64())),
            "word": pa.array(["x", "y", "x", "z"]).dictionary_encode(),
            "truth": [True, False, True, True],
        }
    )
    other = pa.table({name: data.column(name) for name in data.column_names}).slice(3)
    mixed = pa.concat_tables([data.slice(1, 2), other, data.slice(0, 0)])
    assert mixed.column("tensor").num_chunks > 1
    found = stored(cache, mixed, ["d", "b", "c"])
    assert found["tensor"].tolist() == [[7, 8], [3, 4], [5, 6]] and found["fixed"].tolist() == [[7, 8], [3, 4], [5, 6]]
    assert [row.tolist() for row in found["ragged"]] == [[4], [2, 3], []]
    assert found["word"] == ["z", "y", "x"] and found["truth"].tolist() == [True, False, True]


def test_rows_that_are_null_are_optional(cache):
    data = pa.table({"id": ["a", "b", "c"], "tensor": tensors([[1, 2], None, [3, 4]]), "fixed": pa.array([None, [1, 2], [3, 4]], pa.list_(pa.int64(), 2))})
    found = stored(cache, data, ["c", "b", "a"], {"tensor": tcx.optional(tcx.f32[2]), "fixed": tcx.optional(tcx.i64[2])})
    assert found["tensor"][0].tolist() == [3, 4] and found["tensor"][1] is None and found["tensor"][2].tolist() == [1, 2]
    assert found["fixed"][0].tolist() == [3, 4] and found["fixed"][2] is None


def test_dimensions_in_another_order_are_read_as_their_type_says(cache):
    of = pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0])
    found = stored(cache, pa.table({"id": ["a"], "value": tensors([[1, 2, 3, 4, 5, 6]], of, 6)}), ["a"])
    assert found.tolist() == [[[1, 4], [2, 5], [3, 6]]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"v": pa.array([[1, None], [3, 4]], pa.list_(pa.int64(), 2))}, "column `v`: an element is null"),
        ({"v": pa.array([[1, None], [3]], pa.list_(pa.float32()))}, "column `v`: an element is null"),
        ({"v": tensors([[1, None], [3, 4]])}, "column `v`: an element is null"),
        ({"v": [1, 2], "v.w": [1, 2]}, "column `v.w`: another column has a part of its name"),
        ({"v.w": [1, 2], "v": [1, 2]}, "column `v`: another column has a part of its name"),
        ({"v": pa.nulls(2)}, "every sample is None"),
        ({"v": pa.array([{"x": 1}, {"x": 2}])}, "column `v`: is of type Struct"),
        ({"v": pa.array([[[1, 2]], [[3, 4]]])}, "column `v`: has lists of List"),
    ],
)
def test_columns_that_are_no_outputs_are_refused_by_name(cache, columns, message):
    with pytest.raises(tcx.InvalidOutputError, match=message):
        stored(cache, pa.table({"id": ["a", "b"], **columns}), [])
    with pytest.raises(tcx.InvalidBatchError, match="several columns `v`"):
        stored(cache, pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([2])], names=["id", "v", "v"]), [])
    with pytest.raises(tcx.InvalidBatchError, match="id 1 of the batch is NoneType"):
        stored(cache, pa.table({"id": ["a", None], "v": [1, 2]}), [])


def test_a_column_whose_sizes_do_not_fit_is_refused(cache):
    outputs = {"m": tcx.f32[None, None], "r": tcx.f32[None, 2]}
    good = {"m": pa.array([[1, 2, 3, 4]], pa.list_(pa.float32())), "m.sizes": pa.array([[2, 2]], pa.list_(pa.int64(), 2)), "r": pa.array([[1, 2]], pa.list_(pa.float32()))}
    for change in [{"m.sizes": pa.array([[2, 3]], pa.list_(pa.int64(), 2))}, {"r": pa.array([[1, 2, 3]], pa.list_(pa.float32()))}]:
        with pytest.raises(tcx.InvalidOutputError, match="found other elements for row 0"):
            stored(cache, pa.table({"id": ["a"], **good, **change}), [], outputs)
    assert stored(cache, pa.table({"id": ["a"], **good}), ["a"], outputs)["m"][0].tolist() == [[1, 2], [3, 4]]
