"""The schema of an existing folder."""

from __future__ import annotations

import re
from typing import Any

from .. import _native
from ..errors import CorruptError, Error, MismatchError
from .tree import Group, Node, Schema
from .types import Column

#: The entry of an identity that pins a schema that was inferred.
PINNED = "outputs"
#: The entries of an identity that say how outputs are stored.
_OF_OUTPUTS = re.compile(r"Output($|[.\[])")


def pinned(spec: _native.Spec) -> str | None:
    """The text of the schema that was inferred for this folder; ``None`` if it was declared. Metadata may have an entry of the same name."""
    found = [value for name, value in spec.identity if name == PINNED]
    # A declared schema is in the provenance instead; a folder that was written in Rust has it in neither.
    if not found or PINNED in dict(spec.provenance):
        return None
    try:
        is_schema = Schema.parse(found[-1]).leaves() == spec.leaves
    except MismatchError:
        # It names a class that this program does not have, which the caller reports.
        is_schema = True
    except Error:
        is_schema = False
    return found[-1] if is_schema else None


def without_outputs(spec: _native.Spec) -> list[tuple[str, str]]:
    """An identity without what it has of the outputs: their types, and a schema that was inferred. In Rust, entries of earlier modules follow."""
    inferred = pinned(spec)
    entries = [entry for entry in spec.identity if not _OF_OUTPUTS.match(entry[0])]
    if inferred is not None:
        # The last one of this name: others are metadata.
        entries.pop(next(place for place in reversed(range(len(entries))) if entries[place] == (PINNED, inferred)))
    return entries


def declared_before(spec: _native.Spec) -> Schema | None:
    """The schema that the program declared which created the folder, if it was written in Python: whether numbers are tensors or lists is
    not decided by the columns."""
    try:
        schema = Schema.parse(dict(spec.provenance)[PINNED])
    except (KeyError, ValueError, Error):
        return None
    return schema if schema.leaves() == spec.leaves else None


def from_leaves(leaves: list[Any]) -> Schema:
    """The schema of columns that another program has declared: dicts by the dots of their names, and tensors."""
    columns: list[tuple[str, Column]] = []
    for name, kind, dtype, shape, is_optional in leaves:
        is_sizes = columns and name == f"{columns[-1][0]}.sizes" and columns[-1][1].varying > 1
        if is_sizes or name.startswith("__"):
            continue
        of = "tensor" if kind in ("dense", "ragged") else "str" if kind == "text" else "bytes"
        columns.append((name, Column(of, dtype, tuple(shape), None, is_optional)))
    if len(columns) == 1 and columns[0][0] == "value":
        return Schema(columns[0][1])
    tree: dict[str, Any] = {}
    for name, column in columns:
        *path, last = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                break
        if not isinstance(place, dict) or last in place:
            raise CorruptError(f"the columns in the cache cannot be outputs: `{name}` is a part of another one; declare `outputs=`")
        place[last] = column

    def build(own: dict[str, Any]) -> Node:
        fields = ((name, build(child) if isinstance(child, dict) else child) for name, child in own.items())
        return Group("dict", tuple(fields))

    return Schema(build(tree))
