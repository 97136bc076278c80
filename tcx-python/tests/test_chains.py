"""Modules after other modules, and settings of torch around them."""

from __future__ import annotations

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx


def backbone(seed):
    torch.manual_seed(seed)
    return frozen(torch.nn.Linear(4, 3))


def head():
    torch.manual_seed(9)
    return frozen(torch.nn.Linear(3, 2))


def chained(directory, seed, outputs=tcx.f32[3], **options):
    features = tcx.cached(backbone(seed), None, id="features_v1", outputs=outputs, **options)
    return features, tcx.cached(head(), directory, id="head_v1", after=features)


def test_a_module_after_another_never_reads_rows_of_other_weights_there(directory):
    inputs = torch.randn(2, 4)
    features, scores = chained(directory, 1)
    expected = scores(features(inputs, ids=["a", "b"]), ids=["a", "b"])
    scores.close()
    _, again = chained(directory, 1)
    assert torch.equal(again.fetch(["a", "b"]), expected)
    again.close()
    for changed in [{"seed": 2}, {"seed": 1, "config": {"size": 3}}, {"seed": 1, "outputs": tcx.f32[3].stored_as(tcx.f16)}]:
        with pytest.raises(tcx.MismatchError, match="`features_v1/"):
            chained(directory, **changed)


def test_rows_made_of_rows_of_changed_weights_do_not_become_durable_either(directory):
    torch.manual_seed(1)
    net = frozen(torch.nn.Linear(4096, 64, bias=False))
    before = net.weight.clone()
    features = tcx.cached(net, directory, id="features_v1", outputs=tcx.f32[64], flush_interval=3600)
    middle = tcx.cached(frozen(torch.nn.Identity()), directory, id="middle_v1", outputs=tcx.f32[64], after=features, flush_interval=3600)
    last = frozen(torch.nn.Linear(64, 2))
    scores = tcx.cached(last, directory, id="head_v1", outputs=tcx.f32[2], after=middle, flush_interval=3600)
    inputs = torch.ones(2, 4096)

    def compute(ids):
        return scores(middle(features(inputs, ids=ids), ids=ids), ids=ids)

    compute(["a", "b"])
    for own in (features, middle, scores):
        own.flush()
    # Between the cache lines that are read after each batch.
    net.weight.data[0, 100] = 1e6
    compute(["c", "d"])
    with pytest.raises(tcx.ModuleViolationError, match="module `features_v1`, whose outputs are inputs of `head_v1`: weight `weight`"):
        scores.flush()
    # It is known from now on.
    with pytest.raises(tcx.ModuleViolationError, match="module `features_v1`, whose outputs are inputs of `head_v1`"):
        scores(torch.ones(1, 64), ids=["e"])
    net.weight.data.copy_(before)
    scores.close()
    own = tcx.cached(net, None, id="features_v1", outputs=tcx.f32[64])
    between = tcx.cached(frozen(torch.nn.Identity()), None, id="middle_v1", outputs=tcx.f32[64], after=own)
    assert tcx.cached(last, directory, id="head_v1", outputs=tcx.f32[2], after=between).coverage(["a", "c", "d"]).missing == ["c", "d"]


def test_a_module_after_a_view_never_reads_rows_of_another_view(directory):
    features = tcx.cached(backbone(1), None, id="features_v1", outputs=tcx.f32[3])
    with tcx.cached(head(), directory, id="head_v1", after=features.view(1)) as scores:
        scores(torch.randn(2, 3), ids=["a", "b"])
    with pytest.raises(tcx.MismatchError, match="`features_v1/view`"):
        tcx.cached(head(), directory, id="head_v1", after=features)
    with tcx.cached(head(), directory, id="head_v1", after=features.view(1)) as scores:
        assert scores.coverage(["a", "b"]).is_complete


def test_outputs_that_are_not_known_are_asked_for(directory):
    features = tcx.cached(backbone(1), directory, id="features_v1")
    with pytest.raises(tcx.InvalidSettingsError, match="the outputs of `features_v1` are not known yet.*declare `outputs=`"):
        tcx.cached(head(), directory, id="head_v1", after=features)
    features(torch.randn(2, 4), ids=["a", "b"])
    tcx.cached(head(), directory, id="head_v1", after=[features])
    with pytest.raises(tcx.InvalidSettingsError, match="expected a cached module or a table, found Linear"):
        tcx.cached(head(), directory, id="head_v1", after=backbone(1))


def test_autocast_is_refused_unless_it_is_declared(directory):
    inputs = torch.randn(2, 4)
    plain = tcx.cached(backbone(1), directory, id="m_v1")
    plain(inputs, ids=["a", "b"])
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(tcx.ModuleViolationError, match=r"autocast casts to torch.bfloat16 .*pass `config=\{'autocast': torch.bfloat16\}`"):
            plain(inputs, ids=["c", "d"])
        # What is stored is the same everywhere.
        assert torch.equal(plain(inputs, ids=["a", "b"]), plain.fetch(["a", "b"]))
    plain(inputs, ids=["c", "d"])
    cast = tcx.cached(backbone(1), None, id="m_v1", config={"autocast": torch.bfloat16})
    with torch.autocast("cpu", torch.bfloat16):
        assert cast(inputs, ids=["a", "b"]).dtype == torch.bfloat16
    with pytest.raises(tcx.ModuleViolationError, match="autocast is not active"):
        cast(inputs, ids=["c", "d"])
    with torch.autocast("cpu", torch.float16), pytest.raises(tcx.ModuleViolationError, match="casts to torch.float16"):
        cast(inputs, ids=["c", "d"])
    plain.close()
    with pytest.raises(tcx.MismatchError, match="`config.autocast`: absent from the cache"):
        tcx.cached(backbone(1), directory, id="m_v1", config={"autocast": torch.bfloat16})
    with pytest.raises(tcx.InvalidWeightsError, match="expected `torch.float16` or `torch.bfloat16`, found 'fast'"):
        tcx.cached(backbone(1), None, id="m_v1", config={"autocast": "fast"})


def test_autocast_for_another_device_is_not_that_of_the_weights():
    def autocast(dtype):
        torch.set_autocast_enabled("cuda", dtype is not None)
        torch.set_autocast_dtype("cuda", dtype or torch.float16)

    inputs = torch.randn(2, 4)
    cast = tcx.cached(backbone(1), None, id="m_v1", config={"autocast": torch.bfloat16})
    autocast(torch.bfloat16)
    try:
        with pytest.raises(tcx.ModuleViolationError, match="autocast is active for cuda .*, and the weights are on cpu, where it casts nothing"):
            cast(inputs, ids=["a", "b"])
        with torch.autocast("cpu", torch.bfloat16):
            assert cast(inputs, ids=["a", "b"]).dtype == torch.bfloat16
            autocast(torch.float16)
            with pytest.raises(tcx.ModuleViolationError, match="casts to torch.float16"):
                cast(inputs, ids=["c", "d"])
    finally:
        autocast(None)


def test_the_default_dtype_is_part_of_the_identity(directory):
    class Filling(torch.nn.Module):
        def forward(self, x):
            return (x.float() + torch.tensor([1 / 3]).to(torch.float64)).float()

    with tcx.cached(Filling().eval(), directory, id="m_v1") as cached:
        cached(torch.ones(2, 1), ids=["a", "b"])
        cached.flush()
        torch.set_default_dtype(torch.float64)
        try:
            with pytest.raises(tcx.ModuleViolationError, match="the default dtype is torch.float64, and was torch.float32"):
                cached(torch.ones(1, 1), ids=["c"])
            with pytest.raises(tcx.MismatchError, match="`default dtype`: absent from the cache, float64 in the code"):
                tcx.cached(Filling().eval(), directory, id="m_v1")
        finally:
            torch.set_default_dtype(torch.float32)
        cached(torch.ones(1, 1), ids=["c"])


def test_every_table_of_a_cache_is_flushed_and_closed_and_every_error_reported(directory):
    networks = [backbone(seed) for seed in (1, 2)]
    for finish in ("flush", "close"):
        cache = tcx.Cache(directory / finish, flush_interval=3600)
        modules = [cache.module(network, f"m{number}_v1") for number, network in enumerate(networks)]
        table = cache.table("t_v1", outputs=int)
        for module in modules:
            module(torch.randn(2, 4), ids=["a", "b"])
        table.put(["a"], [1])
        for network in networks:
            network.bias.data.add_(1)
        message = "2 modules or tables failed: module `m0_v1`: 2 computed rows were not kept.*; module `m1_v1`: 2 computed rows were not kept"
        with pytest.raises(tcx.ModuleViolationError, match=message):
            getattr(cache, finish)()
        assert list((directory / finish / "t_v1").glob("seg-*"))
        for network in networks:
            network.bias.data.sub_(1)
