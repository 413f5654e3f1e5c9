"""The conditions table: what a kill between its commit and that of incidents, a start, and an old copy make of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming.changes.conditions.brokers import broker_condition
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents import conditions
from streaming.delta.incidents.contexts import read_contexts
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy, wall_clock
from streaming.delta.log.queries import read_all
from streaming.delta.log.writer import Writer
from tests.plugins.played import expire_log
from tests.plugins.table_writes import delete_old_files

pytest_plugins = ["tests.plugins.played"]
TRUTH = (Channel.REPLICATION,)
SCENARIO = "broker_loss"
SECONDS = 60
DAY = 86_400_000_000


@pytest.fixture
def truth(played_tables: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder of its own, with the truth of a scenario, and the state of its end."""
    return copied(played_tables(SCENARIO, seconds=SECONDS, channels=TRUTH), tmp_path / "tables")


@pytest.fixture
def whole(played_tables: Callable[..., Path], tmp_path: Path) -> list[dict[str, Any]]:
    """The rows that an undisturbed fold gives."""
    directory = copied(played_tables(SCENARIO, seconds=SECONDS, channels=TRUTH), tmp_path / "whole")
    IncidentsTable(directory, IncidentGaps()).apply(added(directory))
    return rows(directory)


def copied(played: Path, directory: Path) -> Path:
    for name in (PARTITION_CHANGES.name, "partition_state", "broker_state", "cluster_state"):
        if (played / name).exists():
            shutil.copytree(played / name, directory / name)
    return directory


def added(directory: Path) -> list[tuple[int, pa.Table]]:
    return ChangeReader(directory / PARTITION_CHANGES.name).poll()


def rows(directory: Path) -> list[dict[str, Any]]:
    found = read_all(DeltaTable(str(directory / "conditions"))).to_pylist()
    return sorted(({**row, "as_of_version": None} for row in found), key=lambda row: str(row["condition_id"]))


def test_each_spell_has_the_short_id_of_the_incident_that_explains_it(truth: Path) -> None:
    IncidentsTable(truth, IncidentGaps()).apply(added(truth))
    short_ids = {
        row["incident_id"]: row["short_id"] for row in read_all(DeltaTable(str(truth / "incidents"))).to_pylist()
    }
    found = rows(truth)
    assert {row["condition"] for row in found} >= {"broker_down", "under_min_isr", "at_min_isr"}
    assert all(row["short_id"] == short_ids[row["incident_id"]] for row in found)


class Killed(Exception):
    """The process ends here."""


def test_a_kill_between_the_two_commits_changes_nothing(
    truth: Path, whole: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every commit of incidents is killed once, behind that of conditions."""
    exchange, killed = Writer.exchange, set[int]()

    def dying(self: Writer, tables: Any, gone: Collection[str], transactions: Mapping[str, int], **more: Any) -> Any:
        if self.path.name == "incidents" and (version := transactions[PARTITION_CHANGES.name]) not in killed:
            killed.add(version)
            raise Killed
        return exchange(self, tables, gone, transactions, **more)

    monkeypatch.setattr(Writer, "exchange", dying)
    table, last = IncidentsTable(truth, IncidentGaps()), added(truth)[-1][0]
    behind = 0
    while table.version < last:
        try:
            for one in ChangeReader(truth / PARTITION_CHANGES.name, table.version).poll():
                table.apply([one])
        except Killed:
            ahead = DeltaTable(str(truth / "conditions")).transaction_version(PARTITION_CHANGES.name)
            table = IncidentsTable(truth, IncidentGaps())
            behind += (ahead or 0) > table.version
            now = DeltaTable(str(truth / "conditions")).transaction_version(PARTITION_CHANGES.name)
            assert (now or 0) <= max(table.version, 0) or not rows(truth)
    assert behind > 2
    assert rows(truth) == whole


@pytest.mark.parametrize("stops", [3, 17])
def test_a_start_goes_on_where_the_tables_stand(truth: Path, whole: list[dict[str, Any]], stops: int) -> None:
    versions = [version for version, _ in added(truth)]
    for begin in range(0, len(versions), stops):
        table = IncidentsTable(truth, IncidentGaps())
        reader = ChangeReader(truth / PARTITION_CHANGES.name, table.version)
        table.apply(reader.poll(versions[begin : begin + stops][-1]))
    assert rows(truth) == whole


def test_old_spells_are_appended_and_expire(truth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "RECENT", 0)
    monkeypatch.setattr(conditions, "FILES_BEFORE_MERGING", 10**6)
    now = [1_700_000_000_000_000]
    table = IncidentsTable(truth, IncidentGaps(), RetentionPolicy(days=1, clock=lambda: now[0]))
    most = 0
    for one in added(truth):
        table.apply([one])
        if (truth / "conditions").exists():
            most = max(most, len(DeltaTable(str(truth / "conditions")).file_uris()))
    assert most > 1
    before = rows(truth)
    last = max(before, key=lambda row: row["ended_at"])
    at = last["ended_at"]
    again = conditions.ConditionsTable(truth, RetentionPolicy(days=1, clock=lambda: at + DAY))
    again.put({"new": conditions.spell_of(last)._replace(condition_id="new")}, {})
    again.write(again.committed)
    assert {row["ended_at"] for row in rows(truth)} == {at}


@pytest.mark.parametrize("ahead", [0, 36_500 * DAY], ids=["right", "ahead"])
def test_a_clock_that_is_ahead_ends_no_history_of_conditions(
    truth: Path, whole: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """The job starts again at each round, and what it merges then also expires; all of it is of 2023."""
    monkeypatch.setattr(conditions, "RECENT", 0)
    policy = RetentionPolicy(days=10_000, clock=lambda: wall_clock() + ahead)
    for one in added(truth):
        IncidentsTable(truth, IncidentGaps(), policy).apply([one])
    assert sum(row["ended_at"] is not None for row in rows(truth)) == sum(row["ended_at"] is not None for row in whole)


def lasting(directory: Path) -> set[tuple[str, str]]:
    return {(row["condition"], row["subject"]) for row in rows(directory) if row["ended_at"] is None}


@pytest.mark.parametrize("lost", ["all", "newest"])
@pytest.mark.parametrize("turn", [1, 2])
def test_a_table_that_was_lost_or_is_older_is_made_to_agree(truth: Path, tmp_path: Path, lost: str, turn: int) -> None:
    """New over existing tables; or brought back alone from a copy, before what lasts now."""
    table, all_added = IncidentsTable(truth, IncidentGaps()), added(truth)
    begins, before, place = 0, set[tuple[str, str]](), 0
    while begins < turn:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(truth / "conditions", tmp_path / "copy")
        table.apply([all_added[place]])
        begins, before, place = begins + bool(lasting(truth) and not before), lasting(truth), place + 1
    peaks = {(row["condition"], row["subject"]): row["partitions"] for row in rows(truth)}
    shutil.rmtree(truth / "conditions")
    if lost == "newest":
        (tmp_path / "copy").rename(truth / "conditions")
    again = IncidentsTable(truth, IncidentGaps())
    assert lasting(truth) == before
    assert {(row["condition"], row["subject"]): row["partitions"] for row in rows(truth)}.items() <= peaks.items()
    again.apply(all_added)
    assert not lasting(truth)


@pytest.mark.parametrize("gone", ["files", "versions"])
def test_a_kill_after_which_the_older_version_cannot_be_read_is_made_to_agree(
    truth: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """The commit of incidents is killed behind that of conditions, whose older files, or log, are swept then."""
    exchange, all_added = Writer.exchange, added(truth)
    table, place = IncidentsTable(truth, IncidentGaps()), 0
    while len(lasting(truth)) < 2:
        table.apply([all_added[place]])
        place += 1

    def dying(self: Writer, *given: Any, **more: Any) -> Any:
        if self.path.name == "incidents":
            raise Killed
        return exchange(self, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "exchange", dying)
        before = DeltaTable(str(truth / "conditions")).version()
        while DeltaTable(str(truth / "conditions")).version() == before:
            with suppress(Killed):
                table.apply([all_added[place]])
            place += 1
    if gone == "versions":
        expire_log(truth / "conditions")
    else:
        delete_old_files(DeltaTable(str(truth / "conditions")))
    committed = DeltaTable(str(truth / "incidents")).transaction_version(conditions.COMMITTED)
    assert not conditions.ConditionsTable(truth, KEEP_ALL).go_back(committed or 0)
    again = IncidentsTable(truth, IncidentGaps())
    contexts = read_contexts(truth, again.version)["id-of-broker_loss"]
    assert {broker for condition, broker in lasting(truth) if broker} == {
        str(broker) for broker in contexts.lacking if broker_condition(broker, None, contexts)
    }
    again.apply(all_added)
    assert not lasting(truth)


def begins(directory: Path) -> set[tuple[str, str, int]]:
    return {(row["condition"], row["subject"], row["began_at"]) for row in rows(directory) if row["ended_at"] is None}


def test_a_new_table_over_existing_ones_has_the_begins_that_partitions_have(
    played_tables: Callable[..., Path], tmp_path: Path
) -> None:
    truth = copied(played_tables("rack_loss", seconds=20, channels=TRUTH), tmp_path / "tables")
    IncidentsTable(truth, IncidentGaps()).apply(added(truth))
    before = begins(truth)
    assert len({began_at for _, _, began_at in before}) > 1
    shutil.rmtree(truth / "conditions")
    IncidentsTable(truth, IncidentGaps())
    assert begins(truth) == before
