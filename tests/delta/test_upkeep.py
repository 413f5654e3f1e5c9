from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from exporters.history.rebuilt import rebuilt
from exporters.reader import Reader
from streaming.contracts.observations import Channel
from streaming.contracts.sample_tables import REPLICA_OFFSETS
from streaming.contracts.tables import PARTITION_CHANGES, PARTITION_STATE_TABLE, REPLICATION_EVENTS
from streaming.delta import upkeep
from streaming.delta.definitions import arrow_schema, create_or_check
from streaming.delta.derived import oldest_needed
from streaming.delta.progress import ProgressTable
from streaming.delta.projections import Projections, SharedState
from streaming.delta.rows import read_all
from streaming.delta.tail import ChangeTail, TailGap, oldest_version, rows_between
from streaming.delta.truth import Truth
from streaming.delta.upkeep import AppendUpkeep, Keep, Upkeep
from streaming.delta.writer import OVERWRITE, Writer
from streaming.errors import ConfigurationError, TableRefused
from tests.delta.test_truth import changed

if TYPE_CHECKING:
    from pathlib import Path

PAST = dt.date(2023, 12, 1)
"""The story of the changes is of the month before."""


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "COMMITS_BETWEEN_ROUNDS", 5)
    monkeypatch.setattr(upkeep, "SECONDS_BETWEEN_SWEEPS", 0.0)


def commit(truth: Truth, times: int) -> None:
    _, rows = changed()
    for _ in range(times):
        truth.commit(rows, {"a": truth.version})


def project(directory: Path, version: int) -> SharedState:
    projections = Projections(directory)
    shared = projections.recover(version)
    projections.project(shared)
    ProgressTable(directory, Channel.REPLICATION).replace([], version)
    return shared


def asked(directory: Path) -> list[Any]:
    """Ask what an exporter shows."""
    clusters = Reader(directory).refresh().clusters.values()
    return [(each.cluster, each.totals, each.brokers, each.departures, each.sources) for each in clusters]


def entries(path: Path) -> int:
    return len(list((path / "_delta_log").iterdir()))


def data_files(path: Path) -> set[str]:
    return {file.relative_to(path).as_posix() for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


def count(path: Path) -> int:
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute("select count(*) as n from t")
    return int(pa.table(found)["n"][0].as_py())


@pytest.mark.usefixtures("often")
def test_the_log_stays_short_and_every_row_stays(tmp_path: Path) -> None:
    truth, path = Truth(tmp_path, Keep(versions=20)), tmp_path / PARTITION_CHANGES.name
    for _ in range(4):
        commit(truth, 25)
        project(tmp_path, truth.version)
    commit(truth, 10)

    _, rows = changed()
    assert count(path) == 110 * rows.num_rows
    assert entries(path) < 20 + 35 + 65 + 10, "the versions kept, since the projection, since a checkpoint"
    assert len(data_files(path)) < 110
    assert oldest_version(path) > 30  # type: ignore[operator]  # there is a table
    assert DeltaTable(str(path), version=oldest_version(path)).version() == oldest_version(path)
    assert Truth(tmp_path).version == truth.version


@pytest.mark.usefixtures("often")
def test_every_version_that_the_log_tells_can_still_be_read(tmp_path: Path) -> None:
    truth, path = Truth(tmp_path, Keep(versions=20)), tmp_path / PARTITION_CHANGES.name
    commit(truth, 70)
    project(tmp_path, truth.version)
    commit(truth, 15)

    begin = oldest_version(path)
    assert begin is not None
    assert begin > 0
    counts = [
        read_all(DeltaTable(str(path), version=version)).num_rows for version in range(begin, truth.version + 1, 7)
    ]
    assert counts == sorted(counts)
    assert rows_between(path, begin - 1, truth.version).num_rows > 0


@pytest.mark.usefixtures("often")
def test_what_a_derived_table_has_still_to_read_never_expires(tmp_path: Path) -> None:
    truth, path = Truth(tmp_path, Keep(versions=10)), tmp_path / PARTITION_CHANGES.name
    commit(truth, 55)
    assert oldest_version(path) == 0, "nothing derives from it yet"
    project(tmp_path, truth.version)
    told = truth.version
    commit(truth, 70)

    assert oldest_needed(tmp_path) == told
    assert rows_between(path, told, truth.version).num_rows == 70 * changed()[1].num_rows


@pytest.mark.usefixtures("often")
def test_a_start_after_the_past_has_expired_has_the_same_state_and_the_same_tables(tmp_path: Path) -> None:
    truth, path = Truth(tmp_path, Keep(versions=5)), tmp_path / PARTITION_CHANGES.name
    commit(truth, 60)
    before = project(tmp_path, truth.version)
    commit(truth, 60)
    whole = Projections(tmp_path).recover(truth.version)
    project(tmp_path, truth.version)
    commit(truth, 20)
    answers = asked(tmp_path)
    table = DeltaTable(str(path))
    AppendUpkeep(table, path, Writer(table)).expire_history(PAST)

    recovered = Projections(tmp_path).recover(table.version())

    assert count(path) == 0
    assert oldest_version(path) > before.version  # type: ignore[operator]  # there is a table
    assert recovered.state == whole.state
    assert asked(tmp_path) == answers


def test_a_past_that_is_gone_while_the_state_tables_need_it_is_told_in_a_sentence(tmp_path: Path) -> None:
    truth, path = Truth(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(truth, 1)
    project(tmp_path, truth.version)
    commit(truth, 3)
    truth_table = DeltaTable(str(path))
    truth_table.create_checkpoint()
    for version in range(4):
        (path / "_delta_log" / f"{version:020}.json").unlink()

    with pytest.raises(TableRefused, match=r"true of version 1 .* bring back the whole folder"):
        Projections(tmp_path).recover(truth.version)


def test_history_before_a_day_expires_and_the_past_is_refused_rather_than_told_wrong(tmp_path: Path) -> None:
    truth, path = Truth(tmp_path), tmp_path / PARTITION_CHANGES.name
    commit(truth, 2)
    project(tmp_path, truth.version)
    rebuilt(tmp_path, truth.version)
    table = DeltaTable(str(path))
    tail = ChangeTail(path, table.version())
    keeper = AppendUpkeep(table, path, Writer(table))

    keeper.expire_history(dt.date(2023, 1, 1))
    assert count(path) == 2 * changed()[1].num_rows, "nothing is so old"
    keeper.expire_history(PAST)

    assert (count(path), tail.poll()) == (0, [])
    assert tail.version == table.version()
    rebuilt(tmp_path, 2)
    with pytest.raises(ConfigurationError, match="has expired"):
        rebuilt(tmp_path, table.version())


@pytest.mark.usefixtures("often")
def test_days_of_history_are_a_setting_of_the_job(tmp_path: Path) -> None:
    truth = Truth(tmp_path, Keep(days=30))
    commit(truth, 5)
    assert count(tmp_path / PARTITION_CHANGES.name) == 0, "all of it was of 2023"
    projections = Projections(tmp_path, Keep(days=30))
    shared = projections.recover(truth.version)
    for _ in range(5):
        commit(truth, 1)
        shared.version = truth.version
        projections.project(shared)
    assert count(tmp_path / REPLICATION_EVENTS.name) == 0
    assert count(tmp_path / PARTITION_STATE_TABLE.name) == 2
    assert truth.position("a") > 0


@pytest.mark.usefixtures("often")
def test_upkeep_that_loses_a_race_stops_like_any_commit(tmp_path: Path) -> None:
    truth = Truth(tmp_path)
    commit(truth, 4)
    table = DeltaTable(str(tmp_path / PARTITION_CHANGES.name))
    keeper = AppendUpkeep(table, tmp_path / PARTITION_CHANGES.name, Writer(table))
    commit(truth, 1)

    with pytest.raises(TableRefused, match="another job writes"):
        keeper.expire_history(PAST)


@pytest.mark.usefixtures("often")
def test_a_follower_that_is_behind_the_log_is_told_so_and_one_within_it_is_not(tmp_path: Path) -> None:
    truth, path = Truth(tmp_path, Keep(versions=10)), tmp_path / PARTITION_CHANGES.name
    behind = ChangeTail(path, 0)
    commit(truth, 60)
    project(tmp_path, truth.version)
    commit(truth, 15)
    project(tmp_path, truth.version)
    within = ChangeTail(path, truth.version)
    commit(truth, 5)

    with pytest.raises(TailGap):
        behind.poll()
    assert within.poll()


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
    table = create_or_check(tmp_path, REPLICA_OFFSETS)
    writer, keeper = Writer(table), Upkeep(table, path)
    opened = None
    for number in range(120):
        writer.write(newest(10), OVERWRITE, {})
        age(path, seconds=20)
        keeper.after_commit()
        if number % 10 == 9:
            if opened is not None:
                assert read_all(opened).num_rows == 10
            opened = DeltaTable(str(path))
            continue
        if opened is not None and number % 10 < 3:
            assert read_all(opened).num_rows == 10, "opened a minute ago"
        elif number % 10 == 3:
            opened = None

    assert entries(path) < 20
    assert len(data_files(path)) < 20
    assert read_all(DeltaTable(str(path))).num_rows == 10


def age(path: Path, seconds: float) -> None:
    """Make every commit that much older."""
    for file in (path / "_delta_log").glob("*.json"):
        written = file.stat().st_mtime - seconds
        os.utime(file, (written, written))
