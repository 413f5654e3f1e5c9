"""History expires although ``incidents`` is not written any more; when its query runs again, it gives no wrong ones."""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from streaming.changes.incidents.grouping import IncidentGaps
from streaming.delta.changes.history import UNREAD
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.queries import query, read_all
from tests.delta.test_history import DAY, ISRS, Life, day

if TYPE_CHECKING:
    from pathlib import Path


def tomorrow() -> dt.date:
    """The changes are observed in 2023 and committed now: on this day they are older than a day by both."""
    return dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A partition loses a replica; incidents are written; for a week they are not, and it comes back meanwhile."""
    life = Life(tmp_path)
    life.later(DAY)
    life.change(0, (1, 2))
    life.commit()
    read_on(tmp_path)
    life.seen_upto = life.version
    life.later(DAY)
    life.change(0, (1, 2, 3))
    life.commit()
    for number in range(5):
        life.later(DAY)
        life.change(1, ISRS[(number + 1) % 4])
        life.commit()
    life.derive()
    return life


def read_on(directory: Path) -> IncidentsTable:
    """Run the query of the incidents."""
    table = IncidentsTable(directory, IncidentGaps())
    table.apply(ChangeReader(directory / "partition_changes", table.version).poll())
    return table


def incidents(directory: Path) -> list[dict[str, Any]]:
    rows = read_all(DeltaTable(str(directory / "incidents"))).to_pylist()
    return sorted(rows, key=lambda row: int(row["opened_at"]))


def rows_read(life: Life) -> int:
    sql = f"SELECT count(*) AS rows FROM rows WHERE version <= {life.version}"  # noqa: S608 - a number
    return int(query(DeltaTable(str(life.path)), sql)["rows"][0].as_py())


def test_incidents_that_are_silent_for_less_than_history_is_kept_are_waited_for(life: Life) -> None:
    unread = sum(rows.num_rows for _, rows in ChangeReader(life.path, life.seen_upto).poll())
    life.expire(day(life.story.now) + dt.timedelta(days=1))
    assert sum(rows.num_rows for _, rows in ChangeReader(life.path, life.seen_upto).poll()) == unread
    read_on(life.directory)
    (first, *_) = incidents(life.directory)
    assert first["closed_at"] is not None
    assert "its end was not seen" not in first["summary"]


def test_incidents_that_are_silent_for_longer_hold_no_history_back(life: Life) -> None:
    before = rows_read(life)
    life.expire(tomorrow())
    assert rows_read(life) < before
    newest = query(DeltaTable(str(life.path)), "SELECT count(*) AS rows FROM rows GROUP BY subject, broker, partition")
    assert set(newest["rows"].to_pylist()) == {1}, "the newest row of each key"
    assert (DeltaTable(str(life.path)).transaction_version(UNREAD) or 0) > life.seen_upto


def test_the_query_that_runs_again_ends_what_was_open_and_warns(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    (was_open,) = incidents(life.directory)
    assert was_open["closed_at"] is None
    changed_upto = life.version
    life.expire(tomorrow())

    with caplog.at_level(logging.WARNING):
        table = read_on(life.directory)

    assert table.version == changed_upto
    ended, *later = incidents(life.directory)
    assert (ended["incident_id"], ended["closed_at"]) == (was_open["incident_id"], was_open["updated_at"])
    assert ended["under_replicated_seconds"] == was_open["under_replicated_seconds"]
    assert ended["summary"].endswith("; its end was not seen: the changes after it expired before they were read")
    assert [incident["topics"] for incident in later] == [["orders"]], "that of the partition that is degraded now"
    expired_upto = DeltaTable(str(life.path)).transaction_version(UNREAD)
    (warned,) = caplog.records
    assert warned.message == (
        "the query incidents did not run for longer than history is kept: of the changes of versions "
        f"{life.seen_upto + 1} to {expired_upto} only the newest of each partition and broker are left, so incidents "
        "of that time are missing or incomplete"
    )

    caplog.clear()
    before = incidents(life.directory)
    assert read_on(life.directory).version == changed_upto
    assert (incidents(life.directory), caplog.records) == (before, []), "it is said once"


def test_a_query_that_runs_commits_how_far_it_is_every_hour(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    table = read_on(life.directory)
    monkeypatch.setattr("streaming.delta.incidents.table.SECONDS_WITHOUT_NEWS", 0.0)
    life.later(1)
    life.story.heartbeat()
    life.commit()
    table.apply(ChangeReader(life.path, table.version).poll())
    assert IncidentsTable(life.directory, IncidentGaps()).version == life.version
