"""A module that computes: frozen, checked, and run with all its inputs."""

from __future__ import annotations

import contextlib
import copy
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from .. import _native
from ..batch.same import are_same, have_same_bytes
from ..batch.split import Inputs
from ..errors import InvalidBatchError, InvalidWeightsError, ModuleViolationError
from ..identity.adapters import adapters
from ..identity.surroundings import Surroundings
from ..identity.watch import Watch
from ..runtime.held import PATIENCE, held_for
from ..runtime.locks import ProcessLock, computes, is_computing, release_taken
from ..runtime.warn import warn
from .checks import VERSION, Checks

Own = TypeVar("Own")

_TRAINABLE = "an output tracks gradients, so a tensor that is no parameter of the module is trainable; call `requires_grad_(False)` on it"
#: What PyTorch says if a tensor of the mode of inference takes part in what tracks gradients, and if it is written to outside of that mode.
_SAVED, _WRITTEN = "cannot be saved for backward", "Inplace update to inference tensor"


class Computing:
    """A module, and what is known of it; shared by a handle and its views."""

    def __init__(
        self,
        module: torch.nn.Module,
        shared: dict[str, Any],
        name: str,
        allows_gradients: bool,
        recheck: float,
        refuses_repeated: bool,
        surroundings: Surroundings,
        ignored: Iterable[str] = (),
    ) -> None:
        # As the identity has it: the caller may change a list later.
        self.module, self.name, self.shared = module, name, copy.deepcopy(shared)
        self.lock = ProcessLock()
        self.surroundings = surroundings
        self.watch = Watch(module, allows_gradients, ignored)
        #: The modules whose outputs are the inputs of this one: rows made of rows of changed weights must not become durable either.
        self.upstream: tuple[Computing, ...] = ()
        self.checks = Checks(name, recheck)
        #: Whether it was looked up which checks an earlier process has recorded.
        self.is_looked_up = False
        self.allows_gradients, self.recheck, self.refuses_repeated = allows_gradients, recheck, refuses_repeated
        self._adapters = self.watch.known.adapters
        self._has_warned = False
        self._has_shown_gradients = allows_gradients
        #: Whether `forward` runs in the mode of inference only, where the caller uses that.
        self._needs_inference = False
        self._attestation: tuple[int, _native.Attestation] | None = None
        self._first: tuple[dict[str, Any], str, torch.Tensor] | None = None
        #: Whether `forward` has written into an input, such as a ReLU in place: it then gets copies, so that those of the caller stay.
        self._writes_inputs = False
        #: How many whole batches of plain tensors were computed.
        self._whole = 0

    def copied(self, module: torch.nn.Module) -> Computing:
        """The same for a copy of the module.

        Raises:
            ModuleViolationError: if the copy has other weights or adapters than the rows were computed with.
        """
        settings = self.allows_gradients, self.recheck, self.refuses_repeated, self.surroundings, self.watch.code.ignored
        own = Computing(inner(module), self.shared, self.name, *settings)
        own.module, own.upstream = module, self.upstream
        if own.watch.known != self.watch.known:
            raise ModuleViolationError(
                f"module `{self.name}`: its copy has other weights or adapters than the cached module was frozen with, so it cannot share its rows; copy the module "
                "inside (`.module`), and cache the copy under another id"
            )
        return own

    @property
    def device(self) -> torch.device:
        """The device of the first weight."""
        # Where it was found before: a walk through the module takes longer than the rest of a lookup in Python.
        if self._first is not None:
            tensors, name, first = self._first
            is_there = tensors.get(name) is first
            if is_there:
                return first.device
        for tensors, name, tensor in _weights(self.module):
            # Those of a module of TorchScript are no dict.
            self._first = (tensors, name, tensor) if isinstance(tensors, dict) else None
            return tensor.device
        return torch.device("cpu")

    @property
    def leaves_inputs(self) -> bool:
        """Whether the next whole batch may be passed on without a copy: batches were computed, `forward` was not seen to write into an input, and no
        sample is computed again. Some batches get copies all the same, which :meth:`computed_whole` compares: the first two, the 4th, the 8th and so on."""
        is_compared = self._whole & (self._whole + 1) == 0
        is_known = self.checks.is_independent and not self.recheck and (self._has_shown_gradients or self._needs_inference)
        return is_known and not self._writes_inputs and not is_compared

    def computed_whole(self, passed: Inputs, used: Inputs) -> None:
        """Compares the inputs that were passed with those that `forward` got, if these are copies: `forward` may have written into them through numpy,
        `data`, DLPack or in the mode of inference, which tensors do not count."""
        self._whole += 1
        if used is not passed and not self._writes_inputs:
            self._writes_inputs = not have_same_bytes(passed, used)

    @property
    def conditions(self) -> str:
        """Everything that matters for the checks but the identity."""
        machine = f"{platform.system()}-{platform.machine()}"
        return f"Independent, python checks {VERSION}, torch {torch.__version__}, {machine}, device {self.device.type}"

    def attestation(self) -> _native.Attestation:
        """What the writer asks before rows of this module become durable."""
        # A child of `fork` has one of its own: the writer thread of its parent may have been using the other at that moment.
        if self._attestation is None or self._attestation[0] != os.getpid():
            self._attestation = os.getpid(), _native.Attestation(self._attest)
        return self._attestation[1]

    def _attest(self) -> str | None:
        """What has changed, of the weights of this module and of those before it."""
        for own in (self, *self.upstream):
            changed = own.watch.attest()
            if changed is not None:
                return changed if own is self else f"{self._before(own)}: {changed}"
        return None

    def _before(self, own: Computing) -> str:
        return f"module `{own.name}`, whose outputs are inputs of `{self.name}`"

    def alone(self, call: Callable[[], Own]) -> Own:
        """Calls a function that computes, while no other thread computes with this module or a part of it."""
        first, *others = self.watch.locks
        is_nested = is_computing()
        try:
            # A thread within a network holds those of its parts already. Of others, the thread may wait for this one, and does not compute
            # then.
            with first.turn(PATIENCE) if is_nested else first.own:
                return _alone(others, self.lock, call)
        finally:
            if not is_nested:
                release_taken()

    def run(self, inputs: Inputs, are_copies: bool = True) -> Any:
        """The output of the module, which is frozen before and after."""
        twice = sorted(inputs.kwargs.keys() & self.shared.keys())
        if twice:
            raise InvalidBatchError(f"argument `{twice[0]}` is one that all samples share, by `shared=`; do not pass it again")
        self.check()
        written = _versions(inputs)
        try:
            with computes(self.lock):
                output, shows_gradients = self._compute(inputs)
        except BaseException:
            # It may have written before it failed. What it says is more than a warning that counts as an error.
            with contextlib.suppress(Warning):
                self._note_writes(inputs, written, are_copies)
            # What it has added to the module is its own, and no change by others.
            with contextlib.suppress(ModuleViolationError, InvalidWeightsError):
                self.check(has_run=True)
            raise
        self._note_writes(inputs, written, are_copies)
        self.check(has_run=True)
        if shows_gradients:
            self._refuse_gradients(output)
            self._has_shown_gradients = True
        return output

    def _compute(self, inputs: Inputs) -> tuple[Any, bool]:
        """The output, and whether it shows what tracks gradients. With gradients on, a trainable tensor shows itself in what it takes part in,
        also one that is no parameter."""
        # Inputs that do so would hide it: the caller has turned gradients off.
        shows = not self._has_shown_gradients and not tracks((inputs.args, inputs.kwargs))
        if shows and torch.is_inference_mode_enabled():
            # In the mode of inference nothing tracks gradients.
            found = self._compute_outside_inference(inputs)
            return (self._call(inputs), False) if found is None else (found[0], True)
        with torch.set_grad_enabled(shows):
            return self._call(inputs), shows

    def _compute_outside_inference(self, inputs: Inputs) -> tuple[Any] | None:
        """The output, computed outside of the mode of inference; `None` if that cannot be, as by a module that was made in it."""
        if not self._needs_inference and any(weight.is_inference() for _, _, weight in _weights(self.module)):
            self._needs_inference = True
        if self._needs_inference:
            return None
        with torch.inference_mode(False), torch.enable_grad():
            try:
                # Tensors of that mode may not be written to here, and are before it is noticed.
                own = copy.deepcopy((inputs.args, inputs.kwargs))
            except Exception:
                self._needs_inference = True
                return None
            try:
                return (self._call(Inputs(*own[0], **own[1])),)
            except RuntimeError as error:
                if _SAVED in str(error):
                    raise ModuleViolationError(f"module `{self.name}`: {_TRAINABLE}") from error
                if _WRITTEN not in str(error):
                    raise
                self._needs_inference = True
                return None

    def _call(self, inputs: Inputs) -> Any:
        return self.module(*inputs.args, **inputs.kwargs, **(copy.deepcopy(self.shared) if self.shared else {}))

    def _note_writes(self, inputs: Inputs, written: list[int], are_copies: bool) -> None:
        """Notes that `forward` has written into an input, and warns if that is the caller's."""
        if self._writes_inputs or _versions(inputs) == written:
            return
        self._writes_inputs = True
        if are_copies:
            return
        warn(
            f"module `{self.name}`: `forward` wrote into an input for the first time, after {self._whole} batches into which it did not, so the tensors of this "
            "batch have changed in the caller; its later batches are copied. Do not use these tensors again, and make `forward` write into none of its inputs"
        )

    def refuse_tracked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuses inputs that track gradients, which would be lost: stored rows have none. Also where all rows are stored.

        Raises:
            InvalidBatchError: if one does, and gradients are on.
        """
        if not self.allows_gradients and torch.is_grad_enabled() and tracks((*args, kwargs) if kwargs else args):
            raise InvalidBatchError(f"module `{self.name}`: an input tracks gradients, and stored rows have none; pass `input.detach()`")

    def _refuse_gradients(self, output: Any) -> None:
        if tracks(output):
            raise ModuleViolationError(f"module `{self.name}`: {_TRAINABLE}")

    def check(self, has_run: bool = False) -> None:
        """Refuses weights, adapters or settings of torch that have changed; with `has_run`, after `forward` has run.

        Raises:
            ModuleViolationError: if they have.
        """
        try:
            self.surroundings.check(self.device, lambda: {weight.device.type for _, _, weight in _weights(self.module)})
            # No handle in the module computes with parts that this one reads at the same time.
            others = self.watch.locks_of_handles
            has_changed = held_for(others, lambda: self.watch.check(has_run)) if others else self.watch.check(has_run)
        except (InvalidWeightsError, ModuleViolationError) as error:
            raise ModuleViolationError(f"module `{self.name}`: {error}") from error
        for own in self.upstream:
            try:
                own.watch.refuse_changed()
            except ModuleViolationError as error:
                raise ModuleViolationError(f"{self._before(own)}: {error}") from error
        expected = self.watch.known.adapters
        # A module without adapters gets some by other attributes only.
        found = self._adapters = adapters(inner(self.module)) if has_changed or self._adapters else ""
        if found != expected:
            raise ModuleViolationError(
                f"module `{self.name}`: its adapters were switched, merged or disabled after it was frozen, found `{found}`, expected "
                f"`{expected}`; freeze the module again after the last change, and bump the id"
            )

    def check_repeated(self, ids: list[Any], positions: list[int], select: Any) -> None:
        """Compares the inputs of ids that are several times in the batch: one row cannot hold two.

        Raises:
            InvalidBatchError: if they differ, and the cache refuses that.
        """
        computed = {ids[position]: position for position in positions}
        for position, own in enumerate(ids):
            first = computed.get(own, position)
            if first == position or are_same(select([first]), select([position])):
                continue
            message = (
                f"module `{self.name}`: the id {own!r} is at positions {first} and {position} of the batch, with different inputs: one row cannot hold both; "
                "give each sample an id of its own, such as the whole path instead of the file name"
            )
            if self.refuses_repeated:
                raise InvalidBatchError(message)
            if not self._has_warned:
                self._has_warned = True
                warn(message)
            return


def _alone(locks: list[ProcessLock], last: ProcessLock, call: Callable[[], Own]) -> Own:
    """Calls a function with all of these locks held, and one that it waits for in any case."""
    if not locks:
        with last.own:
            return call()
    with locks[0].turn(PATIENCE):
        return _alone(locks[1:], last, call)


def _versions(inputs: Inputs) -> list[int]:
    """How often something was written into each tensor among the arguments."""
    parts = [*inputs.args, *inputs.kwargs.values()]
    return [part._version for part in parts if isinstance(part, torch.Tensor) and not part.is_inference()]


def inner(module: torch.nn.Module) -> torch.nn.Module:
    """The module that has the weights: a compiled one has them under other names."""
    found: torch.nn.Module = getattr(module, "_orig_mod", module) if type(module).__name__ == "OptimizedModule" else module
    return found


def _weights(module: torch.nn.Module) -> Iterator[tuple[Any, str, torch.Tensor]]:
    """The parameters and then the buffers: what holds them, their names there, and the tensors."""
    for kind in ("_parameters", "_buffers"):
        for part in module.modules():
            tensors = getattr(part, kind)
            for name, tensor in tensors.items():
                if tensor is not None:
                    yield tensors, name, tensor


def tracks(value: Any) -> bool:
    """Whether a tensor in a value tracks gradients."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    # Most are tensors: a batch makes few calls.
    for part in value:
        if part.requires_grad if isinstance(part, torch.Tensor) else isinstance(part, (list, tuple, Mapping)) and tracks(part):
            return True
    return False
