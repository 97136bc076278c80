"""The workers of a Dask cluster fill one cache: each of them leases parts of the ids until all rows are durable.

Run: `python examples/cluster/dask_workers.py CACHE --scheduler tcp://HOST:8786`, or without `--scheduler` with workers of its own.
Look at: one task for each worker, and no task for a sample: Dask starts the work, and leases divide it. A worker that is lost
is replaced by the others, and Dask may start its task again elsewhere.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from distributed import Client

import tcx_cache as tcx


def network() -> torch.nn.Module:
    """Stands in for a large one. It is the same in every worker."""
    torch.manual_seed(0)
    return torch.nn.Linear(16, 8).eval().requires_grad_(False)


def load(ids: list[int]) -> torch.Tensor:
    """Stands in for decoding files."""
    return torch.tensor(ids, dtype=torch.float32)[:, None].sin().expand(-1, 16)


def fill(cache: str, samples: int, expiry: float) -> int:
    """A task: it opens the cache where it runs, and returns how many samples it has computed there."""
    with tcx.cached(network(), cache, id="encoder_v1", outputs=tcx.f32[8]) as cached:
        return cached.warm_shared(range(samples), load, expiry=expiry).computed


def run(client: Client, cache: str, samples: int, expiry: float = 120) -> dict[str, int]:
    """What each worker has computed."""
    workers: list[str] = list(client.scheduler_info(n_workers=-1)["workers"])
    # `pure=False`: the tasks are not one and the same. A task prefers its worker, and goes elsewhere if that is lost.
    tasks: dict[str, Any] = {
        worker: client.submit(fill, cache, samples, expiry, workers=[worker], allow_other_workers=True, pure=False) for worker in workers
    }
    return {worker: task.result() for worker, task in tasks.items()}


def main() -> None:
    """Fills the cache twice."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", help="a directory that all workers see, or the URL of an object store")
    parser.add_argument("--scheduler", help="the address of a cluster")
    parser.add_argument("--samples", type=int, default=2000)
    options = parser.parse_args()
    with Client(options.scheduler) if options.scheduler else Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        for number in ("first", "second"):
            computed = run(client, options.cache, options.samples)
            print(f"the {number} run computed {sum(computed.values())} of {options.samples} samples in {len(computed)} workers", flush=True)


if __name__ == "__main__":
    main()
