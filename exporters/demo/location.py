"""The folder of a demo's state, and the address of its exporter."""

from __future__ import annotations

import socket
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.errors import ConfigurationError

PORT: Final = 9308


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLocation:
    """The folder of a demo's state, and the address of its exporter."""

    directory: Path
    port: int

    @property
    def bus(self) -> Path:
        """Folder of the bus."""
        return self.directory / "bus"

    @property
    def tables(self) -> Path:
        """Folder of the Delta tables."""
        return self.directory / "tables"

    @property
    def checkpoint(self) -> Path:
        """Folder of Spark's checkpoints."""
        return self.directory / "checkpoint"

    @property
    def logs(self) -> Path:
        """Folder of the logs, one per part."""
        return self.directory / "logs"

    @property
    def address(self) -> str:
        """Host and port of the exporter."""
        return f"127.0.0.1:{self.port}"

    @property
    def page_url(self) -> str:
        """URL of the first page."""
        return f"http://{self.address}/"

    def metrics(self) -> str:
        """Scrape the exporter; empty while it does not respond."""
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            return str(urllib.request.urlopen(f"{self.page_url}metrics", timeout=5).read(), "utf-8")  # noqa: S310 - our own
        return ""


def empty_folder(directory: Path | None) -> Path:
    """Create the folder; refuse one in use, because the history of a simulated cluster starts from the beginning.

    Raises:
        ConfigurationError: it is not empty, or cannot be created.
    """
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="isrwatch-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_in_use = any(directory.iterdir())
    except OSError as error:
        raise ConfigurationError(
            f"--directory {directory} cannot be used: {error.strerror}; name a folder that can be created"
        ) from None
    if is_in_use:
        raise ConfigurationError(f"--directory {directory} is not empty; name a new folder, or delete this one")
    return directory.absolute()


def free_port(port: int | None) -> int:
    """Return the requested port, else the default port, else any free one.

    Raises:
        ConfigurationError: the requested port is taken.
    """
    for candidate in (port,) if port is not None else (PORT, 0):
        with socket.socket() as probe, suppress(OSError):
            # As servers do: connections in TIME_WAIT do not make a port taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", candidate))
            return int(probe.getsockname()[1])
    raise ConfigurationError(f"--port {port} is taken on 127.0.0.1; choose another one")
