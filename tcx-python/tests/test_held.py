"""What a module holds in arrays of any type, and in functions, is part of its identity and watched."""

from __future__ import annotations

import dataclasses
import functools
import types

import numpy
import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity.known import Known
from tcx_cache.identity.unsaved import Scan, is_same_content

PAIR = numpy.dtype([("scale", "f4"), ("name", "U4")], align=True)
PADDED = numpy.dtype({"names": ["small", "large"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 16})


def masked(factor):
    return numpy.ma.array([2.0, 3.0], mask=[factor == 3, False])


def long(factor):
    return numpy.longdouble([1, 0]) + numpy.finfo(numpy.longdouble).eps * factor


#: What a module holds: an array that depends on a factor.
ARRAYS = {
    "fields": lambda factor: numpy.array([(factor, "a"), (1, "b")], PAIR),
    "a name in a field": lambda factor: numpy.array([(1, f"a{factor}")], PAIR),
    "a record": lambda factor: numpy.array([(factor, "a")], PAIR)[0],
    "fields with gaps": lambda factor: numpy.array([(1, factor)], PADDED),
    "a subarray": lambda factor: numpy.zeros(1, [("all", "f4", (2,))]) if factor == 2 else numpy.ones(1, [("all", "f4", (2,))]),
    "names of fields": lambda factor: numpy.zeros(1, [(f"a{factor}", "f4")]),
    "objects": lambda factor: numpy.array([1, "a", 0.5 * factor], object),
    "a tensor among objects": lambda factor: numpy.array([None, torch.tensor(float(factor))], object),
    "an array among objects": lambda factor: numpy.array([None, numpy.arange(factor)], object),
    "objects in a field": lambda factor: numpy.array([(1, f"a{factor}")], [("scale", "f4"), ("name", object)]),
    "a type of another package": lambda factor: numpy.array([factor, 1], "u2").view("V2"),
    "a mask": masked,
    "the value behind a mask": lambda factor: numpy.ma.array([2.0, 3.0], mask=[True, False], fill_value=factor),
    "a mask of fields": lambda factor: numpy.ma.array([(1, "a")], PAIR, mask=[(factor == 3, False)]),
    "strings": lambda factor: numpy.array(["a", f"b{factor}"]),
    "bytes": lambda factor: numpy.array([b"a", b"b" * factor]),
    "dates": lambda factor: numpy.array(["2020-01-01"], "M8[D]") + factor,
    "long numbers": long,
    "complex long numbers": lambda factor: long(factor) * 1j,
    "a long number": lambda factor: long(factor)[0],
}


def function_of(own):
    return lambda x: x * own


def default_of(own):
    return lambda x, factor=own: x * factor


def named_of(own):
    def times(x, *, factor=own):
        return x * factor

    return times


def attribute_of(own):
    def times(x):
        return x * times.factor

    times.factor = own
    return times


def wrapped(function):
    @functools.wraps(function)
    def outer(x):
        return function(x)

    return outer


def method_of(own):
    return types.MethodType(lambda self, x: x * own, object())


FUNCTIONS = {
    "a variable": function_of,
    "a variable of an array": lambda own: function_of(own.numpy()),
    "a list in a variable": lambda own: (lambda all_of_them: lambda x: x * all_of_them[0])([own]),
    "a module in a variable": lambda own: function_of(frozen(Held(own))),
    "a default": default_of,
    "a named default": named_of,
    "an attribute": attribute_of,
    "a wrapped function": lambda own: wrapped(function_of(own)),
    "a partial": lambda own: functools.partial(function_of(own)),
    "a method": method_of,
    "a function in a list": lambda own: [function_of(own)],
}


class Held(torch.nn.Module):
    def __init__(self, own):
        super().__init__()
        self.own = own

    def forward(self, x):
        return x


def holding(own):
    return frozen(Held(own))


EVERY = {**ARRAYS, **{name: lambda factor, of=of: of(torch.tensor(float(factor))) for name, of in FUNCTIONS.items()}}


@pytest.mark.parametrize("of", EVERY.values(), ids=EVERY.keys())
def test_arrays_of_any_type_and_what_functions_hold_are_part_of_the_identity(directory, of):
    with tcx.cached(holding(of(2)), directory, id="m_v1") as cached:
        cached(torch.ones(1, 4), ids=["a"])
    with tcx.cached(holding(of(2)), directory, id="m_v1") as cached:
        assert cached.coverage(["a"]).is_complete
    with pytest.raises(tcx.MismatchError, match="`tensors`: .*own.*not in `state_dict`"):
        tcx.cached(holding(of(3)), directory, id="m_v1")


@pytest.mark.parametrize("name", ["fields", "objects", "a mask", "strings", "long numbers", "a tensor among objects"])
def test_what_is_written_to_arrays_of_any_type_is_noticed(name):
    array, other = ARRAYS[name](2), ARRAYS[name](3)
    cached = tcx.cached(holding(array), None, id="m_v1", flush_interval=3600)
    for number in range(3):
        cached(torch.ones(1, 4), ids=[number])
    array[:] = other
    with pytest.raises(tcx.ModuleViolationError, match="weight `own.*: changed|`own.*: was added or removed"):
        cached(torch.ones(1, 4), ids=[3])
    with pytest.raises(tcx.ModuleViolationError, match="3 computed rows were not kept"):
        cached.flush()


def test_a_variable_of_a_function_that_refers_to_another_tensor_is_noticed():
    def made():
        own = torch.ones(1)

        def times(x):
            return x * own

        def replace():
            nonlocal own
            own = torch.zeros(1)

        return times, replace

    times, replace = made()
    cached = tcx.cached(holding(times), None, id="m_v1")
    for number in range(3):
        cached(torch.ones(1, 4), ids=[number])
    replace()
    with pytest.raises(tcx.ModuleViolationError, match=r"weight `own.__closure__\[own\]`: changed"):
        cached(torch.ones(1, 4), ids=[3])


def test_a_function_that_uses_weights_of_its_module_adds_their_names_to_the_identity():
    plain, patched = (frozen(torch.nn.Linear(4, 2)) for _ in range(2))
    patched.load_state_dict(plain.state_dict())
    weight, run = patched.weight, patched.forward
    patched.forward = lambda x, bias=patched.bias: run(x) * weight.sum() + bias
    patched.activation = torch.nn.functional.gelu
    known, other = Known.of(patched, Scan(patched)), Known.of(plain, Scan(plain))
    [(label, used)] = known.unsaved
    assert label == "functions" and used.startswith("forward.__closure__[weight] is weight, forward.__defaults__[0] is bias: ")
    assert dataclasses.replace(known, unsaved=()) == other
    cached = tcx.cached(patched, None, id="m_v1")
    cached(torch.ones(1, 4), ids=["a"])
    # As a move to another device does.
    cached._apply(torch.clone)
    cached(torch.ones(1, 4), ids=["b"])


def test_the_identity_of_an_array_without_masked_numbers_is_that_of_its_numbers():
    plain, other = holding(numpy.ones(3)), holding(numpy.ma.array(numpy.ones(3), mask=[False] * 3))
    assert Known.of(plain, Scan(plain)) == Known.of(other, Scan(other))


def test_bytes_between_fields_are_no_part_of_the_identity():
    memory = [numpy.full(16, fill, "u1") for fill in (1, 2)]
    arrays = [own.view(PADDED) for own in memory]
    for array in arrays:
        array["small"], array["large"] = 1, 2
    assert not numpy.array_equal(*memory)
    first, second = map(holding, arrays)
    assert Known.of(first, Scan(first)) == Known.of(second, Scan(second))


def test_an_object_in_an_array_whose_value_is_not_known_is_refused():
    module = holding(numpy.array([object()], object))
    with pytest.raises(tcx.InvalidWeightsError, match="array `own`: holds a `builtins.object`, whose value is not known; replace it by the numbers"):
        tcx.cached(module, None, id="m_v1")


def _containing_itself():
    items = []
    items.append(items)
    array = numpy.empty(1, dtype=object)
    array[0] = items
    return array


@pytest.mark.parametrize(
    "value",
    [
        numpy.ma.masked,
        numpy.array([(1.0, "a")], [("size", "f4"), ("name", object)])[0],
        numpy.array(["\ud800", None], dtype=object),
        _containing_itself(),
    ],
    ids=["the constant `masked`", "a record with an object", "a string that is no text", "a list that contains itself"],
)
def test_a_module_with_an_unusual_value_opens(directory, value):
    class Holds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.value = value
            self.register_buffer("scale", torch.ones(1))

        def forward(self, x):
            return x * self.scale

    with tcx.Cache(directory) as cache:
        cached = cache.module(Holds().eval(), "holds_v1")
        assert cached(torch.ones(2, 3), ids=["a", "b"]).shape == (2, 3)


@pytest.mark.parametrize("items", [[numpy.str_("a"), numpy.float32(1)], [(1, "a"), (2, ("b", None))]], ids=["numpy's own", "tuples"])
def test_values_in_an_array_that_hold_nothing_need_no_walk_for_each_batch(items):
    module, array = torch.nn.Identity().eval(), numpy.empty(2, dtype=object)
    array[:] = items
    module.array = array
    assert Scan(module).contents() is not None


def test_a_counter_of_a_function_needs_no_walk_for_each_batch():
    def counting():
        calls, scale = 0, torch.ones(1)

        def count(x):
            nonlocal calls
            calls += 1
            return x * scale

        return count

    module = torch.nn.Identity().eval()
    module.count = counting()
    scan = Scan(module)
    module.count(torch.ones(1))
    assert all(is_same_content(cell, held) for cell, held in scan.cells)
