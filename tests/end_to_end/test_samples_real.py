"""What a user of kafka_exporter, kminion or Burrow looks at, of a real cluster: collector and exporter beside it.

docs/how-it-compares.md says "yes" for what is asserted here. Nothing but the series of /metrics is looked at. Between
the two run the batches of the job itself, without Spark: what Spark adds is looked at by test_real_cluster.py, where
one series of each kind is enough. A transaction that hangs is asked for after a minute: it is looked at where samples
are taken.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from deploy.sandbox import Sandbox, plan_cluster
from tests.plugins.batches import Batches
from tests.plugins.pipeline import Pipeline
from tests.sources.samples.test_groups_real import PARTITIONS, Clients
from tests.sources.samples.test_quorum_and_transactions_real import Writers

pytestmark = [pytest.mark.kafka, pytest.mark.long]

OWN = "kafka_replication_"
PATIENCE = 300.0
INTERVAL = 2.0
# Samples of a dead broker are exposed for so long.
STALE = 8.0
# A round of groups, its way through bus and job on a busy machine, and the pause between two looks here.
ROUND = 30.0
COMMITTED = {"stuck": 12, "some": 7, "losing": 3}
INTERVALS = ("offsets", "groups", "config", "quorum", "transactions", "directories")
_SERIES = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
BROKERS = {"1", "2", "3"}


class Scraped:
    """One answer of the exporter."""

    def __init__(self, series: dict[str, float]) -> None:
        self._series = [(name, dict(_SERIES.findall(labels)), value) for (name, _, labels), value in (
            (key.partition("{"), value) for key, value in series.items()
        )]  # fmt: skip

    def of(self, name: str, *labels: str, **where: str) -> dict[Any, float]:
        """The values of a metric by labels: one alone, or a tuple."""
        found = {
            tuple(pairs[label] for label in labels): value
            for each, pairs, value in self._series
            if each == name and where.items() <= pairs.items()
        }
        return {key[0]: value for key, value in found.items()} if len(labels) == 1 else found

    def own(self, name: str, *labels: str, **where: str) -> dict[Any, float]:
        return self.of(f"{OWN}{name}", *labels, **where)

    def number(self, name: str) -> float | None:
        return self.own(name).get(())


class Watched:
    """A cluster with groups and transactions, and what is exported of it."""

    def __init__(
        self, sandbox: Sandbox, pipeline: Pipeline, batches: Batches, clients: Clients, writers: Writers
    ) -> None:
        self.sandbox, self.pipeline, self._batches = sandbox, pipeline, batches
        self.clients, self.writers = clients, writers

    def scraped(self) -> Scraped:
        assert self._batches.errors == []
        return Scraped(self.pipeline.metrics() or {})

    def until(self, holds: Any, what: str, seconds: float = PATIENCE) -> Scraped:
        found: Scraped = self.pipeline.eventually(
            lambda: scraped if holds(scraped := self.scraped()) else None, what, seconds=seconds
        )
        return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    properties = {
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    }
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox(plan_cluster(brokers=3, properties=properties)))
        for topic in ("orders", "old"):
            sandbox.admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        sandbox.admin.create_topic("paid", partitions=2, replication_factor=3)
        writers = Writers(sandbox.bootstrap_servers)
        writers.begin("first", "paid")  # waits for the coordinators
        writers.commit("first")
        pipeline = Pipeline(tmp_path_factory.mktemp("pipeline"))
        stack.callback(pipeline.close)
        config = pipeline.directory / "isrwatch.toml"
        keys = "".join(f'{name}_interval = "{INTERVAL}s"\n' for name in INTERVALS)
        config.write_text(
            f'[cluster]\nname = "sandbox"\nbootstrap_servers = "{sandbox.bootstrap_servers}"\n'
            f'[export]\nstale_after = "{STALE}s"\n[collect]\nheartbeat_interval = "1s"\n{keys}'
        )
        pipeline.collect("--config", str(config))
        pipeline.eventually(lambda: list(pipeline.bus.glob("samples/*")), "there are samples", seconds=PATIENCE)
        batches = Batches(pipeline.bus, pipeline.tables)
        batches.start()
        stack.callback(batches.end)
        pipeline.eventually(lambda: pipeline.rows("partition_state"), "there is state", seconds=PATIENCE)
        pipeline.export("--config", str(config))
        clients = Clients(sandbox.bootstrap_servers)
        stack.callback(clients.close)
        stack.callback(writers.end)
        for topic in ("orders", "old"):
            clients.produce(topic, 20)
        clients.commit("stuck", 12)
        clients.commit("some", 7, partitions=(1, 4))
        clients.commit("losing", 3, topic="old")
        for number in range(PARTITIONS):
            clients.delete_records("old", number, 10)
        yield Watched(sandbox, pipeline, batches, clients, writers)


def test_groups_have_the_series_of_kafka_exporter_and_what_kminion_and_burrow_say(watched: Watched) -> None:
    clients = watched.clients
    members = [clients.join("classic", "one"), clients.join("consumer", "new", "consumer")]
    clients.wait_assigned(members[0])
    clients.wait_assigned(members[1])
    for member in members:
        member.commit(offsets=[TopicPartition("orders", number, 5) for number in range(PARTITIONS)], asynchronous=False)
    groups = {"classic", "consumer", *COMMITTED}
    shown = watched.until(
        lambda shown: (
            set(shown.of("kafka_consumergroup_lag_sum", "consumergroup")) == groups
            and shown.own("group_lost_records", "group").get("losing") == 7 * PARTITIONS
            and shown.of("kafka_consumergroup_members", "consumergroup").items() >= {("classic", 1), ("consumer", 1)}
        ),
        "every group has its lag and its members",
    )
    lag = {"classic": 15, "consumer": 15, "stuck": 8}
    by_partition = {(group, "orders", str(number)): each for group, each in lag.items() for number in range(PARTITIONS)}
    by_partition |= {("some", "orders", number): 13 for number in ("1", "4")}
    by_partition |= {("losing", "old", str(number)): 10 for number in range(PARTITIONS)}
    assert shown.of("kafka_consumergroup_lag", "consumergroup", "topic", "partition") == by_partition
    assert shown.own("group_lag_records", "group", "topic", "partition", cluster="sandbox") == by_partition
    sums = {group: each * PARTITIONS for group, each in lag.items()} | {"some": 26, "losing": 10 * PARTITIONS}
    assert shown.of("kafka_consumergroup_lag_sum", "consumergroup") == sums
    committed = {"classic": 5, "consumer": 5, **COMMITTED}
    offsets = shown.of("kafka_consumergroup_current_offset", "consumergroup", "topic", "partition")
    assert offsets == {key: committed[key[0]] for key in by_partition}
    offset_sums = shown.of("kafka_consumergroup_current_offset_sum", "consumergroup")
    assert offset_sums == {group: each * (2 if group == "some" else PARTITIONS) for group, each in committed.items()}
    counts = dict.fromkeys(groups, 0) | {"classic": 1, "consumer": 1}
    assert shown.of("kafka_consumergroup_members", "consumergroup") == counts
    info = shown.own("group_info", "group", "protocol", "state", "coordinator")
    assert {key[:3] for key in info} == {
        ("classic", "classic", "Stable"),
        ("consumer", "consumer", "Stable"),
        *((group, "classic", "Empty") for group in groups - {"classic", "consumer"}),
    }
    assert {key[3] for key in info} <= BROKERS
    assert {key: value for key, value in shown.own("group_lost_records", "group").items() if value} == {"losing": 42}


def test_offsets_sizes_directories_and_the_quorum_are_there(watched: Watched) -> None:
    shown = watched.until(
        lambda shown: (
            len(shown.own("log_directory_online", "broker")) == 3
            and len(shown.own("quorum_member_voter", "node")) == 4
            and len(shown.own("broker_lagging_replicas", "broker")) == 3
            and shown.own("cluster_feature_level", "feature").get("metadata.version")
            and set(shown.of("kafka_topic_partition_oldest_offset", "partition", topic="old").values()) == {10}
        ),
        "every broker has answered since records were deleted",
    )
    assert shown.of("kafka_brokers") == {(): 3}
    by_number = {str(number): 20 for number in range(PARTITIONS)}
    assert shown.of("kafka_topic_partition_current_offset", "partition", topic="old") == by_number
    assert shown.of("kafka_topic_partition_oldest_offset", "partition", topic="old") == dict.fromkeys(by_number, 10)
    assert shown.own("topic_size_bytes", "topic")["orders"] > 20 * PARTITIONS
    assert shown.own("broker_lagging_replicas", "broker") == dict.fromkeys(BROKERS, 0)
    assert set(shown.own("log_directory_online", "broker").values()) == {1}
    total, usable = (shown.own(f"log_directory_{name}_bytes", "broker") for name in ("total", "usable"))
    assert set(total) == set(usable) == BROKERS
    assert all(0 < usable[broker] < total[broker] for broker in BROKERS)
    assert all(size > 0 for size in shown.own("log_directory_replica_bytes", "broker").values())
    voters = shown.own("quorum_member_voter", "node")
    assert {node for node, voter in voters.items() if not voter} == BROKERS
    assert set(shown.own("quorum_member_lag_records", "node")) == set(voters)
    assert all(0 <= behind < PATIENCE for behind in shown.own("quorum_member_behind_seconds", "node").values())
    assert shown.number("cluster_older_version_brokers") == 0


def test_open_and_late_transactions_are_counted_until_they_end(watched: Watched) -> None:
    watched.writers.begin("open", "paid", timeout_ms=600_000)
    watched.writers.begin("late", "paid", timeout_ms=1_000)
    counts = ("open", "late", "hanging")
    watched.until(
        lambda shown: [shown.number(f"cluster_{name}_transactions") for name in counts] == [2, 1, 0], "both of them"
    )
    for name in ("open", "late"):
        watched.writers.commit(name)
    watched.until(
        lambda shown: [shown.number(f"cluster_{name}_transactions") for name in counts] == [0, 0, 0], "none of them"
    )


def test_weak_settings_and_throttles_left_behind_are_counted_until_they_are_mended(watched: Watched) -> None:
    admin = watched.sandbox.admin
    admin.alter_topic_config(
        "old", {"leader.replication.throttled.replicas": "*", "unclean.leader.election.enable": "true"}
    )
    shown = watched.until(
        lambda shown: (
            shown.number("cluster_left_throttles") == 1
            and shown.own("cluster_weak_topics", "weakness").get("unclean_election") == 1
        ),
        "both are found",
    )
    assert shown.own("topic_left_throttle_info", "topic") == {"old": 1}
    assert shown.own("cluster_weak_topics", "weakness")["min_isr_one"] >= 3
    admin.alter_topic_config(
        "old", {"leader.replication.throttled.replicas": None, "unclean.leader.election.enable": None}
    )
    watched.until(
        lambda shown: (
            shown.number("cluster_left_throttles") == 0
            and shown.own("cluster_weak_topics", "weakness").get("unclean_election") == 0
        ),
        "both are mended",
    )


def test_what_leaves_the_cluster_leaves_the_exposition_within_a_round(watched: Watched) -> None:
    watched.sandbox.admin.create_topic("doomed", partitions=PARTITIONS, replication_factor=3)
    watched.clients.produce("doomed", 20)
    for group, topic in (("doomed", "orders"), ("goes-on", "doomed")):
        watched.clients.commit(group, 2, topic=topic)
    watched.until(
        lambda shown: (
            {"doomed", "goes-on"} <= set(shown.of("kafka_consumergroup_lag_sum", "consumergroup"))
            and "doomed" in shown.own("topic_size_bytes", "topic")
        ),
        "the group and the topic",
    )
    watched.clients.admin.delete_consumer_groups(["doomed"])["doomed"].result(30)
    watched.sandbox.admin.delete_topic("doomed")
    began = time.monotonic()
    watched.until(
        lambda shown: (
            "doomed" not in shown.of("kafka_consumergroup_lag_sum", "consumergroup")
            and "doomed" not in shown.own("group_info", "group")
            and "doomed" not in shown.of("kafka_consumergroup_lag_sum", "topic")
            and "doomed" not in shown.own("topic_size_bytes", "topic")
            and not shown.of("kafka_topic_partition_leader", "topic", topic="doomed")
        ),
        "group and topic are gone",
    )
    assert time.monotonic() - began < ROUND
    watched.clients.admin.delete_consumer_groups(["goes-on"])["goes-on"].result(30)


def test_a_dead_broker_costs_no_series_of_the_others(watched: Watched) -> None:
    def lagging(shown: Scraped) -> set[Any]:
        lag = shown.of("kafka_consumergroup_lag", "consumergroup", "topic", "partition")
        return {key for key in lag if key[0] in COMMITTED}

    everything = 2 * PARTITIONS + 2
    before = watched.until(lambda shown: len(lagging(shown)) == everything, "every group has its lag")
    watched.sandbox.kill(3)
    shown = watched.until(
        lambda shown: (
            shown.of("kafka_brokers") == {(): 2}
            and set(shown.own("broker_lagging_replicas", "broker")) == {"1", "2"}
            and set(shown.own("log_directory_online", "broker")) == {"1", "2"}
        ),
        "it is noticed, and its own samples are too old",
    )
    for name in ("in_sync_replica", "leader", "replicas", "under_replicated_partition", "current_offset"):
        metric = f"kafka_topic_partition_{name}"
        assert shown.of(metric, "topic", "partition").keys() == before.of(metric, "topic", "partition").keys()
    again = watched.until(
        lambda shown: (
            len(lagging(shown)) == everything
            and {key[1] for key in shown.own("group_info", "group", "coordinator")} <= {"1", "2"}
        ),
        "its groups have another coordinator, and its partitions another leader",
    )
    assert lagging(again) == lagging(before)
    watched.sandbox.start(3)
    watched.until(lambda shown: set(shown.own("log_directory_online", "broker")) == BROKERS, "it is back")
