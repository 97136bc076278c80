"""Settings of torch around a module that change its outputs: autocast, and the default dtype."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidWeightsError, ModuleViolationError

#: The key of ``config=`` that declares the dtype of autocast.
AUTOCAST = "autocast"
_DEVICES = ("cpu", "cuda")


class Surroundings:
    """What was declared, to be compared whenever rows are computed."""

    def __init__(self, config: Any) -> None:
        declared = (config or {}).get(AUTOCAST)
        self._autocast = None if declared is None else str(declared).removeprefix("torch.")
        if self._autocast not in (None, "float16", "bfloat16"):
            raise InvalidWeightsError(f"configuration `{AUTOCAST}`: expected `torch.float16` or `torch.bfloat16`, found {declared!r}")
        self._default = _default_dtype()
        #: The default dtype as torch has it, which is compared sooner than its name.
        self._default_dtype = _dtype()

    def entries(self) -> list[tuple[str, str]]:
        """What the identity says of them, beside `config=`: nothing of the usual ones."""
        return [] if self._default == "float32" else [("default dtype", self._default)]

    def check(self, device: Any) -> None:
        """Refuses other settings than those that are part of the identity.

        Raises:
            ModuleViolationError: if they differ.
        """
        active = _active(_DEVICES if device.type in _DEVICES else (*_DEVICES, device.type))
        if active != self._autocast:
            found = "is not active" if active is None else f"casts to torch.{active}"
            declared = "declares none" if self._autocast is None else f"declares torch.{self._autocast}"
            remedy = f"pass `config={{{AUTOCAST!r}: torch.{active}}}`" if active else "compute inside of `torch.autocast`"
            raise ModuleViolationError(
                f"autocast {found} where samples are computed, and `config=` {declared}, so rows computed with and without it would mix; {remedy}, or leave "
                f"{'the `torch.autocast` block' if active else f'`{AUTOCAST}` out of `config=`'}"
            )
        if _dtype() is not self._default_dtype:
            raise ModuleViolationError(
                f"the default dtype is torch.{_default_dtype()}, and was torch.{self._default} when the module was frozen; set it before the module is cached"
            )


def _active(devices: tuple[str, ...]) -> str | None:
    import torch

    for device in devices:
        try:
            if torch.is_autocast_enabled(device):
                return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        except (TypeError, RuntimeError):
            # Before torch 2.4, or a device without autocast.
            continue
    return None


def _dtype() -> Any:
    import torch

    return torch.get_default_dtype()


def _default_dtype() -> str:
    return str(_dtype()).removeprefix("torch.")
