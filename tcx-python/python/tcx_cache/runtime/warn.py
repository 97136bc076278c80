"""Warnings that name the line of the program, not one of this package or of torch, through which a cached module is called."""

from __future__ import annotations

import os
import sys
import warnings

_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep


def warn(message: str) -> None:
    """Warns the program."""
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    inner = (_OWN, os.path.dirname(torch) + os.sep) if torch else (_OWN,)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inner):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
