"""The actors of a pipeline of Ray Data share one cache: a second run computes nothing.

Run: `python examples/cluster/ray_data.py CACHE`. CACHE is a directory that all nodes see.
Look at: each actor opens the cache itself, and flushes after each batch: Ray ends actors without a chance to do so later.
"""

from __future__ import annotations

import argparse
from typing import Any

import ray
import torch

import tcx_cache as tcx


def network() -> torch.nn.Module:
    """Stands in for a large one. It is the same in every actor."""
    torch.manual_seed(0)
    return torch.nn.Linear(16, 8).eval().requires_grad_(False)


def load(ids: list[int]) -> torch.Tensor:
    """Stands in for decoding files."""
    return torch.tensor(ids, dtype=torch.float32)[:, None].sin().expand(-1, 16)


class Encoder:
    """An actor. It gets the path of the cache: a handle that is pickled is a table of stored rows, without the network."""

    def __init__(self, cache: str) -> None:
        # Outputs are declared: actors that begin at the same time agree on the columns.
        self.cached = tcx.cached(network(), cache, id="encoder_v1", outputs=tcx.f32[8])

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        before = self.cached.stats()["rows_computed"]
        features = self.cached.fetch(batch["id"], load)
        self.cached.flush()
        computed = self.cached.stats()["rows_computed"] - before
        return {"id": batch["id"], "features": features.numpy(), "computed": [computed] + [0] * (len(features) - 1)}


def run(cache: str, samples: int, actors: int) -> int:
    """How many samples were computed."""
    ids = ray.data.range(samples, override_num_blocks=8)
    # On a cluster with GPUs: `num_gpus=1` instead of `num_cpus`. What reads the ids needs a CPU beside the actors.
    encoded = ids.map_batches(
        Encoder, fn_constructor_args=(cache,), batch_size=256, compute=ray.data.ActorPoolStrategy(size=actors), num_cpus=0.25
    )
    return sum(row["computed"] for row in encoded.select_columns(["computed"]).iter_rows())


def main() -> None:
    """Encodes a data set twice."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", help="a directory that all nodes see")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--actors", type=int, default=2)
    options = parser.parse_args()
    for number in ("first", "second"):
        computed = run(options.cache, options.samples, options.actors)
        print(f"the {number} run computed {computed} of {options.samples} samples", flush=True)


if __name__ == "__main__":
    main()
