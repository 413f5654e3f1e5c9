"""Polling and scraping a real cluster: what is told is what Kafka says, and a dead broker delays nobody."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deploy.sandbox import wait_until
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import (
    BrokerObserved,
    ConfigObserved,
    ConfigOrigin,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
)
from streaming.contracts.samples import BrokerMetricObserved
from streaming.sources.broker_metrics import (
    HANDLERS_IDLE,
    MAX_LAG,
    METRICS,
    PERCENTILES,
    PRODUCE_MEAN_MS,
    PRODUCE_REQUESTS,
    Agents,
    AppendTimes,
    BrokerMetricsSource,
)
from streaming.sources.polling.source import AdminSource
from streaming.sources.source import monotonic
from tests.blocks import singly
from tests.topic_writer import TopicWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deploy.sandbox import Sandbox
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import PartitionState
    from streaming.sources.source import Source

    MakeSandbox = Any

pytestmark = [pytest.mark.kafka]

PATIENCE_SECONDS = 120.0
CONFIG = Path(__file__).parents[2] / "conf" / "jmx-exporter.yml"
SPREAD = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


@pytest.fixture(scope="module")
def cluster(kafka_module_cluster: MakeSandbox) -> Sandbox:
    sandbox: Sandbox = kafka_module_cluster(jmx_config=CONFIG, broker_session_timeout_ms=2000)
    sandbox.admin.create_topic("orders", assignment=SPREAD, configs={"min.insync.replicas": "2"})
    sandbox.admin.create_topic("loose", assignment=[[1, 2]])
    return sandbox


@pytest.fixture
def source(cluster: Sandbox) -> Iterator[AdminSource]:
    with closing(polling(cluster)) as source:
        yield source


def polling(cluster: Sandbox) -> AdminSource:
    return AdminSource(
        bootstrap_servers=cluster.bootstrap_servers,
        client={},
        cluster="sandbox",
        name="admin:test",
        poll_micros=Micros(300_000),
        view_micros=Micros(500_000),
        config_micros=Micros(1_000_000),
        source_kind=SourceKind.POLL,
        request_seconds=10.0,
    )


@pytest.fixture
def healed(cluster: Sandbox) -> Iterator[None]:
    """Whatever becomes of a test, the next one finds a whole cluster."""
    yield
    cluster.heal()
    wait_until(lambda: all(set(it.isr) == set(it.replicas) for it in cluster.admin.describe().values()), "all in sync")


def until(source: Source, enough: Callable[[list[Observation]], object], longest: list[float]) -> list[Observation]:
    """Poll until enough was seen; ``longest`` takes the seconds of each poll."""
    found: list[Observation] = []
    began = time.monotonic()
    while not enough(found):
        asked = time.monotonic()
        assert asked - began < PATIENCE_SECONDS, f"seen so far: {found[-10:]}"
        found += singly(source.poll(Micros(time.time_ns() // 1000)))
        longest.append(time.monotonic() - asked)
    return found


def partitions(found: list[Observation], topic: str = "orders") -> list[PartitionObserved]:
    return [item for item in found if isinstance(item, PartitionObserved) and item.topic == topic]


def test_a_snapshot_says_what_kafka_says_and_the_minimum_of_each_topic(kafka_4_3: Sandbox) -> None:
    cluster = kafka_4_3
    others = {key for key, _ in cluster.admin.describe()}
    cluster.admin.create_topic("polled", assignment=SPREAD, configs={"min.insync.replicas": "2"})
    cluster.admin.create_topic("defaulted", assignment=[[1, 2]])

    def told(seen: list[Observation]) -> dict[tuple[str, int], tuple[int, tuple[int, ...], frozenset[int]]]:
        return {
            (item.topic, item.partition): (item.leader, item.replicas, frozenset(item.isr))
            for item in seen
            if isinstance(item, PartitionObserved)
        }

    def said() -> dict[tuple[str, int], tuple[int, tuple[int, ...], frozenset[int]]]:
        return {key: (view.leader, view.replicas, view.isr) for key, view in cluster.admin.describe().items()}

    def configs(seen: list[Observation]) -> list[ConfigObserved]:
        return [item for item in seen if isinstance(item, ConfigObserved) and item.topic not in {"", *others}]

    with closing(polling(cluster)) as source:
        found = until(source, lambda seen: told(seen) == said() and len(configs(seen)) >= 2, [])
    records = [*cluster.dump_metadata_log()]
    deleted = {record.data["topicId"] for record in records if record.kind == "REMOVE_TOPIC_RECORD"}
    written = {
        record.data["name"]: record.data["topicId"]
        for record in records
        if record.kind == "TOPIC_RECORD" and record.data["topicId"] not in deleted
    }
    assert written == {item.topic: item.topic_id for item in found if isinstance(item, PartitionObserved)}
    assert {cluster.cluster_id} == {item.cluster_id for item in found}
    has_port = {item.broker: item.port is not None for item in found if isinstance(item, BrokerObserved)}
    assert has_port == {1: True, 2: True, 3: True}
    assert {("polled", "2"), ("defaulted", "1")} == {(item.topic, item.value) for item in configs(found)}
    assert {("min.insync.replicas", ConfigOrigin.DESCRIBE)} == {(item.key, item.origin) for item in configs(found)}
    for topic in ("polled", "defaulted"):
        cluster.admin.delete_topic(topic)


@pytest.mark.long
@pytest.mark.usefixtures("healed")
def test_epochs_and_eligible_replicas_are_those_of_the_metadata_log(cluster: Sandbox, source: AdminSource) -> None:
    """Two of three brokers crash: the first one to leave the ISR stays eligible, because the minimum is two."""

    def reported(seen: list[Observation]) -> dict[int, PartitionObserved]:
        return {item.partition: item for item in partitions(seen)}

    def is_degraded(seen: list[Observation]) -> bool:
        return len(reported(seen)) == 3 and all(len(item.isr) == 1 and item.elr for item in reported(seen).values())

    for broker in (3, 2):
        cluster.kill(broker)
        wait_until(lambda broker=broker: broker not in cluster.admin.live_brokers(), "the broker is gone")  # type: ignore[misc]
    found = reported(until(source, is_degraded, []))

    written: dict[int, dict[str, Any]] = {}
    names = {"leaderEpoch": 0, "elr": [], "eligibleLeaderReplicas": [], "isr": [], "leader": 0}
    topic = found[0].topic_id
    for record in cluster.dump_metadata_log():
        if record.kind in {"PARTITION_RECORD", "PARTITION_CHANGE_RECORD"} and record.data["topicId"] == topic:
            state = written.setdefault(record.data["partitionId"], dict(names))
            is_election = record.data.get("leader") not in (None, -2) and record.kind == "PARTITION_CHANGE_RECORD"
            state |= {name: value for name, value in record.data.items() if name in names}
            state["leaderEpoch"] += is_election
    assert {number: (item.isr, item.leader, item.leader_epoch, item.elr) for number, item in found.items()} == {
        number: (tuple(state["isr"]), state["leader"], state["leaderEpoch"], tuple(state["eligibleLeaderReplicas"]))
        for number, state in written.items()
    }
    assert {True} == {item.reports_elr for item in found.values()}


@pytest.mark.long
@pytest.mark.usefixtures("healed")
def test_a_broker_that_hangs_and_then_dies_delays_nobody_and_what_is_moved_to_it_is_not_under_replicated(
    cluster: Sandbox, source: AdminSource
) -> None:
    """A move to a broker that is gone lasts as long as that (KIP-352)."""
    longest, state = list[float](), ReplicationState()

    def loose(seen: list[Observation]) -> PartitionState | None:
        state.apply(fold(state, seen).touched)
        return next((each for each in state.partitions() if each.topic == "loose"), None)

    def is_moving(seen: list[Observation]) -> bool:
        partition = loose(seen)
        return partition is not None and bool(partition.adding_replicas)

    def is_moved(seen: list[Observation]) -> bool:
        partition = loose(seen)
        return partition is not None and set(partition.replicas) == {1, 3} and not partition.adding_replicas

    until(source, lambda seen: len(partitions(seen)) == 3 and loose(seen) is not None, longest)
    cluster.pause(3)
    gone = until(source, is_without_broker_3, longest)
    loose(gone)
    assert {SnapshotReason.PERIODIC} == {item.reason for item in gone if isinstance(item, SnapshotBegin)}
    causes = [item.cause for item in partitions(gone) if 3 not in item.isr and item.cause]
    assert set(causes) == {Cause.FENCED}, "or a clean stop, if it was never asked before"
    cluster.kill(3)
    cluster.admin.reassign("loose", 0, [1, 3])
    found = until(source, is_moving, longest)
    moving = loose([])
    assert moving is not None
    assert (set(moving.replicas), set(moving.isr)) == ({1, 2, 3}, {1, 2})
    assert (moving.adding_replicas, moving.removing_replicas) == ((3,), (2,))
    assert Cause.REASSIGNMENT in {item.cause for item in partitions(found, "loose")}

    cluster.start(3)
    back = until(source, lambda seen: is_moved(seen) and is_back(seen), longest)
    assert {Cause.EXPAND} == {item.cause for item in partitions(back) if 3 in item.isr and item.cause}
    moved = loose([])
    assert moved is not None
    assert (moved.removing_replicas, moved.under_replicated_since) == ((), None)
    # The broker was down for seconds. A broker that follows the metadata log slowly may show the end of a move for one
    # poll (``ReassignmentsRound.take``), no longer.
    assert moved.under_replicated_seconds < 1.0
    assert max(longest) < 8.0


def is_without_broker_3(seen: list[Observation]) -> bool:
    shrunk = {item.partition for item in partitions(seen) if 3 not in item.isr}
    return len(shrunk) == 3 and any(item.brokers == (1, 2) for item in seen if isinstance(item, SnapshotEnd))


def is_back(seen: list[Observation]) -> bool:
    return {0, 1, 2} <= {item.partition for item in partitions(seen) if 3 in item.isr}


@pytest.mark.long
def test_the_brokers_own_metrics_come_through_our_exporter_configuration(cluster: Sandbox) -> None:
    append_times = AppendTimes([*map(BrokerId, cluster.broker_ids)])
    scraping = BrokerMetricsSource(
        agents=Agents({BrokerId(broker): cluster.metrics_url(broker) for broker in cluster.broker_ids}),
        cluster_id=lambda: ClusterId(cluster.cluster_id),
        cluster="sandbox",
        name="broker_metrics:test",
        period_micros=Micros(500_000),
        append_times=append_times,
        timeout_seconds=30.0,
    )
    cluster.admin.create_topic("appended", assignment=[[1], [2], [3]])
    try:
        with TopicWriter(cluster.bootstrap_servers, "appended"):
            found = until(scraping, lambda _: len(append_times.newest(monotonic())) == 3, [])
    finally:
        scraping.close()
    of_brokers = {name for name in METRICS if not name.startswith("kafka_controller_")}
    samples = {(int(item.broker), item.metric): item.metric_value for item in told(found)}
    assert of_brokers - {MAX_LAG} | {PRODUCE_REQUESTS, PRODUCE_MEAN_MS} | PERCENTILES <= {
        metric for _, metric in samples
    }
    assert all(0 <= samples[broker, HANDLERS_IDLE] <= 1 for broker in (1, 2, 3)), "a share, and no count"
    assert [samples[broker, "kafka_server_kafkaserver_brokerstate"] for broker in (1, 2, 3)] == [3.0, 3.0, 3.0]
    assert all(0 <= micros < 1_000_000 for micros in append_times.newest(monotonic()).values())
    hosted = sum(samples[broker, "kafka_server_replicamanager_partitioncount"] for broker in (1, 2, 3))
    assert hosted == sum(len(view.replicas) for view in cluster.admin.describe().values())
    cluster.admin.delete_topic("appended")


def told(seen: list[Observation]) -> list[BrokerMetricObserved]:
    return [item for item in seen if isinstance(item, BrokerMetricObserved)]
