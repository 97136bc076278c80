"""Tables, schemas, settings, upkeep."""

from __future__ import annotations

import dataclasses
import datetime
import pickle
import threading
from collections import OrderedDict, namedtuple

import numpy
import pytest
import torch

import tcx_cache as tcx
from tcx_cache import _native

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class ModelOutput(OrderedDict):
    """As transformers makes them: a dict of the fields that are not None, and a dataclass."""

    last: object = None
    pooled: object = None
    hidden: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


@dataclasses.dataclass
class Features:
    pooled: object
    caption: object = None


def lengths(missing):
    return [len(text) for text in missing]


def test_values_are_computed_once(cache):
    table = cache.table("lengths_v1", outputs=int)
    calls = []
    assert table.fetch(["a", "bb", "a"], lambda missing: calls.append(missing) or lengths(missing)) == [1, 2, 1]
    assert table.fetch(["bb", "ccc"], lambda missing: calls.append(missing) or lengths(missing)) == [2, 3]
    assert calls == [["a", "bb"], ["ccc"]]
    assert table.get(["a"]) == [1] and table.get(["a", "x"]) is None
    assert table.coverage(["a", "x", "x"]).missing == ["x"] and table.coverage(["a"]).is_complete
    with pytest.raises(tcx.InvalidBatchError, match="1 samples are missing, one of them with id 'x'"):
        table.stored(["x"])


def test_values_are_put_and_replaced(cache):
    table = cache.table("put_v1", outputs={"n": int, "half": tcx.f32[2].stored_as(tcx.f16)})
    values = {"n": [1, 2], "half": torch.tensor([[0.1, 1.0], [2.0, 3.0]])}
    assert table.put(["a", "b"], values) == 2
    assert table.put(["b", "c"], {"n": [9, 3], "half": torch.ones(2, 2)}) == 1
    found = table.get(["a", "b", "c"])
    assert found["n"] == [1, 2, 3] and found["half"].dtype == torch.float32
    assert torch.equal(found["half"][0], torch.tensor([0.1, 1.0]).half().float())
    assert table.replace(["a"], {"n": [7], "half": torch.zeros(1, 2)}) == 1
    table.flush()
    assert table.get(["a"])["n"] == [7]
    with pytest.raises(tcx.InvalidBatchError, match="an id is twice in the batch"):
        table.put(["z", "z"], values)


def test_ids_are_strings_integers_or_bytes(cache, tmp_path):
    for name, ids, kind in [("s", ["a", "b"], str), ("i", [-1, 1 << 60], int), ("b", [b"\0", b"x" * 40], bytes)]:
        table = cache.table(f"ids_{name}", outputs=int, ids=kind)
        assert table.fetch(ids, lambda missing: [7] * len(missing)) == [7, 7]
        assert sorted(table.stored_ids(), key=str) == sorted(ids, key=str)
        table.flush()
    numbers = cache.table("ids_i")
    assert numbers.fetch(torch.tensor([5, -1]), lambda missing: [m + 1 for m in missing]) == [6, 7]
    assert numbers.fetch(numpy.array([5, 6]), lambda missing: [m + 1 for m in missing]) == [6, 7]
    assert cache.table("ids_s").fetch([tmp_path, str(tmp_path)], lambda missing: [len(missing)] * len(missing)) == [1, 1]
    assert cache.table("ids_b").fetch([bytearray(b"q"), b"q"], lambda missing: [len(missing)] * len(missing)) == [1, 1]
    refused = {
        "id 1 of the batch is int, expected str": (cache.table("ids_s"), ["a", 1]),
        "id 0 of the batch is str, expected int": (numbers, ["a"]),
        "id 0 of the batch is bool, expected int": (numbers, [True]),
        "expected an integer of 64 bits": (numbers, [1 << 63]),
        "found one str; pass": (cache.table("ids_s"), "abc"),
        "id 1 of the batch is empty": (cache.table("ids_s"), ["a", ""]),
        "has 5000 bytes, expected at most 4096": (cache.table("ids_s"), ["x" * 5000]),
    }
    for message, (table, ids) in refused.items():
        with pytest.raises(tcx.InvalidBatchError, match=message):
            table.fetch(ids, lambda missing: [0] * len(missing))
    with pytest.raises(tcx.MismatchError, match="ids"):
        cache.table("ids_i", outputs=int, ids=str)


@pytest.mark.parametrize(
    ("values", "schema"),
    [
        (torch.ones(2, 3), "f32[3]"),
        (torch.ones(2, dtype=torch.bool), "bool[]"),
        (["a", None], "optional str"),
        ([1.5, 2.5], "float"),
        ({"a": [b"x", b"yy"], "b": (torch.ones(2, 1, dtype=torch.bfloat16), [True, False])}, None),
        (Pair(torch.zeros(2, 2, dtype=torch.int8), [1, 2]), None),
        (Features(torch.ones(2, 2)), None),
        (ModelOutput(last=torch.ones(2, 3), hidden=(torch.ones(2, 1), torch.zeros(2, 1))), None),
        ([torch.ones(3, 2), torch.ones(1, 2)], "f32[None, 2]"),
        ([torch.ones(3, 1, 2), torch.ones(1, 1, 4)], "f32[None, 1, None]"),
    ],
)
def test_the_first_batch_decides_the_columns_and_later_processes_read_them(directory, values, schema):
    with tcx.Cache(directory) as cache:
        first = cache.table("t_v1").fetch(["a", "b"], lambda missing: values)
    with tcx.Cache(directory) as cache:
        table = cache.table("t_v1")
        again = table.stored(["a", "b"])
        if schema:
            assert repr(table._rows.schema.root) == schema
    assert type(first) is type(again) is type(values)
    pinned = dict(_native.Spec.read(str(directory / "t_v1")).identity)["outputs"]
    assert pinned == table._rows.schema.text()
    assert repr(first) == repr(again)
    if isinstance(values, torch.Tensor):
        assert torch.equal(values, again)


def test_a_later_batch_that_differs_is_refused_with_both_sides(cache):
    table = cache.table("t_v1")
    table.fetch(["a"], lambda missing: {"x": torch.ones(1, 2), "s": ["t"]})
    refused = {
        r"output field `x`: expected f32 \[2\], found f32 \[3\]": {"x": torch.ones(1, 3), "s": ["t"]},
        r"output field `x`: expected f32 \[2\], found f64 \[2\]": {"x": torch.ones(1, 2).double(), "s": ["t"]},
        "output field `x`: expected 1 rows": {"x": torch.ones(2, 2), "s": ["t"]},
        "output: expected dict with `x`, `s`, found dict with `x`": {"x": torch.ones(1, 2)},
        "output field `s`: expected str, found int for sample 0": {"x": torch.ones(1, 2), "s": [1]},
        "output field `s`: expected String, found None": {"x": torch.ones(1, 2), "s": [None]},
        "output field `s`: expected a list of 1 items": {"x": torch.ones(1, 2), "s": "t"},
    }
    for message, values in refused.items():
        with pytest.raises(tcx.InvalidOutputError, match=message):
            table.fetch(["b"], lambda missing, values=values: values)
    assert table.coverage(["b"]).missing == ["b"]


def test_outputs_that_cannot_be_stored_are_refused_by_name(cache):
    refused = {
        "one row for each of 2 samples along the first dimension": torch.ones(()),
        "found complex64": torch.ones(2, 2, dtype=torch.complex64),
        "output field `x`: expected a tensor, a list": {"x": object()},
        "no field that can be stored": {"x": None},
        "is empty; leave the field out": torch.ones(2, 0),
        "a dense tensor, found a sparse": torch.ones(2, 2).to_sparse(),
        "has no dots": {"a.b": torch.ones(2)},
    }
    for number, (message, values) in enumerate(refused.items()):
        with pytest.raises(tcx.InvalidOutputError, match=message):
            cache.table(f"t_{number}").fetch(["a", "b"], lambda missing, values=values: values)


def test_arrays_of_numpy_go_in_and_out(directory):
    with tcx.Cache(directory, arrays="numpy") as cache:
        table = cache.table("n_v1")
        found = table.fetch([1, 2], lambda missing: {"x": numpy.arange(6, dtype=">f4").reshape(2, 3), "n": numpy.array([True, False])})
        assert isinstance(found["x"], numpy.ndarray) and found["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert found["n"].dtype == bool
    with tcx.Cache(directory, arrays="torch") as cache:
        assert isinstance(cache.table("n_v1").stored([2])["x"], torch.Tensor)


def test_bf16_round_trips(cache):
    every = torch.arange(-32768, 32768, dtype=torch.int16).view(torch.bfloat16).reshape(64, 1024)
    table = cache.table("bf16_v1", outputs=tcx.bf16[1024])
    table.fetch(list(range(64)), lambda missing: every)
    table.flush()
    assert torch.equal(table.stored(list(range(64))).view(torch.int16), every.view(torch.int16))


def test_views_are_apart(cache):
    table = cache.table("v_v1", outputs=int)
    assert table.fetch(["a"], lambda missing: [1]) == [1]
    assert table.view(7).fetch(["a"], lambda missing: [2]) == [2]
    assert table.stored(["a"]) == [1] and table.view(7).stored(["a"]) == [2]
    table.invalidate(["a"])
    assert table.get(["a"]) is None and table.view(7).get(["a"]) is None
    with pytest.raises(tcx.InvalidBatchError, match="view: expected an integer"):
        table.view(-1)


def test_rows_are_invalidated(cache):
    table = cache.table("i_v1", outputs=int)
    table.fetch(["train/a", "train/b", "test/c"], lengths)
    table.invalidate_prefix("train/")
    assert table.stored_ids() == ["test/c"]
    table.flush()
    table.invalidate_older_than(datetime.timedelta(hours=1))
    assert table.stored_ids() == ["test/c"]
    table.invalidate_older_than(datetime.datetime.now() + datetime.timedelta(hours=1))
    assert table.stored_ids() == []
    table.fetch(["x"], lengths)
    table.invalidate_all()
    assert table.stored_ids() == []


def test_modes(directory):
    with tcx.Cache(directory) as cache:
        cache.table("m_v1", outputs=int).fetch(["a"], lambda missing: [1])
    with tcx.Cache(directory, mode="read_only") as cache:
        table = cache.table("m_v1")
        assert table.fetch(["a", "b"], lambda missing: [2]) == [1, 2]
        assert table.coverage(["b"]).missing == ["b"]
        with pytest.raises(tcx.WrongModeError, match="cannot change rows: this handle has mode `read_only`"):
            table.invalidate_all()
    with tcx.Cache(directory, mode="recompute") as cache:
        table = cache.table("m_v1")
        assert table.fetch(["a"], lambda missing: [5]) == [5]
        assert table.fetch(["a"], lambda missing: [6]) == [5]
    with tcx.Cache(directory, mode="off") as cache:
        assert cache.table("m_v1").fetch(["a"], lambda missing: [9]) == [9]
    with tcx.Cache(directory) as cache:
        assert cache.table("m_v1").stored(["a"]) == [5]


def test_counters_have_the_same_names_before_the_first_use(cache, linear):
    for own in (cache.table("t_v1"), cache.module(linear, "m_v1")):
        before = own.stats()
        assert before["hits"] == before["miss_causes"]["absent"] == before["flush_times"]["count"] == 0 and not before["is_writing_off"]
        inputs = torch.ones(2, 4)
        own(inputs, ids=["a", "b"]) if own.id == "m_v1" else own.fetch(["a", "b"], lambda missing: inputs)
        after = own.stats()
        assert before.keys() == after.keys() and before["miss_causes"].keys() == after["miss_causes"].keys()
        assert (after["misses"], after["rows_computed"]) == (2, 2)


def test_identities_are_separate_if_asked(directory):
    for version in ("1", "2", "1"):
        with tcx.Cache(directory, on_mismatch="separate") as cache:
            table = cache.table("s_v1", outputs=int, metadata={"version": version})
            table.fetch(["a"], lambda missing, version=version: [int(version)])
            assert table.stored(["a"]) == [int(version)]
    with pytest.raises(tcx.InvalidSettingsError, match="needs `outputs=`"):
        tcx.Cache(directory, on_mismatch="separate").table("s_v1")


def test_places_that_are_no_cache_are_refused(directory, tmp_path):
    with tcx.Cache(directory) as cache:
        cache.table("p_v1", outputs=int).fetch(["a"], lengths)
        assert cache.modules() in ([], ["p_v1"])
    assert tcx.Cache(directory).modules() == ["p_v1"]
    (tmp_path / "file").write_text("")
    for place, message in [
        (directory / "p_v1", "is the folder of a module; open"),
        ("", "the path is empty"),
        ("~/cache", "only a shell replaces"),
        (tmp_path / "file", "it is a file"),
    ]:
        with pytest.raises(tcx.InvalidPathError, match=message):
            tcx.Cache(place)
    with pytest.raises(tcx.InvalidIdError):
        tcx.Cache(directory).table("a/b", outputs=int, ids=str)


def test_a_closed_cache_says_so(directory):
    cache = tcx.Cache(directory)
    table = cache.table("c_v1", outputs=int)
    table.fetch(["a"], lengths)
    cache.close()
    with pytest.raises(tcx.ClosedError, match="the cache of `c_v1` is closed: open it again"):
        table.fetch(["a"], lengths)
    with pytest.raises(tcx.ClosedError):
        cache.table("c_v1")


def test_a_handle_is_pickled_as_its_path_and_options(directory, linear):
    with tcx.Cache(directory, compression="lz4") as cache:
        table = cache.table("p_v1")
        table.fetch(["a"], lambda missing: Pair(torch.ones(1, 2), ["x"]))
        table.flush()
        other = pickle.loads(pickle.dumps(table.view(0)))
        assert isinstance(other.stored(["a"]), Pair)
        assert len(pickle.dumps(table)) < 2000
        assert pickle.loads(pickle.dumps(cache)).path == str(directory)
        cached = cache.module(linear, "linear_v1")
        cached(torch.ones(1, 4), ids=["a"])
        travelled = pickle.loads(pickle.dumps(cached))
        assert torch.equal(travelled.stored(["a"]), cached.fetch(["a"]))
        with pytest.raises(tcx.InvalidBatchError, match="one of them with id 'b'"):
            travelled.fetch(["b"])
    with pytest.raises(tcx.InvalidSettingsError, match="a cache in memory belongs to this process"):
        pickle.dumps(tcx.Cache(None))


def test_damage_is_a_miss(directory):
    with tcx.Cache(directory) as cache:
        cache.table("d_v1", outputs=tcx.f32[256]).fetch(["a"], lambda missing: torch.ones(1, 256))
    (segment,) = (directory / "d_v1").glob("seg-*")
    segment.chmod(0o644)
    content = bytearray(segment.read_bytes())
    at = content.index(numpy.ones(256, dtype=numpy.float32).tobytes())
    content[at] ^= 1
    segment.write_bytes(content)
    with tcx.Cache(directory) as cache:
        table = cache.table("d_v1")
        assert table.get(["a"]) is None
        assert table.fetch(["a"], lambda missing: torch.zeros(1, 256)).sum() == 0
        assert table.stats()["miss_causes"]["damaged"] >= 1


def test_tables_of_the_memory_of_this_process():
    with tcx.Cache(None) as cache:
        table = cache.table("m_v1", outputs=int)
        assert table.fetch(["a"], lengths) == [1]
        assert table.stored(["a"]) == [1] and cache.path is None and cache.modules() == []


def test_a_function_that_uses_its_own_handle_is_an_error_and_not_a_wait_without_end(cache):
    table = cache.table("own_v1", outputs=int)
    for use in [
        lambda: table.put(["a"], [5]),
        lambda: table.replace(["a"], [5]),
        lambda: table.fetch(["z"], lambda missing: [1]),
        lambda: table.view(1).put(["a"], [5]),
    ]:
        with pytest.raises(tcx.ModuleViolationError, match="it would wait for itself forever"):
            table.fetch(["a"], lambda missing, use=use: [use()])
    assert table.fetch(["a"], lambda missing: [3]) == [3]


@pytest.mark.parametrize("is_one", [False, True])
def test_functions_that_use_the_table_of_each_other_do_not_wait_for_each_other(directory, is_one):
    cache = tcx.Cache(directory)
    handles = [cache.table("a_v1" if is_one else f"{name}_v1", outputs=tcx.i64[()]) for name in "ab"]
    both, done = threading.Barrier(2), []

    def work(own, other, ids):
        def compute(_):
            both.wait()
            return other.fetch([ids[1]], lambda missing: torch.tensor([1]))

        done.append(own.fetch([ids[0]], compute).tolist())

    first, second = handles
    threads = [threading.Thread(target=work, args=each, daemon=True) for each in [(first, second, "xy"), (second, first, "zw")]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done == [[1], [1]]


@pytest.mark.parametrize("metadata", [{"outputs": "v1"}, {"outputs": 3}, {"outputs": ["a"]}, {"outputs": "f32[2]"}, {"Output": 1, "OutputSize": 2}])
def test_metadata_may_have_the_names_of_what_the_identity_has_of_outputs(directory, metadata):
    for declared in (tcx.f32[2], None):
        with tcx.Cache(directory / str(declared)) as cache:
            cache.table("t_v1", outputs=declared, metadata=metadata).put(["a"], torch.ones(1, 2))
        for again in (None, tcx.f32[2]):
            with tcx.Cache(directory / str(declared)) as cache:
                table = cache.table("t_v1", outputs=again, metadata=metadata)
                assert torch.equal(table.stored(["a"]), torch.ones(1, 2))
                assert table.put(["a", "b"], torch.zeros(2, 2)) == (1 if again is None else 0)
        with tcx.Cache(directory / str(declared)) as cache, pytest.raises(tcx.MismatchError):
            cache.table("t_v1", metadata={name: 99 for name in metadata}).put(["c"], torch.ones(1, 2))
