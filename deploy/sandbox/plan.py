"""The plan of a cluster: ids, ports, properties. Stored in ``state.json`` in its folder."""

from __future__ import annotations

import base64
import json
import secrets
import socket
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from deploy.sandbox.properties import HOST, Ports, node_properties
from streaming.errors import ConfigurationError
from streaming.runtime.jars import SANDBOX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FIRST_CONTROLLER: Final = 101
DEFAULT: Final = "4.3"
SINCE_4: Final = frozenset({"4.4", DEFAULT})
"""Versions without ZooKeeper, whose tools are in the packages of 4.0."""
ONLY_ZOOKEEPER: Final = frozenset({"1.0"})
VERSIONS: Final = {
    "4.4": f"{SANDBOX}-kafka-4-4",
    DEFAULT: SANDBOX,
    "3.9": f"{SANDBOX}-kafka-3",
    "3.6": f"{SANDBOX}-kafka-3-6",
    "1.0": f"{SANDBOX}-kafka-1",
}
PORTS: Final = range(15_000, 32_000)  # below the kernel's range for outgoing connections
_BLOCK: Final = 40
_PORTS_OF_A_BROKER: Final = 4
_STATE: Final = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One cluster. ``properties`` are for all nodes, ``node_properties`` for one; both override the defaults.

    ``version`` is a key of ``VERSIONS``. With a ``zookeeper``, a port, there are no controllers.
    """

    cluster_id: str
    brokers: dict[int, Ports]
    controllers: dict[int, Ports]
    version: str = DEFAULT
    zookeeper: int | None = None
    properties: dict[str, str] = field(default_factory=dict)
    node_properties: dict[int, dict[str, str]] = field(default_factory=dict)
    heap_megabytes: int = 256
    jmx_config: str | None = None

    def ports(self) -> dict[int, Ports]:
        """Return the ports of each node, in start order."""
        return self.controllers | self.brokers

    @property
    def advertises_controllers(self) -> bool:
        """True if brokers give the addresses of the controllers (KIP-853), as they do since Kafka 3.9."""
        return self.version in SINCE_4 | {"3.9"}

    @property
    def jars(self) -> str:
        """The group of jars of this version of Kafka."""
        return VERSIONS[self.version]

    def properties_of(self, node: int, data: Path) -> dict[str, str]:
        """Return all properties of a node."""
        own = node_properties(node, self.brokers, self.controllers, str(data), zookeeper=self.zookeeper)
        return own | self.properties | self.node_properties.get(node, {})

    def proxied(self) -> dict[int, tuple[int, int]]:
        """Return the routes of the replication proxy: broker to (advertised port, own port); none without a proxy."""
        return {
            broker: (ports.advertised_replication, ports.replication)
            for broker, ports in self.brokers.items()
            if ports.advertised_replication != ports.replication
        }


def plan_cluster(  # noqa: PLR0913 - all are keywords
    *,
    brokers: int = 3,
    controllers: int = 1,
    properties: Mapping[str, str] | None = None,
    node_properties: Mapping[int, Mapping[str, str]] | None = None,
    heap_megabytes: int = 256,
    jmx_config: Path | None = None,
    proxy: bool = False,
    combined: bool = False,
    version: str = DEFAULT,
    zookeeper: bool = False,
    hosts: Mapping[int, str] | None = None,
) -> Plan:
    """Plan a new cluster: brokers 1, 2, ..., controllers 101, 102, ..., free ports.

    ``jmx_config`` adds the Prometheus JMX exporter to every broker, ``proxy`` a proxy between the brokers. With
    ``combined`` the controllers are no nodes of their own: the first brokers are controllers, too. With ``zookeeper``,
    until 3.9, there is one ZooKeeper instead of controllers. ``hosts`` are addresses of nodes; by default all have the
    same one.

    Raises:
        ConfigurationError: there is no such version, or not in this way.
    """
    if version not in VERSIONS:
        raise ConfigurationError(f"there is no Kafka {version} for the sandbox; there are {', '.join(VERSIONS)}")
    if zookeeper and version in SINCE_4:
        raise ConfigurationError(f"Kafka {version} has no ZooKeeper: add --version 3.9")
    if not zookeeper and version in ONLY_ZOOKEEPER:
        raise ConfigurationError(f"Kafka {version} needs a ZooKeeper: add --zookeeper")
    free = _free_ports(brokers * _PORTS_OF_A_BROKER + controllers + 1)
    first, at = 1 if combined else FIRST_CONTROLLER, hosts or {}
    numbers = range(first, first + (0 if zookeeper else controllers))
    return Plan(
        cluster_id=random_id(),
        brokers={number: _ports(free, proxied=proxy, host=at.get(number, HOST)) for number in range(1, brokers + 1)},
        controllers={number: Ports(client=next(free), host=at.get(number, HOST)) for number in numbers},
        version=version,
        zookeeper=next(free) if zookeeper else None,
        properties=dict(properties or {}),
        node_properties={node: dict(own) for node, own in (node_properties or {}).items()},
        heap_megabytes=heap_megabytes,
        jmx_config=str(jmx_config.absolute()) if jmx_config else None,
    )


def write_plan(plan: Plan, root: Path) -> None:
    """Store the plan of a formatted cluster."""
    (root / _STATE).write_text(json.dumps(asdict(plan), indent=2), encoding="utf-8")


def read_plan(root: Path) -> Plan:
    """Read the plan of the cluster in a folder.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        state = json.loads((root / _STATE).read_text(encoding="utf-8"))
    except OSError:
        raise ConfigurationError(f"there is no sandbox in {root}: start one with isrwatch sandbox up") from None
    for role in ("brokers", "controllers"):
        state[role] = {int(node): Ports(**ports) for node, ports in state[role].items()}
    state["node_properties"] = {int(node): own for node, own in state["node_properties"].items()}
    return Plan(**state)


def formatted(root: Path) -> bool:
    """Return whether a folder contains a cluster."""
    return (root / _STATE).exists()


def random_id() -> str:
    """Create an id like Kafka: a random UUID in URL-safe base64, without the leading dash of an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _ports(free: Iterator[int], *, proxied: bool, host: str) -> Ports:
    replication = next(free)
    return Ports(
        client=next(free),
        replication=replication,
        advertised_replication=next(free) if proxied else replication,
        metrics=next(free),
        host=host,
    )


def _free_ports(count: int) -> Iterator[int]:
    """Return neighbouring ports, from a block in which each one is free.

    The block of another cluster has one that is taken, even while some of its nodes are down and want theirs back.
    """
    size = max(count, _BLOCK)
    while True:
        first = secrets.choice(PORTS[::size])
        if all(map(_is_free, range(first, first + size))):
            return iter(range(first, first + size))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
