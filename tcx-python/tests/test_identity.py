"""What decides the outputs of a module is its identity: another one never reads its rows."""

from __future__ import annotations

import enum
import itertools

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx

# As `tcx::Frozen` prints it for `a: f32 [2, 2]` = 1, 2, 3, 4 and `b: i64 [3]` = 5, 6, 7; see `tcx/src/identity/frozen/tests.rs`.
CANONICAL = "blake3:12a82e0dd0b63adc19e405cc250334a56c4cf26cbfc7bd99ea701da32d435be5"


def test_the_fingerprint_is_that_of_the_library_in_rust():
    tensors = {"b": torch.tensor([5, 6, 7]), "a": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    assert tcx.fingerprint(tensors) == CANONICAL
    assert tcx.fingerprint({"a": tensors["a"].T.contiguous().T, "b": tensors["b"]}) == CANONICAL


def test_combined_flags_have_different_texts():
    from tcx_cache.identity.config import entries

    class Options(enum.IntFlag):
        FIRST = 1
        SECOND = 2
        THIRD = 4

    flags = [Options.FIRST, Options.FIRST | Options.SECOND, Options.FIRST | Options.THIRD, Options(8), Options(16)]
    texts = {entries("x", flag)[0][1] for flag in flags}
    assert len(texts) == len(flags), texts


def test_names_dtypes_shapes_and_values_are_part_of_the_fingerprint():
    all_of_them = [
        {"a": torch.zeros(4)},
        {"b": torch.zeros(4)},
        {"a": torch.zeros(2, 2)},
        {"a": torch.zeros(4, dtype=torch.int32)},
        {"a": torch.zeros(2, dtype=torch.float64)},
        {"a": -torch.zeros(4)},
        {"a": torch.zeros(4), "b": torch.zeros(0)},
        {"a": torch.zeros(4, dtype=torch.bfloat16)},
        {"a": torch.zeros(4, dtype=torch.complex64)},
    ]
    assert len({tcx.fingerprint(tensors) for tensors in all_of_them}) == len(all_of_them)


def opened(directory, module, **options):
    cached = tcx.cached(module, directory, id="m_v1", **options)
    cached(torch.ones(2, 4), ids=["a", "b"])
    cached.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda module: module.weight.data.add_(1), "`weights`: blake3:"),
        (lambda module: module.register_buffer("scale", torch.ones(1)), "`weights`: blake3:"),
        (lambda module: module.register_buffer("scale", torch.ones(1), persistent=False), "`buffers`: absent from the cache"),
        (lambda module: setattr(module, "active_adapter", ["lora"]), "`adapters`: absent from the cache"),
    ],
)
def test_another_module_never_reads_an_old_cache(directory, linear, change, message):
    opened(directory, linear)
    change(linear)
    with pytest.raises(tcx.MismatchError, match=message):
        opened(directory, linear)


def test_configuration_and_columns_are_part_of_the_identity(directory, linear):
    opened(directory, linear, config={"size": 224, "mean": [0.5, 0.1], "name": "a\nb"}, outputs=tcx.f32[2])
    with pytest.raises(tcx.MismatchError, match="`config.size`: 224i64 in the cache, 336i64 in the code"):
        opened(directory, linear, config={"size": 336, "mean": [0.5, 0.1], "name": "a\nb"}, outputs=tcx.f32[2])
    with pytest.raises(tcx.MismatchError, match=r"`value`: f32 \[2\] in the cache, f32 \[3\] in the code"):
        opened(directory, linear, config={"size": 224, "mean": [0.5, 0.1], "name": "a\nb"}, outputs=tcx.f32[3])
    with pytest.raises(tcx.InvalidWeightsError, match="`config.loader`: function is no plain value"):
        opened(directory, linear, config={"loader": opened})


def test_values_are_written_as_in_rust():
    from tcx_cache.identity.config import entries

    written = [
        (1, "1i64"),
        (-0.0, "-0f64"),
        (0.1, "0.1f64"),
        (1e21, "1000000000000000000000f64"),
        (float("-inf"), "-inf f64"),
        (True, "true"),
        (None, "None"),
        ('a"\n\x1b', '"a\\"\\n\\x1b"'),
        (tcx.typed(7, "u8"), "7u8"),
        (tcx.typed(7.0, "i32"), "7i32"),
        (tcx.typed((1 << 64) - 1, "u64"), "18446744073709551615u64"),
        (tcx.typed(-128, "i8"), "-128i8"),
        (tcx.typed(0.1, "f32"), "0.1f32"),
        (tcx.typed(16777216, "f32"), "16777216f32"),
        (tcx.typed(0.1, "f16"), "0.099975586f16"),
    ]
    for value, text in written:
        assert entries("x", value) == [("x", text)]
    assert entries("x", [1, "a"]) == [("x", "2 items"), ("x[0]", "1i64"), ("x[1]", '"a"')]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1.7, "i32"), (300, "u8"), (-1, "u64"), (1 << 31, "i32"), (1 << 64, "usize"), (float("nan"), "i64"), (float("inf"), "u8"), (1e39, "f32"), (1e5, "f16")],
)
def test_a_number_that_its_type_in_rust_does_not_have_is_refused(linear, value, dtype):
    with pytest.raises(tcx.InvalidWeightsError, match=rf"is no {dtype}: .*`tcx.typed`"):
        tcx.cached(linear, None, id="m_v1", config={"size": tcx.typed(value, dtype)})


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (torch.nn.Linear(4, 2), "it is in training mode.*call `module.eval\\(\\)` before"),
        (torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout()).eval().requires_grad_(False), "its part `1` is in training mode"),
        (torch.nn.Linear(4, 2).eval(), "weight `weight`: tracks gradients.*requires_grad_\\(False\\)"),
    ],
)
def test_a_module_that_is_not_frozen_is_refused_with_what_to_do(module, message):
    if isinstance(module, torch.nn.Sequential):
        module[1].train()
    with pytest.raises(tcx.InvalidWeightsError, match=f"module `m_v1`: .*{message}"):
        tcx.cached(module, None, id="m_v1")


def test_gradients_can_be_waived(linear):
    linear.requires_grad_(True)
    found = tcx.cached(linear, None, id="m_v1", allow_gradients=True)(torch.ones(1, 4), ids=["a"])
    assert not found.requires_grad


def test_state_that_is_no_tensor_is_refused():
    class Odd(torch.nn.Module):
        def get_extra_state(self):
            return {"step": 3}

        def set_extra_state(self, state):
            pass

    with pytest.raises(tcx.InvalidWeightsError, match="weight `_extra_state`: expected a tensor, found dict"):
        tcx.cached(Odd().eval(), None, id="m_v1")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda module: module.weight.add_(1), "weight `weight`: changed"),
        (lambda module: module.weight.data.add_(1), "weight `weight`: changed in place"),
        (lambda module: module.weight.numpy().fill(3), "weight `weight`: changed in place"),
        (lambda module: setattr(module, "bias", torch.nn.Parameter(torch.ones(2), requires_grad=False)), "weight `bias`: changed"),
        (lambda module: module.half(), "weight `weight`: changed"),
        (lambda module: module.register_buffer("new", torch.ones(1)), "weight `new`: was added"),
        (lambda module: module.train(), "training mode"),
        (lambda module: module.requires_grad_(True), "tracks gradients"),
        (lambda module: setattr(module, "active_adapter", "other"), "its adapters were switched"),
    ],
)
def test_weights_that_change_later_are_noticed(directory, linear, write, message):
    cached = tcx.cached(linear, directory, id="m_v1")
    cached(torch.ones(2, 4), ids=["a", "b"])
    write(linear)
    with pytest.raises(tcx.ModuleViolationError, match=f"module `m_v1`: .*{message}"):
        cached(torch.ones(1, 4), ids=["c"])


def test_rows_of_weights_that_changed_are_not_made_durable(directory, linear):
    cached = tcx.cached(linear, directory, id="m_v1", flush_interval=3600)
    cached(torch.ones(2, 4), ids=["a", "b"])
    linear.weight.data.add_(1)
    with pytest.raises(tcx.ModuleViolationError, match="2 computed rows were not kept: weight `weight`: changed in place"):
        cached.flush()
    assert cached.coverage(["a", "b"]).missing == ["a", "b"]


def test_weights_that_are_moved_or_loaded_again_are_the_same(directory, linear):
    cached = tcx.cached(linear, directory, id="m_v1")
    cached(torch.ones(2, 4), ids=["a", "b"])
    linear.load_state_dict({name: value.clone() for name, value in linear.state_dict().items()})
    linear.weight.data = linear.weight.data.clone()
    cached(torch.ones(1, 4), ids=["c"])
    cached.close()


class Random(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5, training=True)


class Centered(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class OneAtOnce(torch.nn.Module):
    def forward(self, x):
        if len(x) < 3:
            raise RuntimeError("too small")
        return x


class Sticky(torch.nn.Module):
    """Outputs that have the size of the longest sample."""

    def forward(self, x):
        return torch.nn.utils.rnn.pad_sequence([row[row > 0] for row in x], batch_first=True)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Random(), "the same sample gave two different outputs: field `value`.*no dropout"),
        (Centered(), "a sample's output depends on the rest of its batch: field `value`"),
        (OneAtOnce(), "computed a batch of 4 samples but failed on 1 of them.*any number of samples.*too small"),
        (Sticky(), "a sample's output depends on the rest of its batch: field `value` has the shapes|the same sample gave two"),
    ],
)
def test_a_module_that_breaks_its_promise_is_found_out_by_the_first_batch(module, message):
    cached = tcx.cached(module.eval(), None, id="m_v1")
    inputs = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [5.0, 6.0, 0.0], [7.0, 0.0, 0.0]]) * 10
    for _ in range(2):
        with pytest.raises(tcx.ModuleViolationError, match=message):
            cached(inputs, ids=["a", "b", "c", "d"])
    assert cached.coverage(["a", "b", "c", "d"]).missing == ["a", "b", "c", "d"]


class Ranked(torch.nn.Module):
    def forward(self, x):
        return x[:, 0].argsort().argsort()


class AboveTheLeast(torch.nn.Module):
    def forward(self, x):
        return x[:, 0] > x.min()


class Named(torch.nn.Module):
    def forward(self, x):
        return [str(int(rank)) for rank in x[:, 0].argsort(descending=True).argsort()]


@pytest.mark.parametrize("module", [Ranked(), AboveTheLeast(), Named()])
def test_labels_that_depend_on_the_batch_in_most_samples_are_found_out(module):
    cached = tcx.cached(module.eval(), None, id="m_v1")
    with pytest.raises(tcx.ModuleViolationError, match="depends on the rest of its batch: field `value` is not the same in . of 8 samples"):
        cached(torch.arange(16.0)[:, None], ids=[*range(16)])


def test_labels_that_other_kernels_change_in_a_few_samples_are_kept():
    class Rounded(torch.nn.Module):
        def forward(self, x):
            # As if the last bits of one in sixteen were others alone.
            return x[:, 0].long() + ((len(x) == 1) & (x[:, 0].long() % 16 == 0))

    cached = tcx.cached(Rounded().eval(), None, id="m_v1")
    for start in range(0, 400, 40):
        numbers = [*range(start, start + 40)]
        assert cached(torch.tensor(numbers)[:, None].float(), ids=numbers).tolist() == numbers


def test_a_random_module_that_writes_every_output_to_the_same_memory_is_found_out():
    held, counter = {}, itertools.count()

    class Reusing(torch.nn.Module):
        def forward(self, x):
            return torch.add(x, next(counter), out=held.setdefault("memory", torch.empty(8, 3))[: len(x)])

    for ids in (["a"], ["a", "b", "c", "d"]):
        # Memory that was there before would be a part of the identity.
        held.clear()
        with pytest.raises(tcx.ModuleViolationError, match="the same sample gave two different outputs"):
            tcx.cached(Reusing().eval(), None, id="m_v1")(torch.ones(len(ids), 3), ids=ids)


def test_a_module_that_becomes_random_later_is_found_out_where_samples_are_rechecked():
    class Later(torch.nn.Module):
        is_random = [False]
        # Two random numbers may differ by less than the tolerance.
        numbers = itertools.count()

        def forward(self, x):
            return x + next(self.numbers) if self.is_random[0] else x

    for recheck, expected in [(0.0, 8), (1.0, 0)]:
        Later.is_random[0] = False
        cached = tcx.cached(Later().eval(), None, id="m_v1", recheck=recheck)
        cached(torch.ones(2, 4), ids=["a", "b"])
        Later.is_random[0] = True
        found = 0
        for number in range(8):
            try:
                cached(torch.ones(2, 4), ids=[f"{number} a", f"{number} b"])
                found += 1
            except tcx.ModuleViolationError as error:
                assert "the same sample gave two different outputs" in str(error)
        assert found == expected


def test_a_trainable_tensor_that_is_no_parameter_is_noticed():
    scale = torch.ones(1, requires_grad=True)

    class Named(torch.nn.Module):
        def forward(self, x):
            return x * scale

    class Hidden(torch.nn.Module):
        def forward(self, x):
            # Made where no walk looks.
            return x * torch.ones(1, requires_grad=True)

    with pytest.raises(tcx.InvalidWeightsError, match=r"weight `__class__.__closure__\[scale\]`: tracks gradients"):
        tcx.cached(Named().eval(), None, id="m_v1")
    with pytest.raises(tcx.ModuleViolationError, match="an output tracks gradients"):
        tcx.cached(Hidden().eval(), None, id="m_v1")(torch.ones(2, 4), ids=["a", "b"])


def test_a_module_that_uses_its_own_handle_is_an_error(linear):
    class Recursive(torch.nn.Module):
        cached = []

        def forward(self, x):
            return self.cached[0](x, ids=["z"] * len(x))

    module = Recursive().eval()
    module.cached.append(tcx.cached(module, None, id="m_v1"))
    with pytest.raises(tcx.ModuleViolationError, match="it would wait for itself forever"):
        module.cached[0](torch.ones(1, 4), ids=["a"])


def test_a_module_in_rust_is_named_by_its_type_and_fields(directory, linear):
    with tcx.cached(
        linear, directory, id="m_v1", outputs=tcx.f32[2], type_name="Projection", fields={"layer": tcx.WEIGHTS, "size": tcx.typed(224, "u32")}
    ) as cached:
        cached(torch.ones(1, 4), ids=["a"])
    from tcx_cache import _native

    spec = _native.Spec.read(str(directory / "m_v1"))
    assert spec.identity == [("self", "Projection"), ("layer.weights", tcx.fingerprint(linear.state_dict())), ("size", "224u32")]
    assert dict(spec.provenance)["torch"] == torch.__version__


def test_the_caller_s_training_mode_is_not_changed(linear):
    assert frozen(linear) is linear and not linear.training
