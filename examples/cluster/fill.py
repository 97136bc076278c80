"""The processes of a cluster fill one cache: torchrun, srun and Kubernetes start the same program.

Run, in this folder: `torchrun --standalone --nproc-per-node 2 fill.py CACHE`, `sbatch fill.sbatch CACHE`, or `kubectl apply -f fill.yaml`.
CACHE is a directory that all machines see.
Look at: each process prints what it has computed. If it is asked to stop (SIGTERM), what it has computed is durable, and its exit status is 75.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

import torch

import tcx_cache as tcx


def network() -> torch.nn.Module:
    """Stands in for a large one. It is the same in every process."""
    torch.manual_seed(0)
    return torch.nn.Linear(16, 8).eval().requires_grad_(False)


def load(ids: list[int]) -> torch.Tensor:
    """Stands in for decoding files."""
    return torch.tensor(ids, dtype=torch.float32)[:, None].sin().expand(-1, 16)


def main() -> int:
    """Fills the cache together with the other processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", help="a directory that all machines see, or the URL of an object store")
    parser.add_argument("--way", choices=["shared", "sharded"], default="shared", help="lease parts, or divide the samples by rank")
    parser.add_argument("--samples", type=int, default=2000)
    options = parser.parse_args()
    # Slurm and Kubernetes announce with SIGTERM that they end a process.
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    # The outputs are declared: no process has to compute a batch before the columns are known.
    with tcx.cached(network(), options.cache, id="encoder_v1", outputs=tcx.f32[8]) as cached:
        # All processes need the same ids in the same order.
        ids = range(options.samples)
        report = cached.warm_shared(ids, load, stop=stop) if options.way == "shared" else cached.warm_sharded(ids, load, stop=stop, progress=False)
    # In one write: the processes have one output.
    sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
    return 75 if report.stopped else 0


if __name__ == "__main__":
    sys.exit(main())
