"""``isrwatch state``: the present and an earlier state; stale data is marked, unknown is not 0."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporters.read_model.times import Clock
from streaming.contracts.tables import BROKER_STATE_TABLE
from streaming.delta.log.table_log import newest_version
from streaming.durations import seconds_of
from tests.exporters.conftest import SECOND, START, Rows, Tables
from tests.exporters.terminal.printed import objects, refusal, state


@pytest.fixture(scope="module")
def played(played_tables: Callable[..., Path]) -> Path:
    return played_tables("under_min_isr", "consumer_groups", seconds=42)


def test_only_unhealthy_partitions_are_shown_unless_all_are_requested(busy_cluster: Tables) -> None:
    rows = objects(busy_cluster.directory)
    shown = [(row["topic"], row["partition"], row["health"]) for row in rows]
    assert shown == [('odd "topic"\\', 0, "offline"), ("orders", 1, "under_min_isr")]
    assert len(objects(busy_cluster.directory, "--all")) == 3
    assert [row["topic"] for row in objects(busy_cluster.directory, "--topic", "ord*")] == ["orders"]


def test_a_partition_that_cannot_lose_one_more_replica_comes_before_one_that_lacks_more(
    tables: Tables, rows: Rows
) -> None:
    tables.observe(
        rows,
        rows.partition("logs", 0, rows.state([1, 2, 3, 4, 5], [1, 2, 3], 1)),
        rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2], 1)),
        rows.partition("audit", 0, rows.state([1, 2], [1], 1)),
    )
    words = [line.split("  ")[:2] for line in state(tables.directory).splitlines()]
    assert words == [
        ["audit-0", "under min ISR"],
        ["orders-0", "under replicated, at min ISR"],
        ["logs-0", "under replicated"],
    ]
    assert [row["health"] for row in objects(tables.directory)] == ["under_min_isr", *["under_replicated"] * 2]


def test_times_of_a_topic_are_titled_as_sums_over_its_partitions(busy_cluster: Tables) -> None:
    title = state(busy_cluster.directory, "--topics", "--format", "table").split("orders")[0]
    assert title.split().count("time") == 3


def test_durations_are_counted_up_to_the_newest_observation(busy_cluster: Tables) -> None:
    (row,) = objects(busy_cluster.directory, "--topic", "orders")
    assert row["under_replicated_seconds"] == pytest.approx(1.5 + 20)
    assert row["under_min_isr_seconds"] == pytest.approx(10)


@pytest.mark.parametrize(("ago", "least", "most"), [(10, 10, 40), (3_600, 0, 0)])
def test_the_duration_of_a_state_goes_on_until_now_and_of_stale_data_until_its_end(
    tables: Tables, rows: Rows, ago: int, least: int, most: int
) -> None:
    at = time.time_ns() // 1_000 - ago * SECOND
    lost = rows.state([1, 2, 3], [1, 3], 1, under_replicated_since=at)
    tables.commit(rows.cluster_row(at), rows.source(at), rows.partition("orders", 0, lost, at))
    *_, line = state(tables.directory).splitlines()
    assert least <= seconds_of("shown", line.split("  ")[2]) <= most


def test_a_broker_that_misses_because_of_announced_work_is_said_to_in_one_line(tables: Tables, rows: Rows) -> None:
    now = time.time_ns() // 1_000
    until = now + 600 * SECOND
    work = {"maintenance_until": until, "maintenance_why": "a new disk"}
    lost = rows.state([1, 2, 3], [1], 1)
    tables.commit(
        rows.cluster_row(now), rows.source(now), rows.partition("orders", 0, lost, now),
        rows.broker(1, now, **work), rows.broker(2, now, is_fenced=True, **work),
        rows.broker(3, now, is_fenced=True, maintenance_overran_at=None),
    )  # fmt: skip
    end = Clock(now).short(until).partition(".")[0]
    assert state(tables.directory).splitlines()[1:] == [f"work on broker 2 is announced until {end}: a new disk"]
    assert "work on" not in state(tables.directory, "--topic", "orders", "--format", "json")


def test_what_is_unknown_is_a_question_mark_and_never_zero(busy_cluster: Tables) -> None:
    lines = [line for line in state(busy_cluster.directory).splitlines() if line.startswith("odd")]
    assert lines == ['odd "topic"\\-0  offline  5.0s  none  3  1  ?']
    (row,) = (row for row in objects(busy_cluster.directory) if row["health"] == "offline")
    assert (row["min_isr_effective"], row["is_under_min_isr"]) == (None, None)


def test_stale_data_is_marked_with_its_age(busy_cluster: Tables) -> None:
    assert state(busy_cluster.directory).splitlines()[0].startswith("STALE: cluster main was last observed ")
    assert " ago; its state is that old" in state(busy_cluster.directory).splitlines()[0]
    assert " earlier; its state was that old" in state(busy_cluster.directory, "--as-of", "1").splitlines()[1]
    (row,) = objects(busy_cluster.directory, "--clusters")
    assert row["is_stale"]
    assert row["data_age_seconds"] > 0


def test_a_cluster_that_was_never_observed_has_no_data_age(tables: Tables, rows: Rows) -> None:
    tables.commit(rows.cluster_row(primary_source=None, primary_watermark=None))
    lines = state(tables.directory, "--clusters").splitlines()
    assert (lines[0], lines[-1].split()[:2]) == ("STALE: cluster main was never observed", ["main", "?"])


def test_brokers_have_every_column_that_their_table_defines(played: Path) -> None:
    rows = objects(played, "--brokers", "--cluster", "under_min_isr")
    assert [(row["broker"], row["broker_state"], row["led_partitions"]) for row in rows] == [
        (1, "active", 12), (2, "active", 0), (3, "fenced", 0),
    ]  # fmt: skip
    unknown = ("is_safe_to_stop", "restart_order", "restart_reason", "would_go_offline", "suspect_score")
    assert [rows[0][name] for name in unknown] == [None] * len(unknown), "stale data"


def test_brokers_of_a_fresh_cluster_have_every_column_that_their_table_defines(tables: Tables, rows: Rows) -> None:
    tables.observe(rows, rows.broker(1))
    advice = {"is_safe_to_stop": False, "restart_order": None, "suspect_score": 0.75, "would_go_offline": 3}
    tables.put("broker_state", {**rows.owner, "broker": 1, **advice}, as_of=1)
    (row,) = objects(tables.directory, "--brokers")
    assert {name: row[name] for name in advice} == advice
    simple = {column.name for column in BROKER_STATE_TABLE.columns if column.type in ("double", "boolean", "long")}
    assert {name for name in simple - set(row) if not name.endswith(("_offset", "_version"))} == set()
    words = state(tables.directory, "--brokers").split()
    assert ("0.75" in words, "?" in words) == (True, True)


def test_advice_that_the_job_cannot_renew_is_not_shown(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.broker(1))
    source = rows.source(now)
    tables.put("broker_state", {**rows.owner, "broker": 1, "is_safe_to_stop": True}, as_of=1)
    progress = {**source, **source["source_after"], "channel": "replication", "reported_at": now}
    for is_query_up, advice in ((True, True), (False, None)):
        tables.put("source_progress", {**progress, "is_query_up": is_query_up}, as_of=1)
        (row,) = objects(tables.directory, "--brokers")
        assert (row["is_stale"], row["is_safe_to_stop"]) == (False, advice)


def test_on_a_narrow_terminal_the_advice_of_each_broker_stands_whole_below_the_table(
    tables: Tables, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.observe(rows, rows.broker(1))
    advice = "unavoidable by configuration: 1 partition with one replica goes offline while it is down"
    counts = dict.fromkeys(("under_min_isr_partitions", "offline_partitions", "unknown_min_isr_partitions"), 0)
    columns = {**counts, "restart_reason": advice, "would_go_offline": 1, "is_safe_to_stop": False}
    tables.put("broker_state", {**rows.owner, "broker": 1, **columns}, as_of=1)
    monkeypatch.setenv("COLUMNS", "80")
    *table, last = state(tables.directory, "--brokers", "--format", "table").splitlines()
    assert last == f"restart of broker 1: {advice}"
    assert [line for line in table if "…" in line] == []
    assert state(tables.directory, "--brokers").endswith(f"  {advice}\n"), "in a pipe still one line a broker"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--cluster", "nowhere"), "unknown cluster nowhere; known: consumer_groups, "),
        (("--topic", "ordres"), "unknown topic ordres; known: "),
        (("--topic", "x-*"), "unknown topic x-*; known: "),
    ],
)
def test_a_name_that_nothing_has_is_refused_since_an_empty_answer_would_look_healthy(
    played: Path, options: tuple[str, ...], sentence: str
) -> None:
    assert refusal(played, *options).startswith(sentence)


def test_groups_have_their_total_and_their_largest_lag(played: Path) -> None:
    rows = objects(played, "--groups")
    assert [row["group"] for row in rows] == ["billing", "shipping"]
    assert all(row["lag"] >= row["worst_lag"] >= 0 for row in rows)


def test_topics_sum_up_their_partitions(played: Path) -> None:
    (row,) = objects(played, "--topics", "--topic", "payments")
    partitions = objects(played, "--all", "--topic", "payments")
    assert row["partitions"] == len(partitions)
    assert row["isr_shrinks"] == sum(partition["isr_shrinks"] for partition in partitions) > 0
    spent = sum(partition["under_min_isr_seconds"] for partition in partitions)
    assert row["under_min_isr_seconds"] == pytest.approx(spent)


def test_as_of_shows_an_earlier_state(played: Path) -> None:
    versions = range(newest_version(played / "partition_changes") + 1)
    counts = [len(objects(played, "--as-of", str(version))) for version in versions]
    assert (counts[1], max(counts), counts[-1]) == (0, 12, 12)
    assert {row["health"] for row in objects(played, "--as-of", str(versions[counts.index(12)]))} != {"healthy"}


def test_without_unhealthy_partitions_it_says_so(tables: Tables, rows: Rows) -> None:
    tables.commit(rows.cluster_row(), rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2, 3], 1)))
    tables.commit(rows.source(START + 30 * SECOND))
    assert state(tables.directory).splitlines()[-1] == "no unhealthy partitions when they were last observed"


def test_two_views_at_once_are_refused(busy_cluster: Tables) -> None:
    assert "give one of them" in refusal(busy_cluster.directory, "--brokers", "--topics")
