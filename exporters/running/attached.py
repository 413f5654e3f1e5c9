"""Runs one ``isrwatch`` command as a child process of another one, which it does not outlive.

    python -m exporters.running.attached PARENT COMMAND [ARGUMENTS]...

Even a parent that is killed leaves no process behind: Linux signals the child when its parent dies (``prctl(2)``,
PR_SET_PDEATHSIG). On other systems the child runs until its parent stops it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PR_SET_PDEATHSIG: Final = 1


def command_line(name: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line of ``isrwatch NAME ARGUMENTS`` as a child of this process, by this interpreter."""
    return [sys.executable, "-m", "exporters.running.attached", str(os.getpid()), name, *arguments]


def attach(parent: int) -> None:
    """Request SIGTERM for when the parent process dies; exit at once if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died between the start of this process and the call above
        sys.exit(1)


def main() -> None:
    """Attach to the parent process, then run the command."""
    _, parent, *arguments = sys.argv
    attach(int(parent))
    sys.argv = ["isrwatch", *arguments]
    from streaming import commands

    commands.main()


if __name__ == "__main__":
    main()
