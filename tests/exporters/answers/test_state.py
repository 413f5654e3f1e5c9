"""Clusters, brokers, topics, partitions: the present and an earlier state; stale data is marked, unknown is not 0."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporters.answers.brokers import INFERRED
from exporters.read_model.reader import micros_now
from exporters.read_model.times import Clock
from exporters.terminal.output import RowFormat
from streaming.contracts.observations import SourceKind
from streaming.contracts.tables import BROKER_STATE_TABLE
from streaming.delta.log.table_log import newest_version
from streaming.durations import seconds_of
from tests.exporters.answers.asked import asked, objects, printed, reader_of, refusal, state
from tests.exporters.conftest import SECOND, START, Rows, Tables


@pytest.fixture(scope="module")
def played(played_tables: Callable[..., Path]) -> Path:
    return played_tables("under_min_isr", "consumer_groups", seconds=42)


def test_only_unhealthy_partitions_are_shown_unless_all_are_requested(busy_cluster: Tables) -> None:
    rows = objects(busy_cluster.directory)
    shown = [(row["topic"], row["partition"], row["health"]) for row in rows]
    assert shown == [('odd "topic"\\', 0, "offline"), ("orders", 1, "under_min_isr")]
    assert len(objects(busy_cluster.directory, everything=True)) == 3
    assert [row["topic"] for row in objects(busy_cluster.directory, topic="ord*")] == ["orders"]


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
    wide = printed("topics", asked(busy_cluster.directory, "topics"), RowFormat.WIDE)
    assert wide.split("orders")[0].split().count("time") == 3


def test_durations_are_counted_up_to_the_newest_observation(busy_cluster: Tables) -> None:
    (row,) = objects(busy_cluster.directory, topic="orders")
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
    assert state(tables.directory).splitlines()[1:] == [f"work on broker 2 is announced until {end} UTC: a new disk"]


def test_what_is_unknown_is_a_question_mark_and_never_zero(busy_cluster: Tables) -> None:
    lines = [line for line in state(busy_cluster.directory).splitlines() if line.startswith("odd")]
    assert lines == ['odd "topic"\\-0  offline  5.0s  none  3  1  ?']
    (row,) = (row for row in objects(busy_cluster.directory) if row["health"] == "offline")
    assert (row["min_isr_effective"], row["is_under_min_isr"]) == (None, None)


def heading(folder: Path, of: str, **options: Any) -> str:
    return printed(of, asked(folder, of, **options)).splitlines()[0]


def test_stale_data_is_marked_with_its_age(busy_cluster: Tables) -> None:
    first = heading(busy_cluster.directory, "partitions")
    assert first.startswith("STALE: cluster main was last observed ")
    assert " ago; its state is that old" in first
    then = printed("partitions", asked(busy_cluster.directory, at="1")).splitlines()[1]
    assert " earlier; its state was that old" in then
    (row,) = objects(busy_cluster.directory, "clusters")
    assert row["is_stale"]
    assert row["data_age_seconds"] > 0


def test_a_cluster_that_was_never_observed_has_no_data_age(tables: Tables, rows: Rows) -> None:
    tables.commit(rows.cluster_row(primary_source=None, primary_watermark=None))
    assert heading(tables.directory, "clusters") == "STALE: cluster main was never observed"
    assert state(tables.directory, "clusters").split()[:2] == ["main", "?"]


def test_of_a_cluster_that_has_reported_no_whole_state_no_partition_is_known_to_be_well(
    tables: Tables, rows: Rows
) -> None:
    now = micros_now()
    first = rows.partition("orders", 0, rows.state([1], [1], 1), now)
    tables.commit(rows.cluster_row(now, has_baseline=False), rows.broker(1, now), first, rows.source(now))
    (row,) = objects(tables.directory, "clusters")
    assert {row[name] for name in ("partitions", "offline_partitions", "under_replicated_partitions")} == {None}
    (cluster,) = reader_of(tables.directory).snapshot.clusters.values()
    assert cluster.in_state("offline") is None
    tables.commit(rows.broker(1, now, is_fenced=None))
    (row,) = objects(tables.directory, "clusters")
    assert (row["brokers"], row["fenced_brokers"]) == (1, None), "of one it is unknown"


@pytest.mark.parametrize(("seconds", "why"), [(0, "the job has not said"), (3_600, "the data is stale")])
def test_why_it_is_unknown_whether_a_broker_may_stop_is_said(
    tables: Tables, rows: Rows, seconds: int, why: str
) -> None:
    at = micros_now() - seconds * SECOND
    tables.commit(rows.cluster_row(at), rows.broker(1, at), rows.source(at))
    assert f"safe to stop: unknown: {why}" in state(tables.directory, "brokers").splitlines()
    assert "safe to stop: not kept" in state(tables.directory, "brokers", at="1").splitlines()


def test_clusters_of_one_name_are_shown_with_their_ids_and_one_that_was_built_again_alone(
    tables: Tables, rows: Rows
) -> None:
    now, twin, old = micros_now(), Rows("id-of-twin", "main"), Rows("id-of-old", "main")
    before = now - 30 * 86_400 * SECOND
    tables.commit(old.cluster_row(before), old.source(before), old.broker(7, before))
    tables.commit(rows.cluster_row(now), rows.source(now), rows.broker(1, now))
    assert [row["cluster"] for row in objects(tables.directory, "clusters")] == ["main"]
    tables.commit(twin.cluster_row(now), twin.source(now), twin.broker(2, now))
    shown = ["main (id-of-main)", "main (id-of-twin)"]
    assert [row["cluster"] for row in objects(tables.directory, "clusters", cluster="main")] == shown
    assert [(row["cluster"], row["broker"]) for row in objects(tables.directory, "brokers", cluster="*-of-twin")] == [
        (shown[1], 2)
    ]


def test_of_many_stale_clusters_one_sentence_says_so(tables: Tables) -> None:
    start = micros_now() - 600 * SECOND
    every = [Rows(f"id-{number:03}", f"c-{number:03}") for number in range(100)]
    tables.commit(*(row for each in every for row in (each.cluster_row(start), each.source(start))))
    first, title, *lines = printed("clusters", asked(tables.directory, "clusters")).splitlines()
    assert first.startswith("STALE: each of 100 of 100 clusters was last observed 10m")
    assert first.endswith(" ago or longer, or never: c-000, c-001, c-002, c-003, c-004 and 95 more")
    assert (title.split()[0], len(lines)) == ("cluster", 100)


def test_clusters_come_worst_first_and_what_is_unknown_before_what_is_healthy(tables: Tables, rows: Rows) -> None:
    now = micros_now()
    states = {
        "c-healthy": rows.state([1, 2, 3], [1, 2, 3], 1),
        "b-missing": rows.state([1, 2, 3], [1, 2], 1, min_isr=1),
        "d-refuses": rows.state([1, 2, 3], [1], 1),
        "e-offline": rows.state([1, 2, 3], [], -1),
    }
    every = [rows.cluster_row(now - 3_600 * SECOND), rows.source(now - 3_600 * SECOND)]
    for name, partition in states.items():
        other = Rows(f"id-of-{name}", name)
        every += [other.cluster_row(now), other.source(now), other.partition("orders", 0, partition, now)]
    tables.commit(*every)
    shown = [row["cluster"] for row in objects(tables.directory, "clusters")]
    assert shown == ["e-offline", "d-refuses", "main", "b-missing", "c-healthy"]


def test_brokers_have_every_column_that_their_table_defines(played: Path) -> None:
    rows = objects(played, "brokers", cluster="under_min_isr")
    assert [(row["broker"], row["broker_state"], row["led_partitions"]) for row in rows] == [
        (1, "active", 12), (2, "active", 0), (3, "fenced", 0),
    ]  # fmt: skip
    unknown = ("is_safe_to_stop", "restart_order", "restart_reason", "would_go_offline", "suspect_score")
    assert [rows[0][name] for name in unknown] == [None] * len(unknown), "stale data"


def test_brokers_of_a_fresh_cluster_have_every_column_that_their_table_defines(tables: Tables, rows: Rows) -> None:
    tables.observe(rows, rows.broker(1))
    advice = {"is_safe_to_stop": False, "restart_order": None, "suspect_score": 0.75, "would_go_offline": 3}
    tables.put("broker_state", {**rows.owner, "broker": 1, **advice}, as_of=1)
    (row,) = objects(tables.directory, "brokers")
    assert {name: row[name] for name in advice} == advice
    simple = {column.name for column in BROKER_STATE_TABLE.columns if column.type in ("double", "boolean", "long")}
    assert {name for name in simple - set(row) if not name.endswith(("_offset", "_version"))} == set()
    words = printed("brokers", asked(tables.directory, "brokers"), RowFormat.WIDE).split()
    assert ("0.75" in words, "?" in words) == (True, True)


def test_advice_that_the_job_cannot_renew_is_not_shown(tables: Tables, rows: Rows) -> None:
    now = tables.observe(rows, rows.broker(1))
    source = rows.source(now)
    tables.put("broker_state", {**rows.owner, "broker": 1, "is_safe_to_stop": True}, as_of=1)
    progress = {**source, **source["source_after"], "channel": "replication", "reported_at": now}
    for is_query_up, advice in ((True, True), (False, None)):
        tables.put("source_progress", {**progress, "is_query_up": is_query_up}, as_of=1)
        (row,) = objects(tables.directory, "brokers")
        assert (row["is_stale"], row["is_safe_to_stop"]) == (False, advice)


def test_the_advice_of_each_broker_stands_whole_below_the_table(tables: Tables, rows: Rows) -> None:
    tables.observe(rows, rows.broker(1))
    advice = "unavoidable by configuration: 1 partition with one replica goes offline while it is down"
    counts = dict.fromkeys(("under_min_isr_partitions", "offline_partitions", "unknown_min_isr_partitions"), 0)
    columns = {**counts, "restart_reason": advice, "would_go_offline": 1, "is_safe_to_stop": False}
    tables.put("broker_state", {**rows.owner, "broker": 1, **columns}, as_of=1)
    answer = asked(tables.directory, "brokers")
    assert printed("brokers", answer).splitlines()[-1] == f"restart of broker 1: {advice}"
    narrow = printed("brokers", answer, width=60, force_terminal=True).splitlines()
    assert [" ".join(narrow[-2:]).split()] == [f"restart of broker 1: {advice}".split()]


def test_a_name_that_nothing_has_is_refused_since_an_empty_answer_would_look_healthy(played: Path) -> None:
    assert refusal(played, cluster="nowhere").startswith("unknown cluster nowhere; known: consumer_groups, ")
    assert refusal(played, topic="ordres").startswith("unknown topic ordres; known: ")
    assert refusal(played, topic="x-*").startswith("unknown topic x-*; known: ")
    assert refusal(played, "brokers", broker="17").startswith("unknown broker 17; known: 1, 2, 3")
    assert refusal(played, "brokers", topic="orders") == "brokers are not filtered by topic"
    number = len(objects(played, "brokers"))
    assert state(played, "brokers", broker="!*") == f"none of {number} brokers is chosen by broker !*\n"


def test_a_partition_is_chosen_by_its_name_as_well_as_by_that_of_its_topic(played: Path) -> None:
    chosen = [(row["topic"], row["partition"]) for row in objects(played, everything=True, topic="payments-3")]
    assert chosen == [("payments", 3)]
    assert refusal(played, topic="payments-99").startswith("unknown topic payments-99")
    assert [row["broker"] for row in objects(played, "brokers", broker="3", cluster="under_min_isr")] == [3]


def test_groups_have_their_total_and_their_largest_lag(played: Path) -> None:
    rows = objects(played, "groups")
    assert [row["group"] for row in rows] == ["billing", "shipping"]
    assert all(row["lag"] >= row["worst_lag"] >= 0 for row in rows)


def test_topics_sum_up_their_partitions(played: Path) -> None:
    (row,) = objects(played, "topics", topic="payments")
    partitions = objects(played, everything=True, topic="payments")
    assert row["partitions"] == len(partitions)
    assert row["isr_shrinks"] == sum(partition["isr_shrinks"] for partition in partitions) > 0
    spent = sum(partition["under_min_isr_seconds"] for partition in partitions)
    assert row["under_min_isr_seconds"] == pytest.approx(spent)


def test_as_of_shows_an_earlier_state(played: Path) -> None:
    versions = range(newest_version(played / "partition_changes") + 1)
    counts = [len(objects(played, at=str(version))) for version in versions]
    assert (counts[1], max(counts), counts[-1]) == (0, 12, 12)
    assert {row["health"] for row in objects(played, at=str(versions[counts.index(12)]))} != {"healthy"}


def test_without_unhealthy_partitions_it_says_so(tables: Tables, rows: Rows) -> None:
    tables.commit(rows.cluster_row(), rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2, 3], 1)))
    tables.commit(rows.source(START + 30 * SECOND))
    assert state(tables.directory).splitlines()[-1] == (
        "no unhealthy partitions when they were last observed; --all shows the 1 healthy"
    )


@pytest.mark.parametrize(
    ("source", "expected"), [(SourceKind.POLL, [f"main is polled, {INFERRED}"]), (SourceKind.METADATA_LOG, [])]
)
def test_brokers_of_a_polled_cluster_are_shown_with_that(
    tables: Tables, rows: Rows, source: SourceKind, expected: list[str]
) -> None:
    now = micros_now()
    tables.commit(rows.cluster_row(now, primary_source=source), rows.source(now), rows.broker(1, now))
    shown = state(tables.directory, "brokers").splitlines()
    assert [line for line in shown if "polled" in line] == expected


def test_how_often_is_said_of_a_cluster_of_the_configuration(tables: Tables, rows: Rows, tmp_path: Path) -> None:
    now = micros_now()
    tables.commit(rows.cluster_row(now, primary_source=SourceKind.POLL), rows.source(now), rows.broker(1, now))
    config = tmp_path / "isrwatch.toml"
    config.write_text('[cluster]\nname = "main"\n[collect]\npoll_interval = "7s"\n')
    (line,) = (each for each in state(tables.directory, "brokers", config=config).splitlines() if "polled" in each)
    assert line == f"main is polled every 7.0s, {INFERRED}"
