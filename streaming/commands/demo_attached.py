"""Runs one ``isrwatch`` command as part of a demo: it does not outlive the process that started it.

    python -m streaming.commands.demo_attached PARENT COMMAND [ARGUMENTS]...

Even a killed demo leaves nothing behind: Linux tells the child (``prctl(2)``, PR_SET_PDEATHSIG). Elsewhere the child
relies on being stopped.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def attach(parent: int) -> None:
    """Ask for SIGTERM on the day the parent dies; leave at once if that was yesterday."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died between the start of this process and the call above
        sys.exit(1)


def main() -> None:
    """Attach, then be the command."""
    _, parent, *arguments = sys.argv
    attach(int(parent))
    sys.argv = ["isrwatch", *arguments]
    from streaming import commands

    commands.main()


if __name__ == "__main__":
    main()
