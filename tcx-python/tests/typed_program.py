"""A user's program with annotations: `mypy --strict` finds the types of the package in it. It runs as a test, too."""

from __future__ import annotations

import datetime
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing
import torch

import tcx_cache as tcx
from tcx_cache.torch import FeatureDataset, epoch


def load(missing: list[str]) -> torch.Tensor:
    return torch.stack([torch.full((4,), float(len(own))) for own in missing])


def embed(directory: Path, ids: list[str]) -> torch.Tensor:
    network = torch.nn.Linear(4, 2).eval().requires_grad_(False)
    with tcx.cached(network, directory, id="linear_v1", outputs=tcx.f32[2], config={"size": 4}) as cached:
        report: tcx.WarmReport = cached.warm(ids, load, batch_size=2, progress=False)
        assert report.samples == len(ids)
        coverage: tcx.Coverage = cached.coverage(ids)
        missing: list[str] = coverage.missing
        assert coverage.is_complete and not missing
        facts: list[tcx.RowFacts | None] = cached.describe(ids)
        computed: list[datetime.datetime] = [fact.computed for fact in facts if fact]
        assert len(computed) == len(ids)
        shared: tcx.SharedReport = cached.warm_shared(ids, load, range_size=64)
        workers: list[tcx.SharedWorker] = shared.workers
        shard: tcx.ShardReport = cached.warm_sharded(tcx.Sequence.of(ids), load, rank=tcx.Rank(0, 1), stop=threading.Event(), progress=False)
        rank: int = shard.rank.rank
        assert (len(workers), shared.computed, rank, shard.computed) == (1, 0, 0, 0)
        features: torch.Tensor = cached.fetch(ids, load)
        names: list[str] = [name for name, _ in cached.named_parameters()]
        assert names == ["weight", "bias"] and len(FeatureDataset(cached, ids)) == len(ids)
        return features


def lengths(directory: Path, texts: list[str]) -> list[int]:
    with tcx.Cache(directory, compression="zstd", time_to_live=datetime.timedelta(days=30)) as cache:
        table: tcx.Table[list[int]] = cache.table("lengths_v1", outputs=int, ids=str, metadata={"version": 1})
        found: list[int] = table.fetch(texts, lambda missing: [len(text) for text in missing])
        stored: list[int] | None = table.get(texts)
        count: int = table.put(["another text"], [12])
        assert stored == found and count == 1
        return found


@dataclass
class Features:
    pooled: torch.Tensor
    tokens: list[torch.Tensor]


class Network(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> Features:
        return Features(images * 2, list(images))


def inferred(directory: Path) -> torch.Tensor:
    """The types of outputs are those that `forward` returns, if they are not declared."""
    cached = tcx.cached(Network().eval(), directory, id="inferred_v1")
    features = cached(torch.ones(2, 4), ids=["a", "b"])
    assert [tuple(row.shape) for row in features.tokens] == [(4,), (4,)]
    cached.flush()
    first: tcx.Cached[Features] = cached.view(0)
    for ids, rows in epoch(first, ["a", "b"], batch_size=1, prefetch=0):
        assert ids[0].islower() and rows.pooled.shape == (1, 4)
    return features.pooled


def declared(directory: Path) -> numpy.typing.NDArray[Any]:
    """The types of outputs are those that are declared."""
    arrays = tcx.Cache(directory, arrays="numpy").table("arrays_v1", outputs=tcx.f32[2])
    rows = arrays.fetch(["a"], lambda missing: numpy.ones((len(missing), 2), numpy.float32))
    with tcx.Cache(directory) as cache:
        ragged = cache.table("ragged_v1", outputs=tcx.f32[None, 2])
        lengths = [len(row) for row in ragged.fetch(["a"], lambda missing: [torch.ones(3, 2)])]
        captions = cache.table("captions_v1", outputs=tcx.optional(str)).fetch(["a"], lambda missing: [None])
        several = cache.table("several_v1", outputs={"one": tcx.f32[1], "two": tcx.f32[2]}, ids=str)
        several.put(["a"], {"one": torch.ones(1, 1), "two": torch.ones(1, 2)})
        assert (lengths, captions[0]) == ([3], None) and [own.upper() for own in captions if own] == []
        assert FeatureDataset(several, ["a"])[0]["two"].shape == (2,)
        row, target = FeatureDataset(cache.table("t_v1", outputs=tcx.f32[1]), ["a"], lambda _: torch.ones(1, 1), targets=[5])[0]
        assert row.shape == (1,) and target.bit_length() == 3
    return rows


def refused(directory: Path) -> str:
    with tcx.Cache(directory) as cache:
        try:
            cache.table("lengths_v1", outputs=int, metadata={"version": 2}).get(["a"])
        except tcx.MismatchError as error:
            kind: str = error.kind
            return kind
    return ""


def main(directory: Path) -> None:
    assert embed(directory, ["a", "bb"]).shape == (2, 2)
    assert lengths(directory, ["a", "bb"]) == [1, 2]
    assert refused(directory) == "Mismatch"
    assert inferred(directory).tolist() == [[2.0] * 4] * 2
    assert declared(directory).sum() == 2
