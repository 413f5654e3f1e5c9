from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from exporters.read_model.cluster_samples import ReplicaOffsets
from exporters.read_model.reader import TablesReader
from exporters.read_model.snapshot import NO_TABLE, ReplicationSnapshot
from streaming.contracts.health import AT_MIN_ISR, PARTITIONS, UNDER_REPLICATED
from streaming.contracts.state import PartitionState
from streaming.delta.changes.reader import ChangesRestarted
from streaming.errors import TableUnreadable
from tests.exporters.conftest import restless
from tests.exporters.meaning import meaning

SECOND = 1_000_000


def partitions(snapshot: ReplicationSnapshot) -> dict[tuple[str, int], PartitionState]:
    known = (each for cluster in snapshot.clusters.values() for each in cluster.partitions())
    return {(each.topic, each.partition): each for each in known}


def shrunk(rows: Any, at: int, *, left: int = 2, cause: str | None = "fenced") -> dict[str, Any]:
    """Broker ``left`` leaves the ISR of orders-0."""
    isr = [broker for broker in (1, 2, 3) if broker != left]
    before = rows.state([1, 2, 3], [1, 2, 3], 1)
    after = rows.state([1, 2, 3], isr, 1, isr_shrinks=1, change_number=1, under_replicated_since=at, changed_at=at)
    event = {"event_id": f"shrink-{at}", "event": "isr_shrink", "event_broker": left, "detail": None}
    change = {"before": before, "left_isr": [left], "joined_isr": [], "cause": cause, "evidence": "proven"}
    return dict(rows.partition("orders", 0, after, at, **change, events=[event]))


def baseline(rows: Any) -> list[dict[str, Any]]:
    return [
        rows.cluster_row(),
        *(rows.broker(number) for number in (1, 2, 3)),
        rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2, 3], 1), is_baseline=True),
        rows.partition("orders", 1, rows.state([2, 3, 1], [2, 3, 1], 2), is_baseline=True),
        rows.source(rows.start),
    ]


def test_before_there_are_tables_the_snapshot_is_empty_and_says_so(tmp_path: Path) -> None:
    snapshot = TablesReader(tmp_path / "nothing").refresh()
    assert (snapshot.version, snapshot.clusters) == (NO_TABLE, {})


def test_the_changes_alone_build_the_state_while_the_state_tables_are_empty(tables: Any, rows: Any) -> None:
    reader = TablesReader(tables.directory)
    reader.refresh()
    tables.commit(*baseline(rows))
    version = tables.commit(shrunk(rows, rows.start + SECOND), rows.source(rows.start + 2 * SECOND))
    snapshot = reader.refresh()
    cluster = snapshot.clusters["id-of-main"]
    assert snapshot.version == version
    assert partitions(snapshot)["orders", 0].isr == (1, 3)
    assert cluster.totals.isr_shrinks == 1
    assert cluster.departures[2]["fenced"] == 1
    assert (cluster.counts.states[PARTITIONS], cluster.counts.states[UNDER_REPLICATED]) == (2, 1)
    assert cluster.counts.states[AT_MIN_ISR] == 1
    assert (cluster.counts.in_sync[2], cluster.counts.hosted[2], cluster.counts.led[2]) == (1, 2, 1)
    assert cluster.watermark == rows.start + 2 * SECOND


def test_what_did_not_change_is_the_same_object_so_that_nothing_is_rendered_again(tables: Any, rows: Any) -> None:
    tables.commit(*baseline(rows), rows.partition("other", 0, rows.state([1], [1], 1, min_isr=1)))
    reader = TablesReader(tables.directory)
    before = reader.refresh().clusters["id-of-main"].topics
    tables.commit(shrunk(rows, rows.start + SECOND))
    after = reader.refresh().clusters["id-of-main"].topics
    assert after["id-of-other"] is before["id-of-other"]
    assert after["id-of-orders"] is not before["id-of-orders"]


@pytest.mark.parametrize("missed", [1, 70])
def test_a_reader_that_is_far_behind_misses_nothing_when_the_log_it_has_not_read_is_gone(
    tables: Any, rows: Any, missed: int
) -> None:
    tables.commit(*baseline(rows))
    reader = TablesReader(tables.directory)
    reader.refresh()
    for second in range(1, missed + 1):
        tables.commit(shrunk(rows, rows.start + second * SECOND))
    tables.compact()
    tables.expire_log()
    tables.commit(rows.source(rows.start + (missed + 1) * SECOND))
    snapshot = reader.refresh()
    cluster = snapshot.clusters["id-of-main"]
    assert partitions(snapshot)["orders", 0].isr == (1, 3)
    assert cluster.departures == {2: {"fenced": missed}}
    assert cluster.watermark == rows.start + (missed + 1) * SECOND
    assert meaning(snapshot) == meaning(TablesReader(tables.directory).refresh())


def test_tables_that_are_made_anew_are_read_from_their_beginning(tables: Any, rows: Any) -> None:
    tables.commit(*baseline(rows))
    tables.commit(shrunk(rows, rows.start + SECOND))
    reader = TablesReader(tables.directory)
    reader.refresh()
    shutil.rmtree(tables.directory)
    tables.opened.clear()
    tables.commit(rows.cluster_row(), rows.partition("payments", 0, rows.state([1], [1], 1, min_isr=1)))
    for _ in range(3):
        tables.commit(rows.source(rows.start + SECOND))
    snapshot = reader.refresh()
    assert list(partitions(snapshot)) == [("payments", 0)]
    assert snapshot.clusters["id-of-main"].departures == {}
    assert meaning(snapshot) == meaning(TablesReader(tables.directory).refresh())


def test_state_tables_that_know_more_than_the_changes_are_not_shown(tables: Any, rows: Any) -> None:
    first = baseline(rows)
    tables.commit(*first)
    copy = tables.directory.parent / "copy"
    shutil.copytree(tables.directory / "partition_changes", copy)
    later = shrunk(rows, rows.start + SECOND)
    tables.project([*first, later], tables.commit(later))
    reader = TablesReader(tables.directory)
    good = reader.refresh()
    shutil.rmtree(tables.directory / "partition_changes")
    copy.rename(tables.directory / "partition_changes")
    for _ in range(2):
        with pytest.raises(ChangesRestarted, match=r"up to version 2 of .*partition_changes"):
            reader.refresh()
    assert reader.snapshot is good


def test_after_an_error_nothing_is_lost_because_everything_is_read_anew(
    tables: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.commit(*baseline(rows))
    reader = TablesReader(tables.directory)
    reader.refresh()
    tables.commit(shrunk(rows, rows.start + SECOND))
    monkeypatch.setattr("exporters.read_model.reader.apply_changes", unreadable)
    with pytest.raises(OSError, match="disk"):
        reader.refresh()
    assert partitions(reader.snapshot)["orders", 0].isr == (1, 2, 3)
    assert reader.statuses[0].error is not None
    assert 0 <= reader.statuses[0].seconds < 60, "what the reading took until it failed"
    monkeypatch.undo()
    assert partitions(reader.refresh())["orders", 0].isr == (1, 3)
    assert reader.snapshot.clusters["id-of-main"].totals.isr_shrinks == 1


def unreadable(*_: Any) -> None:
    raise OSError("the disk is gone")


def test_an_open_episode_that_ends_before_it_was_told_up_to_does_not_take_seconds_back(tables: Any, rows: Any) -> None:
    tables.commit(*baseline(rows))
    tables.commit(shrunk(rows, rows.start), rows.source(rows.start + 10 * SECOND))
    reader = TablesReader(tables.directory)
    reader.refresh()
    ended = rows.state([1, 2, 3], [1, 2, 3], 1, under_replicated_seconds=9.0, unknown_seconds=0.0)
    tables.commit(rows.partition("orders", 0, ended, rows.start + 9 * SECOND))
    assert partitions(reader.refresh())["orders", 0].under_replicated_seconds == 10.0


def test_the_watermark_follows_the_primary_source_only_and_never_goes_back(tables: Any, rows: Any) -> None:
    corroborating = rows.source(rows.start + 90 * SECOND, source_kind="poll", source="admin:1")
    tables.commit(*baseline(rows), corroborating, rows.source(rows.start + 5 * SECOND))
    tables.commit(rows.cluster_row(rows.start + 3 * SECOND))
    cluster = TablesReader(tables.directory).refresh().clusters["id-of-main"]
    assert cluster.watermark == rows.start + 5 * SECOND
    assert sorted(cluster.sources) == [("replication", "admin:1"), ("replication", "metadata_log:collector-1")]


def test_a_clock_that_is_set_back_does_not_make_a_dead_source_look_fresh(tables: Any, rows: Any) -> None:
    """This machine's clock goes back by an hour: the newest watermark lies ahead of it, as far as it can see."""
    clock = [rows.start + 5 * SECOND]
    reader = TablesReader(tables.directory, clock=lambda: clock[0])

    def age_after(seconds: int) -> float | None:
        clock[0] += seconds * SECOND
        return reader.refresh().clusters["id-of-main"].age_seconds(clock[0])

    tables.commit(rows.cluster_row(), rows.source(rows.start))
    assert age_after(10) == 15.0
    assert [age_after(-3600), age_after(40), age_after(50)] == [0.0, 40.0, 90.0]
    tables.commit(rows.cluster_row(rows.start + 9 * SECOND), rows.source(rows.start + 9 * SECOND))
    assert [age_after(1), age_after(1)] == [0.0, 1.0]


def test_a_clock_that_is_ahead_does_not_make_a_dead_source_look_fresh(tables: Any, rows: Any) -> None:
    """The observed cluster's clock is an hour ahead of the exporter's: all it says is whether it goes on."""
    clock, ahead = [rows.start], rows.start + 3600 * SECOND
    reader = TablesReader(tables.directory, clock=lambda: clock[0])
    tables.commit(*baseline(rows), rows.cluster_row(ahead))

    def age_after(seconds: int, *committed: dict[str, Any]) -> float | None:
        clock[0] += seconds * SECOND
        if committed:
            tables.commit(*committed)
        return reader.refresh().clusters["id-of-main"].age_seconds(clock[0])

    assert age_after(0) == 0
    assert age_after(30) == 30
    assert age_after(5, rows.cluster_row(ahead + 35 * SECOND)) == 0
    assert age_after(40, rows.broker(1)) == 40  # what is of another source, or late, is no sign of life
    assert age_after(3600 + 10) == 3650


def test_offsets_and_broker_metrics_are_read_again_when_their_table_has_another_version(tables: Any, rows: Any) -> None:
    tables.commit(*baseline(rows))
    reader = restless(tables.directory)
    reader.refresh()
    identity = {**rows.owner, "topic_id": "id-of-orders", "topic": "orders", "partition": 0, "source": "offsets:1"}
    told = {"log_start_offset": 5, "high_watermark": 70, "last_stable_offset": None, "log_end_offset": None}
    for at, offset in ((1, 70), (2, 80)):
        row = {**identity, **told, "broker": 1, "high_watermark": offset, "collected_at": rows.start + at}
        tables.put("replica_offsets", row)
        metric = {**rows.owner, "broker": 1, "metric": "m", "source": "jmx", "collected_at": rows.start + at}
        tables.put("broker_metrics", {**metric, "metric_value": float(offset)})
        cluster = reader.refresh().clusters["id-of-main"]
        assert cluster.offsets["id-of-orders"] == {0: (ReplicaOffsets(1, 5, offset),)}
        assert [metric.metric_value for metric in cluster.samples.broker_metrics] == [float(offset)]
        assert cluster.sources["samples", "offsets:1"].state.observed_until == rows.start + at
        assert cluster.watermark == rows.start
    assert {status.seconds for status in reader.statuses} == {0.0}, "the clock stands still"
    counted = {"position": 9, "sequence": 9, "observed_until": rows.start, "collected_at": rows.start}
    progress = {**rows.owner, "channel": "samples", "source": "offsets:1", "source_kind": "none", **counted}
    tables.put("source_progress", {**progress, "duplicates": 0, "quarantined": 0})
    known = reader.refresh().clusters["id-of-main"].sources["samples", "offsets:1"].state
    assert (known.position, known.observed_until) == (9, rows.start + 2), "the table of the samples is ahead"


def test_a_cluster_of_two_names_has_the_metrics_of_every_broker(tables: Any, rows: Any) -> None:
    tables.commit(*baseline(rows))
    metric = {"metric": "m", "metric_value": 1.0, "cluster_id": rows.owner["cluster_id"]}
    tables.put(
        "broker_metrics",
        {**metric, "cluster": "main", "broker": 1, "source": "jmx:a", "collected_at": rows.start + 2},
        {**metric, "cluster": "other", "broker": 2, "source": "jmx:b", "collected_at": rows.start + 1},
    )
    cluster = TablesReader(tables.directory).refresh().clusters["id-of-main"]
    assert [sample.broker for sample in cluster.samples.broker_metrics] == [1, 2]


def test_recent_events_are_kept_newest_last_and_a_fresh_start_shows_those_before_the_state_tables(
    tables: Any, rows: Any
) -> None:
    first = baseline(rows)
    tables.commit(*first)
    tables.commit(shrunk(rows, rows.start + SECOND))
    tables.commit(shrunk(rows, rows.start + 2 * SECOND, left=3))
    tables.project([*first, shrunk(rows, rows.start + 2 * SECOND, left=3)], 3)
    events = TablesReader(tables.directory).refresh().recent_events
    assert [(event.event_id, event.left_isr) for event in events] == [
        (f"shrink-{rows.start + SECOND}", (2,)),
        (f"shrink-{rows.start + 2 * SECOND}", (3,)),
    ]
    newest = events[-1]
    assert (newest.topic, newest.partition, newest.cause, newest.evidence) == ("orders", 0, "fenced", "proven")
    assert (newest.isr_before, newest.isr_after, newest.leader_after) == ((1, 2, 3), (1, 2), 1)


def test_a_change_log_that_may_not_be_looked_at_is_refreshed_which_says_why(
    busy_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = TablesReader(busy_cluster.directory)
    reader.refresh()
    assert not reader.has_news()

    def refused(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.stat", refused)
    assert reader.has_news()
    with pytest.raises(TableUnreadable, match="Permission denied; run this as a user who may read"):
        reader.refresh()
