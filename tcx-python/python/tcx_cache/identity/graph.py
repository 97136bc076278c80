"""Modules of ``torch.fx``: what they compute is a graph, and all of them have one class."""

from __future__ import annotations

import sys

from .. import _native
from .unsaved import Scan


def graphs(scan: Scan) -> dict[str, str]:
    """The code that was made of each graph in a module, by the names of the parts."""
    fx = sys.modules.get("torch.fx")
    if fx is None:
        return {}
    return {path: str(part.code) for path, part in scan.modules if isinstance(part, fx.GraphModule)}


def graph(found: dict[str, str]) -> str | None:
    """The hash of graphs; ``None`` if there is none."""
    if not found:
        return None
    hasher = _native.Fingerprint()
    for path, code in found.items():
        hasher.part(path.encode())
        hasher.part(code.encode())
    return hasher.digest()
