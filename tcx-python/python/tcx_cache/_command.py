"""The program `tcx`, which comes with the package: the command in Rust, with its exit codes."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> None:
    """Runs the command with the arguments of this program, and ends it with the exit code of the command."""
    # Python handles Ctrl-C between two of its own instructions, and the command is one of them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.command(["tcx", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
