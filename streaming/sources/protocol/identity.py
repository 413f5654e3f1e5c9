"""The node that answers on a connection: the one that is meant, another one, or one that does not say who it is.

No answer of Kafka names who gave it, and an address may lead elsewhere: crossed or recycled addresses, a load balancer
in front of all brokers, a port of another cluster. So it is asked once per connection, before anything else is booked:

- ApiVersions 5 (KIP-1242, Kafka 4.4) carries the cluster's id and the node's; another broker refuses it. It needs no
  permission; which one it is shows when it is asked for each of the others. Controllers support this version and
  check nothing, so it proves nothing there.
- Otherwise DescribeConfigs of the node by its id, which only that node answers; another one refuses it, and says its
  own id. Brokers since Kafka 0.11, controllers since 3.7. Requires DescribeConfigs on the cluster.
- The cluster's id is in Metadata of brokers and, since 3.7, in DescribeCluster of controllers (KIP-919), for which no
  permission is needed.

Without permission, or where a node has no such request, it stays unknown who answers: neither right nor wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest, MetadataResponse

from streaming.sources.protocol.config_messages import Resource
from streaming.sources.protocol.connection import (
    CLIENT_ID,
    CLUSTER_AUTHORIZATION_FAILED,
    RawRequest,
    ServiceRefused,
    compact_string,
)
from streaming.sources.protocol.primitives import INT16, INT32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.connection import Connection

CHECKING_API_VERSIONS: Final = 5
_REBOOTSTRAP_REQUIRED: Final = 129
_INVALID_REQUEST: Final = 42
_METADATA_NEWEST: Final = 12
_METADATA_WITH_CLUSTER: Final = 2
_DESCRIBE_CONFIGS_NEWEST: Final = 4
DESCRIBE_CLUSTER: Final = 1  # the first version that controllers answer
_CONTROLLERS: Final = 2  # the kind of node that DescribeCluster is meant for
_FETCH_SNAPSHOT: Final = 59
_FETCH_SNAPSHOT_NEWEST: Final = 1
_MOST_ASKED: Final = 100
"""Brokers in whose place another one may stand that does not say its id otherwise."""
_OWN_IDS: Final = ("node.id", "broker.id")
_NOBODY: Final = -1
_EXPECTED_ID: Final = re.compile(r"\bexpected (\d{1,10})\b")
DENIED: Final = "this user lacks DescribeConfigs on the cluster"


class Role(StrEnum):
    """Role of a listener; a bootstrap server is one whose address no broker advertises."""

    BROKER = "broker"
    CONTROLLER = "controller"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """A node of a cluster; ``id`` is None where any of its brokers may answer."""

    role: Role
    id: int | None
    cluster_id: str

    def __str__(self) -> str:
        return f"{self.role} {self.id}" if self.id is not None else f"cluster {self.cluster_id}"


@dataclass(frozen=True, slots=True)
class Responder:
    """The node that answers on a connection, as far as it says so.

    Attributes:
        meant: the node that is meant.
        is_meant: True if it is the node that is meant, False if it is another one, None if that is unknown.
        node_id: its id; None if it is unknown.
        cluster_id: of its cluster; None if it does not say.
        role: of the listener that answers.
        why_unknown: why it is unknown, the end of a sentence.
    """

    meant: NodeIdentity
    is_meant: bool | None
    node_id: int | None
    cluster_id: str | None
    role: Role
    why_unknown: str = ""


class WrongNode(ServiceRefused):
    """Another node (``who``) answers at an address than the one that it stands for; nothing of it is used."""

    def __init__(self, address: Address, by: Responder) -> None:
        self.who = f"another {by.role}" if by.node_id is None else f"{by.role} {by.node_id}"
        if by.cluster_id is not None and by.cluster_id != by.meant.cluster_id:
            own = f"a {by.role}" if by.node_id is None else self.who
            self.who = f"{own} of another cluster, {by.cluster_id}"
        super().__init__(
            f"the address of {by.meant}, {address}, leads to {self.who}, so nothing that it answers is recorded: check "
            f"what {by.meant} advertises, and the proxies, load balancers and names between it and here"
        )


def require(connection: Connection, meant: NodeIdentity) -> Responder:
    """Return who answers, if that is the node that is meant, or unknown; it is asked again when it has reconnected.

    Raises:
        WrongNode: it is another one.
        ConnectionRefused: it does not respond.
    """
    by = responder(connection, meant)
    if by.is_meant is False:
        raise WrongNode(connection.address, by)
    connection.after_reopening = partial(require, connection, meant)
    return by


def require_cluster(connection: Connection, cluster_id: str | None) -> None:
    """Check that a broker is of a cluster, where that is known.

    Raises:
        WrongNode: it is of another one.
        ConnectionRefused: it does not respond.
    """
    if cluster_id is not None:
        require(connection, NodeIdentity(Role.BROKER, None, cluster_id))


def responder(connection: Connection, meant: NodeIdentity, *, known_cluster: str | None = None) -> Responder:
    """Ask which node answers; ``known_cluster`` is what it has said on this connection of its cluster.

    Raises:
        ConnectionRefused: it does not respond.
    """
    meant_role = Role.CONTROLLER if meant.role is Role.CONTROLLER else Role.BROKER
    role = _role_of(connection, meant_role)
    is_of_role = role is meant_role
    is_accepted = _is_accepted(connection, meant) if is_of_role and role is Role.BROKER else None
    if is_accepted:
        return Responder(meant, True, meant.id, meant.cluster_id, role)
    cluster_id, listed = (known_cluster, ()) if known_cluster else _cluster_of(connection, role)
    is_of_cluster = cluster_id is None or cluster_id == meant.cluster_id
    if meant.id is None and is_of_role and is_of_cluster:
        why = "" if cluster_id is not None else "it does not say of which cluster it is"
        return Responder(meant, None if why else True, None, cluster_id, role, why)
    node_id, why = _id_of(connection, meant.id)
    if node_id is None and is_accepted is False:
        others = (NodeIdentity(role, each, cluster_id or meant.cluster_id) for each in listed[:_MOST_ASKED])
        node_id = next((other.id for other in others if _is_accepted(connection, other)), None)
    if is_of_role and is_of_cluster and is_accepted is None:
        return Responder(meant, None if node_id is None else node_id == meant.id, node_id, cluster_id, role, why)
    return Responder(meant, False, node_id, cluster_id, role)


def _role_of(connection: Connection, meant: Role) -> Role:
    """Return the role of a listener by what only brokers or only controllers are asked; that which is meant if both."""
    is_broker = connection.newest(MetadataRequest.API_KEY, _METADATA_NEWEST) >= 0
    is_controller = connection.newest(_FETCH_SNAPSHOT, _FETCH_SNAPSHOT_NEWEST) >= 0
    return meant if is_broker == is_controller else Role.BROKER if is_broker else Role.CONTROLLER


def _is_accepted(connection: Connection, meant: NodeIdentity) -> bool | None:
    """Return whether a broker takes an ApiVersions request that is meant for it; None where it cannot check that."""
    newest = connection.newest(ApiVersionsRequest.API_KEY, CHECKING_API_VERSIONS)
    if meant.id is None or newest < CHECKING_API_VERSIONS:
        return None
    texts = b"".join(map(compact_string, (CLIENT_ID, "1", meant.cluster_id)))
    request = RawRequest(ApiVersionsRequest.API_KEY, CHECKING_API_VERSIONS, texts + INT32.pack(meant.id) + b"\0")
    error = connection.call(request, _ErrorOfVersions, lambda answer: answer.error)
    return {0: True, _REBOOTSTRAP_REQUIRED: False}.get(error)


class _ErrorOfVersions:
    """Decodes the error of a response to ApiVersions, whose header has no tagged fields in any version (KIP-511)."""

    @staticmethod
    def decode(data: bytes, **_: Any) -> Any:  # noqa: ANN401 - the signature of kafka-python's messages
        (correlation,), (error,) = INT32.unpack_from(data), INT16.unpack_from(data, INT32.size)
        return SimpleNamespace(header=SimpleNamespace(correlation_id=correlation), error=error)


def _cluster_of(connection: Connection, role: Role) -> tuple[str | None, Sequence[int]]:
    """Return the id of the cluster of the node, None if it does not say, and the nodes of its role that it lists."""
    if role is Role.BROKER:
        version = connection.newest(MetadataRequest.API_KEY, _METADATA_NEWEST)
        if version < _METADATA_WITH_CLUSTER:
            return None, ()
        request: Any = MetadataRequest(version=version, topics=[], allow_auto_topic_creation=False)
        return connection.call(
            request,
            MetadataResponse,
            lambda answer: (answer.cluster_id or None, [one.node_id for one in answer.brokers]),
        )
    if connection.newest(DescribeClusterRequest.API_KEY, DESCRIBE_CLUSTER) < DESCRIBE_CLUSTER:
        return None, ()
    request = DescribeClusterRequest(version=DESCRIBE_CLUSTER, endpoint_type=_CONTROLLERS)
    return connection.call(request, DescribeClusterResponse, lambda answer: answer.cluster_id or None), ()


def _id_of(connection: Connection, meant: int | None) -> tuple[int | None, str]:
    """Return the id of the node, or why it is unknown: who is asked for another one's configuration says its own id."""
    version = connection.newest(DescribeConfigsRequest.API_KEY, _DESCRIBE_CONFIGS_NEWEST)
    if version < 0:
        return None, "it does not support DescribeConfigs"
    of_resource = DescribeConfigsRequest.DescribeConfigsResource
    name = str(_NOBODY if meant is None else meant)
    resource = of_resource(resource_type=int(Resource.BROKER), resource_name=name, configuration_keys=[*_OWN_IDS])
    request: Any = DescribeConfigsRequest(version=version, resources=[resource])
    error, message, values = connection.call(request, DescribeConfigsResponse, _described)
    if not error:
        return next((values[key] for key in _OWN_IDS if key in values), meant), ""
    said = _EXPECTED_ID.search(message) if error == _INVALID_REQUEST else None
    if said is not None:
        return int(said[1]), ""
    return None, DENIED if error == CLUSTER_AUTHORIZATION_FAILED else f"it responds with error {error}"


def _described(response: Any) -> tuple[int, str, dict[str, int]]:  # noqa: ANN401 - kafka-python's messages ship no types
    """Return the error, its message, and the ids in a response; one that was generated (ZooKeeper) is not in it."""
    (result,) = response.results
    values = {each.name: each.value for each in result.configs or ()}
    ids = {key: int(values[key]) for key in _OWN_IDS if (values.get(key) or "").isdecimal()}
    return result.error_code, result.error_message or "", ids
