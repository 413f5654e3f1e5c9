"""server.properties of a node as a mapping. Pure.

The defaults make a small cluster that behaves like a production cluster with shorter timeouts: the session timeout
(4 s) is below the lag limit (6 s), so a killed broker is fenced and a slow one lags, as with Kafka's 9 s and 30 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST: Final = "127.0.0.1"

_SMALL: Final[dict[str, str]] = {
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",  # the default of 128 MiB would be most of the heap
    "log.segment.bytes": "16777216",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
_SHORT_TIMEOUTS: Final[dict[str, str]] = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
}
_PREDICTABLE: Final[dict[str, str]] = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of a node. Other brokers connect to ``advertised_replication``, which may belong to a proxy."""

    client: int
    replication: int = 0
    advertised_replication: int = 0
    metrics: int = 0
    host: str = HOST


def node_properties(
    node_id: int, brokers: Mapping[int, Ports], controllers: Mapping[int, Ports], data: str, *, zookeeper: int | None
) -> dict[str, str]:
    """Return the default properties of a broker or a controller of a cluster; ``zookeeper`` is a port."""
    replication_factor = str(min(3, len(brokers)))
    common = {
        "node.id": str(node_id),
        "inter.broker.listener.name": "REPLICATION",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT",
        "log.dirs": data,
        "default.replication.factor": replication_factor,
        "offsets.topic.replication.factor": replication_factor,
        "transaction.state.log.replication.factor": replication_factor,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replication_factor,
        "share.coordinator.state.topic.min.isr": "1",
        **_SMALL,
        **_SHORT_TIMEOUTS,
        **_PREDICTABLE,
    }
    if zookeeper is not None:
        own = {"broker.id": str(node_id), "zookeeper.connect": f"{HOST}:{zookeeper}"}
        # By default it is the time-out of sessions, which a test shortens; a ZooKeeper on a busy machine starts slower.
        own["zookeeper.connection.timeout.ms"] = "60000"
        return common | _broker(brokers[node_id]) | own
    voters = ",".join(f"{node}@{ports.host}:{ports.client}" for node, ports in controllers.items())
    common |= {"controller.quorum.voters": voters, "controller.listener.names": "CONTROLLER"}
    roles = []
    if node_id in brokers:
        roles.append({"process.roles": "broker", **_broker(brokers[node_id])})
    if node_id in controllers:
        roles.append(_controller(controllers[node_id]))
    # A node of both roles has the listeners of both; it advertises those of the broker.
    together = {key: ",".join(role[key] for role in roles) for key in ("process.roles", "listeners")}
    return common | roles[0] | together


def _broker(ports: Ports) -> dict[str, str]:
    at = ports.host
    return {
        "listeners": f"CLIENT://{at}:{ports.client},REPLICATION://{at}:{ports.replication}",
        "advertised.listeners": f"CLIENT://{at}:{ports.client},REPLICATION://{at}:{ports.advertised_replication}",
    }


def _controller(ports: Ports) -> dict[str, str]:
    # A controller-only node has no REPLICATION listener, and refuses a configuration with one.
    return {"process.roles": "controller", "listeners": f"CONTROLLER://{ports.host}:{ports.client}"}


def zookeeper_properties(port: int, data: object) -> dict[str, str]:
    """Return the properties of the only ZooKeeper; its administration server would need jars that Kafka lacks."""
    return {
        "clientPortAddress": HOST,
        "clientPort": str(port),
        "dataDir": str(data),
        "admin.enableServer": "false",
        "tickTime": "1000",  # no session ends before two ticks, however short a time-out the brokers ask for
        "maxClientCnxns": "0",
    }
