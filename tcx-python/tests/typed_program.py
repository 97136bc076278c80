"""A user's program with annotations: `mypy --strict` finds the types of the package in it. It runs as a test, too."""

from __future__ import annotations

import datetime
from pathlib import Path

import torch

import tcx_cache as tcx
from tcx_cache.torch import FeatureDataset


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
        features: torch.Tensor = cached.fetch(ids, load)
        names: list[str] = [name for name, _ in cached.named_parameters()]
        assert names == ["weight", "bias"] and len(FeatureDataset(cached, ids)) == len(ids)
        return features


def lengths(directory: Path, texts: list[str]) -> list[int]:
    with tcx.Cache(directory, compression="zstd", time_to_live=datetime.timedelta(days=30)) as cache:
        table: tcx.Table = cache.table("lengths_v1", outputs=int, ids=str, metadata={"version": 1})
        found: list[int] = table.fetch(texts, lambda missing: [len(text) for text in missing])
        stored: list[int] | None = table.get(texts)
        count: int = table.put(["another text"], [12])
        assert stored == found and count == 1
        return found


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
