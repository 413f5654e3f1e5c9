"""Runs one ``isrwatch`` command as a child process of another one, which it does not outlive.

    python -m exporters.running.attached COMMAND [ARGUMENTS]...

The parent holds the other end of its standard input and writes nothing into it. So even a parent that is killed leaves
no process behind: its end of the pipe closes, and the child stops, or is killed with all that it has started.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

GRACE_SECONDS: Final = 30.0
"""Time that a process gets to end by itself, as the job ends its batch first."""


def command_line(name: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line of ``isrwatch NAME ARGUMENTS`` as a child of this process, by this interpreter."""
    return [sys.executable, "-m", "exporters.running.attached", name, *arguments]


def end_with_parent(grace_seconds: float = GRACE_SECONDS) -> None:
    """Let this process end once the parent process has closed its end of standard input, or is dead."""
    pipe = os.dup(0)  # which no child of this process inherits
    with open(os.devnull) as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_watch, args=(pipe, grace_seconds), name="parent", daemon=True).start()


def _watch(pipe: int, grace_seconds: float) -> None:
    while os.read(pipe, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Attach to the parent process, then run the command."""
    end_with_parent()
    sys.argv = ["isrwatch", *sys.argv[1:]]
    from streaming import commands

    commands.main()


if __name__ == "__main__":
    main()
