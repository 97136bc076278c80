"""A cached module returns for each id what the module returns: structured batches, duplicates, partial hits, threads."""

from __future__ import annotations

import dataclasses
import gc
import tempfile
import threading
import weakref
import zlib
from collections import namedtuple

import numpy
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import tcx_cache as tcx

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Record:
    first: object
    second: object


# The structure of inputs: a leaf is the name of a kind, a container a tuple of its kind and its parts.
LEAVES = ("floats", "matrix", "numbers", "array", "strings", "ragged", "none")
leaf = st.sampled_from(LEAVES)
structure = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(st.just("dict"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("list"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("tuple"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("pair"), st.tuples(inner, inner)),
        st.tuples(st.just("record"), st.tuples(inner, inner)),
    ),
    max_leaves=6,
)


def batch(of, ids, salt=0):
    """The inputs of some samples: what each sample has depends on its id and the place in the structure only."""
    if isinstance(of, tuple):
        kind, children = of
        parts = [batch(child, ids, salt * 7 + number + 1) for number, child in enumerate(children)]
        if kind == "dict":
            return {f"part{number}": part for number, part in enumerate(parts)}
        if kind == "pair":
            return Pair(*parts)
        if kind == "record":
            return Record(*parts)
        return parts if kind == "list" else tuple(parts)
    values = [(zlib.crc32(f"{own}/{salt}".encode()) % 1000) / 8 for own in ids]
    if of == "floats":
        return torch.tensor(values)
    if of == "matrix":
        return torch.tensor([[value, -value, 1.0] for value in values]).reshape(len(ids), 3)
    if of == "numbers":
        return torch.tensor([int(value) for value in values])
    if of == "array":
        return numpy.array([[value, 2 * value] for value in values], dtype=numpy.float64).reshape(len(ids), 2)
    if of == "strings":
        return [f"{value:.3f}" for value in values]
    if of == "ragged":
        return tcx.per_sample([torch.full((1 + int(value) % 4,), value) for value in values])
    return None


def rows_of(of, value):
    """The numbers of each sample in some inputs of this structure, by position."""
    if of == "none":
        return None
    if isinstance(of, tuple):
        kind, children = of
        parts = list(value.values()) if kind == "dict" else [value.first, value.second] if kind == "record" else list(value)
        return added([rows_of(child, part) for child, part in zip(children, parts)])
    if of == "strings":
        return [float(text) for text in value]
    if of == "ragged":
        value = getattr(value, "items", value)
    return [float(torch.as_tensor(row).double().sum()) for row in value]


def added(parts):
    parts = [part for part in parts if part is not None]
    if not parts:
        return None
    return [sum((number + 1) * row for number, row in enumerate(rows)) for rows in zip(*parts)]


class Structured(torch.nn.Module):
    """Computes something of every part of its inputs, and returns it in some structure."""

    def __init__(self, output, args=("matrix",), kwargs=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        self.output, self.args, self.kwargs = output, args, kwargs or {}

    def forward(self, *args, **kwargs):
        positional = [rows_of(of, part) for of, part in zip(self.args, args)]
        rows = added([*positional, *(rows_of(of, kwargs[name]) for name, of in self.kwargs.items())])
        dense = torch.tensor(rows, dtype=torch.float64).unsqueeze(1) * self.weight
        texts = [f"row {row:.4f}" for row in rows]
        ragged = [torch.full((1 + int(row) % 3, 2), row) for row in rows]
        optional = [text if int(row) % 2 else None for text, row in zip(texts, rows)]
        return {
            "tensor": dense,
            "tuple": (dense, texts),
            "dict": {"dense": dense, "half": dense.bfloat16(), "inner": {"texts": texts, "count": [int(row) for row in rows]}},
            "pair": Pair(dense.half(), ragged),
            "record": Record(dense > 2, optional),
        }[self.output]


OUTPUTS = {
    "tensor": tcx.f64[2],
    "tuple": (tcx.f64[2], str),
    "dict": {"dense": tcx.f64[2], "half": tcx.bf16[2], "inner": {"texts": str, "count": int}},
    "pair": tcx.struct(Pair, left=tcx.f16[2], right=tcx.f32[None, 2]),
    "record": tcx.struct(Record, first=tcx.bool[2], second=tcx.optional(str)),
}


def same(one, other):
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, Record):
        return isinstance(other, Record) and same(one.first, other.first) and same(one.second, other.second)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


ids_of_batch = st.lists(st.integers(0, 9), min_size=1, max_size=5).map(lambda numbers: [f"sample {number}" for number in numbers])


@given(
    args=st.lists(structure, min_size=0, max_size=2),
    kwargs=st.dictionaries(st.sampled_from(["mask", "tokens"]), structure, max_size=2),
    output=st.sampled_from(list(OUTPUTS)),
    batches=st.lists(ids_of_batch, min_size=1, max_size=5),
)
# The inner list could be parts or items, so that the outer one could be both too.
@example(args=[("list", ["strings", ("list", ["floats", "floats"])])], kwargs={}, output="tensor", batches=[["sample 0", "sample 0"], ["sample 1", "sample 0"]])
@example(args=[("tuple", ["matrix", ("tuple", ["numbers", "none"])])], kwargs={}, output="pair", batches=[["sample 0", "sample 2"], ["sample 1", "sample 0"]])
def test_structured_batches_give_each_id_its_own_row(args, kwargs, output, batches):
    module = Structured(output, args, kwargs).eval().requires_grad_(False)
    cached = tcx.cached(module, None, id="structured_v1", outputs=OUTPUTS[output])
    for ids in batches:
        positional = [batch(of, ids, number + 1) for number, of in enumerate(args)]
        named = {name: batch(of, ids, 50 + len(name)) for name, of in kwargs.items()}
        try:
            found = cached(*positional, ids=ids, **named)
        except tcx.InvalidBatchError:
            # What can be split in two ways, or has no samples, is refused.
            continue
        assert same(found, module(*positional, **named)), (ids, found)
    cached.close()


@given(batches=st.lists(ids_of_batch, min_size=1, max_size=8), views=st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_partial_hits_and_duplicates_keep_the_order_asked(batches, views):
    module = Structured("dict").eval().requires_grad_(False)
    with tempfile.TemporaryDirectory() as directory:
        cached = tcx.cached(module, directory, id="order_v1")
        for ids, view in zip(batches, views):
            inputs = batch("matrix", [f"{own} {view}" for own in ids])
            assert same(cached.view(view)(inputs, ids=ids), module(inputs))
        cached.close()
        again = tcx.cached(module, directory, id="order_v1")
        for ids, view in zip(batches, views):
            inputs = batch("matrix", [f"{own} {view}" for own in ids])
            assert same(again.view(view).fetch(ids), module(inputs))
        assert again.stats()["misses"] == 0
        again.close()


def selected(of, inputs, positions):
    """The parts of some inputs that a loader would return for these positions of a batch."""
    if isinstance(inputs, dict):
        return {name: selected(child, part, positions) for child, (name, part) in zip(of[1], inputs.items())}
    if isinstance(inputs, Record):
        return Record(*(selected(child, part, positions) for child, part in zip(of[1], (inputs.first, inputs.second))))
    if isinstance(of, tuple):
        parts = [selected(child, part, positions) for child, part in zip(of[1], inputs)]
        return Pair(*parts) if of[0] == "pair" else parts if of[0] == "list" else tuple(parts)
    if of == "none":
        return None
    if of == "ragged":
        return tcx.per_sample([inputs.items[position] for position in positions])
    return [inputs[position] for position in positions] if of == "strings" else inputs[positions]


@given(
    args=st.lists(structure, min_size=1, max_size=2),
    output=st.sampled_from(list(OUTPUTS)),
    batches=st.lists(ids_of_batch, min_size=2, max_size=5),
    loaded=st.lists(st.booleans(), min_size=5, max_size=5),
    reopened=st.integers(0, 4),
)
def test_structured_batches_are_found_by_a_later_handle_whatever_was_stored(args, output, batches, loaded, reopened):
    module = Structured(output, args).eval().requires_grad_(False)
    options = {"id": "structured_v1", "outputs": OUTPUTS[output]}
    computed = []
    with tempfile.TemporaryDirectory() as directory:
        cached = tcx.cached(module, directory, **options)
        for number, (ids, is_loaded) in enumerate(zip(batches, loaded)):
            if number == reopened:
                cached.close()
                cached = tcx.cached(module, directory, **options)
            inputs = [batch(of, ids, place + 1) for place, of in enumerate(args)]
            before = len(computed)

            def load(missing, ids=ids, inputs=inputs):
                computed.extend(missing)
                positions = [ids.index(own) for own in missing]
                return tcx.Inputs(*(selected(of, part, positions) for of, part in zip(args, inputs)))

            try:
                found = cached.fetch(ids, load) if is_loaded else cached(*inputs, ids=ids)
            except tcx.InvalidBatchError:
                # What can be split in two ways, or has no samples, is refused.
                del computed[before:]
                continue
            assert same(found, module(*inputs)), (ids, found)
            assert same(cached.fetch(ids), found)
        cached.close()
    assert len(set(computed)) == len(computed), "an id was loaded again"


def test_only_missing_samples_are_computed_each_id_once(directory, linear):
    seen = []
    linear.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    cached = tcx.cached(linear, directory, id="linear_v1")
    inputs = torch.randn(4, 4)
    cached(inputs, ids=["a", "b", "a", "c"])
    assert seen[0].shape == (3, 4)
    # The last sample of the batch and another one were computed again, alone.
    assert [len(own) for own in seen[1:]] == [1, 1]
    seen.clear()
    inputs = torch.randn(3, 4)
    found = cached(inputs, ids=["x", "b", "y"])
    assert len(seen) == 1 and torch.equal(seen[0], inputs[[0, 2]])
    assert torch.equal(found[[0, 2]], linear(inputs[[0, 2]]))


def test_threads_that_ask_for_the_same_samples_get_the_same_rows(directory):
    module = Structured("dict").eval().requires_grad_(False)
    cached = tcx.cached(module, directory, id="threads_v1")
    failures = []

    def run(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(30):
            ids = [f"sample {int(number)}" for number in torch.randint(0, 40, (6,), generator=generator)]
            inputs = batch("matrix", ids)
            if not same(cached(inputs, ids=ids), module(inputs)):
                failures.append(ids)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert cached.stats()["rows_computed"] <= 40
    cached.close()


def test_the_inputs_of_a_batch_are_not_guessed():
    module = Structured("tensor", [("list", ["matrix", "matrix"])]).eval().requires_grad_(False)
    cached = tcx.cached(module, None, id="guess_v1", outputs=tcx.f64[2])
    two = torch.ones(2, 2)
    refused = {
        "could be one item for each sample, or parts": lambda: cached([two, two], ids=["a", "b"]),
        "expected one row for each of 2 ids, found 3": lambda: cached(torch.ones(3, 2), ids=["a", "b"]),
        "`shared={'mode': 'fast'}`": lambda: cached(two, mode="fast", ids=["a", "b"]),
        "argument `scale` is a single number": lambda: cached(two, scale=torch.tensor(2.0), ids=["a", "b"]),
        "argument 0 is object": lambda: cached(object(), ids=["a", "b"]),
        "argument 0['x'] is 1 for all samples": lambda: cached({"x": 1}, ids=["a", "b"]),
        "there is no input that has samples": lambda: cached(None, ids=["a", "b"]),
        "a list of 3 items for 2 samples": lambda: cached(["a", "b", "c"], ids=["a", "b"]),
        "a tuple of 2 numbers for 2 samples": lambda: cached(two, size=(224, 224), ids=["a", "b"]),
        "2 items of different types": lambda: cached(["a", 1], ids=["a", "b"]),
    }
    for message, call in refused.items():
        with pytest.raises(tcx.InvalidBatchError) as error:
            call()
        assert message in str(error.value), str(error.value)
    assert torch.equal(cached(tcx.parts([two, two]), ids=["a", "b"]), module([two, two]))


def test_what_all_samples_share_is_part_of_the_identity(directory):
    class Scaled(torch.nn.Module):
        def forward(self, x, scale):
            return x * scale

    def opened(scale):
        return tcx.cached(Scaled().eval(), directory, id="scaled_v1", shared={"scale": scale})

    with opened(2.0) as cached:
        assert cached(torch.ones(1, 2), ids=["a"]).tolist() == [[2.0, 2.0]]
        with pytest.raises(tcx.InvalidBatchError, match="argument `scale` is one that all samples share"):
            cached(torch.ones(1, 2), scale=torch.ones(1), ids=["b"])
    with pytest.raises(tcx.MismatchError, match=r"`shared.scale`: 2f64 in the cache, 3f64 in the code"):
        opened(3.0).fetch(["a"])


def test_fetch_loads_the_missing_inputs_only(directory, linear):
    inputs = {f"{number}": torch.randn(4) for number in range(6)}
    asked = []

    def load(missing):
        asked.append(missing)
        return torch.stack([inputs[own] for own in missing])

    cached = tcx.cached(linear, directory, id="linear_v1")
    first = cached.fetch(["3", "1", "3"], load)
    assert asked == [["3", "1"]]
    assert torch.allclose(first, linear(torch.stack([inputs[own] for own in ("3", "1", "3")])))
    cached.fetch(["1", "2"], load)
    assert asked[1:] == [["2"]]
    with pytest.raises(tcx.InvalidBatchError, match="1 samples are missing, one of them with id '5'"):
        cached.fetch(["1", "5"])
    assert cached.warm(inputs, load, batch_size=4, progress=False).computed == 3
    assert cached.coverage(inputs).is_complete
    assert cached.verify(list(inputs), load) == []
    cached.close()


def test_an_id_with_two_inputs_is_reported(directory, linear):
    cached = tcx.cached(linear, directory, id="linear_v1")
    with pytest.warns(UserWarning, match="the id 'a' is at positions 0 and 1 of the batch, with different inputs"):
        cached(torch.randn(2, 4), ids=["a", "a"])
    strict = tcx.cached(linear, None, id="linear_v1", refuse_repeated_ids=True)
    with pytest.raises(tcx.InvalidBatchError, match="one row cannot hold both"):
        strict(torch.randn(2, 4), ids=["a", "a"])
    row = torch.randn(1, 4)
    assert strict(row.repeat(2, 1), ids=["a", "a"]).shape == (2, 2)
    with pytest.raises(tcx.InvalidBatchError, match="one row cannot hold both"):
        strict([torch.ones(3), torch.ones(4)], ids=["b", "b"])


def test_it_is_a_module_with_the_names_of_the_one_inside(directory):
    inside = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).eval().requires_grad_(False)
    cached = tcx.cached(inside, directory, id="block_v1")
    model = torch.nn.Sequential(cached, torch.nn.Linear(3, 1))
    assert list(cached.state_dict()) == list(inside.state_dict())
    assert [name for name, _ in model.named_parameters()][:2] == ["0.0.weight", "0.0.bias"]
    model.train()
    assert not inside.training and not inside[1].training and model[1].training
    assert cached.to("cpu") is cached and next(cached.children()) is inside[0]
    inputs = torch.randn(2, 4)
    assert torch.equal(cached(inputs, ids=["a", "b"]), inside(inputs))
    model.load_state_dict(model.state_dict())
    assert torch.equal(cached(inputs, ids=["a", "c"])[0], inside(inputs)[0])


def test_outputs_share_no_memory_with_the_cache(directory, linear):
    cached = tcx.cached(linear, directory, id="linear_v1")
    inputs = torch.randn(2, 4)
    first = cached(inputs, ids=["a", "b"])
    expected = first.clone()
    first.zero_()
    assert torch.equal(cached.fetch(["a", "b"]), expected)
    cached.flush()
    cached.fetch(["a", "b"]).zero_()
    assert torch.equal(cached.fetch(["a", "b"]), expected)


def test_a_batch_is_freed_as_soon_as_the_caller_lets_go_of_it(directory):
    class Pair(torch.nn.Module):
        def forward(self, images):
            outputs = {"one": images + 1, "rest": (images * 2, None)}
            computed.append(weakref.ref(outputs["one"]))
            return outputs

    computed = []
    cached = tcx.cached(Pair().eval(), directory, id="m_v1")
    gc.disable()
    try:
        for _ in range(2):
            features = cached(torch.ones(2, 3), ids=["a", "b"])
            alive = [weakref.ref(features["one"]), weakref.ref(features["rest"][0]), *computed]
            del features
            assert [own() for own in alive] == [None] * len(alive)
    finally:
        gc.enable()
