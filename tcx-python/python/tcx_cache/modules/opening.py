"""Opening the cache of a module: its identity and its provenance."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import _native
from ..engine.rows import Opening, Rows
from ..errors import InvalidSettingsError, InvalidWeightsError
from ..identity.code import Code
from ..identity.config import LONGEST_VALUE, Entries, digest, entries
from ..identity.surroundings import Surroundings
from ..identity.known import Known
from ..identity.weights import WEIGHTS
from .cached import Cached
from .computing import Computing, inner
from .table import declared, named
from .upkeep import Upkeep


def open_module(
    opening: Opening,
    module: torch.nn.Module,
    *,
    outputs: Any = None,
    ids: type | None = None,
    config: Mapping[str, Any] | None = None,
    shared: Mapping[str, Any] | None = None,
    type_name: str | None = None,
    fields: Mapping[str, Any] | None = None,
    assume_stateless: Sequence[str] = (),
    output_device: Any = None,
    allow_gradients: bool = False,
    recheck: float = 0.0,
    refuse_repeated_ids: bool = False,
    after: Any = None,
) -> Cached[Any]:
    """Opens the cache of a module; `opening` has no identity yet. See :meth:`tcx_cache.Cache.module`."""
    name = opening.module
    if not isinstance(module, torch.nn.Module):
        raise InvalidWeightsError(f"module `{name}`: expected a torch.nn.Module, found {type(module).__name__}; use `cache.table` for a function")
    if isinstance(module, Cached):
        raise InvalidWeightsError(f"module `{name}`: is cached already; pass the module inside (`.module`)")
    try:
        computing = Computing(inner(module), dict(shared or {}), name, allow_gradients, recheck, refuse_repeated_ids, Surroundings(config), assume_stateless)
    except InvalidWeightsError as error:
        raise InvalidWeightsError(f"module `{name}`: {error}") from error
    before = _before(name, after)
    identity = [*_identity(computing, config, type_name, fields, assume_stateless), *_upstream(name, before)]
    chain = [own._computing for own in before if isinstance(own, Cached)]
    computing.upstream = tuple(dict.fromkeys(one for own in chain for one in (own, *own.upstream)))
    # A compiled module computes with the weights of the one inside.
    computing.module = module
    opening = opening.of(identity, _provenance(computing))
    return Cached(computing, Rows(opening, declared(outputs), named(ids)), 0, output_device)


def _identity(
    computing: Computing,
    config: Mapping[str, Any] | None,
    type_name: str | None,
    fields: Mapping[str, Any] | None,
    assumed: Sequence[str],
) -> Entries:
    own, known = type(computing.module), computing.watch.known
    left_out = [name for name in known.not_in_rust if name not in assumed]
    code = computing.watch.code
    _check_assumed(known, fields, assumed, code)
    found: Entries = [("self", type_name or f"{own.__module__}.{own.__qualname__}")]
    if fields is None:
        # What `state_dict` leaves out decides outputs as well.
        found += [("weights", known.weights), *known.unsaved]
    elif sum(value is WEIGHTS for value in fields.values()) != 1:
        raise InvalidWeightsError("`fields=` has the fields of the module in Rust, in order: exactly one of them has to be `tcx.WEIGHTS`")
    elif left_out:
        raise InvalidWeightsError(
            "`fields=` names the identity of a module in Rust, which has the weights of `state_dict` only, but this module has tensors that `state_dict` leaves "
            f"out ({', '.join(left_out)}): register them as persistent buffers, which the module in Rust has too; or name them in `assume_stateless=`, if they "
            "follow from its configuration, such as the numbers of positions; or leave `fields=` out"
        )
    for name, value in (fields or {}).items():
        found += [(f"{name}.weights", known.weights)] if value is WEIGHTS else entries(name, value)
    if known.adapters:
        text = known.adapters
        found.append(("adapters", text if len(text) <= LONGEST_VALUE else digest([text])))
    for label, part in (("config", config), ("shared", computing.shared)):
        for name, value in (part or {}).items():
            found += entries(f"{label}.{name}", value)
    if code.left_out:
        found.append(("assumed stateless", ", ".join(sorted(code.left_out))))
    return [*found, *computing.surroundings.entries()]


def _check_assumed(known: Known, fields: Mapping[str, Any] | None, assumed: Sequence[str], code: Code) -> None:
    """Refuses names that leave nothing out of the identity.

    Raises:
        InvalidSettingsError: if one is neither a variable that the code uses nor, with `fields`, a tensor that `state_dict` leaves out.
    """
    if isinstance(assumed, str):
        raise InvalidSettingsError(f"`assume_stateless=`: expected a list of names, found {assumed!r}; pass `[{assumed!r}]`")
    for name in assumed:
        if name in code.left_out or (fields is not None and name in known.not_in_rust):
            continue
        variables = f"variables outside of the module that its code uses and that hold tensors (here: {', '.join(code.variables) or 'none'})"
        tensors = f" or of tensors that `state_dict` leaves out (here: {', '.join(known.not_in_rust) or 'none'})" if fields is not None else ""
        hint = "" if fields is not None else "; tensors of the module itself can be left out with `fields=` only"
        raise InvalidSettingsError(f"`assume_stateless=`: expected names of {variables}{tensors}, found `{name}`{hint}")


def _before(name: str, after: Any) -> list[Upkeep]:
    """Those whose outputs are the inputs of this module."""
    before = after if isinstance(after, (list, tuple)) else [] if after is None else [after]
    other = next((own for own in before if not isinstance(own, Upkeep)), None)
    if other is not None:
        raise InvalidSettingsError(f"module `{name}`: `after=`: expected a cached module or a table, found {type(other).__name__}")
    return [*before]


def _upstream(name: str, before: list[Upkeep]) -> Entries:
    """The identities of those whose outputs are the inputs of this module, under their ids."""
    found: Entries = []
    for own in before:
        rows = own._rows
        # The folder may have been created since.
        schema = rows.schema or (rows.schema if rows.handle is not None else None)
        if schema is None:
            raise InvalidSettingsError(
                f"module `{name}`: `after=`: the outputs of `{own.id}` are not known yet, and are part of the identity of this module; declare `outputs=` of "
                f"`{own.id}`, or compute a batch with it before"
            )
        outputs = ", ".join(f"{column}: {of.described}" for column, of in schema.columns())
        # The rows of another view are of other inputs.
        view = [("view", str(own._view))] if own._view else []
        entered = [*rows.opening.entries, ("Outputs", outputs), *schema.entries(), *view]
        found += [(f"{own.id}/{path}", value) for path, value in entered]
    return found


def _provenance(computing: Computing) -> list[tuple[str, str]]:
    return [
        ("tcx", _native.__version__),
        ("python", platform.python_version()),
        ("torch", str(torch.__version__)),
        ("platform", f"{platform.system().lower()}-{platform.machine()}"),
        ("device", str(computing.device)),
        ("host", platform.node()),
        ("program", sys.argv[0].rsplit("/", 1)[-1] if sys.argv else ""),
    ]
