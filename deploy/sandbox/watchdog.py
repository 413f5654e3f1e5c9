"""Nothing is left behind: when the process that drives a sandbox dies, however it dies, its nodes are killed.

PR_SET_PDEATHSIG follows the thread that started a child, not the process, and would kill brokers started by a
short-lived thread. A pipe follows the process: the kernel closes it.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT: Final = """\
cat >/dev/null
for file in "$1"/node-*/pid; do
  pid=$(cat "$file") || continue
  grep -qF -- "$1" "/proc/$pid/cmdline" 2>/dev/null && kill -9 "$pid"
done
"""


class Watchdog:
    """A small shell that waits for the end of this process; ``dismiss`` also makes it act."""

    def __init__(self, root: Path) -> None:
        reading, self._writing = os.pipe()
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "isrwatch-sandbox-watchdog", root], stdin=reading, start_new_session=True
        )
        os.close(reading)

    def dismiss(self) -> None:
        """Kill what still runs and go."""
        os.close(self._writing)
        self._shell.wait()
