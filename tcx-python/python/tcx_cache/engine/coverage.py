"""Which samples are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Coverage:
    """Which of some ids have a stored row."""

    #: How many ids were asked for, repeated ones counted once.
    total: int
    #: The ids without a row, each once, in the order asked.
    missing: list[Any]

    @property
    def stored(self) -> int:
        """How many ids have a row."""
        return self.total - len(self.missing)

    @property
    def fraction(self) -> float:
        """The stored part, from 0 to 1; 1 if no id was asked for."""
        return self.stored / self.total if self.total else 1.0

    @property
    def is_complete(self) -> bool:
        """Whether every id has a row."""
        return not self.missing

    def __str__(self) -> str:
        return f"{self.stored} of {self.total} samples are stored ({self.fraction:.1%})"
