"""Dividing a list of ids by rank: every process computes its own part, and none waits for another."""

from __future__ import annotations

from typing import Any

from ..runtime.progress import progress
from .filling import Filled, Filler
from .rank import Rank
from .reports import ShardReport
from .sequence import Sequence
from .settings import range_size


def warm_sharded(filler: Filler, ids: Sequence, rank: Rank | None, asked_size: int | None, shown: bool) -> ShardReport:
    """Computes every range of a rank."""
    filler.check_mode()
    rank = rank or Rank.from_env()
    size = range_size(asked_size, ids.length)
    before = filler.not_kept()
    total = None if ids.length is None else ids.length // rank.world
    bar = progress(total, shown, f"warm {filler.id}, {rank}")
    try:
        asked, is_stopped = _fill(filler, ids, rank, size, bar)
    except BaseException as error:
        # Whatever stopped it, what is finished stays.
        filler.flush_after(error)
        raise
    finally:
        filler.end()
        bar.close()
    filler.flush()
    return ShardReport(rank, asked, filler.computed, max(filler.not_kept() - before, 0), is_stopped)


def _fill(filler: Filler, ids: Sequence, rank: Rank, size: int, bar: Any) -> tuple[int, bool]:
    """How many ids the rank has, and whether it was stopped."""
    asked, number = 0, rank.rank
    while True:
        own = ids.read(number * size, size)
        if own and filler.fill(own) is Filled.STOPPED:
            return asked, True
        asked, number = asked + len(own), number + rank.world
        bar.update(len(own))
        if len(own) < size:
            return asked, False
