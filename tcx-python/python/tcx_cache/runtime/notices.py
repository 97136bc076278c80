"""What the engine reports of its files and its threads, for the logger ``tcx_cache`` of :mod:`logging`.

Where the program has set up logging, every report goes there. Otherwise the first report of each kind is written to stderr, as
:mod:`logging` does with warnings.
"""

from __future__ import annotations

import logging

from ..errors import in_python

_LOGGER = logging.getLogger("tcx_cache")
#: The kinds of what is lost, or stays so until someone repairs it.
_ERRORS = frozenset({"Lost", "WritingOff"})
_reported: set[str] = set()


def report(kind: str, message: str) -> None:
    """Reports a message of the engine; the native part calls this, in the thread of the call that ends."""
    level = logging.ERROR if kind in _ERRORS else logging.WARNING
    if _LOGGER.hasHandlers():
        _LOGGER.log(level, "%s", in_python(message))
    elif kind not in _reported:
        _reported.add(kind)
        _LOGGER.log(level, "tcx: %s (reported once, set up the logger `tcx_cache` to see every report)", in_python(message))
