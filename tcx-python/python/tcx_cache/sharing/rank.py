"""The rank of a process, as launchers say it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import InvalidSettingsError

_RANKS = "ranks are counted from 0, and are below the number of processes"
_OTHERS = "unset `RANK` and `WORLD_SIZE` if they are those of another program, or pass `rank=`"


@dataclass(frozen=True)
class Rank:
    """Which of several processes this one is. :meth:`from_env` reads it from the environment.

    Raises:
        InvalidSettingsError: if ``rank`` is not below ``world``.

    >>> import tcx_cache as tcx
    >>> print(tcx.Rank(3, 8))
    rank 3 of 8
    """

    #: The number of this process, from 0.
    rank: int
    #: How many processes there are.
    world: int

    def __post_init__(self) -> None:
        for own in (self.rank, self.world):
            if isinstance(own, bool) or not isinstance(own, int):
                raise InvalidSettingsError(f"rank {self.rank!r} of {self.world!r} processes: expected integers")
        if not 0 <= self.rank < self.world:
            raise InvalidSettingsError(f"rank {self.rank} of {self.world} processes; {_RANKS}")

    @staticmethod
    def from_env(environment: Mapping[str, str] | None = None) -> Rank:
        """The rank that a launcher gave this process. The first of these that is set counts:

        1. ``RANK`` and ``WORLD_SIZE`` (torchrun);
        2. ``SLURM_PROCID`` with ``SLURM_STEP_NUM_TASKS``, or else ``SLURM_NTASKS`` (srun);
        3. ``JOB_COMPLETION_INDEX`` (Kubernetes) with ``JOB_COMPLETIONS``. Kubernetes does not set the second: set it in the manifest to the number
           of completions.

        Args:
            environment: The variables, if they are not those of this process.

        Raises:
            InvalidSettingsError: if no variable is set, if one is missing or is no number, and if they contradict each other: where every process
                would do the work of all, or this one alone the work of one of several.
        """
        found = os.environ if environment is None else environment
        return _Variables({name: value for name, value in found.items() if value}).rank()

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world}"


@dataclass(frozen=True)
class _Variables:
    """The variables that are set. The messages are those of the crate `tcx`."""

    own: Mapping[str, str]

    def rank(self) -> Rank:
        if "RANK" in self.own or "WORLD_SIZE" in self.own:
            return self._torchrun()
        if "SLURM_PROCID" in self.own:
            return self._slurm()
        if "JOB_COMPLETION_INDEX" in self.own:
            return self._pair("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS")
        raise InvalidSettingsError(
            "the environment names no rank: neither `RANK`, nor `SLURM_PROCID`, nor `JOB_COMPLETION_INDEX` is set; start the program with torchrun or srun, pass "
            "`rank=`, or share the work with `warm_shared`, which needs none"
        )

    def _number(self, name: str) -> int | None:
        value = self.own.get(name)
        if value is None:
            return None
        plain = value.strip()
        if not (plain.isascii() and plain.removeprefix("+").isdigit()):
            raise InvalidSettingsError(f'`{name}` is "{value}", expected a number; set it to a number from 0')
        return int(plain)

    def _pair(self, rank: str, world: str) -> Rank:
        """Two variables that are set together."""
        own, all_ranks = self._number(rank), self._number(world)
        if own is None or all_ranks is None:
            is_set, missing = (rank, world) if rank in self.own else (world, rank)
            raise InvalidSettingsError(f"`{is_set}` is set, and `{missing}` is not; set both, or neither")
        if own >= all_ranks:
            raise InvalidSettingsError(f"`{rank}` is {own}, and `{world}` is {all_ranks}; {_RANKS}")
        return Rank(own, all_ranks)

    @property
    def _tasks(self) -> str:
        """The variable with the number of tasks that have a rank of Slurm."""
        return "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in self.own else "SLURM_NTASKS"

    def _torchrun(self) -> Rank:
        rank = self._pair("RANK", "WORLD_SIZE")
        # torchrun starts one process or more in each task of Slurm.
        tasks = self._number("SLURM_STEP_NUM_TASKS")
        if tasks is not None and tasks > rank.world:
            raise InvalidSettingsError(
                f"`WORLD_SIZE` is {rank.world}, and `SLURM_STEP_NUM_TASKS` is {tasks}: several tasks would have the same rank; {_OTHERS}"
            )
        # It says that it has started this process by `TORCHELASTIC_RUN_ID`, and numbers its processes in an order of its own.
        # A batch script that was not started with srun has a rank as well, which the processes that it starts inherit.
        task, tasks = self._number("SLURM_PROCID"), self._number(self._tasks)
        is_numbered = bool({"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"} & self.own.keys()) and "TORCHELASTIC_RUN_ID" not in self.own
        if task is not None and task != rank.rank and tasks == rank.world and is_numbered:
            raise InvalidSettingsError(
                f"`RANK` is {rank.rank} and `SLURM_PROCID` is {task}, each of {tasks} processes: they contradict each other; {_OTHERS}"
            )
        return rank

    def _slurm(self) -> Rank:
        rank = self._pair("SLURM_PROCID", self._tasks)
        if rank.world > 1 and not {"SLURM_STEP_ID", "SLURM_STEPID"} & self.own.keys():
            raise InvalidSettingsError(
                f"`{self._tasks}` is {rank.world}, but this process is the batch script's own, and the only one; start the program with srun"
            )
        count = self._number("SLURM_ARRAY_TASK_COUNT")
        if count is not None and count > 1:
            raise InvalidSettingsError(
                f"this is one of {count} tasks of a job array, in each of which `SLURM_PROCID` begins with 0; pass `rank=`, or share the work with `warm_shared`, "
                "which needs none"
            )
        return rank
