"""What can go wrong, as exceptions: one class for each kind of error, with the texts and kinds that tcx has in Rust.

Every exception is an :class:`Error`. Its ``kind`` is the name of the kind in Rust (``tcx::ErrorKind``).
"""

from __future__ import annotations

import re


class Error(Exception):
    """An error of tcx. The message names what happened, why, and what to do."""

    kind = "Io"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class MismatchError(Error, ValueError):
    """The folder belongs to another identity, schema or type of ids: bump the id."""

    kind = "Mismatch"


class ReplacedError(Error):
    """The folder was removed, created again or restored since it was opened: open the cache again."""

    kind = "Replaced"


class SupersededError(Error):
    """Another process has invalidated or replaced values before they were written: put them again if they are still right."""

    kind = "Superseded"


class ContendedError(Error):
    """Other processes change the folder all the time: flush again."""

    kind = "Contended"


class InvalidOutputError(Error, ValueError):
    """An output is not as declared, or cannot be stored."""

    kind = "InvalidOutput"


class ModuleViolationError(Error):
    """The module is not what it promises: frozen, deterministic, and the same for a sample whatever else is in the batch."""

    kind = "ModuleViolation"


class InvalidBatchError(Error, ValueError):
    """Ids or inputs break a rule: fix the call."""

    kind = "InvalidBatch"


class InvalidWeightsError(Error, ValueError):
    """The module cannot be frozen: it is in training mode, tracks gradients, or holds state that is not a tensor."""

    kind = "InvalidWeights"


class InvalidIdError(Error, ValueError):
    """The id of a module cannot name a folder: give it another id."""

    kind = "InvalidId"


class InvalidPathError(Error, ValueError):
    """The path cannot be that of a cache."""

    kind = "InvalidPath"


class InvalidSettingsError(Error, ValueError):
    """A setting has an unknown name or value, or differs from that of an open handle."""

    kind = "InvalidSettings"


class WrongModeError(Error):
    """The handle's mode does not allow this."""

    kind = "WrongMode"


class FullError(Error):
    """The folder has reached its limit."""

    kind = "Full"


class LoaderError(Error):
    """A function of the caller returned what tcx cannot use."""

    kind = "Loader"


class IoError(Error, OSError):
    """The file system failed."""

    kind = "Io"


class CorruptError(Error):
    """A file is damaged: the message names it."""

    kind = "Corrupt"


class ClosedError(Error):
    """The cache is closed."""

    kind = "Closed"


class ForkedError(Error):
    """This process was forked from the one that opened the cache: open it again in this process."""

    kind = "Forked"


_CLASSES: dict[str, type[Error]] = {
    own.kind: own
    for own in (
        MismatchError,
        ReplacedError,
        SupersededError,
        ContendedError,
        InvalidOutputError,
        ModuleViolationError,
        InvalidBatchError,
        InvalidWeightsError,
        InvalidIdError,
        InvalidPathError,
        InvalidSettingsError,
        WrongModeError,
        FullError,
        LoaderError,
        IoError,
        CorruptError,
        ClosedError,
        ForkedError,
    )
}


#: What messages of the engine advise, as it is written in Python.
_ADVICE = {
    "set `OnMismatch::Separate`": 'pass `on_mismatch="separate"`',
    "are i64, which have no prefix: invalidate by a predicate": "are int, which have no prefix: pass the ids to `invalidate`",
}
#: Where a message compares a setting of an open table with one that was asked for.
_SETTING = re.compile(r"(`\w+` is )(\w+)(, requested )(\w+)")


def of_kind(kind: str, message: str) -> Error:
    """The exception of a kind; the native part calls this."""
    return _CLASSES.get(kind, Error)(in_python(message))


def in_python(message: str) -> str:
    """A message of the engine, with settings and remedies as they are written in Python."""
    for rust, python in _ADVICE.items():
        message = message.replace(rust, python)
    return _SETTING.sub(lambda found: found[1] + _value(found[2]) + found[3] + _value(found[4]), message)


def _value(named: str) -> str:
    """The value of a setting: the engine names choices as Rust does, such as ``StopWriting``."""
    if named == "none":
        return "None"
    return '"' + re.sub("(?<=[a-z])(?=[A-Z])", "_", named).lower() + '"' if named[0].isupper() else named
