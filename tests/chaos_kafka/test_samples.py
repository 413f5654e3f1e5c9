"""The comparison of samples accepts what Kafka says, aged rows of the dead, and nothing else. Pure."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos_kafka.answers import Answers, Directory, Group, Offsets, Placed, Quorum, Settings, Transaction
from tests.chaos_kafka.samples import at, lacks_hanging, sample_differences

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos_kafka.compare import Row

    Tables = dict[str, list[Row]]

SINCE = at(1_000)
LATER, EARLIER = SINCE + timedelta(seconds=2), SINCE - timedelta(seconds=9)
ANSWERS = Answers(
    brokers=frozenset({1, 2}),
    topic_ids={"orders": "id"},
    partitions={
        ("orders", 0): Placed(1, (1, 2, 3), frozenset({1, 2})),
        ("orders", 1): Placed(2, (2, 1), frozenset({1, 2})),
    },
    offsets={("orders", 0): Offsets(2, 9, 7), ("orders", 1): Offsets(0, 4, 4)},
    directories={
        (1, "/a"): Directory(True, {("orders", 0): 90, ("orders", 1): 40}, 130),
        (2, "/a"): Directory(False, {}, 0),
    },
    groups={"g": Group("classic", "Stable", 1, 2, "range")},
    committed={("g", "orders", 0): 1, ("g", "orders", 1): 3},
    quorum=Quorum(101, 5, frozenset({101}), frozenset({1, 2})),
    transactions={(7, 0): Transaction("open", "Ongoing", 60_000, 5_000, frozenset({"orders-0"}), 1)},
    settings={"orders": Settings(2, False, "delete", 2, 2)},
)


def replica(number: int, broker: int, **positions: Any) -> Row:
    names = ("log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset", "leader_log_end_offset")
    none = dict.fromkeys((*names, "lag", "behind_since", "size_bytes", "log_dir"))
    key = {"topic_id": "id", "topic": "orders", "partition": number, "broker": broker}
    return {**none, **key, "collected_at": LATER, **positions}


def right() -> Tables:
    """The tables that have what Kafka says."""
    whole = {"log_end_offset": 4, "leader_log_end_offset": 4, "lag": 0}
    place = {"log_dir": "/a"}
    key = {"group": "g", "topic_id": "id", "topic": "orders", "group_state": "Stable", "members": 1, "coordinator": 2}
    return {
        "replica_offsets": [
            replica(0, 1, log_start_offset=2, high_watermark=9, last_stable_offset=7, size_bytes=90, **place),
            replica(0, 2),
            replica(0, 3, collected_at=EARLIER),
            replica(1, 1, size_bytes=40, **place, **whole),
            replica(1, 2, log_start_offset=0, high_watermark=4, last_stable_offset=4, **whole),
        ],
        "log_directories": [
            {"broker": 1, "log_dir": "/a", "is_online": True, "hosted_replicas": 2, "replica_bytes": 130},
            {"broker": 2, "log_dir": "/a", "is_online": False, "hosted_replicas": None, "replica_bytes": None},
        ],
        "groups": [
            {"group": "g", "group_protocol": "classic", "group_state": "Stable", "members": 1, "coordinator": 2,
             "assignor": "range"},
            {"group": "of the dead", "coordinator": 3, "collected_at": EARLIER},
        ],
        "group_offsets": [
            {**key, "partition": 0, "committed_offset": 1, "log_start_offset": 2, "high_watermark": 9,
             "last_stable_offset": 7, "lag": 7, "stable_lag": 5, "records_lost": 1},
            {**key, "partition": 1, "committed_offset": 3, "log_start_offset": 0, "high_watermark": 4,
             "last_stable_offset": 4, "lag": 1, "stable_lag": 1, "records_lost": 0},
            {**key, "partition": 2, "committed_offset": None},
        ],
        "transactions": [
            {"producer_id": 7, "producer_epoch": 0, "transactional_id": "open", "transaction_state": "Ongoing",
             "timeout_ms": 60_000, "started_at": at(5), "transaction_partitions": ["orders-0"], "coordinator": 1,
             "is_hanging": False, "reporter": 1},
            {"producer_id": 8, "producer_epoch": 0, "is_hanging": True, "transaction_partitions": [], "reporter": 2},
        ],
        "quorum_members": [
            {"node": node, "is_voter": node == 101, "controller": 101, "controller_epoch": 5} for node in (101, 1, 2)
        ],
        "topic_settings": [
            {"topic_id": "id", "topic": "orders", "min_isr": 2, "allows_unclean_election": False,
             "cleanup_policy": "delete", "partition_count": 2, "replication_factor": 2, "source": "samples:a"},
        ],
    }  # fmt: skip


def differences(tables: Tables) -> list[str]:
    filled = {name: [{"collected_at": LATER, **row} for row in rows] for name, rows in tables.items()}
    return [each.text for each in sample_differences(ANSWERS, filled, SINCE, hanging=[8])]


def test_tables_that_have_what_kafka_says_are_accepted() -> None:
    assert differences(right()) == []


def changed(table: str, number: int, **columns: Any) -> Callable[[Tables], None]:
    return lambda tables: tables[table][number].update(columns)


def added(table: str, **columns: Any) -> Callable[[Tables], None]:
    return lambda tables: tables[table].append({**tables[table][0], **columns})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed("replica_offsets", 0, high_watermark=8), "high_watermark"),
        (changed("replica_offsets", 1, high_watermark=9), "high_watermark"),
        (changed("replica_offsets", 3, lag=1), "lag"),
        (changed("replica_offsets", 3, size_bytes=41), "size_bytes"),
        (changed("replica_offsets", 4, collected_at=EARLIER), "before"),
        (lambda tables: tables["replica_offsets"].pop(1), "lacks"),
        (changed("replica_offsets", 2, collected_at=LATER), "there is no"),
        (changed("replica_offsets", 2, collected_at=SINCE - timedelta(seconds=90)), "there is no"),
        (changed("log_directories", 0, hosted_replicas=3), "hosted_replicas"),
        (changed("log_directories", 1, is_online=True), "is_online"),
        (changed("groups", 0, group_state="Empty"), "Empty"),
        (changed("groups", 1, coordinator=1), "there is no"),
        (changed("group_offsets", 1, committed_offset=4), "committed_offset"),
        (changed("group_offsets", 1, lag=None), "lag"),
        (changed("group_offsets", 2, committed_offset=4), "there is no"),
        (changed("transactions", 0, transaction_partitions=[]), "transaction_partitions"),
        (added("transactions", producer_id=9), "there is no"),
        (changed("transactions", 1, producer_id=9), "does not hang"),
        (changed("quorum_members", 1, is_voter=True), "is_voter"),
        (added("quorum_members", node=3), "there is no"),
        (changed("topic_settings", 0, min_isr=1), "min_isr"),
        (added("topic_settings", topic_id="old", collected_at=EARLIER), "there is no"),
    ],
)
def test_each_wrong_row_is_a_difference(change: Callable[[Tables], None], says: str) -> None:
    tables = copy.deepcopy(right())
    change(tables)
    (text,) = differences(tables)
    assert says in text


def test_a_transaction_that_hangs_has_to_be_said() -> None:
    rows = right()["transactions"]
    assert [*lacks_hanging(rows, [8])] == []
    assert [*lacks_hanging(rows[:1], [8])] == ["transactions: that of producer 8 hangs, and no row says it"]
