"""The watch that notices when the weights of a module change."""

from __future__ import annotations

import contextlib
import operator
import time
from dataclasses import dataclass
from typing import Any

from .. import _native
from ..errors import InvalidWeightsError, ModuleViolationError
from ..runtime.locks import ProcessLock
from ..tensors.captures import beside_captures
from . import sample
from .arrays import as_tensor, is_copied, looked_at
from .computed import Computed
from .known import Known
from .unsaved import Scan, is_same_content
from .weights import contiguous, refuse, saved
from .wrappers import flat

#: Cache lines that are read after each computed batch, over all weights.
_LINES = 1024
#: The most bytes of an array of another form, and of computed entries of the `state_dict`, that are read around each batch.
_SMALL = 1 << 20
#: The seconds between attempts to read the weights for the writer.
_PAUSES = (0.1, 0.4, 1.6)
_VERSION, _FORM = operator.attrgetter("_version"), operator.attrgetter("dtype", "shape", "device")
_ADDRESS, _STRIDE, _TRACKS = operator.methodcaller("data_ptr"), operator.methodcaller("stride"), operator.attrgetter("requires_grad")
_REMEDY = "freeze the module again after the last change, and bump the id"
_OF_FORWARD = "if `forward` keeps it for later, delete it before the module is cached; otherwise " + _REMEDY


@dataclass
class _Weight:
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
    def freeze(name: str, source: Any) -> _Weight:
        tensor = as_tensor(source)
        # The version first: a write at the same time is then noticed, and so is other memory.
        version, alias = _version(tensor), tensor.detach()
        checksum = _checksum(alias, name)
        return _Weight(name, source, tensor, alias, version, _form(alias), checksum, is_copied(source))

    def is_touched(self, source: Any) -> bool:
        """Whether something was written to it through torch, or it has other memory, or is another tensor."""
        if self.is_small_copy and self.is_written():
            return True
        return source is not self.source or _version(self.tensor) != self.version or _form(self.tensor) != self.form

    @property
    def is_small_copy(self) -> bool:
        """Whether all of its array is looked at around each batch; a larger one only before rows become durable."""
        return self.is_copy and looked_at(self.source) <= _SMALL

    def is_written(self) -> bool:
        """Whether its memory has other values than when it was frozen."""
        return _checksum(as_tensor(self.source) if self.is_copy else self.alias, self.name) != self.checksum

    def again(self, source: Any) -> _Weight | None:
        """The weight as it is now, with its memory of now; ``None`` if its values have changed.

        Raises:
            InvalidWeightsError: if its values are not known.
        """
        now = _Weight.freeze(self.name, source)
        is_same = (now.checksum, now.form[1:3]) == (self.checksum, self.form[1:3])
        # Rows that wait were computed with the memory of before.
        return now if is_same and not self.is_written() else None


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _form(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device


class _Untouched:
    """Compares what `is_touched` does, of all weights at once: a module may have hundreds, and it is done twice for each batch."""

    def __init__(self, weights: list[_Weight]) -> None:
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


class _Sampled:
    """Some bytes of the weights, as they are when it is made: cache lines of those on the CPU, and elements of those on a GPU."""

    def __init__(self, weights: list[_Weight]) -> None:
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


@dataclass(frozen=True)
class _Walk:
    """What a walk without a finding has read."""

    contents: _native.Contents
    #: The tensors that it has found.
    found: dict[str, Any]
    untouched: _Untouched
    #: Those of them that could track gradients.
    tensors: list[Any]
    #: The variables of functions, and what they referred to.
    cells: list[tuple[Any, Any]]
    #: The classes of modules, and what each had.
    of_classes: list[tuple[type, list[Any]]]

    def is_same(self) -> bool:
        """Whether another walk would find the same."""
        if not self.contents.are_same() or not all(_has_same(cls, held) for cls, held in self.of_classes):
            return False
        return not self.cells or all(is_same_content(cell, held) for cell, held in self.cells)


def _has_same(cls: type, held: list[Any]) -> bool:
    """Whether a class has what it had."""
    now = vars(cls)
    return len(now) == len(held) and all(map(operator.is_, now.values(), held))


def _checksum(tensor: Any, name: str) -> bytes:
    owner = contiguous(tensor, name)
    return _native.checksum(owner.data_ptr(), owner.nbytes)


def _classes(scan: Scan) -> dict[str, type]:
    return {path: type(part) for path, part in scan.modules}


class Watch:
    """Notices that the weights of a module have changed since its identity was made.

    It compares, before and after each computed batch, versions, addresses, dtypes and shapes; after it, 64 KiB of cache lines spread over
    all weights on the CPU, and 16,384 elements spread over those on a GPU; and before rows become durable, the checksum of all weights.
    Entries of the ``state_dict`` that the module computes are compared at both times; large ones, only before rows become durable.
    Weights that were moved, or loaded again with the same values, are the same. Attributes that ``forward`` adds are its own.
    """

    def __init__(self, module: Any, allows_gradients: bool) -> None:
        scan = Scan(module)
        refuse(scan, allows_gradients)
        self._module = module
        self._allows_gradients = allows_gradients
        self._changed: str | None = None
        self._lock = ProcessLock()
        self._classes = _classes(scan)
        self._used_parts, self._of_tensors = scan.used_parts, scan.of_tensors
        #: Of weights that hold their values in other tensors, which are watched: what else decides their values.
        found, self._texts = flat(scan.all)
        self._attributes = found.keys() - flat(scan.registered)[0].keys()
        self._weights = [_Weight.freeze(name, own) for name, own in found.items()]
        #: The attributes that appeared while `forward` ran.
        self._of_forward: set[str] = set()
        self._walked: _Walk | None = None
        self._sampled = _Sampled(self._weights)
        state = saved(module)
        self._computed = Computed(state, (own.alias for own in self._weights), {*found, *self._texts})
        self.known = Known.of(module, scan, state)

    def check(self, has_run: bool = False) -> bool:
        """Looks at the weights, at small cost; with `has_run`, after `forward` has run. Returns whether anything in the module was replaced
        since the last look, if only by `forward`.

        Raises:
            ModuleViolationError: if they have changed. This is final: restoring them later does not undo it.
        """
        if self._computed.nbytes <= _SMALL:
            self._look_at_computed()
        walked = self._unchanged()
        if walked is not None:
            with self._lock.own:
                self._check_known()
                if walked.untouched.holds() and not (has_run and self._sampled.is_other()):
                    return False
        scan = Scan(self._module) if walked is None else None
        if scan is not None:
            refuse(scan, self._allows_gradients)
        with self._lock.own:
            self._check_known()
            found = self._found(scan, has_run) if scan is not None else walked.found if walked else {}
            touched = [number for number, own in enumerate(self._weights) if own.is_touched(found[own.name])]
            if touched:
                self._look_closely(touched, found)
            elif has_run and self._sampled.is_other():
                # After `forward` only: what was written before it is still there.
                self._fail(self._first_written(), "changed in place after it was frozen, so that rows computed before and after would differ")
            if scan is not None or touched:
                contents = scan.contents() if scan is not None else walked.contents if walked else None
                read = scan if scan is not None else walked
                cells, of_classes = (read.cells, read.of_classes) if read is not None else ([], [])
                # A walk does not show what tensors inside of weights were replaced by.
                contents = None if self._texts else contents
                tensors = [own for own in found.values() if hasattr(own, "requires_grad")]
                self._walked = None if contents is None else _Walk(contents, found, _Untouched(self._weights), tensors, cells, of_classes)
        return scan is not None

    def _unchanged(self) -> _Walk | None:
        """The last walk, if another one would find the same, and nothing to refuse."""
        walked = self._walked
        if walked is None or not walked.is_same():
            return None
        tracks = not self._allows_gradients and any(map(_TRACKS, walked.tensors))
        return None if tracks else walked

    def _found(self, scan: Scan, has_run: bool) -> dict[str, Any]:
        """The tensors that the module has now, under the same names."""
        known, (found, texts) = flat(scan.registered)[0], flat(scan.all)
        names = {own.name for own in self._weights}
        changed = {name for name in found.keys() ^ names if name not in self._of_forward}
        if has_run:
            new = {name for name in changed if name not in known and name not in names}
            self._of_forward |= new
            # Those of a weight, which some classes move elsewhere in their first batch.
            moved = {name for name in changed if name in names and name in self._of_tensors}
            if moved:
                self._set([own for own in self._weights if own.name not in moved])
            changed -= new | moved
        if changed:
            name = sorted(changed)[0]
            self._fail(name, "was added or removed after it was frozen", is_attribute=name in found and name not in known)
        other = next((name for name, text in self._texts.items() if texts.get(name) != text), None)
        if other is not None:
            self._fail(other, "changed after it was frozen, so that rows computed before and after would differ")
        used = scan.used_parts
        others = [path for path, name in self._used_parts.items() if used.get(path) != name]
        if has_run:
            # `forward` keeps one of its own for later.
            self._used_parts = {path: name for path, name in self._used_parts.items() if path not in others}
        for other in [] if has_run else others[:1]:
            self._changed = f"`{other}`: uses another part of the module than when it was frozen, `{self._used_parts[other]}`; {_REMEDY}"
            self._check_known()
        classes = _classes(scan)
        if has_run:
            self._classes = {**classes, **self._classes}
        if classes.items() ^ self._classes.items():
            self._changed = f"a part of it was added, removed or replaced by one of another class after it was frozen; {_REMEDY}"
            self._check_known()
        return found

    def _look_closely(self, touched: list[int], found: dict[str, Any]) -> None:
        """Weights were touched: they are the same if all their values are."""
        weights = [*self._weights]
        for number in touched:
            before = weights[number]
            try:
                now = before.again(found[before.name])
            except InvalidWeightsError as error:
                self._fail(before.name, f"changed after it was frozen: {error}")
                return
            if now is None:
                self._fail(before.name, "changed after it was frozen, so that rows computed before and after would differ")
                return
            weights[number] = now
        self._set(weights)

    def _look_at_computed(self) -> None:
        # Not in the lock: it calls code of the module.
        name = self._computed.changed(self._module) if self._changed is None else None
        if name is not None:
            with self._lock.own:
                what = "changed after it was frozen, so that rows computed before and after would differ"
                self._changed = self._changed or f"`state_dict` entry `{name}`: {what}; {_REMEDY}"

    def _set(self, weights: list[_Weight]) -> None:
        """Watches these instead. The sample first: if it fails, the weights of before stay watched, and count as touched."""
        sampled = _Sampled(weights)
        self._weights, self._sampled = weights, sampled

    def _first_written(self) -> str:
        return next((own.name for own in self._weights if own.is_written()), "?")

    def _fail(self, name: str, what: str, is_attribute: bool = False) -> None:
        self._changed = f"weight `{name}`: {what}; {_OF_FORWARD if is_attribute or name in self._attributes else _REMEDY}"
        self._check_known()

    def refuse_changed(self) -> None:
        """Refuses weights that were found to have changed. It does not look at them.

        Raises:
            ModuleViolationError: if they have.
        """
        self._check_known()

    def _check_known(self) -> None:
        if self._changed:
            raise ModuleViolationError(self._changed)

    def renew(self) -> None:
        """Lets go of the memory that weights had before they were moved, if their values are the same. It finds no fault: the next check does."""
        try:
            found = flat(Scan(self._module).all)[0]
        except InvalidWeightsError:
            return
        self._renew({own.name: found.get(own.name, own.source) for own in self._weights})

    def _renew(self, sources: dict[str, Any]) -> None:
        with self._lock.own:
            weights = [*self._weights]
            moved = [number for number, own in enumerate(weights) if self._changed is None and own.is_touched(sources[own.name])]
            for number in moved:
                before = weights[number]
                with contextlib.suppress(InvalidWeightsError):
                    weights[number] = before.again(sources[before.name]) or before
            if moved:
                self._walked = None
                self._set(weights)

    def attest(self) -> str | None:
        """What has changed, of all values; the writer asks before rows become durable."""
        # Its thread reads weights on a GPU while other threads do there what they like. A no would be final.
        for pause in _PAUSES:
            try:
                return self._attested()
            except Exception:
                time.sleep(pause)
        return self._attested()

    def _attested(self) -> str | None:
        with beside_captures():
            # A weight that was moved keeps memory of before. First, so that what follows sees its memory of now.
            self._renew({own.name: own.source for own in self._weights})
            # Reading all weights takes long, and batches are checked at the same time.
            if self._changed is None and any(own.is_written() for own in list(self._weights)):
                self._look_again()
            self._look_at_computed()
            return self._changed

    def _look_again(self) -> None:
        with self._lock.own:
            # What was written to may be the memory of a weight no more, which has the same values elsewhere.
            changed = next((own for own in self._weights if own.is_written()), None)
            if changed is not None and self._changed is None:
                self._changed = (
                    f"weight `{changed.name}`: changed in place after it was frozen, so that rows computed before and after would differ; {_REMEDY}"
                )
