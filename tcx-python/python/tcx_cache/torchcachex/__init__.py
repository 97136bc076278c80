"""The interface of torchcachex over tcx: replace ``from torchcachex import …`` by ``from tcx_cache.torchcachex import …``.

`docs/python.md` lists what differs. :func:`import_directory` takes over the rows of an existing directory.
"""

from __future__ import annotations

from .backend import ArrowIPCCacheBackend
from .decorator import CacheModuleDecorator, TrainableError
from .importer import Imported, import_directory

__all__ = ["ArrowIPCCacheBackend", "CacheModuleDecorator", "Imported", "TrainableError", "import_directory"]
