"""Settings of torch around a module that change its outputs: autocast, and the default dtype."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import InvalidWeightsError, ModuleViolationError

#: The key of ``config=`` that declares the dtype of autocast.
AUTOCAST = "autocast"
_DEVICES = ("cpu", "cuda")
#: Others that have autocast.
_OTHER_DEVICES = ("xpu", "mps", "hpu")


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

    def check(self, device: Any, devices: Callable[[], set[str]]) -> None:
        """Refuses other settings than those that are part of the identity.

        Args:
            device: That of the first weight.
            devices: The types of the devices of all weights; asked for only where autocast is declared.

        Raises:
            ModuleViolationError: if they differ.
        """
        dtypes = _active(_DEVICES if device.type in _DEVICES else (*_DEVICES, device.type))
        # One that differs from what is declared, if there is one.
        active = next((own for own in dtypes.values() if own != self._autocast), self._autocast if dtypes else None)
        if active != self._autocast:
            found = "is not active" if active is None else f"casts to torch.{active}"
            declared = "declares none" if self._autocast is None else f"declares torch.{self._autocast}"
            remedy = f"pass `config={{{AUTOCAST!r}: torch.{active}}}`" if active else "compute inside of `torch.autocast`"
            raise ModuleViolationError(
                f"autocast {found} where samples are computed, and `config=` {declared}, so rows computed with and without it would mix; {remedy}, or leave "
                f"{'the `torch.autocast` block' if active else f'`{AUTOCAST}` out of `config=`'}"
            )
        if active is not None:
            self._check_devices(dtypes, devices())
        if _dtype() is not self._default_dtype:
            raise ModuleViolationError(
                f"the default dtype is torch.{_default_dtype()}, and was torch.{self._default} when the module was frozen; set it before the module is cached"
            )

    def _check_devices(self, dtypes: dict[str, str], devices: set[str]) -> None:
        """Refuses autocast of other devices than those of the weights: nothing of the module is cast then."""
        if devices and not devices & dtypes.keys():
            expected = sorted(devices)[0]
            raise ModuleViolationError(
                f"autocast is active for {', '.join(sorted(dtypes))} where samples are computed, and the weights are on {expected}, where it casts nothing, so rows "
                f"computed with and without it would mix; compute inside of `torch.autocast({expected!r}, torch.{self._autocast})`"
            )


class OfThread:
    """The settings of the thread that makes this, of which others have their own: autocast, and the default device."""

    def __init__(self) -> None:
        import torch

        self._dtypes = _active((*_DEVICES, *_OTHER_DEVICES))
        self._caches = bool(torch.is_autocast_cache_enabled())
        self._device = _default_device()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Makes them those of the calling thread."""
        import torch

        with contextlib.ExitStack() as stack:
            for device, name in self._dtypes.items():
                stack.enter_context(torch.autocast(device, getattr(torch, name), cache_enabled=self._caches))
            if self._device is not None:
                stack.enter_context(torch.device(self._device))
            yield


def _default_device() -> Any:
    """The device that `torch.set_default_device`, or `with torch.device(…)`, has set in this thread; ``None`` if none is set."""
    import torch
    from torch import overrides
    from torch.utils._device import DeviceContext

    # Without annotations.
    stack: Any = overrides._get_current_function_mode_stack

    # The innermost one counts. Without any, a mode that is entered would cost each call of torch.
    modes = [mode.device for mode in stack() if isinstance(mode, DeviceContext)]
    return torch.device(modes[-1]) if modes else None


def _active(devices: tuple[str, ...]) -> dict[str, str]:
    """The devices for which autocast is active, and the dtypes that it casts to."""
    import torch

    found = {}
    for device in devices:
        try:
            if torch.is_autocast_enabled(device):
                found[device] = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        except (TypeError, RuntimeError):
            # Before torch 2.4, or a device without autocast.
            continue
    return found


def _dtype() -> Any:
    import torch

    return torch.get_default_dtype()


def _default_dtype() -> str:
    return str(_dtype()).removeprefix("torch.")
