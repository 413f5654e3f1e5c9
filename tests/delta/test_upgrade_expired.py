"""Tables of b3f2e02 whose history had expired, or whose log a kill left with gaps: what was not deleted is not lost.

b3f2e02 deleted whole days of changes from the table, the newest of a key, too; what followers had still to read was in
the log only.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from exporters.read_model.reader import TablesReader
from exporters.terminal.state_as_of import state_as_of
from exporters.terminal.time_parsing import Clock
from exporters.terminal.versions import as_of
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.queries import query
from streaming.errors import ConfigurationError
from streaming.jobs.driver.batch import ReplicationBatch
from tests.delta.test_upgrade import DERIVED, OldJob, comparable, now
from tests.exporters.meaning import meaning
from tests.plugins.old_layout import CHANGES, differences, facts, raw, read, tables, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from exporters.read_model.snapshot import ReplicationSnapshot

ALL = "2030-01-01"
SOME = "2023-11-18"
EPOCH = dt.date(1970, 1, 1)


@pytest.fixture(params=["killed", "settled"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    unpack(tmp_path, settled=request.param == "settled")
    return tmp_path


def expire(directory: Path, before: str) -> None:
    """Delete the days before one, as b3f2e02 did."""
    table = DeltaTable(str(directory / CHANGES))
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    expired = Transaction("expired", (dt.date.fromisoformat(before) - EPOCH).days)
    table.delete(f"date < '{before}'", commit_properties=CommitProperties(app_transactions=[expired]))


@pytest.mark.parametrize("before", [SOME, ALL])
def test_what_a_derived_table_had_still_to_read_is_read_although_its_day_has_expired(old: Path, before: str) -> None:
    expire(old / "tables", before)
    final = {row["incident_id"] for row in read(old / "tables", "incidents") if "carried" not in row}

    OldJob(old).read_on(facts()["batches"])

    for name, rows in tables("after").items():
        if name in DERIVED:
            expected = [row for row in rows if name != "incidents" or row["incident_id"] in final]
            assert differences(comparable(name, now(old, name, final)), comparable(name, expected)) == {}, name


def stated(snapshot: ReplicationSnapshot) -> dict[str, Any]:
    """All that the changes make of each cluster, without how far its sources are behind."""
    return {
        cluster_id: {**each, "sources": {key: source._replace(lag=None) for key, source in each["sources"].items()}}
        for cluster_id, each in meaning(snapshot).items()
    }


@pytest.mark.parametrize("before", [SOME, ALL])
def test_the_state_as_of_the_upgrade_is_whole_and_no_older_one_is_shown(old: Path, before: str) -> None:
    expire(old / "tables", before)
    names = ("partition_state", "broker_state", "cluster_state", "source_progress")
    end = max(DeltaTable(str(old / "tables" / name)).transaction_version(CHANGES) or 0 for name in names)

    job = ReplicationBatch(old / "tables")
    job.projections.project(job.shared)

    shown = stated(TablesReader(old / "tables").refresh())
    newest = DeltaTable(str(old / "tables" / CHANGES)).version()
    assert end < newest
    for version in (end, newest):
        assert as_of(old / "tables", str(version), Clock(now=0)) == version
    for version in (facts()["version"], newest):
        assert stated(state_as_of(old / "tables", version)) == shown
    with pytest.raises(ConfigurationError, match=rf"has the versions {end} to {newest}"):
        as_of(old / "tables", str(end - 1), Clock(now=0))
    order = "SELECT count(*) AS rows FROM rows GROUP BY version, ordinal HAVING count(*) > 1"
    assert query(DeltaTable(str(old / "tables" / PARTITION_CHANGES.name)), order).num_rows == 0


@pytest.mark.parametrize("left", [(0, 1, 2), (3, 17, 40), (47, 48)])
def test_entries_that_a_kill_left_of_an_expired_log_lose_no_row(old: Path, left: tuple[int, ...]) -> None:
    path = old / "tables" / CHANGES
    before = {name: raw(old / "tables", name).num_rows for name in (CHANGES, "replication_events")}
    entry = (path / "_delta_log" / f"{facts()['oldest_version']:020}.json").read_bytes()
    for version in left:
        (path / "_delta_log" / f"{version:020}.json").write_bytes(entry)

    OldJob(old)

    assert {name: raw(old / "tables", name).num_rows for name in before} == before
    assert differences(read(old / "tables", CHANGES), read_fresh(old)) == {}


def read_fresh(directory: Path) -> list[dict[str, object]]:
    """Read the changes of tables that nothing happened to."""
    unpack(directory / "fresh")
    return read(directory / "fresh" / "tables", CHANGES)
