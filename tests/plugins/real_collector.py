"""Collectors on real clusters: the bus that folds what they publish, and what several tests of them arrange.

Fixture ``collecting``: ``collecting.start(settings, folder, tables)`` starts the collector of a configuration, which
ends with the test; ``collecting.lines`` has what all of them print. Fixture ``hurried``: every silence is short.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streaming.bus.log import RemovedBytes
from streaming.changes import sources
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.errors import ConnectionRefused
from streaming.settings import ControllersSettings
from streaming.sources import source
from streaming.sources.collector import opening
from streaming.sources.collector.collector import Collector
from streaming.sources.metadata_log import opening as log_opening
from streaming.sources.metadata_log.quorum import Bootstrap, ControllerAddresses
from streaming.sources.metadata_log.source import MetadataLogSource
from streaming.sources.permissions import ANYBODY
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security, from_client
from streaming.sources.samples.source import open_samples
from streaming.sources.source import wall_clock
from tests.blocks import singly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from deploy.sandbox import Sandbox
    from streaming.changes.state import Change
    from streaming.contracts.events import EventKind
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import PartitionState
    from streaming.settings import Settings
    from streaming.sources.permissions import Permission

PATIENCE = 120.0
READER = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "reader",
    "sasl.password": "hunter2",
}
OPERATIONS = {
    "ClusterAction": AclOperation.CLUSTER_ACTION,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Read": AclOperation.READ,
}
RESOURCES = {
    ("--cluster",): (ResourceType.BROKER, "kafka-cluster"),
    ("--topic", "*"): (ResourceType.TOPIC, "*"),
    ("--group", "*"): (ResourceType.GROUP, "*"),
    ("--transactional-id", "*"): (ResourceType.TRANSACTIONAL_ID, "*"),
}


class Tables:
    """What the collector publishes, folded as it arrives."""

    def __init__(self) -> None:
        self.state = ReplicationState()
        self.changes: list[Change] = []
        self._lock = threading.Lock()

    def publish(self, observations: Sequence[Observation]) -> None:
        with self._lock:
            for observed in observations:
                folded = fold(self.state, [observed])
                self.changes += folded.changes
                self.state.apply(folded.touched)

    def publish_raw(self, *_: Any) -> None:
        raise AssertionError("no record is unreadable here")

    def take_removed(self) -> RemovedBytes:
        return RemovedBytes(0, 0)

    def close(self) -> None:
        """Keep everything."""

    def partitions(self) -> dict[tuple[str, int], PartitionState]:
        with self._lock:
            return {(each.topic, each.partition): each for each in self.state.partitions()}

    def primary(self) -> str | None:
        with self._lock:
            return next((cluster.primary_source for cluster in self.state.clusters.values()), None)

    def events(self, *kinds: EventKind) -> Counter[tuple[EventKind, str, int]]:
        with self._lock:
            return Counter(
                (event.event, change.after.topic, change.after.partition)
                for change in self.changes
                for event in change.events
                if event.event in kinds and change.after is not None
            )


class Rules:
    """The ACLs of the user reader.

    Each change has a client of its own: one that was connected before a broker stopped may still hold that broker for
    the controller, and waits for it until its deadline.
    """

    def __init__(self, cluster: Sandbox) -> None:
        self._servers = cluster.bootstrap_servers

    def allow(self, *permissions: Permission) -> None:
        rules = [AclBinding(*self._rule(permission)) for permission in permissions]
        client = self._client()  # kept: one that nothing refers to is closed before it has answered
        for answer in client.create_acls(rules).values():
            answer.result(30)

    def take(self, permission: Permission) -> None:
        rule = AclBindingFilter(*self._rule(permission))
        client = self._client()
        assert len(client.delete_acls([rule])[rule].result(30)) == 1

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._servers})

    @staticmethod
    def _rule(permission: Permission) -> tuple[Any, ...]:
        resource = RESOURCES[permission.option]
        operation = OPERATIONS[permission.operation]
        return (*resource, ResourcePatternType.LITERAL, "User:reader", "*", operation, AclPermissionType.ALLOW)


def controllers_of(cluster: Sandbox) -> ControllerAddresses:
    """Give the addresses that the brokers do not give: none, of a newer Kafka."""
    addresses = {} if cluster.plan.advertises_controllers else cluster.controller_addresses
    return log_opening.controller_addresses(ControllersSettings(addresses=addresses), ANYBODY)


class Following:
    """A source on a real cluster, polled in a thread; ``reported`` grows while it runs."""

    def __init__(self, cluster: Sandbox, path: Path, name: str = "metadata_log:test", client: Any = None) -> None:
        self.lines: list[str] = []
        self.reported: list[Observation] = []
        self.source = MetadataLogSource(
            Bootstrap(parse_servers(cluster.bootstrap_servers), dialer(Security()), controllers_of(cluster)),
            dialer(from_client(client or {})),
            cluster="real",
            name=name,
            path=path,
            heartbeat_seconds=1,
            snapshot_seconds=3600,
            report=self.lines.append,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self.reported += self.source.poll(wall_clock())
            except ConnectionRefused as refusal:
                self.lines.append(str(refusal))
                self._stopping.wait(0.2)
                continue
            self.source.acknowledge()

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, (what, self.lines)
            time.sleep(0.05)

    def until_topic(self, topic: str, partitions: int) -> None:
        self.until(lambda: len(self.partitions(topic)) == partitions, f"{partitions} partitions of {topic}")

    def partitions(self, topic: str) -> dict[int, Any]:
        """Give the newest observation of each partition."""
        return {
            one.partition: one for one in singly(tuple(self.reported)) if one.kind == "partition" and one.topic == topic
        }

    def offset(self) -> int:
        return self.source._image.image_offset

    def stop(self) -> None:
        """Stop once: closed again, it would write the checkpoint of the one that follows it in its place."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join(30)
            self.source.close()


class Collecting:
    """Collectors, and the lines that they print."""

    def __init__(self) -> None:
        self.lines = list[str]()
        self._started = list[Collector]()

    def start(self, settings: Settings, folder: Path, tables: Tables) -> Collector:
        sources = opening.open_sources(settings, folder, self.lines.append)
        sources += open_samples(settings, self.lines.append)  # in this process: the tables are
        self._started.append(Collector(sources, lambda: tables, report=self.lines.append))
        self._started[-1].start()
        return self._started[-1]

    def until(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (what, self.lines)
            time.sleep(0.1)

    def count(self, sentence: str) -> int:
        return sum(sentence in line for line in self.lines)

    def stop(self) -> None:
        """End all of them."""
        while self._started:
            collector = self._started.pop()
            collector.stop()
            collector.wait()


@pytest.fixture
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    """Nothing is started yet; what is ends with the test."""
    collecting = Collecting()
    monkeypatch.setattr(opening, "CONNECT_SECONDS", 1.0)
    yield collecting
    collecting.stop()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every silence be short, that of the sources shorter than that of the fold, as in earnest."""
    monkeypatch.setattr(sources, "SILENCE", 6_000_000)
    monkeypatch.setattr(log_opening, "SILENCE_SECONDS", 3.0)
    monkeypatch.setattr(opening, "POLL_SNAPSHOT_SECONDS", 2.0)
    assert source.SILENCE_SECONDS * 1_000_000 < 60_000_000


def facts(tables: Tables) -> dict[tuple[str, int], tuple[object, ...]]:
    """Without partition epoch and order of the ISR: polls lack them, and a log that repeats one changes nothing."""
    return {
        key: (each.topic_id, each.replicas, frozenset(each.isr), each.leader, each.leader_epoch)
        for key, each in tables.partitions().items()
    }


def of_the_log(cluster: Sandbox, folder: Path, client: dict[str, str]) -> Tables:
    """What a collector that begins now reads from the log."""
    fresh, tables = Following(cluster, folder / "fresh.json", client=client), Tables()
    try:
        fresh.until(lambda: fresh.reported, "the log")
    finally:
        fresh.stop()
    tables.publish(fresh.reported)
    return tables
