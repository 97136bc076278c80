"""Ids of every kind: each sample gets its own row, or the ids are refused."""

from __future__ import annotations

import enum
from pathlib import Path

import numpy
import pytest
import torch

import tcx_cache as tcx

pa = pytest.importorskip("pyarrow")


class Color(str, enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    """A string that is equal to nothing."""

    def __eq__(self, other):
        return False

    __hash__ = None


GIVEN = {
    "tuple": (("a", "b", "a"), ["a", "b", "a"]),
    "generator": (lambda: (own for own in ["a", "b", "a"]), ["a", "b", "a"]),
    "keys": ({"a": 1, "b": 2, "c": 3}.keys(), ["a", "b", "c"]),
    "paths": ([Path("x/y"), "x/y", Path("x//y")], ["x/y", "x/y", "x/y"]),
    "bytes": ([b"q", bytearray(b"q"), memoryview(b"r")], [b"q", b"q", b"r"]),
    "integers of numpy": ([numpy.int64(5), 5, numpy.uint8(6)], [5, 5, 6]),
    "single tensors": ([torch.tensor(5), torch.tensor(5), 6], [5, 5, 6]),
    "an array of strings": (numpy.array(["a", "b", "a"]), ["a", "b", "a"]),
    "an array of objects": (numpy.array(["a", Path("b"), "a"], dtype=object), ["a", "b", "a"]),
    "strings of numpy": ([numpy.str_("a"), "b", "a"], ["a", "b", "a"]),
    "small integers": (torch.tensor([3, 4, 3], dtype=torch.uint8), [3, 4, 3]),
    "int32": (numpy.array([3, 4, 3], dtype=">i4"), [3, 4, 3]),
    "a view of a tensor": (torch.arange(6)[::2], [0, 2, 4]),
    "enums": ([Color.RED, "red", "blue"], ["red", "red", "blue"]),
    "integers of enums": ([Number.ONE, 1, 2], [1, 1, 2]),
    "a string of another class": ([Text("a"), Text("a"), "b"], ["a", "a", "b"]),
    "arrow": (pa.array(["a", "b", "a"]), ["a", "b", "a"]),
    "arrow in chunks": (pa.chunked_array([[1], [2, 1]]), [1, 2, 1]),
    "surrogates": (["\U0001f600", "a", "é"], ["\U0001f600", "a", "é"]),
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("declares", [True, False])
def test_each_sample_has_the_row_of_its_id(directory, linear, name, declares):
    given, expected = GIVEN[name]

    def ids():
        return given() if callable(given) else given

    rows = {own: torch.randn(4) for own in expected}
    inputs = torch.stack([rows[own] for own in expected])
    cached = tcx.cached(linear, directory, id="m_v1", ids=type(expected[0]) if declares else None, outputs=tcx.f32[2] if declares else None)
    for _ in range(2):
        assert torch.allclose(cached(inputs, ids=ids()), linear(inputs))
    seen = []
    other = tcx.cached(linear, None, id="m_v1", ids=type(expected[0]) if declares else None)
    found = other.fetch(ids(), lambda missing: seen.append(missing) or torch.stack([rows[own] for own in missing]))
    assert torch.allclose(found, linear(inputs))
    assert seen == [list(dict.fromkeys(expected))] and all(type(own) in (str, int, bytes) for own in seen[0])
    assert torch.equal(cached.fetch(ids()), cached(inputs, ids=ids()))
    assert cached.coverage(ids()).total == len(set(expected)) and cached.coverage(ids()).is_complete
    table = tcx.Cache(None).table("t_v1")
    assert table.fetch(ids(), lambda missing: [str(own) for own in missing]) == [str(own) for own in expected]
    assert table.get(ids()) == table.stored(ids()) == [str(own) for own in expected]
    if len(set(expected)) == len(expected):
        tcx.Cache(None).table("t_v1").put(ids(), expected)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({"a", "b"}, "a set has no order"),
        ("ab", "found one str; pass"),
        (b"ab", "found one bytes; pass"),
        (bytearray(b"ab"), "found one bytearray; pass"),
        (7, "expected a list with one id for each sample, found int"),
        (None, "found NoneType"),
        ([True, False], "id 0 of the batch is bool"),
        ([1, True], "id 1 of the batch is bool"),
        ([numpy.bool_(True), 1], "id 0 of the batch is bool"),
        ([1.0, 2.0], "id 0 of the batch is float"),
        ([1, 2.0], "id 1 of the batch is float"),
        (["a", None], "id 1 of the batch is NoneType"),
        (["a", b"a"], "id 1 of the batch is bytes"),
        (["a", ["b"]], "id 1 of the batch is list"),
        (torch.tensor([True, False]), "expected a vector of integers"),
        (torch.tensor([1.0, 2.0]), "expected a vector of integers"),
        (torch.tensor([[1], [2]]), r"found \[2, 1\]"),
        (torch.tensor(3), r"found \[\]"),
        (numpy.array([b"a", b"b\0"]), "expected a vector of integers"),
        (torch.tensor([1 << 63, 1], dtype=torch.uint64), "expected an integer of 64 bits"),
        (["a", "\ud800"], "id 1 of the batch is .*which has no UTF-8"),
        (["a", ""], "id 1 of the batch is empty"),
        (pa.array(["a", None]), "id 1 of the batch is NoneType"),
    ],
)
def test_other_ids_are_refused_with_their_position(linear, ids, message):
    cached = tcx.cached(linear, None, id="m_v1")
    with pytest.raises(tcx.InvalidBatchError, match=message):
        cached(torch.ones(2, 4), ids=ids)
    with pytest.raises(tcx.InvalidBatchError, match=message):
        cached.fetch(ids, lambda missing: torch.ones(len(missing), 4))
    with pytest.raises(tcx.InvalidBatchError):
        tcx.Cache(None).table("t_v1").fetch(ids, lambda missing: [0] * len(missing))


def test_sets_name_ids_where_their_order_does_not_matter(cache):
    table = cache.table("t_v1", outputs=int)
    table.put(["a", "b"], [1, 2])
    assert table.coverage({"a", "b"}).is_complete and table.prefetch(frozenset(["a"])) == 1
    table.invalidate({"a", "b"})
    assert table.stored_ids() == []


def test_a_batch_that_fails_does_not_decide_the_type_of_the_ids(directory, linear):
    cached = tcx.cached(linear, directory, id="m_v1")
    with pytest.raises(RuntimeError):
        cached(torch.ones(2, 5), ids=[1, 2])
    assert cached(torch.ones(2, 4), ids=["a", "b"]).shape == (2, 2)
    with pytest.raises(tcx.InvalidBatchError, match="id 0 of the batch is int, expected str"):
        cached(torch.ones(2, 4), ids=[1, 2])


@pytest.mark.parametrize("made", [["a", "b"], [3, 4], [b"a", b"b"]])
def test_values_of_pyarrow_are_ids(directory, made):
    pyarrow = pytest.importorskip("pyarrow")
    ids = pyarrow.array(made)
    table = tcx.Cache(directory).table("t_v1", outputs=int, ids=type(made[0]))
    assert table.warm(ids, lambda missing: [1] * len(missing), batch_size=1).computed == 2
    assert [[*rows] for _, rows in tcx.torch.epoch(table, ids, 1)] == [[1], [1]]
    assert table.coverage(made).is_complete
