"""Discovery by the brokers: the cluster id, the controllers, and the leader of the metadata quorum."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka.protocol.admin import DescribeQuorumRequest, DescribeQuorumResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from streaming.contracts.identifiers import ClusterId
from streaming.errors import ConnectionRefused
from streaming.sources.permissions import ANYBODY, DESCRIBE_CLUSTER, Grantee, PermissionDenied
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import CLUSTER_AUTHORIZATION_FAILED, Connection, ServiceRefused
from streaming.sources.protocol.identity import WrongNode, require_cluster
from streaming.sources.protocol.quorum_messages import Quorum, describe_quorum_request, read_quorum
from streaming.sources.protocol.sockets import Failure, NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.sources.protocol.connection import Dial

T = TypeVar("T")

_ENDPOINTS_SINCE: Final = 2
_METADATA_NEWEST: Final = 12
DISCOVERY_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 4.0
"""For all brokers together, once one was reached."""


@dataclass(frozen=True, slots=True)
class ControllerAddresses:
    """Addresses of the controllers: those of the listener of this name, or the given ones, whatever controllers say.

    ``grantee`` is the user that they see.
    """

    listener: str = ""
    by_node: dict[int, Address] = field(default_factory=dict)
    grantee: Grantee = ANYBODY


AS_ADVERTISED: Final = ControllerAddresses()


class Bootstrap:
    """Asks the brokers in turn; the one that responded last is asked first.

    Once it knows the cluster it asks no broker of another one, unless all of them are: then the cluster was rebuilt.

    Raises:
        ConnectionRefused: from every method: no broker can be reached.
        ServiceRefused: a broker refuses the login, a permission is missing, or the broker is too old.
    """

    def __init__(
        self,
        servers: tuple[Address, ...],
        dial: Dial,
        controllers: ControllerAddresses = AS_ADVERTISED,
        grantee: Grantee = ANYBODY,
    ) -> None:
        self._servers, self._grantee = list(servers), grantee
        self._dial = dial
        self._cluster_id: ClusterId | None = None
        self.controllers = controllers

    def cluster_id(self) -> ClusterId:
        """Return Kafka's cluster id."""
        unanswered = "no broker of cluster.bootstrap_servers says which cluster it is of"
        self._cluster_id = self._first(cluster_id_of, unanswered)
        return self._cluster_id

    def brokers(self) -> dict[int, Address]:
        """Return the addresses of the brokers that are up, by id."""
        return self._first(brokers_of, "no broker of cluster.bootstrap_servers says which brokers there are")

    def features(self) -> dict[str, int]:
        """Return the levels of the cluster's features; none with ZooKeeper, or behind a proxy that leaves them out."""
        return self._first(attrgetter("features"), "no broker of cluster.bootstrap_servers says its features")

    def has_zookeeper(self) -> bool:
        """Return whether the cluster uses ZooKeeper."""
        unanswered = "no broker of cluster.bootstrap_servers says what it supports"
        return self._first(lambda connection: connection.has_zookeeper, unanswered)

    def quorum(self, *, with_addresses: bool = False) -> Quorum:
        """Return leader and voters of the metadata quorum; requires Describe on the cluster.

        ``with_addresses``: those of the controllers, too, which brokers give since Kafka 3.9 (KIP-853).
        """
        listener = self.controllers.listener if with_addresses else None
        ask = partial(quorum_of, listener=listener, grantee=self._grantee)
        return self._first(ask, "brokers answer, but not who leads the metadata quorum")

    def _first(self, ask: Callable[[Connection], T], unanswered: str) -> T:
        """Ask until one answers; of a quorum without a leader each broker knows only after it has waited for it."""
        refusals: list[ConnectionRefused] = []
        until, is_reached, is_late = time.monotonic() + PATIENCE_SECONDS, False, False
        for server in tuple(self._servers):
            if is_reached and time.monotonic() > until:
                break
            is_asked = False
            try:
                connection = self._dial(server, response_seconds=DISCOVERY_SECONDS)
                is_reached = True
                try:
                    require_cluster(connection, self._cluster_id)
                    is_asked = True
                    answer = ask(connection)
                finally:
                    connection.close()
            except ConnectionRefused as refusal:
                refusals.append(refusal)
                is_late |= is_asked and isinstance(refusal, NoAnswer) and refusal.how is Failure.SILENT
                continue
            self._servers.sort(key=lambda other: other != server)
            return answer
        if self._cluster_id is not None and all(isinstance(one, WrongNode) for one in refusals):
            self._cluster_id = None
            return self._first(ask, unanswered)
        permanent = next((one for one in refusals if isinstance(one, ServiceRefused)), None)
        if permanent is not None:
            raise permanent
        reasons = "; ".join(map(str, refusals))
        if any(isinstance(one, NoQuorumLeader) for one in refusals):
            raise NoQuorumLeader(f"{unanswered}: {reasons}")
        if is_late:  # one that is silent before it is asked says nothing of what is asked
            raise NoAnswer(f"{unanswered}: {reasons}", Failure.SILENT)
        if is_reached:
            raise ConnectionRefused(f"{unanswered}: {reasons}")
        raise ConnectionRefused(f"no broker of cluster.bootstrap_servers responds: {reasons}; check the addresses")


class NoQuorumLeader(ConnectionRefused):
    """A broker answers that the metadata quorum has no leader."""


class NoMetadataLog(ServiceRefused):
    """The cluster has no metadata log, as with ZooKeeper, or none that can be found."""


def cluster_id_of(connection: Connection) -> ClusterId:
    """Ask a broker for the id of its cluster."""
    cluster_id = _metadata(connection, attrgetter("cluster_id"))
    if not cluster_id:
        raise ServiceRefused(f"{connection.address} has no cluster id; it is older than Kafka 0.10.1")
    return ClusterId(cluster_id)


def brokers_of(connection: Connection) -> dict[int, Address]:
    """Ask a broker for the brokers that are up, and where they are."""
    return _metadata(connection, lambda answer: {one.node_id: Address(one.host, one.port) for one in answer.brokers})


def _metadata(connection: Connection, read: Callable[[Any], T]) -> T:
    """Read something of the metadata, without a topic."""
    version = connection.newest(MetadataRequest.API_KEY, _METADATA_NEWEST, "Metadata")
    if version < 0:
        raise ServiceRefused(
            f"{connection.address} is no broker, but a controller: name brokers in cluster.bootstrap_servers"
        )
    request: Any = MetadataRequest(version=version, topics=[], allow_auto_topic_creation=False)
    return connection.call(request, MetadataResponse, read)


def quorum_of(connection: Connection, listener: str | None, grantee: Grantee) -> Quorum:
    """Ask for the quorum; without a listener no addresses are needed, with "" those of any listener."""
    version = connection.newest(DescribeQuorumRequest.API_KEY, _ENDPOINTS_SINCE, "DescribeQuorum")
    if version < 0:
        instead = 'set collect.primary_source = "poll"'
        if connection.has_zookeeper:
            raise NoMetadataLog(
                f"{connection.address} is of a cluster with ZooKeeper, which has no metadata log: {instead}"
            )
        raise NoMetadataLog(
            f"{connection.address} does not say who leads the metadata quorum (DescribeQuorum): a proxy leaves that "
            f"out, or it is another product than Apache Kafka; {instead}"
        )
    if listener is not None and version < _ENDPOINTS_SINCE:
        raise ServiceRefused(
            f"{connection.address} does not return the addresses of the controllers (requires Kafka 3.9 or newer); "
            'write them into [cluster.controllers.addresses], or set collect.primary_source = "poll"'
        )
    read = partial(read_quorum, listener=listener or "")
    quorum = connection.call(describe_quorum_request(version), DescribeQuorumResponse, read)
    if quorum.error == CLUSTER_AUTHORIZATION_FAILED:
        raise PermissionDenied(DESCRIBE_CLUSTER, grantee)
    if listener and listener not in quorum.listeners and quorum.listeners:
        raise ServiceRefused(
            f"no controller has the listener {listener!r} of cluster.controllers.listener; "
            f"they have {', '.join(quorum.listeners)}"
        )
    if quorum.error or quorum.leader.node < 0:
        raise NoQuorumLeader(f"{connection.address} has no leader of the metadata quorum (error {quorum.error})")
    if listener is not None and quorum.leader.node not in quorum.nodes:
        raise ConnectionRefused(f"{connection.address} has no address of controller {quorum.leader.node}, the leader")
    return quorum
