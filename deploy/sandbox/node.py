"""One JVM of the sandbox: started, signalled and watched by its pid. Knows a folder, nothing of clusters.

The pid lies in the node's folder, so that another process can signal the node, too. A pid is believed only while the
process it names carries the node's properties file on its command line: pids are used again.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.sandbox.properties import HOST
from deploy.sandbox.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)


class Node:
    """A broker or a controller, in its folder: server.properties, data, server.log, pid."""

    def __init__(self, node_id: int, folder: Path, port: int) -> None:
        self.node_id = node_id
        self.folder = folder
        self.port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def properties_file(self) -> Path:
        """What the node was told."""
        return self.folder / "server.properties"

    @property
    def data(self) -> Path:
        """The node's log directory."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the node says."""
        return self.folder / "server.log"

    @property
    def pid(self) -> int | None:
        """The process, while it lives (a paused one lives)."""
        if self._child is not None and self._child.poll() is None:
            return self._child.pid
        try:
            pid = int((self.folder / "pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self.properties_file) in command else None  # a zombie's command line is empty

    @property
    def state(self) -> str:
        """In a word: running, frozen or not running."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return "not running"
        return "frozen" if status.rpartition(")")[2].split()[0] == "T" else "running"

    def write_properties(self, properties: Mapping[str, str]) -> None:
        """Tell the node; it reads this when it starts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self.properties_file.write_text(text, encoding="utf-8")

    def start(self, java: Sequence[str | Path]) -> None:
        """Start the JVM; returns at once. ``java`` is the command up to the class path."""
        if self.pid is not None:
            return
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*java, *_LOGGING, "kafka.Kafka", self.properties_file],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for the one who drives, not for the brokers
            )
        (self.folder / "pid").write_text(str(self._child.pid))

    def listening(self) -> bool:
        """Tell whether the node accepts connections; a broker does once it is registered and unfenced.

        Raises:
            RuntimeError: its process has ended; the text has the end of its log.
        """
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            if self.pid is None:
                raise RuntimeError(f"node {self.node_id} has ended, see {self.log}:\n{self.last_words()}") from None
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if there is somebody to get it."""
        if (pid := self.pid) is not None:
            os.kill(pid, number)

    def wait_ended(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the process is gone."""
        wait_until(lambda: self.pid is None, f"node {self.node_id} to end", seconds=seconds, every=0.02)

    def last_words(self, lines: int = 15) -> str:
        """Give the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
