"""The checks that a module is what it promises: deterministic, and the same for a sample whatever else is in its batch.

The first samples that are computed are computed again: the last one of the first batch alone, and one chosen by its ids: processes that
compute the same batch together, such as those of a `DTensor`, choose the same. Numbers are compared
with a tolerance, since kernels choose their order of summation by the size of the batch. Whole numbers, texts and the like have none: a few
samples change in any correct module, where they are rounded from others, and most of them in one that depends on the batch.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidOutputError, ModuleViolationError
from ..schema.tree import Schema, shown
from ..schema.types import Column
from ..tensors.memory import is_array, is_numeric, is_tensor
from ..tensors.streams import wait

#: Incremented when the checks change: what an older version has recorded is then checked again.
VERSION = 2
#: The samples that are compared before most of them decide.
_TOGETHER = 8
#: The rows of a batch whose size tells what is a usual number in it.
_USUAL_ROWS = 64
_REPEATED, _REBATCHED = "repeated", "rebatched"
_TOLERANCES = {(_REPEATED, True): 1e-2, (_REPEATED, False): 1e-4, (_REBATCHED, True): 5e-2, (_REBATCHED, False): 1e-2}
_TEXTS = {
    _REPEATED: (
        "the same sample gave two different outputs",
        "make `forward` deterministic (no dropout, no random transform); rows that are already in the cache may be wrong: give the module a new id, or "
        "invalidate them",
    ),
    _REBATCHED: (
        "a sample's output depends on the rest of its batch",
        "make each output depend on its own sample only (batch norm in eval mode, padding masked); rows that are already in the cache may be wrong: give "
        "the module a new id, or invalidate them",
    ),
}

#: Computes the samples at some positions of the batch again.
Compute = Callable[["list[int]"], Any]


@dataclass
class Batch:
    """A batch that was computed."""

    schema: Schema
    output: Any
    rows: int
    #: Computes some of its samples again.
    some: Compute
    #: How a message names the sample at a position.
    named: Callable[[int], str]
    _kept: list[Any] | None = None

    def values(self) -> list[Any]:
        """Its columns."""
        return self.schema.flatten(self.output) if self._kept is None else self._kept

    def chance(self) -> random.Random:
        """Chance that is the same wherever these ids are computed, and says nothing of their samples: ranks that chose other samples would each have
        a collective of another one."""
        return random.Random("\n".join(map(self.named, range(self.rows))))

    def keep(self) -> None:
        """Copies its columns, before more is computed: `forward` may write the next output into the memory of this one."""
        if self._kept is None:
            values = self.schema.flatten(self.output)
            wait(values)
            self._kept = [_copied(value) for value in values]


@dataclass
class _Tipped:
    """How many samples were computed in another batch, and in how many of them a field without a tolerance is another one."""

    compared: int = 0
    #: By the name of a field: the number, and how a message names the last one.
    fields: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, batch: Batch, position: int, alone: Any) -> None:
        self.compared += 1
        for name in _tipped(batch, position, alone):
            self.fields[name] = self.fields.get(name, (0, ""))[0] + 1, batch.named(position)

    def most(self) -> str | None:
        """The field that is another one in most samples."""
        for name, (count, last) in self.fields.items():
            if 2 * count > self.compared:
                return f"field `{name}` is not the same in {count} of {self.compared} samples, one of them with id {last}"
        return None


class Checks:
    """What was shown of a module so far."""

    def __init__(self, module: str, recheck: float = 0.0) -> None:
        self._module = module
        self._recheck = recheck
        self.is_deterministic = False
        self.is_independent = False
        self._is_sensitive = False
        self._tipped = _Tipped()
        self._broken: str | None = None

    @property
    def is_broken(self) -> bool:
        """Whether a check has failed."""
        return self._broken is not None

    def trust(self, has_passed: bool) -> None:
        """What an earlier process has recorded is not checked again."""
        self.is_deterministic |= has_passed
        self.is_independent |= has_passed

    def refuse(self) -> None:
        """Refuses a module of which a check has failed.

        Raises:
            ModuleViolationError: if one has.
        """
        if self._broken:
            raise ModuleViolationError(self._broken)

    def look_at(self, batch: Batch) -> None:
        """Checks a batch before its rows are stored.

        Raises:
            ModuleViolationError: if a check fails. The same error is raised for every later batch.
        """
        self.refuse()
        if batch.rows == 0:
            return
        if not self.is_deterministic or (not self.is_independent and batch.rows > 1):
            chosen, chance = [batch.rows - 1], batch.chance()
            if batch.rows > 1:
                chosen.append(chance.randrange(batch.rows - 1))
            for position in chosen:
                self._alone(batch, position)
            self._more(batch, chance)
            self.is_deterministic, self.is_independent = True, batch.rows > 1 and not self._tipped.fields
        elif self._recheck and (chance := batch.chance()).random() < min(1.0, self._recheck * batch.rows):
            self._alone(batch, chance.randrange(batch.rows))
            self._more(batch, chance)
        self.refuse()

    def _more(self, batch: Batch, chance: random.Random) -> None:
        """Where a sample was another one in a field without a tolerance, computes more samples alone, until enough were compared."""
        waiting = chance.sample(range(batch.rows), min(_TOGETHER, batch.rows)) if batch.rows > 1 else []
        while waiting and self._tipped.fields and not self._broken:
            self._alone(batch, waiting.pop())

    def _tally(self, batch: Batch, position: int, alone: Any) -> str | None:
        """Counts a sample that was computed alone. Once they are enough, the verdict, and the next ones start from zero."""
        if batch.rows < 2:
            # It is the same batch.
            return None
        self._tipped.add(batch, position, alone)
        if self._tipped.compared < _TOGETHER:
            return None
        counted, self._tipped = self._tipped, _Tipped()
        return counted.most()

    def _alone(self, batch: Batch, position: int) -> None:
        """Compares a sample with the same sample computed alone; where it differs, a second computation shows why."""
        if self._broken:
            return
        batch.keep()
        alone = self._compute(batch, position)
        tipped = self._tally(batch, position, alone)
        if tipped is None and _difference(batch, position, alone, _REPEATED) is None:
            return
        depends = _difference(batch, position, alone, _REBATCHED) or tipped
        if depends is None and self._is_sensitive:
            return
        single = Batch(batch.schema, alone, 1, batch.some, lambda _: batch.named(position))
        with contextlib.suppress(InvalidOutputError):
            single.keep()
        again = self._compute(batch, position)
        is_random = _difference(single, 0, again, _REPEATED)
        if is_random is not None:
            self._fail(_REPEATED, is_random)
        elif depends is not None:
            self._fail(_REBATCHED, depends)
        else:
            self._is_sensitive = True

    def _compute(self, batch: Batch, position: int) -> Any:
        try:
            return batch.some([position])
        except ModuleViolationError:
            raise
        except Exception as error:
            raise ModuleViolationError(
                f"module `{self._module}`: `forward` computed a batch of {batch.rows} samples but failed on 1 of them in another batch; make `forward` accept any "
                f"number of samples: tcx computes only the missing ones: {error}"
            ) from error

    def _fail(self, tolerance: str, how: str) -> None:
        what, remedy = _TEXTS[tolerance]
        self._broken = f"module `{self._module}`: {what}: {how}; {remedy}"


def _copied(value: Any) -> Any:
    """A value with memory of its own, on the CPU."""
    if is_tensor(value):
        return value.detach().cpu() if value.is_cuda else value.detach().clone()
    if is_array(value):
        return value.copy()
    return [_copied(item) for item in value] if isinstance(value, (list, tuple)) else value


def difference(batch: Batch, computed: Any) -> list[str]:
    """What differs between stored rows and the same samples computed again, one line for each sample."""
    lines = []
    other = batch.schema.flatten(computed)
    wait(other)
    for position in range(batch.rows):
        for (name, column), of_batch, of_computed in zip(batch.schema.columns(), batch.values(), other):
            how = _differs(column, of_batch, position, of_computed[position : position + 1], batch.rows, _REBATCHED)
            if how is not None:
                lines.append(f"id {batch.named(position)}: field `{name}` {how}")
                break
    return lines


def _difference(batch: Batch, position: int, alone: Any, tolerance: str) -> str | None:
    """What differs between a sample of a batch and the same sample alone."""
    try:
        other = batch.schema.flatten(alone)
        wait(other)
    except InvalidOutputError as error:
        return str(error)
    for (name, column), of_batch, of_alone in zip(batch.schema.columns(), batch.values(), other):
        how = _differs(column, of_batch, position, of_alone, batch.rows, tolerance)
        if how is not None:
            return f"field `{name}` {how}, for id {batch.named(position)}"
    return None


def _differs(column: Column, of_batch: Any, position: int, of_alone: Any, rows: int, tolerance: str) -> str | None:
    try:
        if len(of_alone) != 1:
            return f"has {len(of_alone)} rows for 1 sample"
        one, other = of_batch[position], of_alone[0]
    except (TypeError, IndexError):
        return f"is {shown(of_batch)} and {shown(of_alone)}"
    if one is None or other is None:
        is_same = one is None and other is None
        return None if is_same or tolerance == _REBATCHED else "is present in one row and absent in the other"
    if column.kind != "tensor" or not is_numeric(one) or not is_numeric(other):
        # Where words are chosen by a threshold, the last bits decide.
        return None if one == other or tolerance == _REBATCHED else "is not the same"
    if tuple(one.shape) != tuple(other.shape):
        return f"has the shapes {list(one.shape)} and {list(other.shape)}"
    return _differ_in_numbers(column, of_batch, one, other, rows, tolerance)


def _differ_in_numbers(column: Column, of_batch: Any, one: Any, other: Any, rows: int, tolerance: str) -> str | None:
    import torch

    a, b = torch.as_tensor(one, device="cpu").detach(), torch.as_tensor(other, device="cpu").detach()
    if not a.is_floating_point():
        return _differ_in_integers(a, b, tolerance)
    a, b = a.double().flatten(), b.double().flatten()
    relative = _TOLERANCES[tolerance, column.dtype in ("f16", "bf16")]
    # The rows of the batch decide what is small only where the numbers of this one do not.
    for usual in (0.0, None):
        allowed = max(_largest(torch.cat([a, b])), _usual(of_batch, rows) if usual is None else usual) * relative
        differs = ~((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= allowed))
        if not differs.any():
            return None
    at = int(differs.nonzero()[0])
    return f"is {a[at]:g} and {b[at]:g} at element {at} (tolerance {allowed:.1e})"


def _tipped(batch: Batch, position: int, alone: Any) -> list[str]:
    """The fields without a tolerance in which a sample alone is another one than in its batch."""
    try:
        other = batch.schema.flatten(alone)
        wait(other)
        pairs = [(name, column, own[position], its[0]) for (name, column), own, its in zip(batch.schema.columns(), batch.values(), other)]
    except (InvalidOutputError, TypeError, IndexError):
        # Another structure is a difference of its own.
        return []
    return [name for name, column, one, its in pairs if _is_another(column, one, its)]


def _is_another(column: Column, one: Any, other: Any) -> bool:
    import torch

    if one is None or other is None:
        return (one is None) != (other is None)
    if column.kind != "tensor" or not is_numeric(one) or not is_numeric(other):
        return bool(one != other)
    a, b = torch.as_tensor(one, device="cpu").detach(), torch.as_tensor(other, device="cpu").detach()
    if a.is_floating_point() or a.shape != b.shape:
        return False
    return bool((a != b).any()) if a.numel() == 1 else _differ_in_integers(a, b, _REBATCHED) is not None


def _differ_in_integers(a: Any, b: Any, tolerance: str) -> str | None:
    gaps = (a.long() - b.long()).abs()
    if tolerance == _REPEATED:
        return None if not gaps.any() else "is not the same"
    # Where numbers are rounded to whole ones, they change to the next one: an output is another one if more than a quarter of it is.
    allowed = 0 if str(a.dtype) == "torch.bool" else 1
    if gaps.numel() > 1 and 4 * int((gaps > allowed).sum()) > gaps.numel():
        return "is not the same in more than a quarter of its elements"
    return None


def _largest(numbers: Any) -> float:
    finite = numbers[numbers.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _usual(of_batch: Any, rows: int) -> float:
    """The median of the largest numbers of the rows."""
    import torch

    largest = sorted(
        _largest(torch.as_tensor(of_batch[row], device="cpu").detach().double().flatten())
        for row in range(min(rows, _USUAL_ROWS))
        if of_batch[row] is not None
    )
    return largest[(len(largest) - 1) // 2] if largest else 0.0
