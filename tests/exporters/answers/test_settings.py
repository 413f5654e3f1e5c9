"""Settings: what is wrong, in words, worst first; and what fails with internal topics."""

from __future__ import annotations

import time
from typing import Any

import pytest

from streaming.contracts.identifiers import partition_for
from tests.exporters.answers.asked import objects, state
from tests.exporters.conftest import Rows, Tables

OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
DURABLE = {"min_isr": 2, "allows_unclean_election": False, "cleanup_policy": "delete", "replication_factor": 3}


class Sampled:
    """Writes a cluster of three brokers in two racks, and samples of its settings."""

    def __init__(self, tables: Tables, rows: Rows) -> None:
        self.tables, self.rows, self.now = tables, rows, time.time_ns() // 1_000
        self.partitions: list[dict[str, Any]] = []
        self.topics: list[dict[str, Any]] = []

    def topic(self, topic: str, replicas: list[int], *, adding: list[int] | None = None, **settings: Any) -> None:
        state = self.rows.state(replicas, replicas, replicas[0], adding_replicas=adding or [])
        self.partitions.append(self.rows.partition(topic, 0, state, self.now))
        told = {"topic_id": f"id-of-{topic}", "topic": topic, "partition_count": 1}
        self.topics.append(self._sample(**{**told, **DURABLE, **settings}))

    def broker(self, broker: int, leader: int | None = None, follower: int | None = None) -> dict[str, Any]:
        return self._sample(broker=broker, leader_throttled_rate=leader, follower_throttled_rate=follower)

    def feature(self, broker: int, feature: str, supported: int, finalized: int) -> dict[str, Any]:
        return self._sample(broker=broker, feature=feature, supported_level=supported, finalized_level=finalized)

    def write(self, brokers: list[dict[str, Any]], features: list[dict[str, Any]], **cluster: Any) -> None:
        racks = {1: "a", 2: "a", 3: "b"}
        self.tables.commit(
            self.rows.cluster_row(self.now, **cluster),
            *(self.rows.broker(number, self.now, rack=rack) for number, rack in racks.items()),
            *self.partitions,
            self.rows.source(self.now),
        )
        self.tables.put("topic_settings", *self.topics)
        self.tables.put("broker_settings", *brokers)
        self.tables.put("broker_features", *features)

    def _sample(self, **columns: Any) -> dict[str, Any]:
        return {**self.rows.owner, "collected_at": self.now - 7_000_000, "source": "samples:t", **columns}


@pytest.fixture
def sampled(tables: Tables, rows: Rows) -> Sampled:
    return Sampled(tables, rows)


def test_topics_that_are_not_durable_are_listed_worst_first_with_the_fix(sampled: Sampled) -> None:
    sampled.topic("durable", [1, 2, 3])
    sampled.topic("alone", [1, 2, 3], min_isr=1)
    sampled.topic("one", [2], min_isr=1)
    sampled.topic("strict", [1, 3], min_isr=2)
    sampled.topic("unclean", [1, 2, 3], allows_unclean_election=True)
    sampled.topic("above", [1, 2, 3], min_isr=4)
    sampled.topic("rack", [1, 2], min_isr=None)
    sampled.topic("moving", [3, 1], adding=[1], min_isr=1)
    sampled.topic("deleted since", [1], min_isr=1, leader_throttled_replicas="*")
    sampled.partitions.pop()
    sampled.write([], [])
    found = objects(sampled.tables.directory, "settings")
    assert [(row["topic"], row["finding"]) for row in found] == [
        ("above", "min_isr_above_replication_factor"),
        ("moving", "one_replica"),
        ("one", "one_replica"),
        ("unclean", "unclean_election"),
        ("alone", "min_isr_one"),
        ("strict", "no_replica_to_spare"),
        ("rack", "one_rack"),
    ]
    assert [row["fix"] for row in found if row["topic"] == "alone"] == ["set min.insync.replicas=2"]
    assert all(7 <= row["sample_age_seconds"] < 60 for row in found)
    (line,) = [line for line in state(sampled.tables.directory, "settings").splitlines() if line.startswith("alone")]
    assert line == (
        "alone  min.insync.replicas 1: an acknowledged record may be on one broker alone  set min.insync.replicas=2"
    )
    assert [row["topic"] for row in objects(sampled.tables.directory, "settings", subject="un*")] == ["unclean"]


def test_of_a_diskless_topic_nothing_is_said(sampled: Sampled) -> None:
    sampled.topic("diskless", [1], min_isr=1)
    sampled.partitions[0]["after"]["is_diskless"] = True
    sampled.write([], [])
    assert objects(sampled.tables.directory, "settings") == []
    assert state(sampled.tables.directory, "settings").splitlines()[-1] == "nothing is wrong with the settings"


def test_throttles_are_left_behind_when_nothing_is_being_reassigned(sampled: Sampled) -> None:
    sampled.topic("held", [1, 2, 3], leader_throttled_replicas="0:1", follower_throttled_replicas="*")
    sampled.topic("listed", [1, 2, 3], leader_throttled_replicas="0:2", follower_throttled_replicas="")
    sampled.write([sampled.broker(1, leader=1000), sampled.broker(2, follower=5), sampled.broker(3)], [])
    found = objects(sampled.tables.directory, "settings")
    assert [(row["subject"], row["topic"], row["broker"], row["finding"]) for row in found] == [
        ("held", "held", None, "throttle_left_behind"),
        ("listed", "listed", None, "throttle_left_behind"),
        ("broker 1", None, 1, "throttle_left_behind"),
        ("broker 2", None, 2, "throttle_left_behind"),
    ]
    assert [row["reason"] for row in found] == [
        "brokers 1, 2 limit its replication, though nothing is being reassigned",
        "it lists throttled replicas, which no broker limits, though nothing is being reassigned",
        "it limits the replication of topic held, though nothing is being reassigned",
        "it limits the replication of topic held, though nothing is being reassigned",
    ]
    sampled.topic("moving", [3, 1, 2], adding=[2], min_isr=1)
    sampled.write([sampled.broker(1, leader=1000)], [])
    assert [(row["topic"], row["finding"]) for row in objects(sampled.tables.directory, "settings")] == [
        ("moving", "min_isr_one")
    ]


def test_mixed_versions_and_an_upgrade_that_was_not_finished_are_found(sampled: Sampled) -> None:
    metadata = "metadata.version"
    sampled.topic("orders", [1, 2, 3])
    sampled.write([], [sampled.feature(1, metadata, 30, 27), sampled.feature(2, metadata, 27, 27)])
    (found,) = objects(sampled.tables.directory, "settings")
    assert (found["subject"], found["finding"]) == ("cluster", "mixed_versions")
    assert found["reason"] == "broker 2 runs an older version than others (metadata.version)"
    # A feature that one broker does not have at all is one that it does not support.
    upgraded = [sampled.feature(broker, metadata, 30, 27) for broker in (1, 2)]
    sampled.write([], [*upgraded, sampled.feature(1, "kraft.version", 1, 0)])
    found, unfinished = objects(sampled.tables.directory, "settings")
    assert found["reason"] == "broker 2 runs an older version than others (kraft.version)"
    assert (unfinished["finding"], unfinished["reason"]) == (
        "unfinished_upgrade", "every broker supports metadata.version 30, the cluster uses 27",
    )  # fmt: skip


def test_a_registration_that_blocks_the_upgrade_is_named_with_what_unblocks_it(sampled: Sampled) -> None:
    sampled.topic("orders", [1, 2, 3])
    upgraded = [sampled.feature(broker, "metadata.version", 30, 21) for broker in (1, 2, 3)]
    controllers = {"registered_controllers": [101, 102], "registered_levels": [30, 21], "quorum_voters": [101]}
    sampled.write([], upgraded, **controllers)
    (found,) = objects(sampled.tables.directory, "settings")
    assert found["reason"] == (
        "every broker supports metadata.version 30, the cluster uses 21; the registration of controller 102, which is "
        "no voter (supports 21) blocks the upgrade"
    )
    assert found["fix"].startswith("start a controller of the new version with the id 102 once, as an observer, so")
    assert found["fix"].endswith("; then kafka-features upgrade, once it is not to go back")


def test_without_samples_a_sentence_says_so(sampled: Sampled) -> None:
    sampled.tables.commit(sampled.rows.cluster_row(sampled.now), sampled.rows.source(sampled.now))
    (line,) = state(sampled.tables.directory, "settings").splitlines()
    assert line.startswith("no samples of settings of cluster main: ")


def put_groups(tables: Tables, sample: dict[str, Any], partition: int, committing: str) -> None:
    """Write a group that has committed, one that has not, and a query of Spark: by name all of one partition."""
    without_commits, of_spark = (
        next(name for name in map(names.format, range(9)) if partition_for(name, 2) == partition)
        for names in ("new-{}", "spark-{}")
    )
    described = {"group_protocol": "classic", "group_state": "Stable", "coordinator": 1}
    tables.put(
        "groups",
        *({**sample, **described, "group": group} for group in (committing, without_commits)),
        {**sample, **described, "group": of_spark, "group_protocol": "spark", "coordinator": -1},
    )


def test_partitions_of_internal_topics_say_what_fails_and_how_many_it_concerns(tables: Tables, rows: Rows) -> None:
    groups = [f"group-{number}" for number in range(40)]
    partition = partition_for("group-7", 2)
    concerned = sum(partition_for(group, 2) == partition for group in groups)
    short = rows.state([1, 2, 3], [1], 1)
    gone = rows.state([1, 2, 3], [], -1)
    healthy = rows.state([1, 2, 3], [1, 2, 3], 1)
    now = tables.observe(
        rows,
        *(rows.partition(OFFSETS, number, short if number == partition else healthy) for number in (0, 1)),
        *(rows.partition(topic, 0, gone) for topic in (STATE, "connect-offsets", "orders")),
        rows.partition("app-store-changelog", 0, rows.state([1, 2, 3], [1, 2], 1)),
    )
    sample = {**rows.owner, "collected_at": now, "source": "samples:t"}
    of_orders = {"topic_id": "id-of-orders", "topic": "orders"}
    tables.put(
        "group_offsets",
        *({**sample, **of_orders, "group": group, "partition": number} for group in groups for number in (0, 1)),
        {**sample, **of_orders, "group": "of-another-cluster", "partition": 0, "cluster_id": "other"},
    )
    put_groups(tables, sample, partition, groups[0])
    assert {row["topic"]: row["consequence"] for row in objects(tables.directory)} == {
        OFFSETS: f"commits and rebalances of {concerned + 1} groups fail",
        STATE: "transactions of the transactional ids kept there fail",
        "connect-offsets": "commits of source connectors fail (a guess by its name)",
        "app-store-changelog": None,
        "orders": None,
    }
    assert 0 < concerned < len(groups)
    transaction = {"producer_epoch": 1, "transaction_state": "Ongoing", "is_hanging": False}
    transaction["transaction_partitions"] = []
    tables.put(
        "transactions",
        {**sample, **transaction, "producer_id": 1, "transactional_id": "payments"},
        {**sample, **transaction, "producer_id": 2, "transactional_id": None},
    )
    lines = [line for line in state(tables.directory).splitlines() if "transactional ids" in line]
    assert lines == [f"{STATE}-0 offline: transactions of the transactional ids kept there (1 open) fail"]
    # Of an earlier state there are no samples, so nobody is counted.
    (then,) = [row["consequence"] for row in objects(tables.directory, at="1") if row["topic"] == OFFSETS]
    assert then == "commits and rebalances of the groups kept there fail"


def test_brokers_that_disagree_are_named_with_what_counts(sampled: Sampled) -> None:
    sampled.topic("orders", [1, 2, 3], min_isr=None)
    times = {"replica_lag_time_max_ms": 30_000, "broker_session_timeout_ms": 9_000, "allows_unclean_election": False}
    sampled.write(
        [{**sampled.broker(number), **times, "min_isr": least} for number, least in ((1, 1), (2, 2), (3, 2))], []
    )
    found = objects(sampled.tables.directory, "settings")
    (row,) = (row for row in found if row["finding"] == "brokers_disagree")
    assert row["subject"] == "cluster"
    assert row["reason"] == (
        "brokers disagree on min.insync.replicas: 1 on broker 1, 2 on brokers 2 and 3; "
        "of a topic that does not set it, that of each leader counts"
    )
    assert row["fix"] == "set min.insync.replicas alike on every node"
