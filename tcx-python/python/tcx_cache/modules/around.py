"""A module around another one, which has its weights and attributes under the same names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .computing import Computing

Self = TypeVar("Self", bound="Around")

#: What the two have in common, so that names of parameters stay as they are.
_SHARED = (
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class Around(torch.nn.Module):
    """To torch, it is the module inside."""

    #: For a walk through a module that holds one.
    _is_handle = True
    _computing: Computing

    def _compute_with(self, computing: Computing) -> None:
        self.__dict__["_computing"] = computing
        self._share(computing.module)

    def _share(self, module: torch.nn.Module) -> None:
        inside = vars(module)
        self.__dict__.update({name: inside[name] for name in _SHARED if name in inside})

    def _compute_later(self, copied: functools.partial[Computing]) -> None:
        """Computes with what this function returns when that is needed first. Its argument is the module."""
        for name in _SHARED:
            self.__dict__.pop(name, None)
        self.__dict__["_copied"] = copied

    def __getattr__(self, name: str) -> Any:
        copied = self.__dict__.get("_copied")
        if copied is not None:
            self._compute_with(copied())
            self.__dict__.pop("_copied", None)
            return getattr(self, name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            computing = self.__dict__.get("_computing")
            if computing is None:
                raise
            return getattr(computing.module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # An attribute of the handle alone would not reach the module, which computes.
        is_own = name in self.__dict__ or hasattr(type(self), name) or "_rows" not in self.__dict__
        super().__setattr__(name, value) if is_own else setattr(self._computing.module, name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name) if name in self.__dict__ else delattr(self._computing.module, name)

    @property
    def module(self) -> torch.nn.Module:
        """The module inside."""
        copied = self.__dict__.get("_copied")
        return self._computing.module if copied is None else copied.args[0]

    def train(self: Self, mode: bool = True) -> Self:
        """Changes nothing: the module stays in evaluation mode, also where it is a part of one that is trained."""
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """That of the module inside, whose class may return it in a form of its own."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Loads the weights of the module inside. Other weights than those that rows were computed with are an error when the next missing sample
        is computed. A batch of which all rows are stored returns them."""
        return self.module.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        # A module of which this is a part calls it, with its own prefix.
        inside: Any = self.module
        inside._load_from_state_dict(*args, **kwargs)

    def _apply(self: Self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        """Moves the module, as ``to`` does, also where its class moves more than weights, and frees the memory that these had."""
        module: Any = self._computing.module
        # A class may have the method without the second argument, as torch had it.
        module._apply(fn) if recurse else module._apply(fn, recurse)
        # It may have replaced what the two share.
        self._share(module)
        self._computing.watch.renew()
        return self
