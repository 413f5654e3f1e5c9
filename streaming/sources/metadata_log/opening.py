"""The metadata log of a configuration: its addresses, its login, its checkpoint file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.sources.metadata_log.quorum import Bootstrap, dialer, parse_servers
from streaming.sources.metadata_log.security import from_client
from streaming.sources.metadata_log.source import MetadataLogSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streaming.settings import Settings


def checkpoint_path(bus: Path, name: str) -> Path:
    """Return the path of a source's checkpoint on a directory bus."""
    return bus / "checkpoints" / f"{name.replace(':', '-')}.json"


def open_metadata_log(settings: Settings, *, path: Path, report: Callable[[str], None]) -> MetadataLogSource:
    """Create the source for a configuration.

    Raises:
        UnsupportedMechanism: the metadata log cannot be read with the configured SASL mechanism.
        ConfigurationError: an address or a client property is wrong, or the checkpoint is of another cluster.
        ConnectionRefused: no broker can be reached.
    """
    dial = dialer(from_client(settings.cluster.client))
    return MetadataLogSource(
        Bootstrap(parse_servers(settings.cluster.bootstrap_servers), dial),
        dial,
        cluster=settings.cluster.name,
        name=f"metadata_log:{settings.collect.collector}",
        path=path,
        heartbeat_seconds=settings.collect.heartbeat_seconds,
        snapshot_seconds=settings.collect.snapshot_seconds,
        report=report,
    )
