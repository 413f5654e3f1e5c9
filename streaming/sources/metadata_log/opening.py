"""The metadata log of a configuration: its addresses, its login, its checkpoint file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import ControllerObserved, Observation, SourceKind
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.metadata_log.quorum import Bootstrap, ControllerAddresses, NoQuorumLeader
from streaming.sources.metadata_log.source import MetadataLogSource
from streaming.sources.metadata_log.tail import NO_NODE
from streaming.sources.permissions import grantee_of
from streaming.sources.protocol.addresses import parse_address, parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.quorum_messages import Leader
from streaming.sources.protocol.security import from_client
from streaming.sources.protocol.sockets import NoAnswer
from streaming.sources.source import SILENCE_SECONDS, Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streaming.contracts.identifiers import ClusterId
    from streaming.settings import ClusterSettings, ControllersSettings, Settings
    from streaming.sources.permissions import Grantee
    from streaming.sources.protocol.addresses import Peers
    from streaming.sources.protocol.quorum_messages import Quorum
    from streaming.sources.protocol.security import Security


def checkpoint_path(bus: Path, name: str) -> Path:
    """Return the path of a source's checkpoint on a directory bus."""
    return bus / "checkpoints" / f"{name.replace(':', '-')}.json"


def open_metadata_log(
    settings: Settings, *, path: Path, report: Callable[[str], None], peers: Peers | None = None
) -> MetadataLogSource:
    """Create the source for a configuration; ``peers`` note what connections see.

    Raises:
        ConfigurationError: an address or a client property is wrong, or the checkpoint is of another cluster.
        ConnectionRefused: no broker can be reached.
    """
    cluster = settings.cluster
    return MetadataLogSource(
        bootstrap_of(settings, peers),
        dialer(login_of_controllers(cluster), peers),
        cluster=cluster.name,
        name=f"metadata_log:{settings.collect.collector_name}",
        path=path,
        heartbeat_seconds=settings.collect.heartbeat_interval,
        snapshot_seconds=settings.collect.snapshot_interval,
        report=report,
        silence_seconds=SILENCE_SECONDS,
    )


def login_of_controllers(cluster: ClusterSettings) -> Security:
    """Return TLS and login for controllers: those for brokers, unless they have a table of their own.

    What controllers refuse is to be changed in that table: brokers accept what is in the other one.

    Raises:
        ConfigurationError: a client property is wrong.
    """
    table = "cluster.controllers.client"
    if cluster.controllers.client:
        return from_client(cluster.controllers.client, table)
    return from_client(cluster.client).written_in(f"{table} (now that of cluster.client)")


def bootstrap_of(settings: Settings, peers: Peers | None = None) -> Bootstrap:
    """Create the discovery by the brokers of a configuration.

    Raises:
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
    """Parse ``[cluster.controllers]``; ``grantee`` is the user that the controllers see.

    Raises:
        ConfigurationError: a key of ``addresses`` is no controller id, or a value is no address.
    """
    key = "cluster.controllers.addresses"
    wrong = next((node for node in settings.addresses if not node.isdecimal()), None)
    if wrong is not None:
        raise ConfigurationError(f'{key}: {wrong!r} is no controller id; write "101" = "host:port"')
    by_node = {int(node): parse_address(address, key) for node, address in settings.addresses.items()}
    return ControllerAddresses(settings.listener, by_node, grantee)


# The voters of the controller quorum as a source: who votes, and who has caught up. Asks a broker (DescribeQuorum).
#
# Not part of the metadata log: a static quorum is in no record of it, and no record says that a voter is behind.


ASKED_EVERY: Final = Micros(10_000_000)
REPORTED_EVERY: Final = Micros(30_000_000)
# Longer than controller.quorum.fetch.timeout.ms (2 s): a voter that is further behind has missed a leader's time.
CAUGHT_UP_MILLIS: Final = 5_000
_WAIT_SECONDS: Final = 0.5


class VotersSource:
    """Reports the voters when they, or those that have caught up, change, and every half minute.

    It orders no partitions (``SourceKind.NONE``). While the quorum has no leader, or cannot be asked, it reports that
    it is unknown who has caught up, and which of both. It asks for the cluster's id each time: the cluster may have
    been rebuilt.
    """

    def __init__(
        self, bootstrap: Bootstrap, *, cluster: str, name: str, clock: Callable[[], Micros] = monotonic
    ) -> None:
        self.name = name
        self._bootstrap, self._cluster = bootstrap, cluster
        self._cluster_id: ClusterId | None = None
        self._ask_due, self._report_due, self._clock = Timer(ASKED_EVERY), Timer(REPORTED_EVERY), clock
        self._last: Quorum | None = None
        self._reported: tuple[object, ...] = ()

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the voters if there is something to report, or wait for half a second."""
        if not self._ask_due.take_due(self._clock()):
            time.sleep(_WAIT_SECONDS)
            return []
        caught_up, is_led = self._ask()
        last = self._last
        if self._cluster_id is None or (last is None and is_led is None):
            return []
        leader = Leader(NO_NODE, NO_NODE) if last is None else last.leader
        voters = None if last is None or not last.voters else tuple(sorted(last.voters))
        content = self._cluster_id, leader, voters, caught_up, is_led
        if content != self._reported:
            self._report_due.expire()
        if not self._report_due.take_due(self._clock()):
            return []
        self._reported = content
        return [
            ControllerObserved(
                cluster_id=self._cluster_id,
                cluster=self._cluster,
                source=self.name,
                source_kind=SourceKind.NONE,
                occurred_not_before=now,
                occurred_not_after=now,
                collected_at=now,
                controller=leader.node,
                controller_epoch=leader.epoch,
                voters=voters,
                caught_up=caught_up,
                is_led=is_led,
            )
        ]

    def _ask(self) -> tuple[tuple[int, ...] | None, bool | None]:
        """Ask who has caught up, and whether the quorum has a leader; None for what no answer says.

        A broker that is asked asks the leader, and answers late, or with an error, where there is none; one that hangs
        up, or a proxy that does, says nothing of the quorum. That none leads is said only of brokers that answer other
        questions, and none of which may not be asked this one, or is too old.
        """
        try:
            cluster_id = self._bootstrap.cluster_id()
        except ConnectionRefused:
            return None, None
        self._last = self._last if cluster_id == self._cluster_id else None
        self._cluster_id = cluster_id
        try:
            self._last = self._bootstrap.quorum()
            return caught_up_in(self._last), True
        except (NoQuorumLeader, NoAnswer):  # the latter is late
            return None, False
        except ConnectionRefused:
            return None, None

    def acknowledge(self) -> None:
        """Do nothing: there is no position."""

    def close(self) -> None:
        """Do nothing: each question has a connection of its own."""


def open_voters(settings: Settings, peers: Peers | None = None) -> VotersSource:
    """Create the source for a configuration; brokers answer it, so the metadata log need not be readable."""
    return VotersSource(
        bootstrap_of(settings, peers), cluster=settings.cluster.name, name=f"quorum:{settings.collect.collector_name}"
    )


def caught_up_in(quorum: Quorum) -> tuple[int, ...] | None:
    """Return the voters that have what their leader had a moment ago; None if the leader does not give its own time."""
    now = quorum.voters.get(quorum.leader.node)
    if now is None:
        return None
    return tuple(
        sorted(voter for voter, until in quorum.voters.items() if until is not None and now - until <= CAUGHT_UP_MILLIS)
    )
