"""A cache: a directory, memory, or a prefix of an object store, that holds the rows of modules and tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Union, overload

from .. import _native
from ..engine import settings as all_settings
from ..engine.place import OF_STORES, Place, check_id, modules, place
from ..engine.place import native as native_place
from ..engine.rows import Opening, Rows
from ..engine.several import for_all
from ..errors import ClosedError, InvalidSettingsError
from ..identity.config import entries
from ..runtime.weak import Alive
from ..schema.declared import Array, Batch, Declared, Forwards, Returned, Value
from ..sharing.reports import JobProgress, WatchedWorker
from ..tensors.memory import default_arrays
from .table import Table, open_table

if TYPE_CHECKING:
    import numpy.typing
    import torch

    from .cached import Cached

    Arrays = numpy.typing.NDArray[Any]
    Torch = torch.Tensor
    _Path = Union[str, os.PathLike[str], None]
    _Module = Forwards[Any]
    _Tensors = Mapping[str, Declared[Torch]]
    _Metadata = Union[Mapping[str, Any], None]


class Cache(Generic[Array]):
    """The rows of modules and tables in a directory, which any number of processes share, in Python and in Rust; or in an object store, which
    any number of machines share. To type checkers, it is one of the tensors that its tables return: ``Cache[torch.Tensor]``, or ``Cache`` for
    short.

    Args:
        directory: The cache directory, which is created with the first rows; or the URL of a prefix in an object store, such as
            ``"s3://bucket/prefix"``; ``None`` for a cache in the memory of this process.
        mode: ``read_write``; ``read_only`` stores nothing; ``recompute`` computes every row again and replaces the stored ones; ``off``
            computes everything and reads and stores nothing.
        arrays: The library whose tensors are returned, ``torch`` or ``numpy``; torch where it is installed.
        near_tier: The directory of the near tier of a cache in an object store, on a disk of this machine; that of the environment variable
            ``TCX_NEAR_TIER``, else ``tcx/near`` in the user's directory for caches.
        near_bytes: The most bytes that all copies in the near tier may have; that of the environment variable ``TCX_NEAR_BYTES``, such as
            ``500G``, else as much as the disk has room for. Rows of files that are not kept are read in the store.
        storage_options: Settings of the object store that are not in the environment, such as ``{"aws_region": "eu-central-1"}``; ``deadline``,
            the longest time of a request in seconds; ``parallel``, the requests in flight. No message shows the values, and handles with
            credentials are not pickled: set them in the environment.
        spool_bytes: The bytes of a module that may wait in the near tier while the object store is away.
        **settings: ``time_to_live``, ``max_bytes``, ``when_full``, ``on_mismatch``, ``compression``, ``memory_cache_bytes`` and the others of
            the engine, with durations in seconds or as ``timedelta``. None of them is part of an identity.

    Raises:
        InvalidPathError: if the directory cannot be that of a cache.
        InvalidSettingsError: if there is no such setting.

    >>> import tempfile, tcx_cache as tcx
    >>> cache = tcx.Cache(tempfile.mkdtemp(), compression="zstd", flush_interval=1.0)
    >>> squares = cache.table("squares_v1", outputs=int, ids=int)
    >>> squares.fetch([3, 4], lambda missing: [number * number for number in missing])
    [9, 16]
    >>> cache.close()
    """

    @overload
    def __init__(
        self: Cache[Torch], directory: _Path, *, mode: str = ..., arrays: Literal["torch"] | None = ..., **settings: Any
    ) -> None: ...
    @overload
    def __init__(self: Cache[Arrays], directory: _Path, *, mode: str = ..., arrays: Literal["numpy"], **settings: Any) -> None: ...
    @overload
    def __init__(self: Cache[Any], directory: _Path, *, mode: str = ..., arrays: str | None = ..., **settings: Any) -> None: ...
    def __init__(
        self,
        directory: _Path,
        *,
        mode: str = "read_write",
        arrays: str | None = None,
        near_tier: _Path = None,
        near_bytes: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        spool_bytes: int | None = None,
        **settings: Any,
    ) -> None:
        if arrays not in (None, "torch", "numpy"):
            raise InvalidSettingsError(f"setting `arrays`: found `{arrays}`, expected `torch` or `numpy`")
        self._place: Place = _native.Memory() if directory is None else place(directory, near_tier, storage_options, spool_bytes, near_bytes)
        self._mode = all_settings.check_mode(mode)
        self._arrays = arrays
        self._settings = all_settings.check(settings)
        #: What a handle and its views share, as long as one of them is alive.
        self._opened: Alive[Rows] = Alive()
        self._is_closed = False

    @property
    def path(self) -> str | None:
        """The directory, or the URL; ``None`` of a cache in memory."""
        return None if isinstance(self._place, _native.Memory) else os.fspath(self._place)

    def modules(self) -> list[str]:
        """The names of the folders in the directory, one for each module or table that has rows."""
        return modules(self._place)

    def jobs(self, module: str) -> list[JobProgress]:
        """How far processes are that fill a module or table together, for each job. It reads what the workers report, and receives no rows.

        Raises:
            IoError: if the folder or the object store cannot be read.
        """
        place = native_place(self._place)
        if isinstance(place, _native.Memory):
            return []
        check_id(module)
        found = _native.jobs(place, module)
        return [JobProgress(*own[:6], [WatchedWorker(*worker) for worker in own[6]]) for own in found]

    @overload
    def module(self, module: _Module, id: str, *, outputs: type[Value], mode: str | None = ..., **options: Any) -> Cached[list[Value]]: ...
    @overload
    def module(self, module: _Module, id: str, *, outputs: Declared[Batch], mode: str | None = ..., **options: Any) -> Cached[Batch]: ...
    @overload
    def module(
        self, module: _Module, id: str, *, outputs: _Tensors, mode: str | None = ..., **options: Any
    ) -> Cached[dict[str, Torch]]: ...
    @overload
    def module(
        self, module: Forwards[Returned], id: str, *, outputs: Any = ..., mode: str | None = ..., **options: Any
    ) -> Cached[Returned]: ...
    def module(self, module: Any, id: str, *, mode: str | None = None, **options: Any) -> Cached[Any]:
        """Opens the cache of a frozen module. The options are those of :func:`tcx_cache.cached`.

        Raises:
            InvalidWeightsError: if the module is in training mode, or a parameter tracks gradients.
            MismatchError: if the folder belongs to another identity: other weights, configuration or outputs.
        """
        from .opening import open_module

        cached = open_module(self.opening(id, "torch", mode), module, **options)
        self._opened.add(cached._rows)
        return cached

    @overload
    def table(
        self, name: str, outputs: type[Value], *, ids: type | None = ..., metadata: _Metadata = ..., mode: str | None = ...
    ) -> Table[list[Value]]: ...
    @overload
    def table(
        self: Cache[Torch], name: str, outputs: Declared[Batch], *, ids: type | None = ..., metadata: _Metadata = ..., mode: str | None = ...
    ) -> Table[Batch]: ...
    @overload
    def table(
        self: Cache[Torch], name: str, outputs: _Tensors, *, ids: type | None = ..., metadata: _Metadata = ..., mode: str | None = ...
    ) -> Table[dict[str, Torch]]: ...
    @overload
    def table(
        self: Cache[Arrays], name: str, outputs: Declared[Torch], *, ids: type | None = ..., metadata: _Metadata = ..., mode: str | None = ...
    ) -> Table[Arrays]: ...
    @overload
    def table(
        self: Cache[Arrays], name: str, outputs: _Tensors, *, ids: type | None = ..., metadata: _Metadata = ..., mode: str | None = ...
    ) -> Table[dict[str, Arrays]]: ...
    @overload
    def table(
        self, name: str, outputs: Any = ..., *, ids: type | None = ..., metadata: _Metadata = ..., mode: str | None = ...
    ) -> Table[Any]: ...
    def table(
        self, name: str, outputs: Any = None, *, ids: type | None = None, metadata: _Metadata = None, mode: str | None = None
    ) -> Table[Any]:
        """Opens a table: a typed store for any function of a sample.

        Args:
            name: The id of the table, which names its folder.
            outputs: The types of the values; inferred from the first batch, if they are not declared.
            ids: ``str``, ``int`` or ``bytes``; that of the first ids, if it is not declared.
            metadata: Versions and settings that decide the values. A stored table with other metadata is refused.
            mode: The mode, if it is another one than that of the cache.

        Raises:
            MismatchError: if the stored table has other columns or metadata.
        """
        found = [("self", "table")]
        for own, value in (metadata or {}).items():
            found += entries(own, value)
        table = open_table(self.opening(name, self._arrays or default_arrays(), mode).of(found, _provenance()), outputs, ids)
        self._opened.add(table._rows)
        return table

    def opening(self, module: str, arrays: str, mode: str | None = None) -> Opening:
        """How a module or table of this cache is opened, without its identity."""
        if self._is_closed:
            raise ClosedError("the cache is closed: open it again")
        check_id(module)
        chosen = self._mode if mode is None else all_settings.check_mode(mode)
        return Opening(self._place, module, [], [], self._settings, chosen, arrays)

    def flush(self) -> None:
        """Makes the rows of all modules and tables durable that were opened with this cache. It waits for the rows of handles that nothing refers
        to any more; what such a handle has lost is reported to the logger ``tcx_cache``.

        Raises:
            Error: if some cannot be made durable, after all were tried; the message names each of them.
        """
        _native.wait_for_dropped()
        for_all(self._open_ones(), lambda own: own.flush())

    def flush_local(self) -> None:
        """As :meth:`flush`, for a cache in an object store that may be away: it is enough if the rows are durable on this machine. They are sent
        as soon as the store can be reached, by this process or the next one.

        Raises:
            Error: as :meth:`flush`.
        """
        _native.wait_for_dropped()
        for_all(self._open_ones(), lambda own: own.flush_local())

    def close(self) -> None:
        """Flushes and closes all modules and tables that were opened with this cache.

        Raises:
            Error: if rows are lost, after all are closed; the message names each reason.
        """
        self._is_closed = True
        opened, self._opened = self._opened, Alive()
        try:
            _native.wait_for_dropped()
        finally:
            for_all(opened.listed(), lambda own: own.close())

    def _open_ones(self) -> list[Rows]:
        return [own for own in self._opened.listed() if not own.is_closed]

    def __enter__(self) -> Cache[Array]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cache({self.path!r}, mode={self._mode!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._place, _native.Memory):
            raise InvalidSettingsError("a cache in memory belongs to this process: it cannot be pickled; use a directory")
        return _reopen, (self._place, self._mode, self._arrays, self._settings)


def _reopen(path: str | os.PathLike[str], mode: str, arrays: str | None, settings: dict[str, Any]) -> Cache[Any]:
    return Cache(path, mode=mode, arrays=arrays, **settings)


def _provenance() -> list[tuple[str, str]]:
    import platform

    return [
        ("tcx", _native.__version__),
        ("python", platform.python_version()),
        ("platform", f"{platform.system().lower()}-{platform.machine()}"),
        ("host", platform.node()),
        ("program", sys.argv[0].rsplit("/", 1)[-1] if sys.argv else ""),
    ]


_SETTINGS_OF_MODULES = frozenset(
    {
        "outputs",
        "ids",
        "config",
        "shared",
        "type_name",
        "fields",
        "assume_stateless",
        "output_device",
        "allow_gradients",
        "recheck",
        "refuse_repeated_ids",
        "after",
    }
)


@overload
def cached(
    module: _Module, directory: _Path, id: str, *, outputs: type[Value], mode: str = ..., **options: Any
) -> Cached[list[Value]]: ...
@overload
def cached(
    module: _Module, directory: _Path, id: str, *, outputs: Declared[Batch], mode: str = ..., **options: Any
) -> Cached[Batch]: ...
@overload
def cached(
    module: _Module, directory: _Path, id: str, *, outputs: _Tensors, mode: str = ..., **options: Any
) -> Cached[dict[str, Torch]]: ...
@overload
def cached(
    module: Forwards[Returned], directory: _Path, id: str, *, outputs: Any = ..., mode: str = ..., **options: Any
) -> Cached[Returned]: ...
def cached(module: Any, directory: _Path, id: str, *, mode: str = "read_write", **options: Any) -> Cached[Any]:
    """A frozen module that computes missing samples only: ``cached(images, ids=ids)``.

    Args:
        module: The module, in evaluation mode, whose parameters do not require gradients.
        directory: The cache directory, or the URL of a prefix in an object store, such as ``"s3://bucket/prefix"``; ``None`` for memory.
        id: The id of the module, which names its folder. Change it when the code of ``forward`` changes.
        mode: As of :class:`Cache`.
        outputs: The types of the outputs, such as ``{"pooled": tcx.f32[2048], "tokens": tcx.f16[None, 768]}``. If they are not declared, the
            first batch decides them, and they become part of the identity.
        ids: ``str``, ``int`` or ``bytes``; that of the first ids, if it is not declared.
        config: Further values that decide the outputs, such as the size of images. They are part of the identity.
        shared: Keyword arguments that are the same for all samples. They are part of the identity, and passed to every call.
        type_name: The name of the module in the identity, if it is not that of its class: the name of the struct in Rust.
        fields: The fields of the struct in Rust, in order, with ``tcx.WEIGHTS`` for the network: rows are then shared with that program.
        assume_stateless: The names of variables outside of the module that its code uses, and that decide nothing of the outputs, such as a
            counter. With ``fields`` also those of tensors that ``state_dict`` leaves out and that follow from the configuration, such as the
            numbers of positions of a transformer: the module in Rust has none. Neither is part of the identity, or watched if it is a variable.
        output_device: Where outputs are put; the device of the weights.
        allow_gradients: Whether parameters may require gradients. Rows have none in any case.
        recheck: The fraction of computed samples that is computed again as a check.
        refuse_repeated_ids: Whether an id that is twice in a batch with different inputs is an error, and not only a warning.
        after: The cached module or table whose outputs are the inputs of this one, or a list of them: its identity becomes part of this one's.
        **options: The settings of :class:`Cache`.

    Raises:
        InvalidWeightsError: if the module is in training mode, a parameter tracks gradients, or its ``state_dict`` holds more than tensors.
        MismatchError: if the folder belongs to another identity: other weights, configuration or outputs. The message names both sides.

    >>> import tempfile, torch, tcx_cache as tcx
    >>> layer = torch.nn.Linear(4, 2).eval().requires_grad_(False)
    >>> features = tcx.cached(layer, tempfile.mkdtemp(), id="linear_v1")
    >>> features(torch.ones(3, 4), ids=["a", "b", "c"]).shape
    torch.Size([3, 2])
    """
    all_settings.check_names(options, all_settings.NATIVE | _SETTINGS_OF_MODULES | OF_STORES | {"arrays"})
    own = {name: options.pop(name) for name in list(options) if name in _SETTINGS_OF_MODULES}
    return Cache(directory, mode=mode, **options).module(module, id, **own)
