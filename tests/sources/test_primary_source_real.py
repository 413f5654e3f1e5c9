"""The primary source of a real cluster, while the permission to read its log is given, taken away and given back."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streaming.changes import primary_source
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.commands.doctor_checks import CHECKS
from streaming.commands.doctor_findings import Status
from streaming.contracts.events import EventKind
from streaming.contracts.observations import SourceKind
from streaming.settings import ClusterSettings, CollectSettings, ControllersSettings, Settings
from streaming.sources import opening, timer
from streaming.sources.collector import Collector
from streaming.sources.metadata_log import opening as log_opening
from tests.sources.metadata_log.test_real_cluster import SECURED, Following, grant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from deploy.sandbox import Sandbox
    from streaming.changes.change import Change
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import PartitionState

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
PATIENCE = 120.0
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


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

    def close(self) -> None:
        """Keep everything."""

    def partitions(self) -> dict[tuple[str, int], PartitionState]:
        with self._lock:
            return {(each.topic, each.partition): each for each in self.state.partitions()}

    def primary(self) -> str | None:
        with self._lock:
            return next((cluster.authority for cluster in self.state.clusters.values()), None)

    def events(self, *kinds: EventKind) -> Counter[tuple[EventKind, str, int]]:
        with self._lock:
            return Counter(
                (event.event, change.after.topic, change.after.partition)
                for change in self.changes
                for event in change.events
                if event.event in kinds and change.after is not None
            )


def until(condition: Callable[[], Any], what: str, lines: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, (what, lines)
        time.sleep(0.1)


def revoke(cluster: Sandbox, principal: str) -> None:
    rules = AclBindingFilter(
        ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, principal, "*",
        AclOperation.CLUSTER_ACTION, AclPermissionType.ALLOW,
    )  # fmt: skip
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.delete_acls([rules])[rules].result(30)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every silence be short, that of the sources shorter than that of the fold, as in earnest."""
    monkeypatch.setattr(primary_source, "SILENCE", 6_000_000)
    monkeypatch.setattr(log_opening, "SILENCE_SECONDS", 3.0)
    monkeypatch.setattr(opening, "POLL_SNAPSHOT_SECONDS", 2.0)
    monkeypatch.setattr(opening, "CONNECT_SECONDS", 1.0)
    assert timer.SILENCE_SECONDS * 1_000_000 < 60_000_000


@pytest.mark.usefixtures("hurried")
def test_the_brokers_are_polled_while_the_log_is_not_permitted_and_nothing_is_lost_or_invented(
    kafka_cluster: Callable[..., Sandbox], tmp_path: Path
) -> None:
    cluster = kafka_cluster(brokers=2, node_properties=dict.fromkeys((1, 2, 101), SECURED))
    lines, tables = list[str](), Tables()
    client = {**LOGIN, "sasl.username": "reader", "sasl.password": "r"}
    servers = ClusterSettings(
        bootstrap_servers=cluster.bootstrap_servers, controllers=ControllersSettings(client=client)
    )
    collect = CollectSettings(heartbeat_seconds=1, poll_seconds=0.5, config_seconds=2)
    settings = Settings(cluster=servers, collect=collect)
    assert of_doctor(settings) == {"brokers": Status.OK, "metadata log": Status.WARNING, "polling": Status.OK}
    sources = opening.open_sources(settings, tmp_path, lines.append)
    collector = Collector(sources, lambda: tables, report=lines.append)
    collector.start()
    try:
        cluster.admin.create_topic("orders", partitions=3, replication_factor=2)
        until(lambda: len(tables.partitions()) == 3, "the poller reports", lines)
        assert tables.primary() == SourceKind.POLL
        assert any("lacks ClusterAction" in line for line in lines)

        grant(cluster, "User:reader")
        until(lambda: tables.primary() == SourceKind.METADATA_LOG, "the log takes over", lines)
        assert of_doctor(settings) == dict.fromkeys(("brokers", "metadata log", "polling"), Status.OK)
        cluster.stop(2)
        until(lambda: all(each.isr == (1,) for each in tables.partitions().values()), "broker 2 left", lines)

        revoke(cluster, "User:reader")
        until(lambda: tables.primary() == SourceKind.POLL, "the poller takes over", lines)
        cluster.start(2)
        until(lambda: all(len(each.isr) == 2 for each in tables.partitions().values()), "broker 2 came back", lines)

        grant(cluster, "User:reader")
        until(lambda: tables.primary() == SourceKind.METADATA_LOG, "the log takes over again", lines)
        cluster.admin.create_topic("late", partitions=1, replication_factor=2)
        until(lambda: ("late", 0) in tables.partitions(), "a topic that is created later", lines)
    finally:
        collector.stop()
        collector.wait()

    assert tables.events(EventKind.ISR_SHRINK, EventKind.ISR_EXPAND) == {
        (kind, "orders", number): 1 for kind in (EventKind.ISR_SHRINK, EventKind.ISR_EXPAND) for number in range(3)
    }
    assert not tables.events(EventKind.TOPIC_DELETED)
    assert facts(tables) == facts(of_the_log(cluster, tmp_path, client))


def of_doctor(settings: Settings) -> dict[str, Status]:
    """What ``isrwatch doctor`` says of each way to read the cluster."""
    checks = ("brokers", "metadata log", "polling")
    return {check: status for check in checks for status, _ in CHECKS[check](settings) if status is not Status.SKIPPED}


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


@pytest.mark.usefixtures("hurried")
def test_without_a_quorum_the_brokers_are_polled_at_the_start_and_later_until_it_is_back(
    kafka_cluster: Callable[..., Sandbox], tmp_path: Path
) -> None:
    cluster = kafka_cluster(brokers=2, controllers=3)
    cluster.admin.create_topic("orders", partitions=2, replication_factor=2)
    lines, tables = list[str](), Tables()
    settings = Settings(
        cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers),
        collect=CollectSettings(heartbeat_seconds=1, poll_seconds=0.5, config_seconds=2),
    )
    for controller in (101, 102):
        cluster.kill(controller)
    collector = Collector(opening.open_sources(settings, tmp_path, lines.append), lambda: tables, report=lines.append)
    collector.start()
    try:
        for late in ("late", "later"):
            until(lambda: tables.primary() == SourceKind.POLL, "the poller reports", lines)
            until(lambda: ("orders", 1) in tables.partitions(), "every partition", lines)
            for controller in (101, 102):
                cluster.start(controller)
            until(lambda: tables.primary() == SourceKind.METADATA_LOG, "the log is read again", lines)
            cluster.admin.create_topic(late, partitions=1, replication_factor=2)
            until(lambda late=late: (late, 0) in tables.partitions(), "a topic that is created later", lines)  # type: ignore[misc]
            if late == "late":
                for controller in (101, 102):
                    cluster.kill(controller)
    finally:
        collector.stop()
        collector.wait()
    assert not tables.events(EventKind.ISR_SHRINK, EventKind.TOPIC_DELETED, EventKind.LEADER_CHANGE)
    assert facts(tables) == facts(of_the_log(cluster, tmp_path, {}))
