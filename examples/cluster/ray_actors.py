"""One actor for each GPU of a Ray cluster runs a worker: a program that fills the cache with `warm_shared`, in Rust or in Python.

Run: `python examples/cluster/ray_actors.py CACHE MODULE --gpus 1 -- ./extract CACHE`. CACHE is a directory that all nodes see, or the URL
of an object store; without `--gpus`, each actor has a CPU.
Look at: Ray only starts the workers. The parts of a node that is lost are taken over by the others, by their leases; what the line
shows is read from the cache.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time

import ray

import tcx_cache as tcx


@ray.remote(max_restarts=0)
class Worker:
    """Runs the program where Ray has placed the actor. The near tier of a cache in an object store is that of the node."""

    def run(self, command: list[str]) -> int:
        """The exit status of the program."""
        # The output goes to the log of the actor, which Ray shows on the terminal.
        program = subprocess.Popen(command)
        signal.signal(signal.SIGTERM, lambda *_: program.terminate())
        return program.wait()


def show(cache: tcx.Cache, module: str) -> None:
    """Prints a line for each job of the module."""
    # The first worker has to make the module.
    for job in cache.jobs(module) if module in cache.modules() else []:
        print(job, flush=True)


def fill(cache: tcx.Cache, module: str, command: list[str], workers: int, gpus: float, every: float) -> list[int | None]:
    """Runs the program in this number of actors; the exit status of each, `None` of those that were lost."""
    options = {"num_gpus": gpus} if gpus else {"num_cpus": 1}
    actors = [Worker.options(**options).remote() for _ in range(workers)]
    running = [actor.run.remote(command) for actor in actors]
    waiting = running
    while waiting:
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=every)
        show(cache, module)
    return [status(run) for run in running]


def status(run: ray.ObjectRef[int]) -> int | None:
    """The exit status of a program; `None` if its actor or its node was lost."""
    try:
        return ray.get(run)
    except ray.exceptions.RayActorError:
        return None


def main() -> int:
    """Fills a cache with the GPUs of a cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", help="a directory that all nodes see, or the URL of an object store")
    parser.add_argument("module", help="the module that the program fills")
    parser.add_argument("--workers", type=int, help="the number of actors; by default, one for each GPU or CPU")
    parser.add_argument("--gpus", type=float, default=0, help="the GPUs of an actor")
    parser.add_argument("--every", type=float, default=10, help="seconds between two lines")
    parser.add_argument("command", nargs="+", help="the program, after `--`")
    options = parser.parse_args()
    if not ray.is_initialized():
        ray.init()
    found = ray.cluster_resources()
    workers = options.workers or int(found.get("GPU", 0) / options.gpus if options.gpus else found["CPU"])
    began = time.monotonic()
    statuses = fill(tcx.Cache(options.cache), options.module, options.command, workers, options.gpus, options.every)
    lost, failed = statuses.count(None), sum(own not in (0, None) for own in statuses)
    print(f"{workers} workers, {lost} lost, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    # The job is done as soon as one worker has seen every row.
    return 0 if 0 in statuses else 1


if __name__ == "__main__":
    sys.exit(main())
