"""Several tables that are flushed or closed together."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import Error
from .rows import Rows


def for_all(tables: list[Rows], call: Callable[[Rows], None]) -> None:
    """Calls a function with all of them, and raises what has gone wrong for any."""
    errors: list[tuple[Rows, Exception]] = []
    for own in tables:
        try:
            call(own)
        except Exception as error:
            errors.append((own, error))
    if not errors:
        return
    first = errors[0][1]
    if len(errors) == 1 or not isinstance(first, Error):
        raise first
    ids = ((own.opening.module, error) for own, error in errors)
    messages = (str(error) if f"`{id}`" in str(error) else f"module `{id}`: {error}" for id, error in ids)
    raise type(first)(f"{len(errors)} modules or tables failed: {'; '.join(messages)}") from first
