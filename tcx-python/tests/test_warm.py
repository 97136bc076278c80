"""Warming a cache: its progress bar, and its report."""

from __future__ import annotations

import sys
import types

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.engine.columns import Target


@pytest.fixture
def bars(monkeypatch):
    """The bars that tqdm was asked for."""
    made = []

    class Bar:
        def __init__(self, total, desc, unit):
            self.total, self.desc, self.unit, self.done, self.is_closed = total, desc, unit, 0, False
            made.append(self)

        def update(self, number):
            self.done += number

        def close(self):
            self.is_closed = True

    module = types.ModuleType("tqdm.auto")
    module.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    return made


def load(missing):
    return torch.stack([torch.full((4,), float(own)) for own in missing])


def test_a_bar_of_tqdm_shows_the_samples(directory, linear, bars):
    with tcx.cached(linear, directory, id="linear_v1") as cached:
        assert cached.warm(range(10), load, batch_size=4) == tcx.WarmReport(10, 10)
        assert cached.warm(range(12), load, batch_size=4, progress=False) == tcx.WarmReport(12, 2)
    (bar,) = bars
    assert (bar.total, bar.desc, bar.unit, bar.done, bar.is_closed) == (10, "warm linear_v1", " samples", 10, True)


def test_a_bar_is_closed_by_an_error(directory, bars):
    with tcx.Cache(directory) as cache, pytest.raises(ZeroDivisionError):
        cache.table("t_v1", outputs=float).warm([1, 0], lambda missing: [1 / own for own in missing])
    assert bars[0].is_closed


def test_without_tqdm_nothing_is_shown(directory, linear, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with tcx.cached(linear, directory, id="linear_v1") as cached:
        assert cached.warm(iter(range(10)), load) == tcx.WarmReport(10, 10)
    assert capfd.readouterr() == ("", "")


WARMS = {
    "table": lambda cached, table: table.warm(range(10), lambda missing: load(missing)[:, :2], batch_size=4, progress=False),
    "module": lambda cached, table: cached.warm(range(10), load, batch_size=4, progress=False),
    "sharded": lambda cached, table: cached.warm_sharded(range(10), load, rank=tcx.Rank(0, 1), batch_size=4, progress=False),
    "shared": lambda cached, table: cached.warm_shared(range(10), load, batch_size=4),
    "workers": lambda cached, table: cached.warm_shared(range(10), load, batch_size=4, workers=2),
}


@pytest.mark.parametrize("how", WARMS)
@pytest.mark.parametrize("outputs", [None, tcx.f32[2]])
def test_rows_are_not_read_while_a_cache_is_warmed(directory, linear, monkeypatch, how, outputs):
    reads = []

    def read(self, rows, own=Target.read):
        reads.append(len(rows))
        return own(self, rows)

    monkeypatch.setattr(Target, "read", read)
    with tcx.cached(linear, directory, id="linear_v1", outputs=outputs) as cached, tcx.Cache(directory).table("t_v1", outputs=outputs, ids=int) as table:
        WARMS[how](cached, table)
        assert reads == []
        if how == "table":
            assert torch.equal(table.stored(range(10)), load(range(10))[:, :2])
        else:
            assert torch.allclose(cached.fetch(range(10)), linear(load(range(10))))
        assert reads == [10]


def test_a_warm_up_without_a_function_names_a_missing_sample(directory, linear):
    with tcx.cached(linear, directory, id="linear_v1") as cached, tcx.Cache(directory).table("t_v1", outputs=float, ids=int) as table:
        table.put([0], [1.0])
        for own in (cached, table):
            with pytest.raises(tcx.InvalidBatchError, match="1 samples are missing, one of them with id 7"):
                own.warm([7], None, progress=False)
