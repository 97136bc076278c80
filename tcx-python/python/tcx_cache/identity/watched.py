"""Weights as a watch knows them: what is compared of each, and of all of them at once."""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass
from typing import Any

from .. import _native
from ..errors import InvalidWeightsError
from . import sample
from .arrays import as_tensor, is_copied, looked_at
from .code import Reached
from .unsaved import Scan, is_same_content
from .weights import contiguous
from .wrappers import flat

#: Cache lines that are read after each computed batch, over all weights.
_LINES = 1024
#: The most bytes of an array of another form, and of computed entries of the `state_dict`, that are read around each batch.
SMALL = 1 << 20
_VERSION, _FORM = operator.attrgetter("_version"), operator.attrgetter("dtype", "shape", "device")
_ADDRESS, _STRIDE = operator.methodcaller("data_ptr"), operator.methodcaller("stride")


@dataclass
class Weight:
    name: str
    #: What the module has: a tensor, or an array.
    source: Any
    tensor: Any
    #: Keeps the memory, also if the weight is given another, until it is looked at again.
    alias: Any
    version: int
    form: tuple[Any, ...]
    checksum: bytes
    #: Whether the tensor is a copy of an array: only the values of the array show what was written to it.
    is_copy: bool

    @staticmethod
    def freeze(name: str, source: Any) -> Weight:
        tensor = as_tensor(source)
        # The version first: a write at the same time is then noticed, and so is other memory.
        version, alias = _version(tensor), tensor.detach()
        checksum = _checksum(alias, name)
        return Weight(name, source, tensor, alias, version, _form(alias), checksum, is_copied(source))

    def is_touched(self, source: Any) -> bool:
        """Whether something was written to it through torch, or it has other memory, or is another tensor."""
        if self.is_small_copy and self.is_written():
            return True
        return source is not self.source or _version(self.tensor) != self.version or _form(self.tensor) != self.form

    @property
    def is_small_copy(self) -> bool:
        """Whether all of its array is looked at around each batch; a larger one only before rows become durable."""
        return self.is_copy and looked_at(self.source) <= SMALL

    def is_written(self) -> bool:
        """Whether its memory has other values than when it was frozen."""
        return _checksum(as_tensor(self.source) if self.is_copy else self.alias, self.name) != self.checksum

    def again(self, source: Any) -> Weight | None:
        """The weight as it is now, with its memory of now; ``None`` if its values have changed.

        Raises:
            InvalidWeightsError: if its values are not known.
        """
        now = Weight.freeze(self.name, source)
        is_same = (now.checksum, now.form[1:3]) == (self.checksum, self.form[1:3])
        # Rows that wait were computed with the memory of before.
        return now if is_same and not self.is_written() else None


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _form(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device


class Untouched:
    """Compares what `is_touched` does, of all weights at once: a module may have hundreds, and it is done twice for each batch."""

    def __init__(self, weights: list[Weight]) -> None:
        self._all = [own.tensor for own in weights]
        # A tensor of inference mode has no version.
        tracked = [own for own in weights if not own.tensor.is_inference()]
        self._tracked = [own.tensor for own in tracked]
        # As they were frozen, not as they are now.
        self._versions = [own.version for own in tracked]
        self._addresses, self._strides = [own.form[0] for own in weights], [own.form[3] for own in weights]
        self._forms = [(own.form[1], own.form[2], own.form[4]) for own in weights]
        self._copies = [own for own in weights if own.is_small_copy]

    def holds(self) -> bool:
        """Whether nothing was written to them through torch, and they have the same memory."""
        return (
            [*map(_VERSION, self._tracked)] == self._versions
            and [*map(_ADDRESS, self._all)] == self._addresses
            and [*map(_STRIDE, self._all)] == self._strides
            and [*map(_FORM, self._all)] == self._forms
            and not any(own.is_written() for own in self._copies)
        )


class Sampled:
    """Some bytes of the weights, as they are when it is made: cache lines of those on the CPU, and elements of those on a GPU."""

    def __init__(self, weights: list[Weight]) -> None:
        self._lines = max(_LINES // max(len(weights), 1), 2)
        # The tensors and not their addresses: they keep the memory that is read later.
        on_gpu = [own.alias for own in weights if sample.is_on_gpu(own.alias)]
        others = (own.alias for own in weights if own.alias.device.type == "cpu" and not sample.is_on_gpu(own.alias))
        self._here = [own for own in others if sample.in_order(own) is not None]
        self._sizes = [own.nbytes for own in self._here]
        self._on_gpu = sample.Sample(on_gpu)
        self._found = self._read()

    def is_other(self) -> bool:
        """Whether some of these bytes are others now."""
        return self._read() != self._found or self._on_gpu.is_other()

    def _read(self) -> bytes:
        return _native.sample([*zip(map(_ADDRESS, self._here), self._sizes)], self._lines)


class Wraps:
    """Weights that hold their values in other tensors: a walk that reads dicts and lists does not show what these were replaced by."""

    def __init__(self, tensors: dict[str, Any], texts: dict[str, str]) -> None:
        # Those inside of others have no name of their own in a module.
        self._tensors = {name: tensors[name] for name in texts if name in tensors}
        self._found = flat(self._tensors) if self._tensors else ({}, {})

    def are_same(self) -> bool:
        """Whether they have the same tensors inside, and the same texts."""
        if not self._tensors:
            return True
        try:
            parts, texts = flat(self._tensors)
        except InvalidWeightsError:
            return False
        before, known = self._found
        return texts == known and parts.keys() == before.keys() and all(own is before[name] for name, own in parts.items())


@dataclass(frozen=True)
class Walk:
    """What a walk without a finding has read."""

    contents: _native.Contents
    #: The tensors that it has found.
    found: dict[str, Any]
    untouched: Untouched
    #: Those of them that could track gradients.
    tensors: list[Any]
    #: The variables of functions, and what they referred to.
    cells: list[tuple[Any, Any]]
    #: The classes of modules, and what each had.
    of_classes: list[tuple[type, list[Any]]]
    #: What the code of classes and functions reached by name.
    reached: list[Reached]
    wrapped: Wraps

    @staticmethod
    def of(scan: Scan, found: dict[str, Any], texts: dict[str, str], weights: list[Weight]) -> Walk | None:
        """That of a walk; ``None`` if only another one can show that it would find the same."""
        contents = scan.contents()
        if contents is None:
            return None
        tensors = [own for own in found.values() if hasattr(own, "requires_grad")]
        return Walk(contents, found, Untouched(weights), tensors, scan.cells, scan.of_classes, scan.reached, Wraps(scan.all, texts))

    def again(self, weights: list[Weight]) -> Walk:
        """The same walk, where weights were moved."""
        return dataclasses.replace(self, untouched=Untouched(weights))

    def is_same(self) -> bool:
        """Whether another walk would find the same."""
        if not self.contents.are_same() or not self.wrapped.are_same():
            return False
        for cls, held in self.of_classes:
            if not _has_same(cls, held):
                return False
        # Most modules have none of both.
        if self.cells and not all(is_same_content(cell, held) for cell, held in self.cells):
            return False
        return not self.reached or all(own.is_same() for own in self.reached)


def _has_same(cls: type, held: list[Any]) -> bool:
    """Whether a class has what it had."""
    now = vars(cls)
    return len(now) == len(held) and all(map(operator.is_, now.values(), held))


def _checksum(tensor: Any, name: str) -> bytes:
    owner = contiguous(tensor, name)
    return _native.checksum(owner.data_ptr(), owner.nbytes)
