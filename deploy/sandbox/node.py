"""One JVM of the sandbox: started, signalled and monitored by its pid. Depends on a folder, not on the cluster.

The pid is stored in the node's folder, so that another process can signal the node, too. Pids are reused: a stored pid
is valid only while the command line of that process contains the node's properties file.
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
    """A broker, a controller or a ZooKeeper, in its folder: server.properties, data, server.log, pid."""

    def __init__(self, node_id: int, folder: Path, port: int, *, main: str = "kafka.Kafka", host: str = HOST) -> None:
        self.node_id = node_id
        self.main = main
        self.folder = folder
        self.port = port
        self.host = host
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def properties_file(self) -> Path:
        """The node's configuration file."""
        return self.folder / "server.properties"

    @property
    def data(self) -> Path:
        """The node's log directory."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The node's log file."""
        return self.folder / "server.log"

    @property
    def pid(self) -> int | None:
        """The pid of a running or paused process, else None."""
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
        """One of running, frozen and not running."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return "not running"
        return "frozen" if status.rpartition(")")[2].split()[0] == "T" else "running"

    def write_properties(self, properties: Mapping[str, str]) -> None:
        """Write the configuration file, which the node reads at its start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self.properties_file.write_text(text, encoding="utf-8")

    def start(self, java: Sequence[str | Path]) -> None:
        """Start the JVM; returns at once. ``java`` is the command up to the class path."""
        if self.pid is not None:
            return
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*java, *_LOGGING, self.main, self.properties_file],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal must not reach the brokers
            )
        (self.folder / "pid").write_text(str(self._child.pid))

    def listening(self) -> bool:
        """Return whether the node accepts connections; a broker does once it is registered and unfenced.

        Raises:
            RuntimeError: its process has ended; the message contains the end of its log.
        """
        try:
            socket.create_connection((self.host, self.port), 1).close()
        except OSError:
            if self.pid is None:
                raise RuntimeError(f"node {self.node_id} has ended, see {self.log}:\n{self.log_tail()}") from None
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process exists."""
        if (pid := self.pid) is not None:
            os.kill(pid, number)

    def wait_ended(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the process has ended."""
        wait_until(lambda: self.pid is None, f"node {self.node_id} to end", seconds=seconds, every=0.02)

    def wait_stopped(self) -> None:
        """Wait until the process has stopped: a busy one does so some time after the signal, or it has ended."""
        wait_until(lambda: self.state != "running", f"node {self.node_id} to stop", every=0.01)

    def log_tail(self) -> str:
        """Return the last 15 lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
