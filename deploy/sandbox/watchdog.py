"""A watchdog that kills the nodes of a sandbox when the process that started it ends, for whatever reason.

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
read -r dismissed
for file in "$1"/node-*/pid; do
  pid=$(cat "$file" 2>/dev/null) || continue
  grep -qF -- "$1" "/proc/$pid/cmdline" 2>/dev/null && kill -9 "$pid"
done
if [ -z "$dismissed" ] && [ "$2" = temporary ]; then
  rm -rf -- "$1"
fi
"""


class Watchdog:
    """A shell that waits for the end of this process, kills the nodes, and deletes a temporary folder."""

    def __init__(self, root: Path, *, temporary: bool) -> None:
        reading, self._writing = os.pipe()
        kind = "temporary" if temporary else "kept"
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "isrwatch-sandbox-watchdog", root, kind], stdin=reading, start_new_session=True
        )
        os.close(reading)

    def dismiss(self) -> None:
        """Kill the nodes that still run, keep the folder, and end the watchdog."""
        os.write(self._writing, b"dismissed\n")
        os.close(self._writing)
        self._shell.wait()
