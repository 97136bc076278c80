"""Work with several locks held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from .locks import ProcessLock

Own = TypeVar("Own")

#: The seconds that a thread within a network, or one that looks at parts of another handle, waits for a thread that computes with them.
PATIENCE = 30.0


def held_for(locks: Sequence[ProcessLock], call: Callable[[], Own]) -> Own:
    """Calls a function while no other thread that holds one of these locks computes."""
    if not locks:
        return call()
    with locks[0].turn(PATIENCE):
        return held_for(locks[1:], call)
