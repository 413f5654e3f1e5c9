"""Series of samples: each is judged by its own age, what left the cluster is gone, a damaged table costs its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.exposition import Exposition
from exporters.metrics.metric import SampledMetric
from exporters.read_model.reader import TablesReader
from streaming.contracts.sample_tables import LOG_DIRECTORIES, QUORUM_MEMBERS, REPLICA_OFFSETS, SAMPLE_TABLES
from streaming.settings import CollectSettings
from tests.exporters.metrics.test_exposition import SECOND, STALE_AFTER, Samples, exposed, names, samples

OF_TABLE = {
    table.name: {each.name for each in CATALOGUE if isinstance(each, SampledMetric) and each.table == table.name}
    for table in SAMPLE_TABLES
}
Values = dict[tuple[str, ...], float]


@pytest.fixture
def common(rows: Any) -> dict[str, Any]:
    return {**rows.owner, "collected_at": rows.start + 30 * SECOND, "source": "samples:collector-1"}


def values(shown: Samples, name: str, *labels: str) -> Values:
    return {
        tuple(dict(pairs)[label] for label in labels): value for (each, pairs), value in shown.items() if each == name
    }


def show(reader: TablesReader, now: int) -> Callable[..., Values]:
    shown = samples(exposed(reader, now))
    return lambda name, *labels: values(shown, name, *labels)


def test_every_table_of_samples_has_series() -> None:
    # Those of broker_metrics have the names that the brokers give them, those of broker_settings follow from both.
    assert {table for table, metrics in OF_TABLE.items() if not metrics} == {"broker_metrics", "broker_settings"}


def test_a_group_that_is_deleted_has_no_series_after_the_next_sample(
    reader: TablesReader, fresh: int, tables: Any, common: Any
) -> None:
    before = samples(exposed(reader, fresh))
    tables.put("groups")
    tables.put("group_offsets")
    after = samples(exposed(reader, fresh))
    assert names(before) - names(after) == OF_TABLE["groups"] | OF_TABLE["group_offsets"]
    tables.put("group_offsets", *(committed(common, topic) for topic in ("orders", "clicks")))
    again = show(reader, fresh)("kafka_consumergroup_lag", "consumergroup", "topic")
    assert again == {("payments", "orders"): 1, ("payments", "clicks"): 1}


def test_of_a_group_that_its_coordinator_is_late_with_the_state_is_shown_and_no_old_lag(
    reader: TablesReader, fresh: int, tables: Any, common: Any
) -> None:
    """Its newest answer lists both; of one it says no offsets, so those of an earlier one are kept, with their time."""
    old = {"collected_at": common["collected_at"] - (STALE_AFTER + 60) * SECOND, "kept_at": common["collected_at"]}
    group = {**common, "group_protocol": "classic", "group_state": "Stable", "members": 2, "coordinator": 1}
    tables.put("groups", {**group, "group": "late", "is_unread": True}, {**group, "group": "payments"})
    tables.put("group_offsets", {**committed(common, "orders"), "group": "late", **old}, committed(common, "orders"))
    shown = show(reader, fresh)
    assert shown("kafka_replication_group_members", "group") == {("late",): 2, ("payments",): 2}
    assert shown("kafka_replication_group_lag_records", "group") == {("payments",): 1}
    assert shown("kafka_replication_broker_unread_groups", "broker") == {("1",): 1}


def test_while_the_lag_of_a_partition_is_unknown_that_of_the_others_is_a_lower_bound(
    reader: TablesReader, fresh: int, tables: Any, common: Any
) -> None:
    stuck = {"lag_seconds": 971.0}, {"lag_seconds": 12.5}, {"lag_seconds": None, "lag": None}
    tables.put(
        "group_offsets",
        *(committed(common, "orders", **more, partition=number) for number, more in enumerate(stuck)),
        committed(common, "clicks", lag_seconds=None),
    )
    shown = show(reader, fresh)
    assert shown("kafka_replication_group_lag_seconds", "group", "topic") == {}
    assert shown("kafka_replication_group_lag_at_least_seconds", "group", "topic") == {("payments", "orders"): 971}


def test_a_group_is_near_the_end_of_what_is_kept_only_where_something_was_deleted(
    reader: TablesReader, fresh: int, tables: Any, common: Any
) -> None:
    kept: tuple[dict[str, Any], ...] = (
        {"log_start_offset": 100, "high_watermark": 200, "lag": 85},
        {"log_start_offset": 0, "high_watermark": 200, "lag": 200},  # nothing was deleted
        {"log_start_offset": 200, "high_watermark": 200, "lag": 0},  # nothing is there
        {"high_watermark": 200, "lag": 0},
    )
    tables.put(
        "group_offsets",
        *(committed(common, "orders", **more, partition=number) for number, more in enumerate(kept)),
        committed(common, "clicks", log_start_offset=100, high_watermark=110, lag=40),
        committed(common, "new", **kept[1]),
    )
    shown = show(reader, fresh)
    assert shown("kafka_replication_group_retention_used_ratio", "topic") == {("orders",): 0.85, ("clicks",): 1}


def committed(common: dict[str, Any], topic: str, **more: Any) -> dict[str, Any]:
    key = {"group": "payments", "topic_id": f"id-of-{topic}", "topic": topic, "partition": 0}
    return {**common, **key, "committed_offset": 5, "lag": 1, "member": "app", **more}


def test_of_a_topic_created_again_the_newer_offset_of_a_group_is_shown_once(
    reader: TablesReader, fresh: int, tables: Any, common: Any
) -> None:
    former = committed(common, "orders", topic_id="former", lag=70, collected_at=common["collected_at"] - SECOND)
    for both in ((former, committed(common, "orders")), (committed(common, "orders"), former)):
        tables.put("group_offsets", *both)
        assert show(reader, fresh)("kafka_consumergroup_lag", "consumergroup") == {("payments",): 1}


def test_a_broker_that_hangs_loses_its_own_samples_once_they_are_stale(
    reader: TablesReader, tables: Any, rows: Any, common: Any
) -> None:
    group = {"group_protocol": "classic", "group_state": "Stable", "members": 1}
    late = common["collected_at"] + 55 * SECOND
    tables.commit(rows.source(late))
    tables.put(
        "groups",
        {**common, **group, "group": "of 1", "coordinator": 1},
        {**common, **group, "group": "of 2", "coordinator": 2, "collected_at": late},
    )
    last = common["collected_at"] + int(STALE_AFTER * SECOND)
    assert set(show(reader, last)("kafka_replication_group_members", "group")) == {("of 1",), ("of 2",)}
    assert set(show(reader, last + 1)("kafka_replication_group_members", "group")) == {("of 2",)}


def test_samples_are_shown_while_the_partitions_are_stale(
    reader: TablesReader, fresh: int, tables: Any, common: Any
) -> None:
    now = fresh + 100 * SECOND
    tables.put("group_offsets", {**committed(common, "orders"), "collected_at": now})
    shown = names(samples(exposed(reader, now)))
    assert "kafka_consumergroup_lag" in shown
    assert not shown & {"kafka_topic_partition_leader", "kafka_consumergroup_members"}


def test_a_sample_stays_for_two_of_its_intervals_if_that_is_longer(still: TablesReader, rows: Any) -> None:
    at = rows.start + 28 * SECOND
    slow = Exposition(STALE_AFTER, CollectSettings(groups_interval=50.0))
    moments = {
        seconds: names(samples(exposed(still, at + seconds * SECOND, exposition=slow))) for seconds in (100, 101)
    }
    assert [OF_TABLE["groups"] <= moments[seconds] for seconds in (100, 101)] == [True, False]
    assert not OF_TABLE["quorum_members"] & moments[100]
    assert "kafka_replication_newest_sample_age_seconds" in moments[101], "ages stay"


def test_no_open_transaction_is_0_only_while_somebody_looks(
    reader: TablesReader, fresh: int, tables: Any, common: Any
) -> None:
    counts = [f"kafka_replication_cluster_{name}_transactions" for name in ("open", "late", "hanging")]
    before = show(reader, fresh)
    assert [before(name, "cluster") for name in counts] == [{("main",): 2}, {("main",): 1}, {("main",): 1}]
    tables.put("transactions")
    none = show(reader, fresh)
    assert [none(name, "cluster") for name in counts] == [{("main",): 0}] * 3
    for table in (LOG_DIRECTORIES, QUORUM_MEMBERS):
        tables.put(table.name)
    assert [show(reader, fresh)(name, "cluster") for name in counts] == [{}] * 3
    tables.put("log_directories", {**common, "broker": 1, "log_dir": "/data", "is_online": True})
    assert [show(reader, fresh)(name, "cluster") for name in counts] == [{("main",): 0}] * 3


def test_a_follower_that_only_lacks_the_newest_record_is_not_behind(
    reader: TablesReader, fresh: int, tables: Any, rows: Any
) -> None:
    assert set(show(reader, fresh)("kafka_replication_replica_lag_records", "topic", "partition", "broker")) == {
        ("orders", "1", "3")
    }
    gone = rows.state([1, 2, 3], [], -1, is_deleted=True)
    tables.commit(*(rows.partition("orders", number, gone) for number in (0, 1)), rows.source(fresh))
    shown = show(reader, fresh)
    assert shown("kafka_replication_replica_lag_records", "topic") == {}, "with its topic its lag is gone"
    assert shown("kafka_replication_topic_size_bytes", "topic") == {}
    assert shown("kafka_replication_broker_lagging_replicas", "broker") == {(str(number),): 0 for number in (1, 2, 3)}


def test_a_throttle_is_left_behind_only_while_nothing_is_reassigned(
    reader: TablesReader, fresh: int, tables: Any, rows: Any
) -> None:
    left = show(reader, fresh)
    assert left("kafka_replication_cluster_left_throttles", "cluster") == {("main",): 2}
    assert left("kafka_replication_topic_left_throttle_info", "topic") == {("orders",): 1}
    moving = rows.state([1, 2, 3], [1, 2, 3], 1, adding_replicas=[3])
    tables.commit(rows.partition("orders", 0, moving), rows.source(fresh))
    none = show(reader, fresh)
    assert none("kafka_replication_cluster_left_throttles", "cluster") == {("main",): 0}
    assert none("kafka_replication_topic_left_throttle_info", "topic") == {}
    tables.put("broker_settings")
    assert show(reader, fresh)("kafka_replication_cluster_left_throttles", "cluster") == {}


def test_throttles_are_unknown_without_the_settings_of_topics(reader: TablesReader, fresh: int, tables: Any) -> None:
    tables.put("topic_settings")
    assert not OF_TABLE["topic_settings"] & names(samples(exposed(reader, fresh)))


@pytest.mark.parametrize(
    "table", [table for table in SAMPLE_TABLES if OF_TABLE[table.name]], ids=lambda each: each.name
)
def test_a_table_that_cannot_be_read_costs_its_own_series(reader: TablesReader, fresh: int, table: Any) -> None:
    before = names(samples(exposed(reader, fresh)))
    shutil.rmtree(reader.tables / table.name)
    lost = before - names(samples(exposed(reader, fresh)))
    offsets = {f"kafka_topic_partition_{name}_offset" for name in ("current", "oldest")}
    assert lost == OF_TABLE[table.name] | (offsets if table is REPLICA_OFFSETS else set())
    errors = {status.table for status in reader.statuses if status.error is not None}
    assert errors == {table.name}
