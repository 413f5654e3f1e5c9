"""Answers from samples, and what is moved: what is wrong first, unknown is "?"."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from exporters.answers.subjects import SUBJECTS
from exporters.read_model.reader import micros_now
from exporters.read_model.times import Clock
from exporters.terminal.output import RowFormat
from streaming.contracts.sample_tables import LOG_DIRECTORIES, QUORUM_MEMBERS, TRANSACTIONS
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log.definitions import create_or_upgrade
from tests.exporters.answers.asked import asked, objects, printed, refusal, state
from tests.exporters.conftest import SECOND, Rows, Tables
from tests.test_names import ODD, visible

GIB = 1024**3
ORDER_TABLES = [("directories", LOG_DIRECTORIES), ("quorum", QUORUM_MEMBERS), ("transactions", TRANSACTIONS)]


@pytest.fixture
def sampled(tables: Tables, rows: Rows) -> Path:
    """Directories, quorum and transactions of one cluster, and a directory of another."""
    now = tables.observe(rows)
    common = {**rows.owner, "collected_at": now - 5 * SECOND, "source": "samples:collector-1"}
    directory = {**common, "broker": 1, "is_online": True, "hosted_replicas": 1_234, "replica_bytes": 40 * GIB}
    full = {**directory, "seconds_until_full": 7_200.0}
    gone = {**directory, "cluster_id": "gone", "cluster": "gone", "log_dir": "/gone"}
    tables.put(
        "log_directories",
        {**directory, "log_dir": "/var/lib/kafka/data-0", "total_bytes": 100 * GIB, "usable_bytes": 80 * GIB},
        {**full, "log_dir": "/var/lib/kafka/data-1", "total_bytes": 100 * GIB, "usable_bytes": 5 * GIB},
        {**directory, "broker": 2, "log_dir": "/var/lib/kafka/data-0", "is_online": False, "replica_bytes": 0},
        {**directory, "broker": 3, "log_dir": "/var/lib/kafka/data-0"},
        gone,
    )
    at_leader = now - 60 * SECOND  # its clock is a minute late
    member = {**common, "is_voter": True, "controller": 101, "controller_epoch": 4, "high_watermark": 1_000_090}
    known = {"last_fetch_at": at_leader, "last_caught_up_at": at_leader, "log_end_offset": 1_000_095}
    tables.put(
        "quorum_members",
        {**member, "node": 1, "is_voter": False, "log_end_offset": 1_000_090, "last_caught_up_at": at_leader - SECOND},
        {**member, "node": 102},
        {**member, **known, "node": 101},
        {**member, **known, "node": 100, "log_end_offset": 95, "last_caught_up_at": at_leader - 90 * SECOND},
    )
    transaction = {
        **common, "transactional_id": "payments-settlement-eu-west-1-0_17", "producer_epoch": 3, "coordinator": 2,
        "transaction_state": "Ongoing", "timeout_ms": 60_000, "is_hanging": False,
    }  # fmt: skip
    many = [f"orders-{number}" for number in range(50)]
    unknown = {**dict.fromkeys(("transactional_id", "coordinator", "timeout_ms")), "transaction_state": "Unknown"}
    hanging = {**transaction, **unknown, "is_hanging": True, "transaction_partitions": ["clicks-by-user-3"]}
    tables.put(
        "transactions",
        {**transaction, "producer_id": 7, "started_at": now - 15 * SECOND, "transaction_partitions": many},
        {**transaction, "producer_id": 8, "started_at": now - 95 * SECOND, "transaction_partitions": ["orders-0"]},
        {**hanging, "producer_id": 4_000_000_123},
    )
    return tables.directory


def test_directories_that_are_offline_come_first_then_the_fullest(sampled: Path) -> None:
    rows = objects(sampled, "directories")
    assert [(row["broker"], row["log_dir"][-1], row["is_online"], row["used_percent"]) for row in rows] == [
        (2, "0", False, None), (1, "1", True, 95.0), (1, "0", True, 20.0), (3, "0", True, None),
    ]  # fmt: skip
    assert all(5 <= row["sample_age_seconds"] < 600 for row in rows)
    line = state(sampled, "directories").splitlines()[1]
    assert line.startswith("1  /var/lib/kafka/data-1  online  1,234  40.0 GiB  5.0 GiB  100.0 GiB  95 %  2h0m  ")
    assert "?  ?  ?" in state(sampled, "directories").splitlines()[0]


def test_the_quorum_has_each_members_lag_by_its_leaders_clock(sampled: Path) -> None:
    rows = objects(sampled, "quorum")
    assert [(row["node"], row["role"], row["lag"], row["behind_seconds"]) for row in rows] == [
        (101, "leader", 0, 0.0), (100, "voter", 1_000_000, 90.0), (102, "voter", None, None), (1, "observer", 5, 1.0),
    ]  # fmt: skip
    assert state(sampled, "quorum").splitlines()[1].startswith("100  voter  4  95  1,000,000  1m30s  1,000,090  ")


def test_directories_that_get_no_new_replicas_are_marked_and_said_by_broker(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows)
    directory = {**rows.owner, "collected_at": now, "source": "s", "is_online": True, "is_cordoned": True}
    tables.put(
        "log_directories",
        {**directory, "broker": 1, "log_dir": "/a"},
        {**directory, "broker": 1, "log_dir": "/b", "is_cordoned": False},
        {**directory, "broker": 2, "log_dir": "/a"},
        {**directory, "broker": 2, "log_dir": "/b", "is_online": False, "is_cordoned": None},
        {**directory, "broker": 3, "log_dir": "/a", "is_cordoned": None},
    )
    shown = {(row["broker"], row["log_dir"]): row["is_cordoned"] for row in objects(tables.directory, "directories")}
    assert shown == {(1, "/a"): True, (1, "/b"): False, (2, "/a"): True, (2, "/b"): None, (3, "/a"): None}
    said = " ".join(state(tables.directory, "directories").split())
    assert said.count("online, cordoned") == 2
    assert "broker 1 puts no new replica into /a: the others get them" in said
    assert "broker 2 puts no new replica into any log directory: it gets none, also by a reassignment" in said
    assert "broker 3 puts" not in said


def test_a_voter_whose_directory_is_gone_and_twins_are_named_below_all_members_of_the_quorum(
    tables: Tables, rows: Rows
) -> None:
    now = tables.observe(rows)
    member = {
        **rows.owner, "controller": 101, "log_end_offset": 7, "collected_at": now, "source": "s", "is_voter": True,
        "last_caught_up_at": now,
    }  # fmt: skip
    tables.put(
        "quorum_members",
        {**member, "node": 101, "directory_id": "a"},
        {**member, "node": 102, "directory_id": "gone", "last_caught_up_at": now - 50_000_000},
        {**member, "node": 102, "directory_id": "new", "is_voter": False},
        *({**member, "node": 3, "directory_id": each, "is_voter": False} for each in ("twin", "own")),
    )
    shown = [(row["node"], row["role"], row["directory_id"]) for row in objects(tables.directory, "quorum")]
    assert shown[:2] == [(101, "leader", "a"), (102, "voter", "gone")]
    assert sorted(shown[2:]) == [(3, "observer", "own"), (3, "observer", "twin"), (102, "observer", "new")]
    said = " ".join(state(tables.directory, "quorum").split())
    assert "the directory gone of voter 102 is gone: it runs with new, as an observer" in said
    assert "remove-controller --controller-id 102 --controller-directory-id gone;" in said
    twins = "two processes run with node.id 3: with directory own as an observer, with directory twin as an observer"
    assert twins in said


@pytest.mark.parametrize(("of", "what"), [("quorum", "the metadata quorum"), ("transactions", "transactions")])
def test_samples_that_are_old_say_so(sampled: Path, of: str, what: str) -> None:
    assert "newest samples" not in state(sampled, of)
    said = state(sampled, of, now=micros_now() + 86_400 * SECOND)
    assert f"the newest samples of {what} are 1d0h old" in said.splitlines()


def test_old_samples_in_which_nothing_was_wrong_are_old_and_not_missing(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.broker(1), rows.partition("orders", 0, rows.state([1], [1], 1)))
    common = {**rows.owner, "collected_at": now, "source": "samples:1"}
    tables.put(
        "replica_offsets", {**common, "topic_id": "id-of-orders", "topic": "orders", "partition": 0, "broker": 1}
    )
    tables.put("quorum_members", {**common, "node": 1, "is_voter": True, "controller": 1})
    for of in ("replicas", "transactions"):
        assert "newest samples" not in state(tables.directory, of)
        said = state(tables.directory, of, now=now + 86_400 * SECOND)
        assert said == f"the newest samples of {of} are 1d0h old\n", "not that there are none"


def test_without_a_sample_of_the_leader_no_lag_is_known(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows)
    member = {**rows.owner, "node": 1, "is_voter": True, "log_end_offset": 7, "collected_at": now, "source": "s"}
    tables.put("quorum_members", {**member, "controller": 2, "last_caught_up_at": now})
    (row,) = objects(tables.directory, "quorum")
    assert (row["role"], row["lag"], row["behind_seconds"]) == ("voter", None, None)


def test_a_group_is_behind_for_as_long_as_its_worst_partition_and_unknown_if_one_is(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows)
    partitions = {
        "read": [(0, 0.0), (0, 0.0)],
        "slow": [(700, 12.5), (7, 3_725.0), (0, 0.0)],
        "older": [(700, 12.5), (7, None)],
        "assigned": [(None, None)],
        "unread": [(700, 971.0), (None, None), (None, None)],
    }
    common = {**rows.owner, "collected_at": now, "source": "s", "topic_id": "t", "topic": "orders", "coordinator": 1}
    tables.put(
        "group_offsets",
        *(
            {**common, "group": group, "partition": number, "lag": lag, "lag_seconds": seconds, "group_state": "Stable"}
            for group, lags in partitions.items()
            for number, (lag, seconds) in enumerate(lags)
        ),
    )
    names = ("lag", "lag_seconds", "lag_seconds_at_least")
    lags = {row["group"]: tuple(row[name] for name in names) for row in objects(tables.directory, "groups")}
    assert lags == {
        "read": (0, 0.0, 0.0),
        "slow": (707, 3_725.0, 3_725.0),
        "older": (707, None, 12.5),
        "assigned": (None, None, None),
        "unread": (None, None, 971.0),
    }
    shown = [line.split("  ") for line in state(tables.directory, "groups").splitlines()]
    behind = {"read": "0.0s", "slow": "1h2m", "older": ">= 12.5s", "assigned": "?", "unread": ">= 16m11s"}
    shown = [line for line in shown if len(line) > 1]
    assert {line[0]: line[5] for line in shown} == behind
    unknown = {"assigned": "unknown of 1 partition", "unread": "unknown of 2 partitions"}
    assert {line[0]: line[4] for line in shown if "unknown" in line[4]} == unknown


def test_transactions_that_hang_come_first_then_those_that_are_late(sampled: Path) -> None:
    rows = objects(sampled, "transactions")
    assert [(row["producer_id"], row["is_hanging"], row["is_late"], row["open_seconds"]) for row in rows] == [
        (4_000_000_123, True, None, None),
        (8, False, True, 90.0),
        (7, False, False, 10.0),
    ]
    lines = [line.split("  ") for line in state(sampled, "transactions").splitlines()]
    late = ["payments-settlement-eu-west-1-0_17", "8/3", "late, Ongoing", "1m30s", "1m0s", "2", "orders-0"]
    assert [line[:7] for line in lines] == [
        ["?", "4000000123/3", "hanging", "?", "?", "?", "clicks-by-user-3"],
        late,
        [late[0], "7/3", "Ongoing", "10.0s", "1m0s", "2", "orders-0,orders-1,orders-2 and 47 more"],
    ]
    assert len(rows[-1]["transaction_partitions"]) == 50, "for programs all of them"


def test_transactions_of_one_topic_are_those_with_a_partition_of_it(tables: Tables, sampled: Path, rows: Rows) -> None:
    healthy = rows.state([1, 2, 3], [1, 2, 3], 1)
    tables.commit(*(rows.partition(topic, 0, healthy) for topic in ("clicks-by-user", "orders")))
    assert [row["producer_id"] for row in objects(sampled, "transactions", topic="clicks-*")] == [4_000_000_123]


def test_metrics_of_brokers_stand_beside_each_other(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows)
    assert "they need an agent in collect.broker_metrics" in state(tables.directory, "metrics")
    common = {**rows.owner, "collected_at": now - 5 * SECOND, "source": "broker_metrics:collector-1"}
    name = "kafka_server_replicamanager_{}"
    tables.put(
        "broker_metrics",
        {**common, "broker": 2, "metric": name.format("isrshrinks_total"), "metric_value": 1_234.0},
        {**common, "broker": 1, "metric": name.format("partitioncount"), "metric_value": 0.25},
        {**common, "broker": 1, "metric": name.format("isrshrinks_total"), "metric_value": 7.0},
        {**common, "broker": 1, "metric": "gone", "metric_value": 7.0, "cluster_id": "gone", "cluster": "gone"},
    )
    lines = [line.split("  ") for line in state(tables.directory, "metrics").splitlines()]
    assert [line[:3] for line in lines] == [
        [name.format("isrshrinks_total"), "1", "7"],
        [name.format("isrshrinks_total"), "2", "1,234"],
        [name.format("partitioncount"), "1", "0.25"],
    ]


def test_changes_that_only_brokers_counted_are_said_of_the_broker(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.broker(1), rows.broker(2))
    counted = {
        **rows.owner, "since": 0, "until": now - 5 * SECOND, "resets": 0, "meter_value": 9, "ahead": [],
        "as_of_version": 3, "broker": 1, "counted": 9,
    }  # fmt: skip
    tables.put(
        "isr_reconciliation",
        {**counted, "meter": "isr_expands", "recorded": 9, "missed": 0},
        {**counted, "meter": "isr_shrinks", "recorded": 7, "missed": 2},
    )
    one, two = objects(tables.directory, "brokers")
    assert (one["missed_changes"], len(one["isr_meters"]), two["missed_changes"]) == (2, 2, None)
    (sentence,) = [line for line in state(tables.directory, "brokers").splitlines() if "missed" in line]
    assert sentence == (
        "broker 1 counted 9 ISR shrinks since 01-01 00:00:00 UTC, 7 of which were recorded: 2 were missed"
    )


@pytest.fixture
def grouped(tables: Tables, rows: Rows) -> Path:
    """One group with two partitions, and one of each kind that has none, or no members that are described."""
    now = tables.observe(rows, rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2, 3], 1)))
    common = {**rows.owner, "collected_at": now - 5 * SECOND, "source": "samples:collector-1"}
    group = {**common, "group_protocol": "classic", "group_state": "Stable", "members": 2, "coordinator": 1}
    spark = {**group, "group_protocol": "spark", "members": None, "coordinator": -1}
    tables.put(
        "groups",
        {**group, "group": "billing", "assignor": "range"},
        {**group, "group": "empty", "group_state": "Empty", "members": 0},
        {**group, "group": "shared", "group_protocol": "share", "members": 3},
        {**spark, "group": "to-delta", "group_state": "Active", "last_progress_at": now - 20 * SECOND},
        {**spark, "group": "to-lake", "group_state": "Unknown", "last_progress_at": now - 7_260 * SECOND},
        {**group, "group": "gone", "cluster_id": "gone", "cluster": "gone"},
    )
    partition = {**common, "group": "billing", "topic_id": "orders-1", "topic": "orders", "group_state": "Stable"}
    tables.put(
        "group_offsets",
        {**partition, "partition": 0, "lag": 7, "records_lost": 0},
        {**partition, "partition": 1, "lag": 30, "records_lost": 4},
        {**partition, "group": "to-delta", "partition": 0, "lag": 2, "records_lost": 0},
        {**partition, "group": "old", "partition": 0, "lag": None, "members": 1},
    )
    return tables.directory


def test_every_group_is_shown_with_its_offsets_where_there_are_some(grouped: Path) -> None:
    rows = {row["group"]: row for row in objects(grouped, "groups")}
    names = ("group_protocol", "group_state", "members", "partitions", "lag", "records_lost", "worst_partition")
    assert {group: tuple(row[name] for name in names) for group, row in rows.items()} == {
        "billing": ("classic", "Stable", 2, 2, 37, 4, "orders-1"),
        "empty": ("classic", "Empty", 0, 0, None, None, None),
        "old": (None, "Stable", 1, 1, None, None, None),
        "shared": ("share", "Stable", 3, 0, None, None, None),
        "to-delta": ("spark", "Active", None, 1, 2, 0, "orders-0"),
        "to-lake": ("spark", "Unknown", None, 0, None, None, None),
    }
    assert [*rows] == sorted(rows)
    assert all(5 <= row["sample_age_seconds"] < 600 for row in rows.values())
    assert (rows["billing"]["assignor"], rows["billing"]["idle_seconds"]) == ("range", None)
    assert 7_260 <= rows["to-lake"]["idle_seconds"] < 8_000
    assert rows["to-lake"]["last_progress_at"] < micros_now()
    lines = [line.split("  ") for line in state(grouped, "groups").splitlines()]
    assert lines[3][:6] == ["shared", "Stable", "3", "0", "?", "?"]
    assert lines[5][:2] == ["to-lake", "Unknown, last batch 2h1m ago"]


def test_a_group_has_a_sentence_that_says_what_is_wrong_since_when_where_and_whose_it_is(
    tables: Tables, rows: Rows
) -> None:
    now = rows.start + 3_600 * SECOND
    common = {**rows.owner, "collected_at": now, "source": "samples:collector-1"}
    offsets = {**common, "topic_id": "orders-1", "topic": "orders", "group_state": "Stable", "committed_offset": 10}
    owned = {**offsets, "member": "app-7", "owned_at": now, "log_start_offset": 0, "high_watermark": 50,
             "last_stable_offset": 50, "standing_end": 40, "lag": 40, "stable_lag": 40}  # fmt: skip
    stands = {**owned, "standing_since": now - 1_800 * SECOND, "readable_at": now}
    lost = {"records_lost": 20, "lost_at": now - SECOND}
    never = dict.fromkeys(("committed_offset", "lag", "stable_lag"))
    waits = {**owned, "partition": 2, "member": "", "stable_lag": 0, "is_transactional": True}
    tables.put(
        "group_offsets",
        *({**stands, "group": "stuck", "partition": number, "lag": 40 + number} for number in (3, 4)),
        {**owned, "group": "marker", "partition": 0, "lag": 1, "stable_lag": 1},
        {**owned, "group": "beyond", "partition": 0, "committed_offset": 1_050, "lag": 0, "beyond": 1_000},
        {**owned, "group": "loses", "partition": 1, "log_start_offset": 30, **lost},
        {**owned, "group": "new", "partition": 0, **never},
        *({**waits, "group": f"waits {each}", "lag_seconds": each} for each in (None, 60.0, 59.9)),
        {**waits, "group": "seen lately", "watched_since": now - 59 * SECOND},
        {**waits, "group": "came lately", "watched_since": now - 3_000 * SECOND, "committed_at": now - 59 * SECOND},
        {**offsets, "group": "left", "partition": 1, "lag": 7, "owned_at": now - 3_000 * SECOND},
        {**offsets, "group": "drained", "partition": 1, "lag": 0},
    )
    tables.commit(rows.cluster_row(now), rows.source(now))
    at = {seconds: f"{Clock(now).short(now - seconds * SECOND)[:5]} UTC" for seconds in (1, 1_800, 3_000)}
    answer = asked(tables.directory, "groups", now=now)
    assert [(each.text, each.tone) for each in answer.sentences if "stuck" in each.text or "new" in each.text] == [
        ("group new: has never committed on orders-0, owner app-7", "plain"),
        (f"group stuck: stuck since {at[1_800]} on orders-4 and 1 more, owner app-7", "warning"),
    ]
    assert {row["group"]: row["reason"] for row in answer.rows} == {
        "beyond": "1,000 beyond the end of orders-0, owner app-7",
        "drained": "",
        "left": f"orders-1 not read any more after {at[3_000]}, 7 behind",
        "loses": f"has lost 20, the last at {at[1]}, on orders-1, owner app-7",
        "marker": "",
        "new": "has never committed on orders-0, owner app-7",
        "stuck": f"stuck since {at[1_800]} on orders-4 and 1 more, owner app-7",
        "waits None": 'waits for an open transaction on orders-2, owner ""',
        "waits 60.0": 'waits for an open transaction on orders-2, owner ""',
        "waits 59.9": "",
        "seen lately": "",
        "came lately": "",
    }


def test_of_a_topic_only_the_groups_are_shown_that_have_offsets_in_it(grouped: Path) -> None:
    groups = [row["group"] for row in objects(grouped, "groups", topic="orders")]
    assert groups == ["billing", "old", "to-delta"]


@pytest.mark.parametrize(("subject", "table"), ORDER_TABLES)
def test_programs_get_every_column_of_the_table(sampled: Path, subject: str, table: Any) -> None:
    text = printed(subject, asked(sampled, subject), RowFormat.CSV)
    heading, *lines = csv.reader(io.StringIO(text))
    assert heading[: len(table.columns)] == [column.name for column in table.columns]
    assert {len(line) for line in lines} == {len(heading)}
    assert all(line[heading.index("collected_at")].endswith("Z") for line in lines)


def reasons(tables: Tables) -> dict[str, list[str]]:
    return {subject: state(tables.directory, subject).splitlines() for subject in SUBJECTS}


def test_an_answer_without_rows_says_why(tables: Tables, rows: Rows) -> None:
    create_or_upgrade(tables.directory, PARTITION_CHANGES)
    why = "no cluster has been observed; start isrwatch job and collect"
    assert reasons(tables) == {subject: [why] for subject in SUBJECTS}
    tables.observe(rows)
    none = [state(tables.directory, subject, cluster="!main").splitlines() for subject in SUBJECTS]
    assert none == [["no cluster is chosen by !main"]] * len(SUBJECTS)
    empty = {subject: lines for subject, lines in reasons(tables).items() if subject != "clusters"}
    assert {subject: line.partition(":")[0] for subject, (line,) in empty.items()} == {
        "conditions": "no condition is raised",
        "brokers": "no broker has been observed",
        "topics": "no topic has been observed",
        "partitions": "no partitions",
        "replicas": "no samples of replicas",
        "reassignments": "nothing is being reassigned",
        "directories": "no samples of log directories",
        "groups": "no samples of groups",
        "transactions": "no samples of transactions",
        "quorum": "no samples of the metadata quorum",
        "settings": "no samples of settings of cluster main",
        "metrics": "no samples of broker metrics",
    }
    assert [line for (line,) in empty.values() if "samples" in line and "isrwatch doctor" not in line] == []


def test_of_samples_there_is_no_earlier_state(sampled: Path) -> None:
    without = {name for name, subject in SUBJECTS.items() if not subject.has_history}
    assert without == {"directories", "groups", "quorum", "transactions", "replicas", "settings", "metrics"}
    for subject in without:
        assert refusal(sampled, subject, at="1").startswith(f"of {subject} only the newest samples are kept")


def test_a_name_that_no_sample_has_is_refused_with_those_there_are(grouped: Path, sampled: Path) -> None:
    assert [row["group"] for row in objects(grouped, "groups", group="to-*")] == ["to-delta", "to-lake"]
    assert refusal(grouped, "groups", group="billling").startswith("unknown group billling; known: billing, empty, ")
    assert {row["broker"] for row in objects(sampled, "directories", broker="3")} == {3}
    assert {row["node"] for row in objects(sampled, "quorum", node="10?")} == {100, 101, 102}
    assert [row["producer_id"] for row in objects(sampled, "transactions", transaction="payments*")] == [8, 7]


def speed(rows: Rows, broker: int, age: int = 5, **columns: Any) -> dict[str, Any]:
    measured = dict.fromkeys(("followed_leaders", "followed_leaders_behind", "followers", "followers_behind"), 3)
    counts = dict.fromkeys(("replicas_behind", "replicas_out_of_isr", "slow_score"), 0)
    times = {"response_micros": 4_000, "slowest_response_micros": 5_000, "collected_at": micros_now() - age * SECOND}
    known = {"is_slow": False, "is_overloaded": False, "slow_reasons": [], "source": "samples:collector-1"}
    return {**rows.owner, "broker": broker, **measured, **counts, **times, **known, **columns}


def brokers_in_words(tables: Tables) -> list[str]:
    lines = state(tables.directory, "brokers").splitlines()
    return [line for line in lines if " is slow " in line or " is overloaded" in line]


def test_a_slow_broker_is_named_below_the_table_with_since_when_and_why(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.broker(1), rows.broker(2))
    why = "responds in 900 ms, usually in 4 ms, its peers in 5 ms"
    is_slow = {"is_slow": True, "slow_reasons": [why], "slow_since": now - 600 * SECOND, "slow_score": 8}
    tables.put("broker_speed", speed(rows, 1, **is_slow), speed(rows, 2))
    assert brokers_in_words(tables) == [f"broker 1 is slow for 10m0s: {why}"]
    one, two = objects(tables.directory, "brokers")
    assert (one["is_slow"], one["slow_reasons"], two["is_slow"], two["response_micros"]) == (True, [why], False, 4_000)


def test_who_is_slow_by_old_samples_is_unknown_now(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.broker(1))
    is_slow = {"is_slow": True, "slow_reasons": ["x"], "slow_since": now - 600 * SECOND}
    tables.put("broker_speed", speed(rows, 1, age=200, **is_slow))
    assert brokers_in_words(tables) == []
    (one,) = objects(tables.directory, "brokers")
    assert (one["is_slow"], one["response_micros"]) == (None, None)


def test_an_overloaded_cluster_is_said_to_be_one_once(tables: Tables, rows: Rows) -> None:
    tables.observe(rows, rows.broker(1), rows.broker(2))
    tables.put("broker_speed", *(speed(rows, broker, is_overloaded=True) for broker in (1, 2)))
    (sentence,) = brokers_in_words(tables)
    assert sentence.startswith("cluster main is overloaded: ")


def test_replicas_that_are_behind_come_longest_first_and_with_all_every_replica(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2, 3], 1)))
    at = now - 5 * SECOND
    replica = {**rows.owner, "topic_id": "id-of-orders", "topic": "orders", "partition": 0, "collected_at": at}
    replica |= {"source": "samples:collector-1", "log_dir": "/data", "size_bytes": 3 * GIB, "lag": 0}
    tables.put(
        "replica_offsets",
        {**replica, "broker": 1},
        {**replica, "broker": 2, "lag": 1_200, "behind_since": at - 20 * SECOND},
        {**replica, "broker": 3, "lag": 1, "behind_since": at},
        {**replica, "broker": 4, "lag": 70, "behind_since": at - 90 * SECOND, "size_bytes": None, "log_dir": None},
        {**replica, "broker": 5, "lag": None},
    )
    lines = [line.split("  ")[:-1] for line in state(tables.directory, "replicas").splitlines()]
    assert lines == [
        ["orders-0", "4", "70", "1m30s", "?", "?"],
        ["orders-0", "2", "1,200", "20.0s", "3.0 GiB", "/data"],
    ]
    every = [(row["broker"], row["behind_seconds"]) for row in objects(tables.directory, "replicas", everything=True)]
    assert every == [(4, 90.0), (2, 20.0), (1, 0.0), (3, 0.0), (5, None)]
    caught_up = [{**replica, "broker": broker} for broker in (1, 2, 3)]
    tables.put("replica_offsets", *caught_up)
    assert state(tables.directory, "replicas").splitlines() == ["no replica is behind"]


def test_of_the_replicas_of_a_broker_that_does_not_answer_nothing_is_known(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2, 3], 1)))
    (none,) = state(tables.directory, "replicas").splitlines()
    assert none.startswith("no samples of replicas: ")
    replica = {**rows.owner, "topic_id": "id-of-orders", "topic": "orders", "partition": 0, "lag": 0, "source": "s"}
    fresh, old = {**replica, "collected_at": now - 5 * SECOND}, {**replica, "collected_at": now - 300 * SECOND}
    tables.put("replica_offsets", {**fresh, "broker": 1}, {**old, "broker": 2})
    assert state(tables.directory, "replicas").splitlines() == [
        "of the brokers that answer, no replica is behind",
        "of the replicas on broker 2 nothing is known: it does not answer",
        "of the replicas on broker 3 nothing is known: it does not answer",
    ]
    tables.put("replica_offsets", {**fresh, "broker": 1}, {**fresh, "broker": 2}, {**fresh, "broker": 3})
    assert state(tables.directory, "replicas").splitlines() == ["no replica is behind"]
    tables.commit(rows.broker(2, now, is_fenced=True))
    assert state(tables.directory, "replicas").splitlines() == [
        "of the brokers that answer, no replica is behind",
        "of the replicas on broker 2 nothing is known: it does not answer",
    ]
    tables.put("replica_offsets", {**old, "broker": 1}, {**old, "broker": 2})
    (age,) = state(tables.directory, "replicas").splitlines()
    assert age.startswith("the newest samples of replicas are 5")


def test_the_directories_of_a_broker_that_does_not_answer_are_said_to_be_unknown(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.broker(1), rows.broker(2, is_fenced=True))
    directory = {**rows.owner, "collected_at": now, "source": "s", "broker": 1, "is_online": True, "log_dir": "/data"}
    tables.put("log_directories", directory)
    row, silent = state(tables.directory, "directories").splitlines()
    assert row.startswith("1  /data  online")
    assert silent == "of the log directories on broker 2 nothing is known: it does not answer"


def test_without_an_open_transaction_a_sentence_says_so_while_somebody_looks(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.broker(1))
    directory = {**rows.owner, "collected_at": now, "source": "s", "broker": 1, "is_online": True, "log_dir": "/data"}
    tables.put("log_directories", directory)
    assert state(tables.directory, "transactions").splitlines() == ["no transaction is open"]


MIB = 1024**2


@pytest.fixture
def moving(tables: Tables, rows: Rows) -> Path:
    """Moves one partition of ``orders`` from 3 to 4 and 5, one of ``clicks`` to a broker without samples, one away."""
    moved = rows.state([1, 2, 4, 5, 3], [1, 2, 3], 1, adding_replicas=[4, 5], removing_replicas=[3])
    now = tables.observe(
        rows,
        rows.partition("orders", 0, moved),
        rows.partition("orders", 1, rows.state([1, 2, 3], [1, 2], 1)),
        rows.partition("clicks", 0, rows.state([1, 2, 6], [1, 2], 1, adding_replicas=[6])),
        rows.partition("pages", 0, rows.state([1, 2, 3], [1, 2, 3], 1, removing_replicas=[3])),
    )
    sampled = {**rows.owner, "collected_at": now - SECOND, "source": "samples:collector-1", "partition": 0}
    orders, clicks = ({**sampled, "topic_id": f"id-of-{topic}", "topic": topic} for topic in ("orders", "clicks"))
    tables.put(
        "replica_offsets",
        {**orders, "broker": 1, "size_bytes": 100 * MIB, "lag": 0},
        {**orders, "broker": 4, "size_bytes": 40 * MIB, "lag": 6_000},
        {**orders, "broker": 5, "size_bytes": 101 * MIB, "lag": 10},  # it holds what the leader has deleted already
        {**clicks, "broker": 1, "size_bytes": 100 * MIB, "lag": 0},
        {**orders, "partition": 1, "broker": 4, "size_bytes": 1, "lag": 1},
    )
    return tables.directory


def test_each_moved_partition_has_what_its_new_replicas_have_yet_to_copy(moving: Path) -> None:
    rows = objects(moving, "reassignments")
    shown = ("adding_replicas", "removing_replicas", "replicas_to_go", "bytes_to_go", "records_to_go")
    assert {f"{row['topic']}-{row['partition']}": tuple(row[name] for name in shown) for row in rows} == {
        "clicks-0": ([6], [], [6], None, None),
        "orders-0": ([4, 5], [3], [4, 5], 60 * MIB, 6_010),
        "pages-0": ([], [3], [], 0, 0),
    }
    line = state(moving, "reassignments", topic="orders").strip()
    assert line == "orders-0  4,5  3  4,5  60.0 MiB  6,010"
    assert state(moving, "reassignments", topic="clicks").strip() == "clicks-0  6  6  ?  ?"


def test_nothing_is_being_reassigned(tables: Tables, rows: Rows) -> None:
    tables.observe(rows, rows.partition("orders", 0, rows.state([1, 2], [1], 1)))
    assert state(tables.directory, "reassignments") == "nothing is being reassigned\n"
    assert objects(tables.directory, "reassignments") == []


@pytest.fixture
def oddly_named(tables: Tables, rows: Rows) -> Path:
    """A group and a transaction of every odd name, the empty one included."""
    now = tables.observe(rows, rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2, 3], 1)))
    common = {**rows.owner, "collected_at": now - 5 * SECOND, "source": "samples:collector-1", "coordinator": 1}
    group = {**common, "group_protocol": "classic", "group_state": "Stable", "members": 2}
    tables.put("groups", *({**group, "group": name} for name in ODD))
    transaction = {**common, "producer_epoch": 3, "transaction_state": "Ongoing", "started_at": now - 15 * SECOND,
                   "transaction_partitions": ["orders-0"], "timeout_ms": 60_000, "is_hanging": False}  # fmt: skip
    named = ({**transaction, "producer_id": number, "transactional_id": name} for number, name in enumerate(ODD))
    tables.put("transactions", *named)
    return tables.directory


@pytest.mark.parametrize(("subject", "column"), [("groups", "group"), ("transactions", "transactional_id")])
def test_each_odd_name_has_one_line_and_nothing_of_it_acts_on_a_terminal(
    oddly_named: Path, subject: str, column: str
) -> None:
    names = {*ODD}
    answer = asked(oddly_named, subject)
    lines = printed(subject, answer)
    assert visible(lines)
    assert lines.count("\n") == 1 + len(names), "the heading"
    assert {row[column] for row in answer.rows} == names
    read = [*csv.DictReader(io.StringIO(printed(subject, answer, RowFormat.CSV), newline=""))]
    assert {row[column].removeprefix("'") for row in read} == names
    assert not any(row[column].startswith(("=", "+", "-", "@", "\t", "\r", "\n")) for row in read)
