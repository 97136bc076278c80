"""The C data interface of Arrow: columns of every form that other libraries have, and a program in which no such library is installed."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch

import tcx_cache as tcx

pa = pytest.importorskip("pyarrow")

WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import torch, tcx_cache as tcx
outputs = {"x": tcx.f32[2, 3], "t": tcx.bf16[None], "flag": tcx.bool[2], "text": tcx.optional(str), "n": int}
with tcx.Cache(sys.argv[1]) as cache:
    table = cache.table("a_v1", outputs=outputs)
    given = {"x": torch.randn(3, 2, 3), "t": [torch.randn(n).bfloat16() for n in (0, 2, 1)], "flag": torch.rand(3, 2) > 0.5,
             "text": ["a", None, "c"], "n": [1, 2, 3]}
    table.put(["p", "q", "r"], given)
    batch = tcx.arrow.batch(table, ["r", "p", "q"])
    other = cache.table("b_v1", outputs=outputs)
    assert tcx.arrow.put(other, batch) == 3
    found = other.stored(["p", "q", "r"])
    assert torch.equal(found["x"], given["x"]) and torch.equal(found["flag"], given["flag"])
    assert all(map(torch.equal, found["t"], given["t"])) and found["text"] == given["text"] and found["n"] == given["n"]
    try:
        tcx.arrow.put(other, object())
    except tcx.InvalidBatchError as error:
        assert "found object" in str(error)
    else:
        raise AssertionError("an object without the interface was accepted")
"""


def test_no_library_of_arrow_has_to_be_installed(directory):
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYARROW, str(directory)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


class ArrayOnly:
    """A record batch of another library, which has no stream."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


def test_a_batch_comes_in_as_an_array_and_goes_out_as_one(cache):
    table = cache.table("a_v1", outputs={"x": tcx.f32[2]}, ids=str)
    x = torch.randn(2, 2)
    given = pa.record_batch({"id": ["a", "b"], "x": pa.FixedSizeListArray.from_arrays(pa.array(x.flatten().numpy()), 2)})
    assert tcx.arrow.put(table, ArrayOnly(given)) == 2
    out = tcx.arrow.batch(table, ["b", "a"])
    assert len(out) == 2 and pa.schema(out).names == ["id", "x"]  # by `__arrow_c_schema__`
    read = pa.record_batch(out)
    assert read.column("id").to_pylist() == ["b", "a"]
    assert read.column("x").to_numpy_ndarray().tolist() == x[[1, 0]].tolist()
    with pytest.raises(tcx.InvalidOutputError, match="expected a table of Arrow, found an array of Int64"):
        tcx.arrow.put(table, ArrayOnly(pa.array([1, 2])))


def test_what_went_out_is_kept_after_the_cache_is_closed_and_the_batch_is_gone(directory):
    with tcx.Cache(directory) as cache:
        table = cache.table("a_v1", outputs={"x": tcx.f32[1000], "s": str})
        table.put(["a"], {"x": torch.ones(1, 1000), "s": ["text"]})
        table.flush()
        out = tcx.arrow.batch(table, ["a"])
        read = pa.table(out)
    del out, table, cache
    gc.collect()
    for file in directory.glob("a_v1/*-*"):
        file.unlink()
    assert read["x"].combine_chunks().to_numpy_ndarray().sum() == 1000 and read["s"].to_pylist() == ["text"]


def test_rows_of_a_view_go_out(cache):
    table = cache.table("a_v1", outputs=int)
    table.view(2).put(["a"], [7])
    assert tcx.arrow.table(table.view(2), ["a"]).column("value").to_pylist() == [7]
    with pytest.raises(tcx.InvalidBatchError, match="1 samples are missing, one of them with id 'a'"):
        tcx.arrow.table(table, ["a"])
    with pytest.raises(tcx.InvalidBatchError, match="a column of the output is `value`, as is that of the ids"):
        tcx.arrow.table(table.view(2), ["a"], id_column="value")


@pytest.mark.parametrize("ids", [["a", "b"], [5, -(1 << 62)], [b"\0\xff", b"x"]])
def test_ids_of_every_type_go_out_and_come_in(cache, ids):
    table = cache.table("a_v1", outputs=int)
    table.put(ids, [1, 2])
    arrow = tcx.arrow.table(table, ids)
    assert arrow.column("id").to_pylist() == ids
    other = cache.table("b_v1")
    tcx.arrow.put(other, arrow)
    # A column of numbers is a tensor, unless it is declared.
    assert other.stored(ids).tolist() == [1, 2]


def test_a_column_that_is_stored_narrower_goes_out_as_it_is_stored_and_comes_back(cache):
    outputs = {"x": tcx.f32[2].stored_as(tcx.f16), "y": tcx.f32[None].stored_as(tcx.bf16)}
    table, other = cache.table("a_v1", outputs=outputs), cache.table("b_v1", outputs=outputs)
    given = {"x": torch.randn(2, 2), "y": [torch.randn(3), torch.randn(1)]}
    table.put(["a", "b"], given)
    arrow = tcx.arrow.table(table, ["a", "b"])
    assert arrow.schema.field("x").type == pa.fixed_shape_tensor(pa.float16(), [2])
    tcx.arrow.put(other, arrow)
    one, two = table.stored(["a", "b"]), other.stored(["a", "b"])
    assert one["x"].dtype == torch.float32 and torch.equal(one["x"], two["x"]) and all(map(torch.equal, one["y"], two["y"]))


FORMS = {
    "dictionary": (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    "string views": (pa.array(["a", None, "c" * 40], pa.string_view()), ["a", None, "c" * 40]),
    "binary views": (pa.array([b"a", b"", b"c" * 40], pa.binary_view()), [b"a", b"", b"c" * 40]),
    "fixed binaries": (pa.array([b"ab", b"cd", None], pa.binary(2)), [b"ab", b"cd", None]),
    "runs": (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", "y"])), ["x", "x", "y"]),
    "numbers without a sign": (pa.array([1, 2, 3], pa.uint32()), [1, 2, 3]),
    "numbers with nulls": (pa.array([1, None, 3], pa.int16()), [1, None, 3]),
    "floats with nulls": (pa.array([1.5, None, 3.5], pa.float32()), [1.5, None, 3.5]),
    "truth values with nulls": (pa.array([True, None, False]), [True, None, False]),
}
TENSORS = {
    "matrices": (pa.array([[[1, 2], [3, 4]]] * 3, pa.list_(pa.list_(pa.int32(), 2), 2)), torch.tensor([[[1, 2], [3, 4]]] * 3, dtype=torch.int32)),
    "truth values": (pa.array([[True, False]] * 3, pa.list_(pa.bool_(), 2)), torch.tensor([[True, False]] * 3)),
    "scalars": (pa.array([1.5, 2.5, 3.5], pa.float16()), torch.tensor([1.5, 2.5, 3.5]).half()),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", [lambda table: table, lambda table: pa.concat_tables([table.slice(1), table.slice(0, 1)])])
def test_values_of_every_form_come_in(cache, form, way):
    array, expected = FORMS[form]
    table = cache.table("a_v1")
    assert tcx.arrow.put(table, way(pa.table({"id": ["a", "b", "c"], "v": array}))) == 3
    assert table.stored(["a", "b", "c"])["v"] == expected


@pytest.mark.parametrize("form", TENSORS)
def test_tensors_of_every_form_come_in(cache, form):
    array, expected = TENSORS[form]
    table = cache.table("a_v1")
    tcx.arrow.put(table, pa.table({"id": ["a", "b", "c"], "v": array}).slice(1))
    found = table.stored(["b", "c"])["v"]
    assert found.dtype == expected.dtype and torch.equal(found, expected[1:])


def test_lists_of_lists_of_one_length_come_in(cache):
    table = cache.table("a_v1", outputs={"v": tcx.f64[None, 2]})
    rows = [[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]]
    tcx.arrow.put(table, pa.table({"id": [1, 2, 3], "v": pa.array(rows, pa.list_(pa.list_(pa.float64(), 2)))}))
    assert [row.tolist() for row in table.stored([1, 2, 3])["v"]] == rows


def test_numbers_are_declared_or_optional_tensors(cache):
    table = cache.table("a_v1", outputs={"n": int, "u": int, "t": tcx.optional(tcx.f32[()])})
    columns = {"n": pa.array([1, 2], pa.int64()), "u": pa.array([1, 1 << 40], pa.uint64()), "t": pa.array([0.5, None], pa.float32())}
    tcx.arrow.put(table, pa.table({"id": ["a", "b"], **columns}))
    found = table.stored(["a", "b"])
    assert found["n"] == [1, 2] and found["u"] == [1, 1 << 40] and found["t"][0].item() == 0.5 and found["t"][1] is None


@pytest.mark.parametrize(
    "array, message",
    [
        (pa.array([[1, 2], [3]], pa.list_(pa.uint32())), "column `v`: has lists of UInt32"),
        (pa.array([[[1], [2, 3]], [[4]]]), "column `v`: has lists of (Large)?List"),
        (pa.array([{"a": 1}, {"a": 2}]), "column `v`: is of type Struct"),
        (pa.array([1, 2], pa.timestamp("s")), "column `v`: is of type Timestamp"),
        (pa.array([None, None]), "every sample is None"),
        (pa.array([[1, None], [3, 4]], pa.list_(pa.int32(), 2)), "column `v`: an element is null"),
    ],
)
def test_columns_that_cannot_be_stored_are_refused_by_name(cache, array, message):
    with pytest.raises(tcx.InvalidOutputError, match=message):
        tcx.arrow.put(cache.table("a_v1"), pa.table({"id": ["a", "b"], "v": array}))


def test_ids_that_are_missing_or_of_another_type_are_refused(cache):
    table = cache.table("a_v1", outputs={"v": int})
    for ids, message in [([None, "b"], "id 0 of the batch is NoneType"), (["a", None], "id 1 of the batch is NoneType"), ([1.5, 2.5], "id 0 of the batch is float")]:
        with pytest.raises(tcx.InvalidBatchError, match=message):
            tcx.arrow.put(table, pa.table({"id": ids, "v": [1, 2]}))


def test_a_capsule_that_was_read_before_is_an_error(cache):
    table = cache.table("a_v1", outputs={"v": int})
    reader = pa.table({"id": ["a"], "v": [1]}).to_reader()
    assert tcx.arrow.put(table, reader) == 1
    capsule = pa.table({"id": ["b"], "v": [1]}).__arrow_c_stream__()

    class Read:
        def __arrow_c_stream__(self, requested_schema=None):
            return capsule

    assert tcx.arrow.put(table, Read()) == 1
    with pytest.raises(tcx.InvalidOutputError, match="the table of Arrow cannot be read"):
        tcx.arrow.put(table, Read())


class StructStream:
    """The rows of a struct as a stream, as a library has them whose rows may be null."""

    def __init__(self, rows):
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.chunked_array(self.rows).__arrow_c_stream__()


def test_rows_that_are_null_as_a_whole_are_refused(cache):
    table = cache.table("a_v1", outputs={"v": int}, ids=str)
    fields = {"id": pa.array(["a", "b", "c"]), "v": pa.array([1, 2, 3])}
    rows = pa.StructArray.from_arrays(fields.values(), fields.keys(), mask=pa.array([False, True, False]))
    whole = rows.slice(2)
    for given in (ArrayOnly(rows), StructStream([rows]), StructStream([whole, rows])):
        with pytest.raises(tcx.InvalidOutputError, match="rows that are null as a whole, 1 of 3: leave them out"):
            tcx.arrow.put(table, given)
    assert table.coverage(["a", "b", "c"]).missing == ["a", "b", "c"]
    assert tcx.arrow.put(table, StructStream([whole, rows.slice(0, 1)])) == 2
    assert table.stored(["a", "c"])["v"] == [1, 3]
    with pytest.raises(tcx.InvalidOutputError, match="expected a table of Arrow, found an array of Int64"):
        tcx.arrow.put(table, StructStream([pa.array([1, 2])]))


def with_metadata(array, text):
    metadata = {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": text}
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("x", array.type, metadata=metadata)])
    return StructStream([pa.StructArray.from_arrays([pa.array([1, 2]), array], fields=list(schema))])


def test_the_shape_in_metadata_is_used_only_for_lists_of_one_length(cache):
    table = cache.table("a_v1")
    # As many elements as two tensors of two, in rows of one and of three.
    tcx.arrow.put(table, with_metadata(pa.array([[1.0], [2.0, 3.0, 4.0]]), '{"shape":[2]}'))
    assert [row.tolist() for row in table.stored([1, 2])["x"]] == [[1.0], [2.0, 3.0, 4.0]]


@pytest.mark.parametrize(
    "text", ['{"shape":[3]}', '{"shape":[-1,2]}', '{"shape":"22"}', '{"shape":[2,2],"permutation":[0,0]}', '{"shape":[2,2],"permutation":[1]}', "[2]", "no JSON"]
)
def test_metadata_that_do_not_describe_a_column_are_refused(cache, text):
    array = pa.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], pa.list_(pa.float64(), 4))
    with pytest.raises(tcx.InvalidOutputError, match=r"column `x`: its metadata says .*, which does not describe lists of the shape \[4\]"):
        tcx.arrow.put(cache.table("a_v1"), with_metadata(array, text))


def test_a_generator_of_ids_is_read_once(cache):
    table = cache.table("a_v1", outputs=int)
    table.put(["a", "b"], [1, 2])
    out = tcx.arrow.table(table, (id for id in ["b", "a"]))
    assert out.column("id").to_pylist() == ["b", "a"] and out.column("value").to_pylist() == [2, 1]


def test_what_pyarrow_refuses_is_shown(cache):
    table = cache.table("a_v1", outputs={"v": int})
    assert tcx.arrow.put(table, {"id": ["a"], "v": [1]}) == 1
    for data, message in [({"id": ["b"], "v": [1, "two"]}, "pyarrow cannot make a table of this dict: .*two"), ([1], "expected a table .*, found list")]:
        with pytest.raises(tcx.InvalidBatchError, match=message):
            tcx.arrow.put(table, data)


def test_arrays_of_numpy_come_in_where_torch_is_not_loaded(directory):
    program = """
import sys
sys.modules["torch"] = None
import numpy, pyarrow as pa, tcx_cache as tcx
with tcx.Cache(sys.argv[1], arrays="numpy") as cache:
    table = cache.table("a_v1")
    x = numpy.arange(6, dtype="f4").reshape(3, 2)
    tcx.arrow.put(table, pa.table({"id": [1, 2, 3], "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 2)}))
    found = table.stored([3, 1])["x"]
    assert isinstance(found, numpy.ndarray) and (found == x[[2, 0]]).all()
"""
    done = subprocess.run([sys.executable, "-c", program, str(directory)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
