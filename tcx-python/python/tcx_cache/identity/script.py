"""Modules of TorchScript: their code, constants and attributes, which are no attributes in Python."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

from .. import _native
from .unsaved import Scan

#: The number that TorchScript gives a class if the program has several of that name.
_MANGLED = re.compile(rb"___torch_mangle_\d+\.?")
#: Where lines come from, and a random number.
_OTHERS = (".debug_pkl", ".data/serialization_id")


def script(scan: Scan) -> str | None:
    """The hash of the modules of TorchScript in a module: of all that they are saved as. ``None`` if there is none. Nothing is loaded."""
    import torch

    found = [(path, part) for path, part in scan.modules if isinstance(part, torch.jit.ScriptModule)]
    # The parts of one are saved with it.
    outer = [(path, part) for path, part in found if not any(path != other and _is_below(path, other) for other, _ in found)]
    if not outer:
        return None
    hasher = _native.Fingerprint()
    for path, part in outer:
        hasher.part(path.encode())
        saved = io.BytesIO()
        torch.jit.save(part, saved)
        with zipfile.ZipFile(saved) as archive:
            for name in sorted(archive.namelist()):
                if not name.endswith(_OTHERS):
                    content = archive.read(name)
                    hasher.part(_MANGLED.sub(b"", name.encode()))
                    hasher.part(content if "/data/" in name else _MANGLED.sub(b"", content))
    return hasher.digest()


def _is_below(path: str, other: str) -> bool:
    return other == "" or path.startswith(f"{other}.")
