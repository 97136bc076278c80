"""The settings of a cache."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.engine.settings import NATIVE


def test_settings(directory):
    with tcx.Cache(directory, compression="zstd", time_to_live=datetime.timedelta(days=1), max_bytes=1 << 30, when_full="evict_oldest", memory_cache_bytes=1 << 20, read_mode="pread", flush_bytes=1 << 20) as cache:
        table = cache.table("s_v1", outputs=tcx.f32[64])
        table.fetch([1, 2], lambda missing: torch.ones(2, 64))
        table.flush()
        assert torch.equal(table.stored([2]), torch.ones(1, 64))
        assert table.stats()["rows_sealed"] == 2 and table.disk_usage()["files"] >= 2
        assert table.describe([1, 3])[1] is None and table.describe([1])[0].segment.startswith("seg-")
        assert table.prefetch([1, 2, 3]) == 2
        table.compact()
        assert table.collect(0) >= 0
    for settings, message in [
        ({"colour": "red"}, "there is no setting `colour`"),
        ({"compression": "gzip"}, "cannot compress with `gzip`: .*; use `zstd`"),
        ({"when_full": "panic"}, "setting `when_full`: found `panic`, expected one of"),
        ({"flush_bytes": "many"}, "setting `flush_bytes`"),
        ({"flush_interval": -1.0}, "is no duration"),
    ]:
        with pytest.raises(tcx.InvalidSettingsError, match=message):
            tcx.Cache(directory, **settings).table("s_v1")
    with pytest.raises(tcx.InvalidSettingsError, match="there is no mode `fast`"):
        tcx.Cache(directory, mode="fast")


SETTINGS = {
    "flush_bytes": [1 << 20],
    "flush_interval": [0.5, datetime.timedelta(seconds=1)],
    "write_buffer_bytes": [1 << 26],
    "refresh_every": [0.1],
    "gc_grace": [30],
    "time_to_live": [None, 3600.0],
    "max_bytes": [None, 1 << 30],
    "when_full": ["stop_writing", "evict_oldest", "evict_least_used", "evict_random"],
    "compression": ["none", "lz4", "zstd"],
    "memory_cache_bytes": [0, 1 << 20],
    "memory_cache_policy": ["lru", "scan_resistant"],
    "read_mode": ["auto", "map", "pread"],
    "background_priority": ["low", "idle"],
    "on_mismatch": ["refuse", "separate"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in SETTINGS.items() for value in values])
def test_every_setting_is_accepted_with_each_of_its_values(tmp_path, name, value):
    with tcx.Cache(tmp_path, **{name: value}) as cache:
        table = cache.table("s_v1", outputs=int, ids=int)
        table.put([1], [2])
        table.flush()
        assert table.stored([1]) == [2]


def test_the_settings_are_those_of_the_engine():
    source = (Path(__file__).parents[2] / "tcx-store/src/options.rs").read_text()
    engine = set(re.findall(r"^    pub (\w+):", source.split("pub struct Options")[1].split("\n}")[0], re.MULTILINE))
    # The mode is another argument of the cache.
    assert NATIVE == SETTINGS.keys() == engine - {"read_only"}
