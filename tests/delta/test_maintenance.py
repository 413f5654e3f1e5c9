from __future__ import annotations

import datetime as dt
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from exporters.read_model.past import state_as_of
from exporters.read_model.reader import TablesReader
from streaming.contracts.observations import Channel
from streaming.contracts.sample_tables import REPLICA_OFFSETS
from streaming.contracts.state import SourceLag
from streaming.contracts.tables import PARTITION_CHANGES, PARTITION_STATE_TABLE, REPLICATION_EVENTS
from streaming.delta.changes.history import expire_changes
from streaming.delta.changes.log import ChangeLog
from streaming.delta.changes.reader import ChangeReader, rows_between
from streaming.delta.log import definitions, table_log
from streaming.delta.log import maintenance as upkeep
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.durable import flush
from streaming.delta.log.maintenance import AppendMaintenance, Maintenance, RetentionPolicy, wall_clock
from streaming.delta.log.queries import read_all
from streaming.delta.log.table_log import delete_log_before, log_entries, newest_checkpoint, written_at
from streaming.delta.log.writer import OVERWRITE, Writer
from streaming.delta.progress import ProgressTable
from streaming.delta.projections.clusters_state import ClustersState
from streaming.errors import TableRefused
from streaming.jobs.shards.batch import ReplicationBatch
from tests.delta.test_change_log import changed
from tests.plugins.derived import Projections
from tests.plugins.played import decoded

PAST = dt.date(2023, 12, 1)
"""The story of the changes is of the month before."""
A_MINUTE = RetentionPolicy(reader_minutes=1)
CHECKPOINT_EVERY = 5


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "CHECKPOINTS_OF_APPENDED", CHECKPOINT_EVERY)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "CHECKPOINTS_OF_APPENDED", CHECKPOINT_EVERY)
    monkeypatch.setattr(upkeep, "COMMITS_BETWEEN_ROUNDS", 3)
    monkeypatch.setattr(upkeep, "ROUNDS_BETWEEN_LARGE", 4)
    monkeypatch.setattr(upkeep, "SECONDS_BETWEEN_SWEEPS", 0.0)
    monkeypatch.setattr(upkeep, "SECONDS_BETWEEN_EXPIRIES", 0.0)


def commit(log: ChangeLog, directory: Path, times: int, seconds: float = 0) -> None:
    """Commit the same rows again and again, so many seconds after each other."""
    _, rows = changed()
    for _ in range(times):
        age(directory / PARTITION_CHANGES.name, seconds)
        log.commit(rows, {"a": log.version})


def age(path: Path, seconds: float) -> None:
    """Make every commit that much older."""
    for file in (path / "_delta_log").glob("*.json") if seconds else ():
        written = file.stat().st_mtime - seconds
        os.utime(file, (written, written))


def project(directory: Path, version: int) -> ClustersState:
    projections = Projections(directory)
    held = projections.recover(version)
    projections.project(held)
    progress = [(source, SourceLag()) for source in held.state.sources.values()]
    ProgressTable(directory, Channel.REPLICATION).replace(progress, version)
    return held


def asked(directory: Path) -> list[Any]:
    """Ask what an exporter shows."""
    clusters = TablesReader(directory).refresh().clusters.values()
    return [(each.cluster, each.totals, each.brokers, each.departures, each.sources) for each in clusters]


def expire_history(directory: Path, before: dt.date) -> DeltaTable:
    """Expire as the one writer of the changes; give the table."""
    writer = Writer.opened(directory, PARTITION_CHANGES)
    expire_changes(directory, writer, before)
    return writer.table


def versions_in_log(path: Path) -> list[int]:
    return sorted(version for _, version in log_entries(path) if version is not None)


def data_files(path: Path) -> set[str]:
    return {file.relative_to(path).as_posix() for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


def count(path: Path) -> int:
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute("select count(*) as n from t")
    return int(pa.table(found)["n"][0].as_py())


@pytest.mark.usefixtures("often")
def test_the_log_and_the_files_stay_few_every_row_stays_and_every_version_is_read(tmp_path: Path) -> None:
    log, path = ChangeLog(tmp_path, A_MINUTE), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=30, seconds=10)
    _, rows = changed()
    kept = versions_in_log(path)
    assert count(path) == 30 * rows.num_rows
    assert len(kept) < 6 + 3 * 2 + CHECKPOINT_EVERY, "of a minute, since the last round, and back to a checkpoint"
    assert kept == list(range(kept[0], log.version + 1))
    counts = [read_all(DeltaTable(str(path), version=version)).num_rows for version in kept[::3]]
    assert counts == sorted(counts), "every version that is listed can still be read"
    assert counts[0] > 0
    assert len(data_files(path)) < 30
    assert ChangeLog(tmp_path).version == log.version
    assert rows_between(path, -1, log.version).num_rows == 30 * rows.num_rows


def test_entries_go_once_they_were_superseded_for_longer_than_readers_may_take(tmp_path: Path) -> None:
    log, path = ChangeLog(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=12)
    DeltaTable(str(path), version=4).create_checkpoint()
    DeltaTable(str(path), version=9).create_checkpoint()
    keeper = Maintenance(Writer.opened(tmp_path, PARTITION_CHANGES), RetentionPolicy(reader_minutes=10))

    keeper.expire_log(now())
    assert versions_in_log(path) == list(range(13)), "all of it is of just now"

    for version, minutes in enumerate([60, 50, 40, 30, 25, 20, 15, 9, 8, 7, 6, 5, 4]):
        _date(path, version, minutes)
    keeper.expire_log(now())
    # Version 6 could be opened up to nine minutes ago, when 7 came; it needs the checkpoint of version 4.
    assert versions_in_log(path) == list(range(4, 13))
    assert read_all(DeltaTable(str(path), version=6)).num_rows == 6 * changed()[1].num_rows

    for version in range(4, 13):
        _date(path, version, 11)
    keeper.expire_log(now())
    assert versions_in_log(path) == list(range(9, 13)), "the checkpoint that readers are pointed at stays"
    assert read_all(DeltaTable(str(path))).num_rows == 12 * changed()[1].num_rows


@pytest.mark.parametrize("commits", [3, 4])
def test_of_what_was_flushed_the_newest_entries_stay_and_one_before_them(tmp_path: Path, commits: int) -> None:
    """Its checkpoint may be torn where the power is cut."""
    log, path = ChangeLog(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=commits)
    keeper = Maintenance(Writer.opened(tmp_path, PARTITION_CHANGES), RetentionPolicy(reader_minutes=10))
    for version in range(log.version + 1):
        DeltaTable(str(path), version=version).create_checkpoint()
        _date(path, version, 60)
    flush(tmp_path)
    keeper.expire_log(now())
    assert versions_in_log(path) == [log.version - 1, log.version]
    (path / "_flushed.json").unlink()
    keeper.expire_log(now())
    assert versions_in_log(path) == [log.version], "nothing holds it back"


def now() -> float:
    return dt.datetime.now(dt.UTC).timestamp()


def _date(path: Path, version: int, minutes: float) -> None:
    entry = path / "_delta_log" / f"{version:020}.json"
    written = now() - 60 * minutes
    os.utime(entry, (written, written))


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("hours", [1, -1], ids=["ahead", "behind"])
def test_the_clock_of_the_job_has_no_say_in_what_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    log, path = ChangeLog(tmp_path, RetentionPolicy(reader_minutes=10)), tmp_path / PARTITION_CHANGES.name
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + 3600 * hours)
    monkeypatch.setattr(time, "time_ns", lambda: int((true() + 3600 * hours) * 1e9))
    commit(log, tmp_path, times=CHECKPOINT_EVERY + 7)
    assert versions_in_log(path) == list(range(log.version + 1)), "all of it is of just now"
    files = len(data_files(path))
    assert files > CHECKPOINT_EVERY
    age(path, seconds=601)
    commit(log, tmp_path, times=CHECKPOINT_EVERY)
    assert versions_in_log(path)[0] >= CHECKPOINT_EVERY, "ten minutes are over"
    assert len(data_files(path)) < files


@pytest.mark.usefixtures("checkpoints")
def test_a_log_that_grows_fast_stays_short_and_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LOG_ENTRIES", 8)
    monkeypatch.setattr(upkeep, "COMMITS_BETWEEN_ROUNDS", 3)
    monkeypatch.setattr(upkeep, "SECONDS_BETWEEN_SWEEPS", 0.0)
    log, path = ChangeLog(tmp_path, RetentionPolicy(reader_minutes=10)), tmp_path / PARTITION_CHANGES.name
    rows = changed()[1].num_rows
    opened = {}
    for _ in range(5):
        commit(log, tmp_path, times=5)
        opened[log.version] = DeltaTable(str(path))
    commit(log, tmp_path, times=10)

    assert len(versions_in_log(path)) < 8 + 3 * 2 + CHECKPOINT_EVERY
    assert {read_all(table).num_rows for table in opened.values()} == {5 * rows * n for n in range(1, 6)}
    assert len(data_files(path)) > 35, "all of it is of just now"

    later = now() + 3600
    monkeypatch.setattr(
        upkeep, "written_at", lambda path, version: later if version == log.version else written_at(path, version)
    )
    commit(log, tmp_path, times=3)
    assert len(data_files(path)) < 15, "removed an hour ago"
    assert count(path) == 38 * rows


def test_a_file_that_no_version_knows_stays_as_for_readers(tmp_path: Path) -> None:
    log, path = ChangeLog(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=1)
    keeper = Maintenance(Writer.opened(tmp_path, PARTITION_CHANGES), RetentionPolicy(reader_minutes=10))
    (path / "date=2023-11-14" / "part-of-a-commit-to-come.parquet").write_bytes(b"")
    began = now()
    for minutes, files in ((0, 2), (9, 2), (11, 1)):
        keeper.sweep(began + 60 * minutes)
        assert len(data_files(path)) == files, minutes


def test_without_a_checkpoint_nothing_of_the_log_goes(tmp_path: Path) -> None:
    log, path = ChangeLog(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=3)
    for checkpoint in (path / "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()
    delete_log_before(path, 3)
    assert newest_checkpoint(path) is None
    assert versions_in_log(path) == [0, 1, 2, 3]


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize("content", ["", '{"v": 4}'])
def test_with_a_damaged_hint_nothing_of_the_log_goes_until_the_next_checkpoint(tmp_path: Path, content: str) -> None:
    log, path = ChangeLog(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=CHECKPOINT_EVERY + 1)
    (path / "_delta_log" / "_last_checkpoint").write_text(content)
    delete_log_before(path, log.version)
    assert versions_in_log(path)[0] == 0
    commit(log, tmp_path, times=CHECKPOINT_EVERY)
    delete_log_before(path, log.version)
    assert versions_in_log(path)[0] == newest_checkpoint(path) == 2 * CHECKPOINT_EVERY


@pytest.mark.usefixtures("checkpoints")
def test_another_writer_may_delete_the_same_entries_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, path = ChangeLog(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=CHECKPOINT_EVERY + 1)
    actions_of = table_log.actions_of

    def outrun(path: Path, version: int) -> list[dict[str, Any]]:
        actions = actions_of(path, version)
        (path / "_delta_log" / f"{version:020}.json").unlink(missing_ok=True)
        return [*actions, {"remove": {"path": "a-file"}}]

    monkeypatch.setattr(table_log, "actions_of", outrun)
    assert set(delete_log_before(path, log.version)) == {"a-file"}
    assert versions_in_log(path)[0] == newest_checkpoint(path)


@pytest.mark.usefixtures("often")
def test_followers_far_behind_read_everything_although_the_log_has_expired(tmp_path: Path) -> None:
    log, path = ChangeLog(tmp_path, RetentionPolicy(reader_minutes=0)), tmp_path / PARTITION_CHANGES.name
    behind = ChangeReader(path)
    commit(log, tmp_path, times=5)
    project(tmp_path, log.version)
    read_once = ChangeReader(path)
    read_once.poll()
    projected, begin = log.version, read_once.version
    commit(log, tmp_path, times=15, seconds=1)

    rows = changed()[1].num_rows
    assert versions_in_log(path)[0] > projected, "their versions are gone from the log"
    assert rows_between(path, projected, log.version).num_rows == 15 * rows
    assert sum(part.num_rows for _, part in read_once.poll()) == 15 * rows
    assert sum(part.num_rows for _, part in behind.poll()) == 20 * rows
    assert begin < read_once.version == behind.version == log.version
    assert project(tmp_path, log.version).version == log.version
    assert len(_event_ids(tmp_path)) == 20 * len(set(_event_ids(tmp_path))), "each change once, and none left out"


def _event_ids(directory: Path) -> list[str]:
    event_ids: list[str] = read_all(DeltaTable(str(directory / REPLICATION_EVENTS.name)))["event_id"].to_pylist()
    return event_ids


@pytest.mark.usefixtures("often")
def test_a_start_after_the_past_has_expired_has_the_same_state_and_the_same_tables(tmp_path: Path) -> None:
    log, path = ChangeLog(tmp_path, A_MINUTE), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=15, seconds=10)
    before = project(tmp_path, log.version)
    commit(log, tmp_path, times=15, seconds=10)
    whole = project(tmp_path, log.version)
    commit(log, tmp_path, times=10, seconds=10)
    project(tmp_path, log.version)
    answers = asked(tmp_path)
    table = expire_history(tmp_path, PAST)

    recovered = Projections(tmp_path).recover(table.version())

    assert count(path) == _keys(), "the newest of each key"
    assert versions_in_log(path)[0] > before.version
    assert decoded(recovered.state) == decoded(whole.state)
    assert asked(tmp_path) == answers


def _keys() -> int:
    """Count what the story is about: one cluster, one source, three brokers, two partitions."""
    _, rows = changed()
    keys = {(row["subject"], row["broker"], row["partition"]) for row in rows.to_pylist()}
    return len(keys)


@pytest.mark.parametrize("is_gone", [False, True])
def test_state_tables_that_know_more_than_the_changes_are_refused(tmp_path: Path, *, is_gone: bool) -> None:
    log, path = ChangeLog(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=2)
    shutil.copytree(path, tmp_path / "copy")
    commit(log, tmp_path, times=3)
    project(tmp_path, log.version)
    shutil.rmtree(path)
    if not is_gone:
        (tmp_path / "copy").rename(path)
    ChangeLog(tmp_path)
    with pytest.raises(TableRefused, match=r"up to version 5 .* bring back the whole folder"):
        ReplicationBatch(tmp_path)


@pytest.mark.usefixtures("often")
def test_days_of_history_are_a_setting_of_the_job(tmp_path: Path) -> None:
    policy = RetentionPolicy(days=30)
    log, path = ChangeLog(tmp_path, policy), tmp_path / PARTITION_CHANGES.name
    _, rows = changed()
    commit(log, tmp_path, times=5)
    assert count(path) == 5 * rows.num_rows, "all of it is of 2023, and no derived table has read it"
    projections = Projections(tmp_path, policy)
    held = projections.recover(log.version)
    for _ in range(5):
        commit(log, tmp_path, times=1)
        held.version = log.version
        projections.project(held)
        ProgressTable(tmp_path, Channel.REPLICATION).replace([], log.version)
    read = log.version
    commit(log, tmp_path, times=5)

    assert rows_between(path, read, log.version).num_rows == 5 * rows.num_rows
    assert count(path) == _keys() + 5 * rows.num_rows, "what is read is one row a key, what is not is whole"
    assert count(tmp_path / REPLICATION_EVENTS.name) == 0
    assert count(tmp_path / PARTITION_STATE_TABLE.name) == 2
    assert log.at("a").position > 0
    assert state_as_of(tmp_path, log.version).clusters


@pytest.mark.parametrize(("days", "expires"), [(30, True), (10_000, False)])
@pytest.mark.usefixtures("often")
def test_a_clock_that_is_ahead_of_that_of_the_store_ends_no_history(
    tmp_path: Path, days: int, *, expires: bool
) -> None:
    """All of it is of 2023, and the clock of the job a hundred years ahead."""
    policy = RetentionPolicy(days=days, clock=lambda: wall_clock() + 36_500 * 86_400_000_000)
    commit(ChangeLog(tmp_path), tmp_path, times=1)
    expired = list[dt.date]()
    keeper = AppendMaintenance(Writer.opened(tmp_path, PARTITION_CHANGES), lambda _, day: expired.append(day), policy)
    keeper.after_commit()
    assert bool(expired) == expires


@pytest.mark.usefixtures("often")
def test_upkeep_that_loses_a_race_stops_like_any_commit(tmp_path: Path) -> None:
    log, path = ChangeLog(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(log, tmp_path, times=4)
    project(tmp_path, log.version)
    keeper = AppendMaintenance(
        Writer.opened(tmp_path, PARTITION_CHANGES), lambda *given: expire_changes(tmp_path, *given)
    )
    commit(log, tmp_path, times=1)
    with pytest.raises(TableRefused, match="another job writes"):
        keeper.expire_history(PAST)
    assert count(path) == 5 * changed()[1].num_rows


def newest(count: int) -> pa.Table:
    row: dict[str, Any] = {"cluster_id": "c", "cluster": "main", "topic": "t", "topic_id": "i"}
    schema = arrow_schema(REPLICA_OFFSETS)
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rest = {field.name: 0 if pa.types.is_integer(field.type) else None for field in schema if field.name not in row}
    rest |= {field.name: "" for field in schema if pa.types.is_string(field.type) and field.name not in row}
    rest |= {field.name: moment for field in schema if pa.types.is_timestamp(field.type) and not field.nullable}
    return pa.Table.from_pylist([{**rest, **row, "partition": number} for number in range(count)], schema=schema)


def test_the_disk_of_a_table_that_is_overwritten_is_bounded_and_an_opened_version_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SECONDS_BETWEEN_SWEEPS", 0.0)
    path = tmp_path / REPLICA_OFFSETS.name
    writer = Writer.opened(tmp_path, REPLICA_OFFSETS)
    keeper, opened = Maintenance(writer, A_MINUTE), None
    for number in range(40):
        writer.write(newest(10), OVERWRITE, {})
        age(path, seconds=20)
        keeper.after_commit()
        if number % 10 == 9:
            opened = DeltaTable(str(path))
        elif opened is not None and number % 10 < 3:
            assert read_all(opened).num_rows == 10, "opened a minute ago"

    assert len(list((path / "_delta_log").iterdir())) < 20
    assert len(data_files(path)) < 20
    assert read_all(DeltaTable(str(path))).num_rows == 10
