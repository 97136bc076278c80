"""A progress bar."""

from __future__ import annotations

from typing import Any


def progress(total: int | None, shown: bool, label: str) -> Any:
    """A progress bar, where tqdm is installed; it has a method `update`."""
    if shown:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            pass
        else:
            return tqdm(total=total, desc=label, unit=" samples")
    return _Silent()


class _Silent:
    def update(self, _: int) -> None:
        """Shows nothing."""

    def close(self) -> None:
        """Ends nothing."""
