"""What the identity of a module says of its weights and all else that decides its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .adapters import adapters
from .config import digest
from .graph import graph, graphs
from .script import script
from .unsaved import Scan, left_out
from .weights import fingerprint, saved

#: The most names of tensors that an entry of an identity has.
_NAMES = 8


@dataclass(frozen=True)
class Known:
    """What decides the outputs of a module, of its tensors and adapters."""

    #: The fingerprint of its ``state_dict``.
    weights: str
    #: What the ``state_dict`` leaves out: the name of an entry of the identity, and its text.
    unsaved: tuple[tuple[str, str], ...]
    adapters: str
    #: The names of what a module in Rust with the weights of the ``state_dict`` does not have.
    not_in_rust: tuple[str, ...]

    @staticmethod
    def of(module: Any, scan: Scan, state: dict[str, Any] | None = None) -> Known:
        """That of a module as it is now, and as a walk through it has found it; `state` is its ``state_dict``, if it is known."""
        state = saved(module) if state is None else state
        buffers, others = left_out(scan, state)
        parts = (("buffers", buffers), ("tensors", others))
        entries = [(label, _entry(label, part)) for label, part in parts if part]
        if used := {**scan.used_parts, **scan.used_tensors}:
            entries.append(("functions", _used(used)))
        code = script(scan)
        entries += [] if code is None else [("script", code)]
        traced = graph(graphs(scan))
        entries += [] if traced is None else [("graph", traced)]
        missing = sorted({*buffers, *others} - {*scan.attributes} | {*scan.others})
        missing += [] if code is None else ["its script"]
        return Known(fingerprint(state), tuple(entries), adapters(module), tuple(missing))


def _entry(label: str, tensors: dict[str, Any]) -> str:
    text = fingerprint(tensors)
    if label == "buffers":
        return text
    names = sorted(tensors)
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(names[:_NAMES])}{more}, not in `state_dict`: {text}"


def _used(used: dict[str, str]) -> str:
    texts = [f"{path} is {name}" for path, name in sorted(used.items())]
    more = f" and {len(texts) - _NAMES} more" if len(texts) > _NAMES else ""
    return f"{', '.join(texts[:_NAMES])}{more}: {digest(texts)}"
