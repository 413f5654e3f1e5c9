"""The change log alone is brought back from an older copy: what followed from its later versions goes, nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streaming.contracts.observations import Observation
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES, TABLES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log import maintenance
from streaming.delta.log.durable import cut_unflushed, flush, flushed_version
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.log.table_log import newest_version
from streaming.delta.projections import rollback
from streaming.delta.projections.rollback import roll_back
from streaming.jobs.incidents import IncidentsBatch
from streaming.jobs.shards.batch import ReplicationBatch
from tests.end_to_end.stories import essence, expected_changes, long_story
from tests.jobs.shards.test_batch import published, rows

DERIVED = ["replication_events", "partition_state", "broker_state", "cluster_state", "conditions", "incidents"]
ESSENCE = ("condition", "subject", "since", "began_at", "ended_at", "incident_id", "short_id", "partitions")
LATER = [pytest.param(10.0, id="rolled back"), pytest.param(0.0, id="derived anew")]


def run(tables: Path, story: list[Observation], policy: RetentionPolicy, size: int = 7) -> None:
    """Apply what the tables lack, and derive the other tables after each batch."""
    batch = ReplicationBatch(tables, policy)
    incidents = IncidentsBatch(tables, 30.0, 120.0, policy)
    log = tables / PARTITION_CHANGES.name
    begin = batch.at(story[0].source).position + 1
    for start in range(begin, len(story), size):
        batch.apply(published(story[start : start + size], start=start))
        batch.project()
        incidents.apply(ChangeReader(log, incidents.version).poll())


@pytest.mark.parametrize("minutes", LATER)
def test_what_is_ahead_is_derived_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float) -> None:
    if not minutes:  # maintenance deletes at once what the newest version does not need
        for name, often in (("COMMITS_BETWEEN_ROUNDS", 2), ("LOG_ENTRIES", 1), ("SECONDS_BETWEEN_SWEEPS", 0.0)):
            monkeypatch.setattr(maintenance, name, often)
    policy, story = RetentionPolicy(reader_minutes=minutes), long_story(seed=9, steps=40)
    half = len(story) // 2
    tables = tmp_path / "tables"
    log = tables / PARTITION_CHANGES.name
    run(tables, story[:half], policy)
    shutil.copytree(log, tmp_path / "copy")
    run(tables, story, policy)
    flush(tables)
    shutil.rmtree(log)
    (tmp_path / "copy").rename(log)
    other = [*story[:half], *long_story(seed=9, steps=40)[half:-5]]

    assert cut_unflushed(tables) == {}
    assert sorted(roll_back(tables)) == sorted(DERIVED)
    assert roll_back(tables) == []
    for path in (tables / name for name in TABLES):
        assert (flushed_version(path) or 0) <= max(newest_version(path), 0)
    run(tables, other, policy, size=11)

    expected = expected_changes(other)
    assert essence(rows(tables, PARTITION_CHANGES.name)) == expected
    events = sorted(row["event_id"] for row in rows(tables, "replication_events"))
    assert events == sorted(event for row in expected for event in row["events"])
    last = {row["key"][1]: row["after"]["change_number"] for row in expected if row["after"]}
    assert {row["partition"]: row["change_number"] for row in rows(tables, "partition_state")} == last
    run(tmp_path / "plain", other, policy)
    assert incidents(tables) == incidents(tmp_path / "plain") != []
    assert conditions(tables) == conditions(tmp_path / "plain") != []


def incidents(tables: Path) -> list[tuple[object, ...]]:
    return sorted((row["incident_id"], row["opened_at"], row["closed_at"]) for row in rows(tables, INCIDENTS.name))


def conditions(tables: Path) -> list[tuple[object, ...]]:
    return sorted(tuple(map(str, (row[name] for name in ESSENCE))) for row in rows(tables, "conditions"))


def test_where_there_is_no_change_log_nothing_is_touched(tmp_path: Path) -> None:
    run(tmp_path, long_story(seed=9, steps=20), RetentionPolicy())
    shutil.rmtree(tmp_path / PARTITION_CHANGES.name)
    assert roll_back(tmp_path) == []


def test_tables_of_one_time_are_left_as_they_are(tmp_path: Path) -> None:
    run(tmp_path, long_story(seed=9, steps=20), RetentionPolicy())
    assert roll_back(tmp_path) == []


def test_a_table_that_cannot_be_read_is_left_to_the_query_that_writes_it(tmp_path: Path) -> None:
    run(tmp_path, long_story(seed=9, steps=20), RetentionPolicy())
    events = tmp_path / "replication_events"
    (events / "_delta_log" / f"{newest_version(events):020}.json").write_text("{")
    assert roll_back(tmp_path) == []


def test_a_listing_that_lacks_the_newest_version_rolls_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, long_story(seed=9, steps=20), RetentionPolicy())
    monkeypatch.setattr(rollback, "newest_version", lambda path: newest_version(path) - 1)
    assert roll_back(tmp_path) == []


def test_what_a_job_that_is_superseded_still_commits_is_not_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits, and derives what follows, after its successor has looked up the newest version."""
    story = long_story(seed=9, steps=30)
    run(tmp_path, story[:14], RetentionPolicy())
    looked_up = rollback.newest_version

    def looked_up_just_before(path: Path) -> int:
        version = looked_up(path)
        run(tmp_path, story[:28], RetentionPolicy())
        return version

    monkeypatch.setattr(rollback, "newest_version", looked_up_just_before)
    assert roll_back(tmp_path) == []
    assert essence(rows(tmp_path, "partition_changes")) == expected_changes(story[:28])
