"""Incidents as the exporter tells them: the open ones by class, and a count of the others that only grows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from exporters.metrics.clusters import INCIDENT_METRICS
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.incident_archive import IncidentArchive
from exporters.read_model.reader import TablesReader
from streaming.contracts.events import IncidentClass
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.jobs.incidents import IncidentsBatch
from tests.exporters.conftest import restless
from tests.exporters.json_answers import json_answer
from tests.plugins.played import START, play

SECOND = 1_000_000
OPEN, EACH_OPEN, DESCRIBED, CURRENT, CLOSED = INCIDENT_METRICS


def counts(reader: TablesReader, metric: Any, cluster: str = "main") -> Counter[str]:
    """Give the samples of a cluster by class; every class is told."""
    samples = dict(metric.samples(clusters_by_name(reader.refresh())[cluster]))
    assert list(samples) == [(cluster, kind.value) for kind in IncidentClass]
    return +Counter({kind: int(value) for (_, kind), value in samples.items()})


def test_a_cluster_that_appears_after_an_empty_table_has_no_incidents_and_says_so(tables: Any, rows: Any) -> None:
    tables.put("incidents")
    reader = restless(tables.directory)
    assert reader.refresh().incidents == {}
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    assert (counts(reader, OPEN), counts(reader, CLOSED)) == ({}, {})


def test_without_the_table_nothing_is_told(tables: Any, rows: Any) -> None:
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    snapshot = TablesReader(tables.directory).refresh()
    (cluster,) = snapshot.clusters.values()
    assert [sample for metric in INCIDENT_METRICS for sample in metric.samples(cluster)] == []
    answer = json_answer(snapshot, rows.start, "incidents", tables.directory)
    assert (answer["freshness"]["main"]["incidents_available"], answer["incidents"]) == (False, [])


def test_the_count_of_a_class_never_goes_back_while_incidents_change_their_class_merge_and_end(
    tables: Any, rows: Any
) -> None:
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    reader = restless(tables.directory)
    one, two = (("loss:1", rows.start), ("loss:2", rows.start + SECOND))
    ended = {"closed_at": rows.start + 9 * SECOND}
    steps = [
        ([rows.incident(one[0], "slow_follower", one[1])], {"slow_follower": 1}, {}),
        ([rows.incident(one[0], "broker_loss", one[1]), rows.incident(two[0], "broker_loss", two[1])],
         {"broker_loss": 2}, {}),
        ([rows.incident(one[0], "broker_loss", one[1], **ended), rows.incident(two[0], "broker_loss", two[1])],
         {"broker_loss": 1}, {}),
        ([rows.incident(one[0], "rolling_restart", one[1]),
          rows.incident(two[0], "broker_loss", two[1], **ended, merged_into=one[0], carried=None)],
         {"rolling_restart": 1}, {}),
        ([rows.incident(one[0], "rolling_restart", one[1], **ended, carried=None),
          rows.incident(two[0], "broker_loss", two[1], **ended, merged_into=one[0], carried=None)],
         {}, {"rolling_restart": 1}),
    ]  # fmt: skip
    for incidents, still_open, over in steps:
        tables.put("incidents", *incidents, as_of=1)
        assert (counts(reader, OPEN), counts(reader, CLOSED)) == (still_open, over)
        cluster = clusters_by_name(reader.snapshot)["main"]
        each = [labels for labels, _ in EACH_OPEN.samples(cluster)]
        assert Counter(labels[2] for labels in each) == still_open
        assert [labels[:2] for labels, _ in DESCRIBED.samples(cluster)] == [labels[:2] for labels in each], "for joins"
    assert counts(TablesReader(tables.directory), CLOSED) == {"rolling_restart": 1}


def test_the_api_tells_the_open_ones_newest_first_with_their_suspects(tables: Any, rows: Any, other_rows: Any) -> None:
    tables.commit(*(row for each in (rows, other_rows) for row in (each.cluster_row(), each.source(rows.start))))
    suspects = [{"broker": 3, "score": 0.75}]
    tables.put(
        "incidents",
        rows.incident("loss:1", "broker_loss", rows.start, suspects=suspects, brokers=[3], topics=["orders"]),
        rows.incident("loss:2", "disk_failure", rows.start + 2 * SECOND, closed_at=rows.start + 3 * SECOND),
        other_rows.incident("lag:3", "slow_follower", rows.start + SECOND),
        as_of=1,
    )
    snapshot = TablesReader(tables.directory).refresh()
    answers = partial(json_answer, snapshot, rows.start + SECOND, "incidents", tables.directory)
    answer = answers()
    assert [row["incident_id"] for row in answer["incidents"]] == ["lag:3", "loss:1"]
    assert {name: it["incidents_available"] for name, it in answer["freshness"].items()} == {
        "main": True,
        "other": True,
    }
    (main,) = answers(cluster="main")["incidents"]
    assert (main["suspects"], main["brokers"], main["topics"]) == (suspects, (3,), ("orders",))
    assert (main["opened_at"], main["closed_at"]) == (rows.start, None)
    assert "carried" not in main
    assert (answer["count"], answers(limit="1")["incidents"]) == (2, answer["incidents"][:1])


def test_the_id_of_what_was_merged_answers_with_the_open_one_that_it_is_part_of_now(tables: Any, rows: Any) -> None:
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    ended = {"closed_at": rows.start + SECOND, "carried": None}
    tables.put(
        "incidents",
        rows.incident("loss:1", "broker_loss", rows.start, short_id="main-1"),
        rows.incident("lag:2", "slow_follower", rows.start, short_id="main-2", merged_into="loss:1", **ended),
        rows.incident("lag:3", "slow_follower", rows.start, short_id="main-3", merged_into="lag:2", **ended),
        rows.incident("lag:4", "slow_follower", rows.start, short_id="main-4", **ended),
        rows.incident("lag:5", "slow_follower", rows.start, short_id="main-5", merged_into="lag:4", **ended),
        rows.incident("move:6", "reassignment", rows.start + 1),  # opened before there were short ids
        as_of=1,
    )
    snapshot = restless(tables.directory).refresh()
    samples = dict(CURRENT.samples(clusters_by_name(snapshot)["main"]))
    current = {labels[1:]: value for labels, value in samples.items()}
    stand = {("move:6", "move:6"), *((f"main-{number}", "main-1") for number in (1, 2, 3))}
    assert current == dict.fromkeys(stand, 1)
    assert {labels[1] for labels, _ in EACH_OPEN.samples(clusters_by_name(snapshot)["main"])} == {"main-1", "move:6"}
    answer = partial(json_answer, snapshot, rows.start, "incidents", tables.directory)
    for wanted in ("main-1", "main-3", "lag:3", "loss:1"):
        assert [row["short_id"] for row in answer(incident=wanted)["incidents"]] == ["main-1"]
    assert [row["short_id"] for row in answer(incident="main-5")["incidents"]] == ["main-4"], "closed ones, too"


def test_after_a_cluster_was_renamed_both_names_find_its_incidents_but_not_those_of_another(
    tables: Any, rows: Any, other_rows: Any
) -> None:
    live = replace(rows, cluster="live")
    tables.commit(*(row for each in (live, other_rows) for row in (each.cluster_row(), each.source(rows.start))))
    tables.put(
        "incidents",
        rows.incident("loss:1", "broker_loss", rows.start, short_id="main-1"),
        live.incident("loss:2", "broker_loss", rows.start + 1, short_id="live-2"),
        other_rows.incident("loss:3", "broker_loss", rows.start + 2, short_id="other-1"),
        as_of=1,
    )
    answer = partial(json_answer, restless(tables.directory).refresh(), rows.start, "incidents", tables.directory)
    found = {
        wanted: [row["incident_id"] for row in answer(incident=wanted)["incidents"]]
        for wanted in ("main-1", "live-1", "main-2", "live-2", "other-1", "other-2")
    }
    assert found == {
        "main-1": ["loss:1"], "live-1": ["loss:1"], "main-2": ["loss:2"], "live-2": ["loss:2"],
        "other-1": ["loss:3"], "other-2": [],
    }  # fmt: skip


def test_what_the_incidents_of_a_scenario_become_is_told_and_the_count_only_grows(tmp_path: Path) -> None:
    play(tmp_path, "broker_loss", seconds=80)
    batch = IncidentsBatch(tmp_path, 5.0, 5.0)
    reader = restless(tmp_path)
    was_open: Counter[str] = Counter()
    closed: list[int] = []
    for version, changes in ChangeReader(tmp_path / "partition_changes").poll():
        batch.apply([(version, changes)])
        if version % 5 == 0:
            was_open |= counts(reader, OPEN, "broker_loss")
            closed.append(counts(reader, CLOSED, "broker_loss").total())
    assert was_open.keys() == {IncidentClass.BROKER_LOSS}
    assert closed == sorted(closed)
    assert (closed[0], closed[-1]) == (0, len(IncidentArchive(tmp_path).all()))


def test_the_count_never_goes_back_though_closed_incidents_expire(tmp_path: Path) -> None:
    name = "rolling_restart_unclean"
    play(tmp_path, name, seconds=100)
    versions = ChangeReader(tmp_path / "partition_changes").poll()
    now = START
    batch = IncidentsBatch(tmp_path, 2.0, 2.0, RetentionPolicy(days=7, clock=lambda: now))
    reader = restless(tmp_path)
    closed: list[int] = []
    for number, added in enumerate(versions):
        now = START if number < 2 * len(versions) / 3 else START + 8 * 86_400 * SECOND
        batch.apply([added])
        closed.append(counts(reader, CLOSED, name).total())

    assert closed == sorted(closed)
    assert closed[-1] > len([row for row in IncidentArchive(tmp_path).all() if row["closed_at"]])
    assert counts(TablesReader(tmp_path), CLOSED, name).total() == closed[-1]
