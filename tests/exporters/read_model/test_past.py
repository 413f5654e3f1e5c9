"""Moments of the past: their state is that of the rows that had occurred, and each change is met once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from exporters.read_model.past import ChangeScope, MomentRefused, Past, incidents_at
from exporters.read_model.reader import micros_now
from streaming.contracts.tables import INCIDENTS
from streaming.delta.changes import bases
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.queries import plain, select
from streaming.delta.log.storage import table_at
from tests.delta.test_history import HOUR, Life
from tests.exporters.conftest import SECOND, START, Rows, Tables, write_live_cluster
from tests.exporters.histories import History, logs, play, polls
from tests.exporters.meaning import folded, of_moment

NOW = 1_900_000_000_000_000


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], History]:
    """Play sources once: days of topics that are deleted and made again, and a base a day."""

    @cache
    def play_once(sources: Any) -> History:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bases, "SHARE", 100)
            made = play(tmp_path_factory.mktemp("tables"), sources(1), Random(1), lambda _: None)
            made.project()
        return made

    return play_once


@pytest.fixture(params=[logs, polls], ids=lambda sources: str(sources.__name__))
def history(request: pytest.FixtureRequest, played: Callable[[Any], History]) -> History:
    """Two clusters by their logs, or a poller."""
    return played(request.param)


@pytest.fixture
def rows(history: History) -> pa.Table:
    """Every row of the change log, in order."""
    return pa.concat_tables(part for _, part in ChangeReader(history.tables / "partition_changes").poll())


def past_of(history: History) -> Past:
    return Past(history.tables, lambda: NOW)


def moments_of(rows: pa.Table) -> list[int]:
    return sorted({*plain(rows)["occurred_not_after"].to_pylist()})


def test_at_any_moment_the_state_is_that_of_the_rows_that_had_occurred(history: History, rows: pa.Table) -> None:
    past = past_of(history)
    oldest, newest = past.range() or (0, 0)
    for at in Random(2).sample([each for each in moments_of(rows) if oldest <= each <= newest], 4):
        assert of_moment(past.snapshot(at)) == folded(rows, at)
        assert of_moment(past.snapshot(at + 1 if at < newest else at)) == folded(rows, at)


def test_the_walk_meets_each_moment_of_a_change_once_and_back(history: History, rows: pa.Table) -> None:
    past = past_of(history)
    oldest, newest = past.range() or (0, 0)
    expected = {
        moment
        for moment, subject, events in zip(
            *(plain(rows)[name].to_pylist() for name in ("occurred_not_after", "subject", "events")), strict=True
        )
        if (subject in {"partition", "broker"} or events) and oldest <= moment <= newest
    }
    walked, at = [], oldest - 1
    while (following := past.next(at)) is not None:
        walked.append(at := following)
    assert walked == sorted(expected)
    back = []
    at = newest + 1
    while (before := past.previous(at)) is not None:
        back.append(at := before)
    assert back == walked[::-1]


def test_of_some_clusters_only_these_are_shown_whatever_was_shown_before(history: History, rows: pa.Table) -> None:
    past, (_, newest) = past_of(history), past_of(history).range() or (0, 0)
    every = {*rows["cluster_id"].to_pylist()}
    assert {*past.snapshot(newest).clusters} == every
    for cluster_id in every:
        shown = of_moment(past.snapshot(newest, (cluster_id,)))
        assert shown == {cluster_id: folded(rows, newest)[cluster_id]}
    assert of_moment(past.snapshot(newest)) == folded(rows, newest)


def test_a_moment_that_is_not_recorded_is_refused_with_what_is(history: History) -> None:
    past = past_of(history)
    oldest, newest = past.range() or (0, 0)
    for at in (oldest - 1_000, newest + 1_000):
        with pytest.raises(
            MomentRefused, match=r"^nothing is recorded of 20\S+Z: give a moment from 20\S+Z to 20\S+Z$"
        ):
            past.snapshot(at)
    assert past.previous(oldest) is None
    assert past.next(newest) is None


def test_without_tables_nothing_can_be_shown(tmp_path: Path) -> None:
    past = Past(tmp_path)
    assert (past.range(), past.previous(NOW), past.next(0)) == (None, None, None)
    with pytest.raises(MomentRefused, match="has no rows yet"):
        past.snapshot(NOW)


def test_a_page_is_walked_by_its_own_changes(history: History, rows: pa.Table) -> None:
    past = past_of(history)
    topics = Counter(name for name in rows["topic"].to_pylist() if name is not None)
    (topic, _), *_ = topics.most_common()
    of = ChangeScope(rows["cluster_id"][0].as_py(), topic, 0)
    at, walked = 0, list[int]()
    while (following := past.next(at, of)) is not None:
        walked.append(at := following)
    mine = [
        row["occurred_not_after"]
        for row in plain(rows.select(["cluster_id", "topic", "partition", "occurred_not_after"])).to_pylist()
        if (row["cluster_id"], row["topic"], row["partition"]) == of[:3]
    ]
    assert walked == sorted({*mine})
    assert past.next(0, ChangeScope(topic="no such topic's name")) is None


def test_spells_incidents_and_sampled_spells_of_real_tables_are_those_of_the_moment(tables: Tables) -> None:
    now = micros_now()
    write_live_cluster(tables, now)
    past = Past(tables.directory, lambda: now)
    snapshot = past.snapshot(now)
    (cluster,) = snapshot.clusters.values()
    assert cluster.incidents is not None
    assert [row["short_id"] for row in cluster.incidents.open] == ["main-4"]
    assert {each.condition for each in cluster.conditions} >= {"broker_down", "offline_partitions"}


def test_a_time_without_observation_is_known_as_such_and_nothing_is_counted_in_it(tmp_path: Path) -> None:
    life = Life(tmp_path)
    began = life.story.now
    life.change(0, (1, 2))
    life.commit()
    until = life.story.now
    life.later(3 * HOUR)
    life.story.snapshot([{"isr": (1, 2), "partition_epoch": 1}, {}])
    life.commit()
    found = life.story.now
    life.later(60)
    life.story.heartbeat()
    life.commit()
    past = Past(tmp_path)
    cluster_id = life.story.envelope()["cluster_id"]
    for at, is_observed in (
        (began, True),
        (until, True),
        (until + 1, False),
        (found - 1, False),
        (found, True),
        (found + 1, True),
    ):
        assert (at, past.was_observed(at, cluster_id)) == (at, is_observed)
        (cluster,) = past.snapshot(at).clusters.values()
        assert cluster.watermark == (at if is_observed else until)
        assert cluster.age_seconds(at) == (at - (cluster.watermark or 0)) / 1_000_000


def test_incidents_that_were_open_then_are_shown_as_of_then(tables: Tables) -> None:
    def incident(name: str, opened: int, **more: Any) -> dict[str, Any]:
        return Rows().incident(name, "isr_shrink", START + opened * SECOND, short_id=f"main-{name}", **more)

    tables.put(
        "incidents",
        incident("1", 10, closed_at=START + 20 * SECOND, updated_at=START + 20 * SECOND, offline_now=0, carried=None),
        incident(
            "2", 15, updated_at=START + 40 * SECOND, recovered_at=START + 30 * SECOND, offline_now=7, offline_peak=9
        ),
        incident("3", 16, closed_at=START + 18 * SECOND, merged_into="2"),
        as_of=1,
    )
    every = select(table_at(tables.directory / "incidents"), INCIDENTS)

    def shown(second: int) -> list[dict[str, Any]]:
        of = incidents_at(every, START + second * SECOND)
        return [row for each in of.values() for row in each.open]

    assert [[row["incident_id"] for row in shown(second)] for second in (5, 12, 17, 20, 50)] == [
        [], ["1"], ["2", "1"], ["2"], ["2"]
    ]  # fmt: skip
    first, second = shown(17)[1], shown(17)[0]
    assert (first["closed_at"], first["updated_at"], first["offline_now"]) == (None, START + 17 * SECOND, None)
    assert (second["recovered_at"], second["offline_now"], second["offline_peak"]) == (None, None, 9)
    assert shown(35)[0]["recovered_at"] == START + 30 * SECOND


def test_what_was_committed_later_and_occurred_before_replaces_nothing_newer(tables: Tables) -> None:
    rows, hour, end = Rows(), 3600 * SECOND, START + 10 * 3600 * SECOND

    def changes(at: int, leader: int) -> list[Any]:
        state = rows.state([1, 2, 4], [leader], leader, change_number=leader)
        broker = rows.broker(4, at, port=9000 + leader)
        return [rows.cluster_row(at, controller=leader), broker, rows.partition("orders", 0, state, at)]

    tables.commit(*changes(START, 1), rows.source(START))
    tables.commit(*changes(START + 5 * hour, 2))  # committed before what occurred before it
    tables.commit(*changes(START + 3 * hour, 4))
    tables.commit(*changes(START + 7 * hour, 1), rows.source(end))
    past = Past(tables.directory, lambda: NOW)

    def shows(*moments: int) -> None:
        every = pa.concat_tables(part for _, part in ChangeReader(tables.directory / "partition_changes").poll())
        for at in moments:
            assert of_moment(past.snapshot(at)) == folded(every, at)

    shows(*(START + each * hour // 2 for each in (12, 11, 10, 9, 7, 6, 14, 15, 13, 12)))
    tables.commit(*changes(START + 6 * hour, 2), rows.source(end))  # within what is held, and before its newest
    shows(START + 6 * hour, START + 6 * hour + SECOND, START + 7 * hour)
    tables.commit(*changes(START + hour, 4), rows.source(end))  # before what is held
    shows(START + 7 * hour, START + 2 * hour, START + 6 * hour)


def test_another_folder_in_their_place_is_read_again(history: History, rows: pa.Table, tmp_path: Path) -> None:
    tables, (_, newest) = tmp_path / "tables", past_of(history).range() or (0, 0)
    shutil.copytree(history.tables, tables)
    past = Past(tables)
    assert of_moment(past.snapshot(newest)) == folded(rows, newest)
    shutil.rmtree(tables)
    life = Life(tables)
    life.derive()
    assert {*past.snapshot(life.story.now).clusters} == {"cluster-1"}
    shutil.rmtree(tables)
    shutil.copytree(history.tables, tables)
    assert of_moment(past.snapshot(newest)) == folded(rows, newest)


def test_a_cluster_whose_newest_report_is_unknown_is_known_up_to_its_own_rows(history: History) -> None:
    (_, newest) = past_of(history).range() or (0, 0)
    present = past_of(history).snapshot(newest)
    one = next(iter(present.clusters))
    past = Past(history.tables, present=lambda: replace(present, clusters={one: present.clusters[one]}))
    (_, upto) = past.range() or (0, 0)
    for cluster_id, cluster in past.snapshot(upto).clusters.items():
        changed = max(each.changed_at or 0 for each in cluster.partitions())
        assert (cluster.watermark or 0) <= upto
        assert cluster_id == one or changed <= (cluster.watermark or 0) <= upto
