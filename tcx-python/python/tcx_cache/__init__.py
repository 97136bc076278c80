"""tcx: a cache for frozen feature extractors. Each sample is computed once, and every later read comes from disk.

>>> import tempfile, torch, tcx_cache as tcx
>>> model = torch.nn.Linear(4, 2).eval().requires_grad_(False)
>>> cached = tcx.cached(model, tempfile.mkdtemp(), id="linear_v1")
>>> images = torch.ones(2, 4)
>>> features = cached(images, ids=["cat.jpg", "dog.jpg"])  # computes the missing samples only
>>> cached.close()

Rows are typed, stored in immutable Arrow files, and shared by all processes that open the same directory, in Python and in Rust.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from ._native import __version__
from .batch.split import Inputs, parts, per_sample
from .engine.coverage import Coverage
from .errors import (
    ClosedError,
    ContendedError,
    CorruptError,
    Error,
    ForkedError,
    FullError,
    InvalidBatchError,
    InvalidIdError,
    InvalidOutputError,
    InvalidPathError,
    InvalidSettingsError,
    InvalidWeightsError,
    IoError,
    LoaderError,
    MismatchError,
    ModuleViolationError,
    ReplacedError,
    SupersededError,
    WrongModeError,
)
from .identity.config import ASSUMED_STATELESS
from .identity.weights import WEIGHTS, fingerprint
from .modules.cache import Cache, cached
from .modules.table import Table, WarmReport
from .modules.upkeep import RowFacts
from .schema.tree import struct
from .schema.types import Column, DType, bf16, f16, f32, f64, i8, i16, i32, i64, optional, typed, u8
from .schema.types import bool_ as bool

if TYPE_CHECKING:
    from . import arrow, torch, torchcachex
    from .modules.cached import Cached
    from .sharing.rank import Rank
    from .sharing.reports import JobProgress, SharedReport, SharedWorker, ShardReport, WatchedWorker
    from .sharing.sequence import Sequence

#: What is imported when it is first used: `import tcx_cache` takes a few milliseconds, and imports no torch.
_LAZY = {
    "Cached": ".modules.cached",
    "JobProgress": ".sharing.reports",
    "Rank": ".sharing.rank",
    "Sequence": ".sharing.sequence",
    "ShardReport": ".sharing.reports",
    "SharedReport": ".sharing.reports",
    "SharedWorker": ".sharing.reports",
    "WatchedWorker": ".sharing.reports",
}
_MODULES = ("arrow", "torch", "torchcachex")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ASSUMED_STATELESS",
    "WEIGHTS",
    "Cache",
    "Cached",
    "ClosedError",
    "Column",
    "ContendedError",
    "CorruptError",
    "Coverage",
    "DType",
    "Error",
    "ForkedError",
    "FullError",
    "Inputs",
    "InvalidBatchError",
    "InvalidIdError",
    "InvalidOutputError",
    "InvalidPathError",
    "InvalidSettingsError",
    "InvalidWeightsError",
    "IoError",
    "JobProgress",
    "LoaderError",
    "MismatchError",
    "ModuleViolationError",
    "Rank",
    "ReplacedError",
    "RowFacts",
    "Sequence",
    "ShardReport",
    "SharedReport",
    "SharedWorker",
    "SupersededError",
    "Table",
    "WarmReport",
    "WatchedWorker",
    "WrongModeError",
    "__version__",
    "arrow",
    "bf16",
    "bool",
    "cached",
    "errors",
    "f16",
    "f32",
    "f64",
    "fingerprint",
    "i16",
    "i32",
    "i64",
    "i8",
    "optional",
    "parts",
    "per_sample",
    "struct",
    "torch",
    "torchcachex",
    "typed",
    "u8",
]
