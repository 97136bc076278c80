"""Wrappers that change what a network computes under the same weights, such as LoRA: which adapters are active, and whether they are
merged."""

from __future__ import annotations

from typing import Any

_ACTIVE = ("active_adapters", "active_adapter", "_active_adapter", "disable_adapters", "_disable_adapters")
#: The factor of an adapter is no weight.
_ATTRIBUTES = (*_ACTIVE, "merged_adapters", "merged", "scaling", "lora_alpha", "r", "use_rslora", "use_dora", "fan_in_fan_out")


def adapters(module: Any) -> str:
    """The state of the adapters in a module, as text; empty if it has none."""
    found = []
    for name, part in module.named_modules():
        own = vars(part)
        if any(attribute in own for attribute in _ACTIVE):
            state = ", ".join(f"{attribute.lstrip('_')}={own[attribute]!r}" for attribute in _ATTRIBUTES if attribute in own)
            found.append(f"{name}: {state}")
    return "; ".join(found)
