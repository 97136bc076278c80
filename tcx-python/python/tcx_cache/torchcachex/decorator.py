"""The module around a frozen module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from ..batch.split import per_sample
from ..engine import ids as keys
from ..errors import InvalidBatchError, InvalidWeightsError
from ..modules.cached import Cached
from ..tensors.streams import refuse_capture
from ..torch.epoch import moved
from .backend import ArrowIPCCacheBackend


class TrainableError(InvalidWeightsError, RuntimeError):
    """The module has trainable parameters, and is part of a model in training mode."""


class CacheModuleDecorator(torch.nn.Module):
    """Computes missing samples only.

    Args:
        module: The module. It computes in evaluation mode, also while this one is trained.
        cache_backend: Where rows are stored.
        enabled: Whether rows are cached; otherwise the module is called as it is.
        key_from_batch_fn: Makes the ids of a batch from its arguments.
        enforce_stateless: Whether trainable parameters are an error in training mode.
        map_location_on_read: Where outputs are put if no input is a tensor; outputs are on the device of the first tensor otherwise.
        shared: Keyword arguments that are the same for all samples. They are part of the identity.
        config: Further values that decide the outputs. They are part of the identity.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        cache_backend: ArrowIPCCacheBackend,
        enabled: bool = True,
        key_from_batch_fn: Callable[..., Any] | None = None,
        enforce_stateless: bool = True,
        map_location_on_read: Any = "cpu",
        *,
        shared: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.cache, self.enabled = cache_backend, enabled
        self.key_from_batch_fn, self.enforce_stateless = key_from_batch_fn, enforce_stateless
        self.map_location_on_read = map_location_on_read
        self._shared, self._config = shared, config
        # Not a part of this module, which has the module inside already.
        self.__dict__["_cached"] = None

    def _opened(self) -> Cached:
        cached: Cached | None = self.__dict__["_cached"]
        # Another module may have been assigned since: its outputs are others.
        if cached is None or cached.module is not self.module:
            self.module.eval()
            backend = self.cache
            cached = backend.cache.module(
                self.module,
                backend.module_id,
                outputs=backend.outputs,
                shared=self._shared,
                config=self._config,
                allow_gradients=True,
                output_device="cpu",
            )
            backend.bind(cached._rows)
            self.__dict__["_cached"] = cached
        return cached

    def train(self, mode: bool = True) -> CacheModuleDecorator:
        """Sets the mode of this module. The one inside stays in evaluation mode as long as rows are cached."""
        self.training = mode
        self.module.train(mode and not self.enabled)
        return self

    def forward(self, *args: Any, cache_ids: Any = None, **kwargs: Any) -> Any:
        """The outputs of a batch, in the order of its ids.

        Raises:
            InvalidBatchError: if the batch has no ids, an input cannot be split by sample, or a CUDA graph is captured.
            TrainableError: if parameters are trainable, in training mode.
        """
        if not self.enabled:
            return self.module(*args, **kwargs)
        if self.enforce_stateless and self.training and any(weight.requires_grad for weight in self.module.parameters()):
            raise TrainableError(
                f"module `{self.cache.module_id}`: has trainable parameters while rows are cached; call `requires_grad_(False)`, or pass `enforce_stateless=False`"
            )
        ids = self._ids(args, cache_ids, kwargs)
        if self.module.training:
            # It was trained while rows were not cached.
            self.module.eval()
        first = next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)), None)
        device = first.device if first is not None else torch.device(self.map_location_on_read)
        if device.type == "cuda":
            refuse_capture(self.cache.module_id)
        cached = self._opened()
        before = cached.stats()["rows_accepted"]
        output = cached(*_with_ids(args), ids=ids, **kwargs)
        accepted = cached.stats()["rows_accepted"] - before
        if accepted:
            self.cache.wrote(accepted)
        return moved(output, device)

    def _ids(self, args: tuple[Any, ...], cache_ids: Any, kwargs: dict[str, Any]) -> list[Any]:
        if cache_ids is not None:
            return keys.listed(cache_ids)
        if args and isinstance(args[0], dict) and args[0].get("cache_ids") is not None:
            return keys.listed(args[0]["cache_ids"])
        if self.key_from_batch_fn is not None:
            return keys.listed(self.key_from_batch_fn(*args, **kwargs))
        raise InvalidBatchError("the batch has no ids: pass `cache_ids`, put `cache_ids` into the dict of the batch, or pass `key_from_batch_fn`")

    def __getstate__(self) -> dict[str, Any]:
        # A copy, and one in another process, opens the cache with its own module.
        return {**self.__dict__, "_cached": None}

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The weights of the module inside, under its own names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Loads the weights of the module inside. Other weights than those that rows were computed with are an error when the next missing sample
        is computed. A batch of which all rows are stored returns them."""
        return self.module.load_state_dict(*args, **kwargs)


def _with_ids(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, among which the ids in the dict of the batch are known as those of its samples: integers could be anything else."""
    batch = args[0] if args else None
    if not isinstance(batch, dict) or type(batch.get("cache_ids")) not in (list, tuple):
        return args
    own = copy.copy(batch)
    own["cache_ids"] = per_sample(batch["cache_ids"])
    return (own, *args[1:])
