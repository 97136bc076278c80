"""The watch that notices when the weights of a module change."""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Iterable
from typing import Any

from ..errors import InvalidWeightsError, ModuleViolationError
from ..runtime.held import held_for
from ..runtime.locks import PartLocks, ProcessLock
from ..tensors.captures import beside_captures
from .code import Code, variable
from .computed import Computed
from .graph import graphs
from .known import Known
from .unsaved import Scan
from .watched import SMALL, Sampled, Walk, Weight
from .weights import refuse, saved
from .wrappers import flat

#: The seconds between attempts to read the weights for the writer.
_PAUSES = (0.1, 0.4, 1.6)
_TRACKS = operator.attrgetter("requires_grad")
_REMEDY = "freeze the module again after the last change, and bump the id"
_OF_FORWARD = "if `forward` keeps it for later, delete it before the module is cached; otherwise " + _REMEDY

_PARTS = PartLocks()


def _classes(scan: Scan) -> dict[str, type]:
    return {path: type(part) for path, part in scan.modules}


class Watch:
    """Notices that the weights of a module have changed since its identity was made.

    It compares, before and after each computed batch, versions, addresses, dtypes and shapes; after it, 64 KiB of cache lines spread over
    all weights on the CPU, and 16,384 elements spread over those on a GPU; and before rows become durable, the checksum of all weights.
    Entries of the ``state_dict`` that the module computes are compared at both times; large ones, only before rows become durable.
    Weights that were moved, or loaded again with the same values, are the same. Attributes that ``forward`` adds are its own.
    """

    def __init__(self, module: Any, allows_gradients: bool, ignored: Iterable[str] = ()) -> None:
        #: What the code of the module reaches, which is read again where something in it was replaced; without the `ignored` variables.
        self.code = Code(ignored)
        scan = Scan(module, self.code)
        #: The locks of the parts, which other handles have that compute with one of these: what `forward` keeps in a part is that of one batch.
        self.locks = _PARTS.of(scan.parts(of_handles=False))
        #: Those of the parts that only handles in it have: while a check reads these parts, no handle computes with them.
        of_handles = scan.parts(of_handles=True)
        self.locks_of_handles = _PARTS.of(of_handles) if of_handles else ()
        held_for([*self.locks, *self.locks_of_handles], lambda: self._freeze(module, allows_gradients))

    def _freeze(self, module: Any, allows_gradients: bool) -> None:
        scan = Scan(module, self.code)
        refuse(scan, allows_gradients)
        self._module = module
        self._allows_gradients = allows_gradients
        self._changed: str | None = None
        self._lock = ProcessLock()
        self._classes = _classes(scan)
        self._used_parts, self._of_tensors = scan.used_parts, scan.of_tensors
        self._graphs = graphs(scan)
        #: Of weights that hold their values in other tensors, which are watched: what else decides their values.
        found, self._texts = flat(scan.all)
        self._attributes = found.keys() - flat(scan.registered)[0].keys()
        self._weights = [Weight.freeze(name, own) for name, own in found.items()]
        #: The attributes that appeared while `forward` ran.
        self._of_forward: set[str] = set()
        self._walked: Walk | None = None
        self._sampled = Sampled(self._weights)
        state = saved(module)
        self._computed = Computed(state, (own.alias for own in self._weights), {*found, *self._texts})
        self.known = Known.of(module, scan, state)

    def check(self, has_run: bool = False) -> bool:
        """Looks at the weights, at small cost; with `has_run`, after `forward` has run. Returns whether anything in the module was replaced
        since the last look, if only by `forward`.

        Raises:
            ModuleViolationError: if they have changed. This is final: restoring them later does not undo it.
        """
        if self._computed.nbytes <= SMALL:
            self._look_at_computed()
        walked = self._unchanged()
        if walked is not None:
            with self._lock.own:
                self._check_known()
                if walked.untouched.holds() and not (has_run and self._sampled.is_other()):
                    return False
        scan = Scan(self._module, self.code) if walked is None else None
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
            if scan is not None:
                self._walked = Walk.of(scan, found, self._texts, self._weights)
            elif walked is not None and touched:
                self._walked = walked.again(self._weights)
        return scan is not None

    def _unchanged(self) -> Walk | None:
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
        self._look_at_parts(scan, has_run)
        return found

    def _look_at_parts(self, scan: Scan, has_run: bool) -> None:
        """Refuses parts of other classes, and other graphs of those that have one class."""
        code = graphs(scan)
        traced = next((path for path, own in self._graphs.items() if path in code and code[path] != own), None)
        if traced is not None:
            self._changed = f"module `{traced}`: its graph changed after it was frozen, so that rows computed before and after would differ; {_REMEDY}"
            self._check_known()
        classes = _classes(scan)
        if has_run:
            self._classes = {**classes, **self._classes}
        if classes.items() ^ self._classes.items():
            self._changed = f"a part of it was added, removed or replaced by one of another class after it was frozen; {_REMEDY}"
            self._check_known()

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

    def _set(self, weights: list[Weight]) -> None:
        """Watches these instead. The sample first: if it fails, the weights of before stay watched, and count as touched."""
        sampled = Sampled(weights)
        self._weights, self._sampled = weights, sampled

    def _first_written(self) -> str:
        return next((own.name for own in self._weights if own.is_written()), "?")

    def _fail(self, name: str, what: str, is_attribute: bool = False) -> None:
        remedy = _OF_FORWARD if is_attribute or name in self._attributes else _REMEDY
        own = variable(name)
        if own is not None:
            remedy = f"if `{own}` decides nothing of the outputs, pass `assume_stateless=[{own!r}]`; otherwise {_REMEDY}"
        self._changed = f"weight `{name}`: {what}; {remedy}"
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
            found = flat(Scan(self._module, self.code).all)[0]
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
