"""The interface of torchcachex, with the right rows where it returns wrong ones, and its directories."""

from __future__ import annotations

import collections
import copy
import json
import pickle

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.torchcachex import ArrowIPCCacheBackend, CacheModuleDecorator, TrainableError, import_directory, importer

pa = pytest.importorskip("pyarrow")


class Doubled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0), requires_grad=False)
        self.computed = []

    def forward(self, x, mask=None):
        x = x["x"] if isinstance(x, dict) else x
        self.computed.append(len(x))
        return x * self.factor if mask is None else x * self.factor * mask.unsqueeze(1)


@pytest.fixture
def backend(directory):
    return ArrowIPCCacheBackend(cache_dir=str(directory), module_id="m_v1", flush_every=4)


def test_ids_come_by_keyword_in_the_batch_or_by_a_function(backend):
    module = Doubled()
    cached = CacheModuleDecorator(module, backend)
    x = torch.randn(3, 4)
    assert torch.equal(cached(x, cache_ids=["a", "b", "c"]), 2 * x)
    assert torch.equal(cached({"x": x, "cache_ids": ["a", "b", "d"]}), 2 * x)
    by_function = CacheModuleDecorator(module, backend, key_from_batch_fn=lambda x: [f"{row[0]:.6f}" for row in x])
    assert torch.equal(by_function(x), 2 * x)
    computed = sum(module.computed)
    assert torch.equal(cached(x, cache_ids=["c", "b", "a"])[1], 2 * x[1])
    assert sum(module.computed) == computed
    with pytest.raises(tcx.InvalidBatchError, match="the batch has no ids"):
        cached(x)


@pytest.mark.parametrize("ids", [lambda own: own, tuple, torch.tensor, lambda own: [f"{number}" for number in own]])
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_ids_in_the_batch_are_passed_to_the_module_for_its_samples(backend, ids, kind):
    seen = []

    class Seeing(Doubled):
        def forward(self, batch):
            seen.append(batch)
            return super().forward(batch)

    cached = CacheModuleDecorator(Seeing(), backend)
    x = torch.randn(3, 4)
    first, second = kind(x=x, cache_ids=ids([1, 2, 3])), kind(x=x, cache_ids=ids([3, 4, 5]))
    assert torch.equal(cached(first), 2 * x) and list(seen[0]["cache_ids"]) == list(ids([1, 2, 3]))
    seen.clear()
    assert torch.equal(cached(second), torch.cat([2 * x[2:], 2 * x[1:]]))
    (own,) = seen
    # As it would be without the cache, but of the missing samples.
    assert type(own) is kind and type(own["cache_ids"]) is type(first["cache_ids"]) and list(own["cache_ids"]) == list(ids([4, 5]))
    assert list(second["cache_ids"]) == list(ids([3, 4, 5]))


def test_another_module_that_is_assigned_reads_no_rows_of_the_one_before(backend):
    cached = CacheModuleDecorator(Doubled(), backend)
    cached(torch.ones(1, 4), cache_ids=["a"])
    backend.flush()
    other = Doubled()
    other.factor.data.fill_(3.0)
    cached.module = other
    with pytest.raises(tcx.MismatchError):
        cached(torch.ones(1, 4), cache_ids=["b"])


def test_every_input_of_the_missing_samples_is_selected(backend):
    module = Doubled()
    cached = CacheModuleDecorator(module, backend)
    x, mask = torch.randn(4, 2), torch.tensor([1.0, 2.0, 3.0, 4.0])
    cached(x[:2], mask=mask[:2], cache_ids=["a", "b"])
    found = cached(x[[0, 2, 1, 3]], mask=mask[[0, 2, 1, 3]], cache_ids=["a", "c", "b", "d"])
    assert torch.equal(found, (2 * x * mask.unsqueeze(1))[[0, 2, 1, 3]])
    batch = {"x": x[[2, 0]], "cache_ids": ["e", "a"]}
    with pytest.raises(tcx.InvalidBatchError):
        cached({**batch, "scale": 2.0})


def test_integer_ids_and_tensors_of_them_hit(directory):
    module = Doubled()
    cached = CacheModuleDecorator(module, ArrowIPCCacheBackend(directory, "i_v1"))
    x = torch.randn(3, 4)
    cached(x, cache_ids=torch.tensor([1, 2, 3]))
    module.computed.clear()
    assert torch.equal(cached(x[[2]], cache_ids=[3]), 2 * x[[2]]) and not module.computed


def test_every_rank_writes(directory):
    x = torch.randn(2, 4)
    ranks = [ArrowIPCCacheBackend(directory, "r_v1", writer_rank=0, current_rank=rank) for rank in (0, 1)]
    for rank, backend in enumerate(ranks):
        CacheModuleDecorator(Doubled(), backend)(x, cache_ids=[f"{rank} a", f"{rank} b"])
        backend.flush()
    found, missing = ArrowIPCCacheBackend(directory, "r_v1").get_batch(["0 a", "1 b", "x"])
    assert missing == [2] and found[2] is None and torch.equal(found[1], 2 * x[1])


def test_modes(backend):
    module = Doubled().requires_grad_(True)
    cached = CacheModuleDecorator(module, backend)
    x = torch.randn(2, 4)
    with pytest.raises(TrainableError, match="enforce_stateless=False"):
        cached.train()(x, cache_ids=["a", "b"])
    assert issubclass(TrainableError, RuntimeError)
    assert not cached.eval()(x, cache_ids=["a", "b"]).requires_grad
    free = CacheModuleDecorator(module, backend, enforce_stateless=False).train()
    assert torch.equal(free(x, cache_ids=["a", "b"]), 2 * x)
    off = CacheModuleDecorator(Doubled(), backend, enabled=False)
    assert torch.equal(off(x, cache_ids=["z", "y"]), 2 * x) and len(off.module.computed) == 1
    assert list(cached.state_dict()) == ["factor"]
    with pytest.raises(tcx.ModuleViolationError, match="weight `factor`"):
        cached.load_state_dict({"factor": torch.tensor(3.0)})
        cached(x, cache_ids=["c", "d"])


@pytest.mark.parametrize(
    "sample",
    [
        lambda n: torch.full((2, 3), float(n)),
        lambda n: torch.full((3,), n, dtype=torch.bfloat16),
        lambda n: {"a": torch.full((2,), n), "b": (torch.ones(1) * n, f"text {n}")},
        lambda n: (torch.ones(2) * n, torch.tensor(n % 2 == 0)),
        lambda n: f"text {n}",
    ],
)
def test_the_backend_stores_samples(directory, sample):
    with_samples = ArrowIPCCacheBackend(directory, "s_v1", async_write=False)
    with_samples.put_batch({f"{number}": sample(number) for number in range(4)})
    found, missing = ArrowIPCCacheBackend(directory, "s_v1", lru_size=0, max_workers=1).get_batch(["3", "9", "0"])
    assert missing == [1] and repr(found) == repr([sample(3), None, sample(0)])
    assert with_samples.get_batch([]) == ([], [])
    again = pickle.loads(pickle.dumps(with_samples))
    assert repr(again.get_batch(["2"])[0]) == repr([sample(2)])
    with_samples.close()


def write(folder, rows, structure, metadata=None, name="segment_000000.arrow", stream=False):
    """A segment as torchcachex writes it."""
    (folder / "segments").mkdir(parents=True, exist_ok=True)
    (folder / "schema.json").write_text(json.dumps({"fields": [], "metadata": metadata or {}, "output_structure": structure}))
    table = pa.Table.from_pylist(rows, schema=None)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(folder / "segments" / name), "wb") as file, make(file, table.schema) as writer:
        writer.write_table(table)


def row(key, **tensors):
    found = {"key": key}
    for name, tensor in tensors.items():
        found[f"{name}_data" if name else "data"] = tensor.flatten().numpy()
        found[f"{name}_shape" if name else "shape"] = list(tensor.shape)
    return found


def test_an_existing_directory_is_imported_by_key(tmp_path, directory):
    old = tmp_path / "old" / "features_v1"
    values = {f"k{number}": torch.randn(2, 3) for number in range(5)}
    write(old, [row("features_v1:k0", **{"": torch.zeros(2, 3)})], "tensor")
    write(old, [row(f"features_v1:{key}", **{"": value}) for key, value in values.items()], "tensor", name="segment_000001.arrow", stream=True)
    with tcx.Cache(directory) as cache:
        table = cache.table("features_v1", outputs=tcx.f32[2, 3])
        assert import_directory(old, table, batch_size=2) == tcx.torchcachex.Imported(6, 5)
        for key, value in values.items():
            assert torch.equal(table.stored([key])[0], value)
        assert import_directory(old, table).stored == 0


@pytest.fixture
def events(monkeypatch):
    """What an import does: the rows that it reads and those that it stores."""
    happened = []

    def read(table, data, shape, number, dtype, own=importer._tensor):
        happened.append("read")
        return own(table, data, shape, number, dtype)

    def put(self, ids, values, own=tcx.Table.put):
        happened.extend(["store"] * len(ids))
        return own(self, ids, values)

    monkeypatch.setattr(importer, "_tensor", read)
    monkeypatch.setattr(tcx.Table, "put", put)
    return happened


@pytest.mark.parametrize("stream", [False, True])
def test_an_import_holds_the_rows_of_one_batch_and_reads_no_replaced_ones(tmp_path, cache, events, stream):
    old = tmp_path / "old" / "m_v1"
    # The ids of each segment are those of the one before, and two new ones.
    for number in range(4):
        rows = [row(f"m_v1:{own}", **{"": torch.tensor([float(number), float(own)])}) for own in range(2 * number + 2)]
        write(old, rows, "tensor", name=f"segment_00000{number}.arrow", stream=stream)
    table = cache.table("m_v1", outputs=tcx.f32[2], ids=int)
    assert import_directory(old, table, batch_size=3) == tcx.torchcachex.Imported(20, 8)
    assert torch.equal(table.stored(range(8)), torch.tensor([[3.0, own] for own in range(8)]))
    assert events == [*["read"] * 3, *["store"] * 3, *["read"] * 3, *["store"] * 3, *["read"] * 2, *["store"] * 2]


def test_an_import_stores_rows_before_it_reads_the_next_segment(tmp_path, cache, events):
    old = tmp_path / "old" / "m_v1"
    for number in range(3):
        write(old, [row(f"m_v1:{number}{own}", **{"": torch.ones(1)}) for own in range(2)], "tensor", name=f"segment_00000{number}.arrow")
    assert import_directory(old, cache.table("m_v1"), batch_size=2).stored == 6
    assert events == ["read", "read", "store", "store"] * 3


@pytest.mark.parametrize(
    "damage, error",
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), tcx.CorruptError),
        (lambda path: write(path.parent.parent, [one(key=5)], "tensor", name=path.name), tcx.CorruptError),
        (lambda path: write(path.parent.parent, [{"key": "x", "data": [1.0]}], "tensor", name=path.name), tcx.CorruptError),
        (lambda path: write(path.parent.parent, [{"key": "x", "a_data": [1.0]}], "tensor", name=path.name), tcx.CorruptError),
        (lambda path: write(path.parent.parent, [{"data": [1.0], "shape": [1]}], "tensor", name=path.name), tcx.CorruptError),
        (lambda path: write(path.parent.parent, [{"key": "x", "blob": b""}], "tensor", name=path.name), tcx.InvalidOutputError),
        (lambda path: write(path.parent.parent, [one(key="m_v1:abc")], "tensor", name=path.name), tcx.InvalidBatchError),
    ],
)
def test_an_import_that_is_refused_has_stored_nothing(tmp_path, cache, events, damage, error):
    old = tmp_path / "old" / "m_v1"
    for number in range(2):
        write(old, [row(f"m_v1:{own}", **{"": torch.ones(2)}) for own in range(4)], "tensor", name=f"segment_00000{number}.arrow")
    damage(old / "segments" / "segment_000001.arrow")
    with pytest.raises(error):
        import_directory(old, cache.table("m_v1", outputs=tcx.f32[2], ids=int), batch_size=1)
    assert "store" not in events


def test_a_batch_size_of_an_import_that_is_no_positive_integer_is_refused(tmp_path, cache):
    write(tmp_path / "m_v1", [one()], "tensor")
    with pytest.raises(tcx.InvalidBatchError, match="batch_size: expected a positive integer, found 0"):
        import_directory(tmp_path / "m_v1", cache.table("m_v1"), batch_size=0)


def test_dicts_tuples_and_bf16_are_imported(tmp_path, directory):
    one = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3, 4]])}
    write(tmp_path / "d", [row("x", **one)], "dict")
    write(tmp_path / "t", [row("x", item0=one["a"], item1=one["b"])], "tuple")
    write(tmp_path / "h", [row("x", **{"": torch.tensor([1.5, 2.5])})], "tensor", {"torch_dtype": "torch.bfloat16"})
    with tcx.Cache(directory) as cache:
        found = {}
        for name in "dth":
            table = cache.table(f"{name}_v1", ids=str)
            import_directory(tmp_path / name, table)
            found[name] = table.stored(["x"])
    assert torch.equal(found["d"]["b"][0], one["b"]) and torch.equal(found["t"][0][0], one["a"])
    assert found["h"].dtype == torch.bfloat16 and found["h"].tolist() == [[1.5, 2.5]]


class Exploding:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was loaded')",)


def test_a_pickle_is_never_loaded(tmp_path, directory):
    payload = pickle.dumps(Exploding())
    write(tmp_path / "p", [{**row("x", a=torch.ones(2)), "label_blob": payload}], "dict")
    write(tmp_path / "q", [{"key": "x", "blob": payload}], "blob")
    with tcx.Cache(directory) as cache:
        with pytest.raises(tcx.InvalidOutputError, match="segment_000000.arrow: column `label_blob` is pickled"):
            import_directory(tmp_path / "p", cache.table("p_v1"))
        with pytest.raises(tcx.InvalidOutputError, match="column `blob` is pickled"):
            import_directory(tmp_path / "q", cache.table("q_v1"), without_pickled=True)
        table = cache.table("r_v1")
        import_directory(tmp_path / "p", table, without_pickled=True)
        assert list(table.stored(["x"])) == ["a"]


def test_a_directory_that_is_none_of_torchcachex_or_damaged_is_named(tmp_path, cache):
    with pytest.raises(tcx.InvalidPathError, match="has no folder `segments`"):
        import_directory(tmp_path, cache.table("n_v1"))
    write(tmp_path / "b", [row("x", a=torch.ones(2))], "dict")
    (tmp_path / "b" / "segments" / "segment_000001.arrow").write_bytes(b"not a file of Arrow")
    with pytest.raises(tcx.CorruptError, match="segment_000001.arrow: cannot be read"):
        import_directory(tmp_path / "b", cache.table("n_v1"))


def one(**change):
    return {"key": "x", "data": [1.0, 2.0], "shape": [2], **change}


@pytest.mark.parametrize(
    "rows",
    [
        [one(shape=[3])],
        [one(shape=[-1, 1])],
        [one(shape=None)],
        [one(shape=["2"])],
        [one(data=None)],
        [one(data=[1.0, None])],
        [one(data=["a", "b"])],
        [one(data=5.0)],
        [one(key=None)],
        [one(key=5)],
        [{"key": "x", "data": [1.0]}],
        [{"key": "x", "a_data": [1.0]}],
    ],
)
def test_rows_that_are_no_tensors_are_damage_that_names_the_file(tmp_path, cache, rows):
    write(tmp_path / "m_v1", rows, "tensor")
    with pytest.raises(tcx.CorruptError, match="segment_000000.arrow: .*move the file away"):
        import_directory(tmp_path / "m_v1", cache.table("h_v1"))


@pytest.mark.parametrize("text", ["[1]", '{"metadata": [1], "output_structure": 7}', "[" * 100_000, "\x00"])
def test_a_damaged_description_of_the_old_directory_is_left_out(tmp_path, cache, text):
    write(tmp_path / "m_v1", [one()], "tensor")
    (tmp_path / "m_v1" / "schema.json").write_text(text)
    assert import_directory(tmp_path / "m_v1", cache.table("h_v1")).stored == 1


def test_parts_of_a_tuple_are_in_the_order_of_their_numbers(tmp_path, cache):
    numbers = [10, 2, 0, 1]
    write(tmp_path / "m_v1", [row("x", **{f"item{number}": torch.tensor([float(number)]) for number in numbers})], "tuple")
    table = cache.table("h_v1")
    import_directory(tmp_path / "m_v1", table)
    assert [part.item() for part in table.stored(["x"])] == [0, 1, 2, 10]


def test_keys_that_are_no_integers_are_refused_by_name(tmp_path, cache):
    write(tmp_path / "m_v1", [one(key="m_v1:abc")], "tensor")
    with pytest.raises(tcx.InvalidBatchError, match="key 'abc' is no integer"):
        import_directory(tmp_path / "m_v1", cache.table("h_v1", ids=int))


@pytest.mark.parametrize(
    "other",
    [{"b": torch.ones(1)}, {"a": torch.ones(1), "b": torch.ones(1)}, {}, (torch.ones(1),), "text"],
)
def test_samples_with_other_fields_are_refused_and_not_cut(backend, other):
    with pytest.raises(tcx.InvalidOutputError, match="sample 1 of the batch is .*expected the same fields"):
        backend.put_batch({"x": {"a": torch.ones(1)}, "y": other})


def test_a_module_that_was_trained_without_rows_computes_in_evaluation_mode_again(backend):
    module = torch.nn.Sequential(Doubled(), torch.nn.Dropout(0.9))
    cached = CacheModuleDecorator(module, backend, enforce_stateless=False).train()
    x = torch.randn(2, 4)
    assert torch.equal(cached(x, cache_ids=["a", "b"]), 2 * x)
    cached.enabled = False
    cached.train()
    cached(x)
    assert module.training
    cached.enabled = True
    assert torch.equal(cached(x, cache_ids=["c", "d"]), 2 * x) and not module[1].training


def test_a_copy_opens_the_cache_with_its_own_module(directory):
    backend = ArrowIPCCacheBackend(directory, "c_v1")
    cached = CacheModuleDecorator(torch.nn.Linear(4, 2).requires_grad_(False), backend)
    x = torch.randn(2, 4)
    expected = cached(x, cache_ids=["a", "b"])
    backend.flush()
    for other in [copy.deepcopy(cached), pickle.loads(pickle.dumps(cached))]:
        assert torch.equal(other(x, cache_ids=["a", "b"]), expected)
    changed = copy.deepcopy(cached)
    changed.module.weight.data.add_(1)
    with pytest.raises(tcx.MismatchError, match="`weights`"):
        changed(x, cache_ids=["a", "b"])


def test_a_flush_reports_what_every_module_that_uses_the_backend_has_lost(directory):
    backend = ArrowIPCCacheBackend(directory, "m_v1", flush_every=1000, flush_interval=3600)
    modules = [Doubled(), Doubled()]
    decorators = [CacheModuleDecorator(module, backend) for module in modules]
    for number, cached in enumerate(decorators):
        cached(torch.ones(1, 4), cache_ids=[f"{number}"])
    modules[0].factor.data.fill_(3)
    with pytest.raises(tcx.ModuleViolationError, match="weight `factor`: changed in place"):
        backend.flush()
    backend.close()
    assert all(cached._opened().is_closed for cached in decorators)
