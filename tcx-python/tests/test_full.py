"""Folders that are full: what is not stored is reported."""

from __future__ import annotations

import resource
import warnings

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.torchcachex import ArrowIPCCacheBackend

LIMIT = 64 << 10


def fill(table):
    """Puts values until no more are stored, and returns how many are. Joining segments makes room, also in the background, so it is done until
    it makes none."""
    stored = refused = 0
    while refused < 3:
        try:
            table.put([f"row {stored}"], torch.full((1, 1024), float(stored)))
            stored, refused = stored + 1, 0
        except tcx.FullError:
            refused += 1
            table.compact()
            table.collect(0)
        table.flush()
        assert stored < 1000, "the folder is never full"
    return stored


@pytest.fixture
def full(directory):
    with tcx.Cache(directory, max_bytes=LIMIT) as cache:
        table = cache.table("f_v1", outputs=tcx.f32[1024])
        assert fill(table) > 3
        yield table


def test_values_that_a_full_folder_refuses_are_an_error(full):
    values = torch.ones(1, 1024)
    for store in (full.put, full.replace):
        with pytest.raises(tcx.FullError, match="module `f_v1`: its folder is full, so the values were not stored; raise `max_bytes`, or remove rows"):
            store(["x"], values)
        with pytest.raises(tcx.FullError):
            store(["row 0", "x"], torch.ones(2, 1024))
    assert full.coverage(["x"]).missing == ["x"]
    assert full.stored(["row 0"])[0, 0] == 0
    full.flush()


def test_a_value_that_is_larger_than_the_folder_is_an_error(directory):
    for when_full in ("stop_writing", "evict_oldest"):
        with tcx.Cache(directory / when_full, max_bytes=1000, when_full=when_full) as cache:
            table = cache.table("f_v1", outputs=bytes)
            with pytest.raises(tcx.FullError, match="id 1 of the batch: `max_bytes` allows 1000 bytes for all values, this one has 1001"):
                table.put(["a", "b"], [b"x", b"y" * 1001])


def test_computed_rows_that_a_full_folder_refuses_are_returned_with_a_warning(full):
    with pytest.warns(UserWarning, match="module `f_v1`: its folder has reached `max_bytes`: rows are computed and returned, but not stored"):
        assert full.fetch(["y"], lambda missing: torch.full((1, 1024), 7.0))[0, 0] == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        full.fetch(["z"], lambda missing: torch.zeros(1, 1024))
        full.fetch(["row 0"], lambda missing: torch.zeros(1, 1024))
    assert full.coverage(["y", "z"]).stored == 0
    report = full.warm(["row 0", "u", "v"], lambda missing: torch.zeros(len(missing), 1024), progress=False)
    assert (report.computed, report.not_kept) == (2, 2)


def test_a_module_returns_what_a_full_folder_refuses_with_a_warning(directory):
    linear = torch.nn.Linear(4, 2).eval().requires_grad_(False)
    cached = tcx.cached(linear, directory, id="m_v1", max_bytes=0)
    inputs = torch.randn(2, 4)
    with pytest.warns(UserWarning, match="module `m_v1`: its folder has reached `max_bytes`") as warned:
        assert torch.equal(cached(inputs, ids=["a", "b"]), linear(inputs))
    assert [own.filename for own in warned] == [__file__], "the warning names the line that has called the module"
    assert cached.coverage(["a", "b"]).stored == 0


@pytest.fixture
def no_room():
    """A disk that takes no file of more than a kilobyte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_stops_no_run_and_is_reported(directory, no_room):
    linear = torch.nn.Linear(4, 64).eval().requires_grad_(False)
    inputs, ids = torch.randn(96, 4), [f"id {number}" for number in range(96)]
    cached = tcx.cached(linear, directory, id="m_v1", flush_interval=3600)
    cached(inputs[:32], ids=ids[:32])
    with pytest.raises(tcx.IoError, match="cannot write a segment"):
        cached.flush()
    with pytest.warns(UserWarning, match="module `m_v1`: its folder cannot be written: rows are computed and returned, but not stored; make room") as warned:
        assert torch.allclose(cached(inputs[32:64], ids=ids[32:64]), linear(inputs[32:64]), atol=1e-6)
        cached(inputs[64:], ids=ids[64:])
    assert [own.filename for own in warned] == [__file__]
    assert cached.stats()["is_writing_off"] and cached.stats()["rows_dropped"] == 64
    assert cached.coverage(ids).missing == ids[32:], "accepted rows stay readable"
    report = cached.warm(ids[32:64], lambda missing: inputs[32:64], progress=False)
    assert (report.computed, report.not_kept) == (32, 32)
    no_room()
    with pytest.raises(tcx.IoError, match="96 computed rows were not kept: cannot write a segment"):
        cached.flush()
    cached(inputs, ids=ids)
    cached.close()
    assert tcx.cached(linear, directory, id="m_v1").coverage(ids).is_complete, "writing resumes by itself"


def test_the_backend_of_torchcachex_reports_a_full_folder(directory):
    backend = ArrowIPCCacheBackend(directory, "b_v1", max_bytes=0)
    with pytest.raises(tcx.FullError):
        backend.put_batch({"a": torch.ones(3)})


def test_no_warning_where_nothing_is_to_be_stored(directory):
    for mode in ("read_only", "off"):
        with warnings.catch_warnings(), tcx.Cache(directory / mode, mode=mode, max_bytes=0) as cache:
            warnings.simplefilter("error")
            assert cache.table("t_v1", outputs=int).fetch(["a"], lambda missing: [1]) == [1]
