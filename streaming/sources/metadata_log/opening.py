"""The metadata log of a configuration: its addresses, its login, its checkpoint file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.errors import ConfigurationError
from streaming.sources.address import parse_address, parse_servers
from streaming.sources.metadata_log.quorum import Bootstrap, ControllerAddresses
from streaming.sources.metadata_log.source import MetadataLogSource
from streaming.sources.permissions import grantee_of
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client
from streaming.sources.timer import SILENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streaming.settings import ControllersSettings, Settings
    from streaming.sources.permissions import Grantee
    from streaming.sources.protocol.peers import Peers


def checkpoint_path(bus: Path, name: str) -> Path:
    """Return the path of a source's checkpoint on a directory bus."""
    return bus / "checkpoints" / f"{name.replace(':', '-')}.json"


def open_metadata_log(
    settings: Settings, *, path: Path, report: Callable[[str], None], peers: Peers | None = None
) -> MetadataLogSource:
    """Create the source for a configuration; ``peers`` note what connections see.

    Raises:
        Unsupported: the metadata log cannot be read with the configured SASL mechanism, or a property of TLS.
        ConfigurationError: an address or a client property is wrong, or the checkpoint is of another cluster.
        ConnectionRefused: no broker can be reached.
    """
    cluster = settings.cluster
    own = cluster.controllers.client
    login = from_client(own, "cluster.controllers.client") if own else from_client(cluster.client)
    return MetadataLogSource(
        bootstrap_of(settings, peers),
        dialer(login, peers),
        cluster=cluster.name,
        name=f"metadata_log:{settings.collect.collector}",
        path=path,
        heartbeat_seconds=settings.collect.heartbeat_seconds,
        snapshot_seconds=settings.collect.snapshot_seconds,
        report=report,
        silence_seconds=SILENCE_SECONDS,
    )


def bootstrap_of(settings: Settings, peers: Peers | None = None) -> Bootstrap:
    """Create the discovery by the brokers of a configuration.

    Raises:
        Unsupported: only librdkafka has the configured SASL mechanism, or a property of TLS.
        ConfigurationError: an address or a client property is wrong.
    """
    cluster, controllers = settings.cluster, settings.cluster.controllers
    servers = cluster.bootstrap_servers
    return Bootstrap(
        parse_servers(servers),
        dialer(from_client(cluster.client), peers),
        controller_addresses(controllers, grantee_of(servers, controllers.client or cluster.client)),
        grantee_of(servers, cluster.client),
    )


def controller_addresses(settings: ControllersSettings, grantee: Grantee) -> ControllerAddresses:
    """Parse ``[cluster.controllers]``; ``grantee`` is whom the controllers see.

    Raises:
        ConfigurationError: a key of ``addresses`` is no controller id, or a value is no address.
    """
    key = "cluster.controllers.addresses"
    wrong = next((node for node in settings.addresses if not node.isdecimal()), None)
    if wrong is not None:
        raise ConfigurationError(f'{key}: {wrong!r} is no controller id; write "101" = "host:port"')
    by_node = {int(node): parse_address(address, key) for node, address in settings.addresses.items()}
    return ControllerAddresses(settings.listener, by_node, grantee)
