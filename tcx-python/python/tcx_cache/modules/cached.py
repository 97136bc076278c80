"""A cached module: looks up a batch, computes the missing samples, and returns all of them."""

from __future__ import annotations

import copy
import datetime
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Union

import torch

from .. import _native
from ..batch.split import Inputs, Plan, as_inputs, plan
from ..engine import ids as keys
from ..engine.rows import Found, Rows, timed
from ..errors import InvalidBatchError, ModuleViolationError
from ..runtime.untraced import untraced
from ..schema.declared import Batch
from ..schema.tree import Schema
from ..sharing import settings
from ..sharing.filling import Filler, Stop
from ..sharing.leases import Job, warm_shared
from ..sharing.rank import Rank
from ..sharing.reports import SharedReport, ShardReport
from ..sharing.sequence import Sequence
from ..sharing.shards import warm_sharded
from ..tensors.streams import refuse_capture
from . import checks
from .around import Around
from .computing import Computing
from .loading import Loaded, NotLoadedError, Select, explain
from .table import WarmReport, check_batch_size, distinct_positions, reopen, travel, warm
from .upkeep import Upkeep, checked_view

#: Loads the inputs of the samples with these ids: a tensor, a tuple of positional arguments, a mapping of keyword arguments, or
#: :class:`tcx_cache.Inputs`.
Loader = Callable[["list[Any]"], Any]


class Cached(Upkeep, Around, Generic[Batch]):
    """A frozen module that computes missing samples only. Made by :func:`tcx_cache.cached` or :meth:`tcx_cache.Cache.module`.

    It is a ``torch.nn.Module``: ``state_dict``, ``named_parameters`` and ``to`` are those of the module inside, under the same names.
    ``train`` leaves the module inside in evaluation mode. Other attributes are those of the module inside.
    To type checkers, it is one of what its outputs declare, or else of what ``forward`` of the module returns: ``Cached[torch.Tensor]``.
    """

    if TYPE_CHECKING:

        def __call__(self, *args: Any, ids: Any, **kwargs: Any) -> Batch:
            """As :meth:`forward`, with the hooks of the module."""

    _output_device: torch.device | None

    def __init__(self, computing: Computing, rows: Rows, view: int = 0, output_device: Any = None) -> None:
        torch.nn.Module.__init__(self)
        own = self.__dict__
        own["_rows"], own["_view"] = rows, view
        own["_output_device"] = None if output_device is None else torch.device(output_device)
        own["training"] = False
        self._compute_with(computing)

    def view(self, number: int) -> Cached[Batch]:
        """The same module for a variant of its samples, such as an augmentation: 0 is the sample itself."""
        return Cached(self._computing, self._rows, checked_view(number), self._output_device)

    @untraced
    def forward(self, *args: Any, ids: Any, **kwargs: Any) -> Batch:
        """The outputs of a batch, one row for each id in the order asked. Only missing samples are computed, each id once.

        Args:
            *args: The inputs, every part of which has one row or item for each id, along its first dimension.
            ids: One id for each sample: strings, integers, byte strings, or a vector of integers.
            **kwargs: Further inputs.

        Raises:
            InvalidBatchError: if an input cannot be split by sample, the numbers of ids and samples differ, or an input tracks gradients.
            ModuleViolationError: if weights have changed, or the module is not deterministic.
            InvalidOutputError: if the outputs are not as declared, or as those of the first batch.
        """
        self._computing.refuse_tracked(args, kwargs)
        ids = keys.once(ids)
        listed = keys.listed(ids)
        split = plan(Inputs(*args, **kwargs), len(listed))
        packed, device = self._rows.pack(ids, self._view), self._device()
        found = self._lookup(packed, device)
        if found is None or found.missing:
            found = self._complete(listed, packed, found, split.select, split)
        return self._output(found, device)

    @untraced
    def fetch(self, ids: Any, load: Loader | None = None) -> Batch:
        """The outputs of these ids. If some are missing, ``load`` is called with their ids, each once, and returns their inputs.

        Raises:
            InvalidBatchError: if rows are missing and there is no ``load``; otherwise as :meth:`forward`.
        """
        return self._fetch(ids, load)

    def _fetch(self, ids: Any, load: Loader | None, output_device: torch.device | None = None) -> Batch:
        """As :meth:`fetch`, with the rows on a device."""
        device = output_device or self._device()
        return self._output(self._filled(ids, load, device), device)

    @untraced
    def _fill(self, ids: Any, load: Loader | None) -> None:
        """As :meth:`fetch`, where the rows are not wanted: they are not read."""
        self._filled(ids, load, self._device())

    def _filled(self, ids: Any, load: Loader | None, device: torch.device) -> Found:
        """These rows, with those computed that are missing, before they are read."""
        ids = keys.once(ids)
        packed = self._rows.pack(ids, self._view)
        found = self._lookup(packed, device)
        listed: list[Any] = []
        while found is None or found.missing:
            # As late as possible: other threads and processes compute too, and a child of `fork` has the view of its parent so far.
            found = self._rows.lookup_to_write(packed, found)
            if found is not None and not found.missing:
                break
            listed = listed or keys.listed(ids)
            positions = distinct_positions(listed) if found is None else found.rows.distinct_missing()
            loaded = Loaded(self._load([listed[position] for position in positions], load), positions)
            try:
                found = self._complete(listed, packed, found, loaded.select)
            except NotLoadedError:
                # A row that was found before is gone: another process has invalidated or evicted it.
                found = self._lookup(packed, device)
            except (TypeError, AttributeError) as error:
                explain(error, loaded.inputs)
                raise
        return found

    def _load(self, wanted: list[Any], load: Loader | None) -> Plan:
        if load is None:
            raise InvalidBatchError(
                f"module `{self.id}`: {len(wanted)} samples are missing, one of them with id {wanted[0]!r}, and there is no function that loads their inputs; "
                "pass `load`, or fill the cache before"
            )
        loaded = load(wanted)
        try:
            inputs = as_inputs(loaded)
            found = plan(inputs, len(wanted))
        except InvalidBatchError as error:
            raise InvalidBatchError(f"module `{self.id}`: what `load` returned for {len(wanted)} samples: {error}") from None
        self._computing.refuse_tracked(inputs.args, inputs.kwargs)
        return found

    def _lookup(self, packed: _native.Keys, device: torch.device) -> Found | None:
        is_on_gpu = device.type == "cuda"
        if is_on_gpu:
            refuse_capture(self.id)
        return self._rows.lookup(packed, pinned=is_on_gpu)

    def _complete(
        self, ids: list[Any], packed: _native.Keys, found: Found | None, select: Select, split: Plan | None = None
    ) -> Found:
        """Computes the missing rows. With `split`, the inputs of all positions can be selected, those of repeated ids too."""
        self._refuse_itself()
        return self._computing.alone(functools.partial(self._completed, ids, packed, found, select, split))

    def _completed(self, ids: list[Any], packed: _native.Keys, found: Found | None, select: Select, split: Plan | None) -> Found:
        computing = self._computing
        while True:
            found = self._rows.lookup_to_write(packed, found)
            positions = distinct_positions(ids) if found is None else found.rows.distinct_missing()
            if not positions and found is not None:
                return found
            self._rows.check_any(positions)
            passed = None if split is None else split.passed(positions)
            inputs = passed if passed is not None and computing.leaves_inputs else select(positions)
            if split is not None and len(positions) < (len(ids) if found is None else found.missing):
                computing.check_repeated(ids, positions, select)
            output, seconds = timed(lambda: computing.run(inputs, are_copies=inputs is not passed))
            if passed is not None:
                computing.computed_whole(passed, inputs)
            found = self._rows.settled(packed, found, output, positions)
            if found is not None:
                break
        columns = self._rows.columns(output, len(positions))
        self._check(output, [ids[position] for position in positions], lambda rows: select([positions[row] for row in rows]))
        self._rows.note_kept(found.insert(positions, columns, seconds, computing.attestation()))
        return found

    def _refuse_itself(self) -> None:
        if self._computing.lock.is_held_here:
            raise ModuleViolationError(
                f"module `{self.id}`: `forward` used its own handle to compute samples: it would wait for itself forever; compute there without the handle, or "
                "use another module"
            )

    def _check(self, output: Any, ids: list[Any], select: Select) -> None:
        """Checks a computed batch, before anything of it is stored."""
        computing, shown = self._computing, self._computing.checks
        store = self._rows.required().reader
        if not computing.is_looked_up:
            computing.is_looked_up = True
            shown.trust(store.has_passed(computing.conditions))
        was_shown = shown.is_independent
        batch = checks.Batch(self._schema(), output, len(ids), lambda rows: computing.run(select(rows)), lambda row: repr(ids[row]))
        try:
            shown.look_at(batch)
        finally:
            if shown.is_broken:
                store.forget_passed(computing.conditions)
        if shown.is_independent and not was_shown:
            store.record_passed(computing.conditions)

    def warm(self, ids: Iterable[Any], load: Loader, *, batch_size: int = 64, progress: bool = True) -> WarmReport:
        """Computes the missing samples of these ids, in batches of this size, and shows a progress bar where tqdm is installed."""
        return warm(self, ids, lambda part: self._fill(part, load), batch_size, progress)

    def warm_shared(
        self,
        ids: Any,
        load: Loader,
        *,
        batch_size: int = 64,
        workers: int = 1,
        job: str = "warm",
        range_size: int | None = None,
        expiry: float | datetime.timedelta = 120.0,
        stop: Stop | None = None,
    ) -> SharedReport:
        """As :meth:`warm`, together with every process that makes the same call for the same cache directory, on this machine and on others:
        workers. Each worker leases a part of the ids at a time, and computes what is missing there. The call returns when every id was found or
        computed by some worker, and its row is durable.

        A worker may come, be killed or leave at any time. The others take over what it leaves after ``expiry`` without a sign of life. A worker
        that is taken for gone and is not computes some samples twice. That costs time, and never a row.

        Args:
            ids: All ids, the same in the same order in every worker: a list, a range, an array, the path of a file with one id a line, or a
                :class:`tcx_cache.Sequence`. Ranges and sequences are not held in memory.
            load: Returns the inputs of the samples with these ids, as for :meth:`fetch`.
            batch_size: How many samples are computed together.
            workers: How many threads load the next batches of a part while one is computed, if there are more than one; 1,024 at most.
            job: The name of the job. Calls with the same name share their work, and must have the same ids.
            range_size: How many ids a worker leases at a time, the same in all workers; by default there are about 4,096 parts.
            expiry: The seconds without a sign of life after which a worker is taken for gone.
            stop: Ends the call early when it is set, with everything durable that was computed. Ctrl-C does so with an exception.

        Raises:
            InvalidBatchError: if workers of this job have other ids.
            InvalidSettingsError: if a setting makes no sense.
            WrongModeError: if the mode is not ``read_write``.
            FullError: if the folder is full.
            IoError: if leases can be neither written nor listed for ``expiry``.
        """
        listed = Sequence.of(ids)
        filler = self._filler(load, batch_size, workers, stop)
        return warm_shared(filler, listed, Job(job, settings.range_size(range_size, listed.length), settings.expiry(expiry)))

    def warm_sharded(
        self,
        ids: Any,
        load: Loader,
        *,
        rank: Rank | None = None,
        batch_size: int = 64,
        workers: int = 1,
        range_size: int | None = None,
        stop: Stop | None = None,
        progress: bool = True,
    ) -> ShardReport:
        """As :meth:`warm`, for the part of the ids of this process. :meth:`tcx_cache.Rank.from_env` says which that is: torchrun, Slurm and
        Kubernetes set it. Every process makes durable what it computes; none waits for another.

        If a rank dies, its part stays incomplete. The next call computes what is missing in it, and reports how much that was. To have other
        processes take over at once, call :meth:`warm_shared`, which has the same arguments.

        Args:
            rank: The rank of this process, if the environment does not say it.
            progress: Whether a progress bar is shown where tqdm is installed.

        Raises:
            InvalidSettingsError: as :meth:`tcx_cache.Rank.from_env`.
            WrongModeError: if the handle keeps nothing.
        """
        return warm_sharded(self._filler(load, batch_size, workers, stop), Sequence.of(ids), rank, range_size, progress)

    def _filler(self, load: Loader, batch_size: int, workers: int, stop: Stop | None) -> Filler:
        check_batch_size(batch_size)
        return Filler(self._rows, self._view, self._fill, load, batch_size, settings.threads("workers", workers), stop)

    def verify(self, ids: Any, load: Loader) -> list[str]:
        """Computes the samples with these ids again, and compares them with the stored rows. Returns what differs, one line for each sample.
        Ids without a row are left out."""
        distinct = list(dict.fromkeys(keys.listed(ids)))
        absent = set(self.coverage(distinct).missing)
        stored_ids = [own for own in distinct if own not in absent]
        if not stored_ids:
            return []
        stored = self.fetch(stored_ids)
        computing = self._computing
        inputs = self._load(stored_ids, load).whole
        self._refuse_itself()
        batch = checks.Batch(self._schema(), stored, len(stored_ids), lambda _: None, lambda row: repr(stored_ids[row]))
        # Compared there, too: another thread may have the module write its next output into the memory of this one.
        return computing.alone(lambda: checks.difference(batch, computing.run(inputs)))

    def _schema(self) -> Schema:
        schema = self._rows.schema
        if schema is None:
            raise InvalidBatchError(f"module `{self.id}`: the columns are not known")
        return schema

    def _device(self) -> torch.device:
        own = self._output_device or self._computing.device
        # A forked child of a process that has used CUDA cannot use it: it gets the rows on the CPU.
        return torch.device("cpu") if own.type == "cuda" and torch.cuda._is_in_bad_fork() else own

    def _output(self, found: Found, device: torch.device) -> Batch:
        values = found.values()
        if device.type != "cpu":
            values = [_moved(value, device) for value in values]
        batch: Batch = self._schema().build(values)
        return batch

    def __repr__(self) -> str:
        return f"Cached({self.id!r}, mode={self.mode!r}, {type(self.module).__name__})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A network does not travel: another process reads the same rows.
        return reopen, (*travel(self._rows), self._view, True)

    def __copy__(self) -> Cached[Batch]:
        return Cached(self._computing, self._rows, self._view, self._output_device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Cached[Batch]:
        own = self._computing
        module = copy.deepcopy(own.module, memo)
        if vars(module):
            return Cached(own.copied(module), self._rows, self._view, self._output_device)
        # The copy is made of a module that holds this handle, and has nothing yet: its weights are looked at when the handle is used.
        found: Cached[Batch] = Cached.__new__(Cached)
        torch.nn.Module.__init__(found)
        found.__dict__.update({name: self.__dict__[name] for name in ("_rows", "_view", "_output_device", "training")})
        found._compute_later(functools.partial(own.copied, module))
        return found


def _moved(value: Any, device: torch.device) -> Union[Any, "list[Any]"]:
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, list):
        return [_moved(item, device) for item in value]
    return value
