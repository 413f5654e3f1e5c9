"""Where a demo keeps its state, and where it serves."""

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
class Place:
    """Where a demo keeps its state, and where it serves."""

    directory: Path
    port: int

    @property
    def bus(self) -> Path:
        """The directory bus."""
        return self.directory / "bus"

    @property
    def tables(self) -> Path:
        """The Delta tables."""
        return self.directory / "tables"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoints."""
        return self.directory / "checkpoint"

    @property
    def logs(self) -> Path:
        """One log a part."""
        return self.directory / "logs"

    @property
    def address(self) -> str:
        """Host and port of the exporter."""
        return f"127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        """What Prometheus would scrape."""
        return f"http://{self.address}/metrics"

    def metrics(self) -> str:
        """Scrape; empty while nobody answers."""
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            return str(urllib.request.urlopen(self.metrics_url, timeout=5).read(), "utf-8")  # noqa: S310 - our own
        return ""


def empty_folder(directory: Path | None) -> Path:
    """Make the folder; refuse one that is in use, because a simulated cluster starts its history anew.

    Raises:
        ConfigurationError: it is not empty, or cannot be made.
    """
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="isrwatch-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_in_use = any(directory.iterdir())
    except OSError as error:
        raise ConfigurationError(
            f"--directory {directory} cannot be used: {error.strerror}; name a folder that can be made"
        ) from None
    if is_in_use:
        raise ConfigurationError(f"--directory {directory} is not empty; name a new folder, or delete this one")
    return directory.absolute()


def free_port(port: int | None) -> int:
    """Choose the port: the one that was asked for, else the usual one, else any that is free.

    Raises:
        ConfigurationError: the port that was asked for is taken.
    """
    for candidate in (port,) if port is not None else (PORT, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # as servers do: closed connections do not count
            probe.bind(("127.0.0.1", candidate))
            return int(probe.getsockname()[1])
    raise ConfigurationError(f"--port {port} is taken on 127.0.0.1; choose another one")
