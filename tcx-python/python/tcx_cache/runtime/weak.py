"""Objects of which all are known as long as others refer to them."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

Own = TypeVar("Own")


class Alive(Generic[Own]):
    """A set of objects that it does not keep alive. Unlike a ``WeakSet``, it may be listed while another thread adds to it."""

    def __init__(self) -> None:
        self._all: dict[int, weakref.ref[Own]] = {}

    def add(self, own: Own) -> None:
        """Adds an object, once."""
        known, key = self._all, id(own)

        def remove(gone: weakref.ref[Own]) -> None:
            # The address may belong to another object by now.
            if known.get(key) is gone:
                del known[key]

        if self._at(key) is not own:
            known[key] = weakref.ref(own, remove)

    def listed(self) -> list[Own]:
        """Those that are still alive, in the order in which they were added."""
        # One step: no other thread adds to the dict within it.
        refs = list(self._all.values())
        return [own for own in (ref() for ref in refs) if own is not None]

    def _at(self, key: int) -> Own | None:
        ref = self._all.get(key)
        return None if ref is None else ref()
