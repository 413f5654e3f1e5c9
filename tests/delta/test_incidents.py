"""The incidents table, encode_incident from a real truth: what a kill, a replay and a new start make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming.changes.incidents.document import encode_incident
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents import table
from streaming.delta.incidents.closed import retained
from streaming.delta.incidents.rows import SCHEMA, incident_row
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.queries import read_all
from streaming.delta.log.storage import read_file
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.errors import TableRefused
from tests.changes.test_announced_incidents import played

pytest_plugins = ["tests.plugins.played"]
TRUTH = (Channel.REPLICATION,)
SCENARIO = "rolling_restart_unclean"


@pytest.fixture
def truth(played_tables: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder of its own, with the truth of a scenario."""
    played = played_tables(SCENARIO, seconds=100, channels=TRUTH)
    (tmp_path / PARTITION_CHANGES.name).symlink_to(played / PARTITION_CHANGES.name)
    return tmp_path


def added(directory: Path) -> list[tuple[int, pa.Table]]:
    return ChangeReader(directory / PARTITION_CHANGES.name).poll()


def rows(directory: Path) -> list[dict[str, Any]]:
    found = read_all(DeltaTable(str(directory / "incidents"))).to_pylist()
    return sorted(({**row, "as_of_version": None} for row in found), key=lambda row: str(row["incident_id"]))


def test_the_table_tells_the_scenario_as_one_loss_after_the_other(truth: Path) -> None:
    table = IncidentsTable(truth, IncidentGaps())
    table.apply(added(truth))
    standing = [row for row in rows(truth) if row["merged_into"] is None]
    assert [(row["incident_class"], [it["broker"] for it in row["suspects"]]) for row in standing] == [
        ("broker_loss", [broker]) for broker in (1, 2, 3)
    ]


def test_what_was_applied_already_changes_nothing_when_it_comes_again(truth: Path) -> None:
    table = IncidentsTable(truth, IncidentGaps())
    table.apply(added(truth))
    version, before = DeltaTable(str(truth / "incidents")).version(), rows(truth)
    assert table.apply(added(truth)) == 0
    assert IncidentsTable(truth, IncidentGaps()).apply(added(truth)) == 0
    assert (DeltaTable(str(truth / "incidents")).version(), rows(truth)) == (version, before)


@pytest.mark.parametrize(
    ("stops", "is_overlapping"),
    [
        (17, True),
        pytest.param(3, False, marks=pytest.mark.long),
        pytest.param(3, True, marks=pytest.mark.long),
        pytest.param(17, False, marks=pytest.mark.long),
    ],
)
def test_a_start_goes_on_where_the_table_stands_whatever_is_brought_to_it(
    truth: Path,
    played_tables: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
    stops: int,
    *,
    is_overlapping: bool,
) -> None:
    """A start reads the changes after the version of the table; a batch of Spark may bring older ones again."""
    whole = tmp_path_factory.mktemp("whole")
    (whole / PARTITION_CHANGES.name).symlink_to(
        played_tables(SCENARIO, seconds=100, channels=TRUTH) / PARTITION_CHANGES.name
    )
    IncidentsTable(whole, IncidentGaps()).apply(added(whole))
    versions = [version for version, _ in added(truth)]

    for begin in range(0, len(versions), stops):
        table = IncidentsTable(truth, IncidentGaps())
        after = BEFORE_FIRST if is_overlapping else table.version
        reader = ChangeReader(truth / PARTITION_CHANGES.name, after)
        table.apply(reader.poll(versions[begin : begin + stops][-1]))

    assert rows(truth) == rows(whole)


def test_versions_that_tell_nothing_are_remembered_without_a_commit_for_each(truth: Path) -> None:
    table = IncidentsTable(truth, IncidentGaps())
    for one in added(truth):
        table.apply([one])
    commits = DeltaTable(str(truth / "incidents")).version()
    assert commits < len(added(truth)) / 2


def test_who_writes_second_is_refused(truth: Path) -> None:
    first, second = IncidentsTable(truth, IncidentGaps()), IncidentsTable(truth, IncidentGaps())
    first.apply(added(truth))
    with pytest.raises(TableRefused, match="another job writes"):
        second.apply(added(truth))


SHORT = IncidentGaps(usual=2_000_000, rolling=2_000_000)
DAY = 86_400_000_000


def files(directory: Path) -> dict[str, list[str | None]]:
    """What the rows of each file carry."""
    path = directory / "incidents"
    names = DeltaTable(str(path)).get_add_actions()["path"].to_pylist()
    return {name: read_file(path, name)["carried"].to_pylist() for name in names}


def test_what_is_final_is_appended_and_what_is_open_rewritten(truth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.delta.incidents.table.FILES_BEFORE_MERGING", 10**6)
    table = IncidentsTable(truth, SHORT)
    before: dict[str, list[str | None]] = {}
    finals = 0
    for one in added(truth):
        table.apply([one])
        now = files(truth)
        is_open = [name for name, carried in now.items() if any(carried)]
        assert len(is_open) <= 1
        assert all(all(now[name]) for name in is_open), "beside what is open nothing final is written"
        assert all(any(before[name]) for name in before.keys() - now.keys()), "and no final one is written again"
        finals = max(finals, len(now) - len(is_open))
        before = now

    assert finals >= 2
    assert len({row["incident_id"] for row in rows(truth)}) == len(rows(truth))


def test_however_often_files_are_merged_and_the_query_starts_the_incidents_are_the_same(
    truth: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path_factory.mktemp("whole")
    (whole / PARTITION_CHANGES.name).symlink_to((truth / PARTITION_CHANGES.name).resolve())
    IncidentsTable(whole, SHORT).apply(added(whole))
    monkeypatch.setattr("streaming.delta.incidents.table.FILES_BEFORE_MERGING", 3)
    for number, one in enumerate(added(truth)):
        if number % 5 == 0:
            table = IncidentsTable(truth, SHORT)
        table.apply([one])
        assert len(files(truth)) <= 4
    assert rows(truth) == rows(whole)


def test_an_incident_is_written_once_per_batch_not_per_version(truth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: Counter[str] = Counter()

    def counting(incident: Any, *told: Any, may_go_on: bool) -> dict[str, Any]:
        written[incident.incident_id] += 1
        return incident_row(incident, *told, may_go_on=may_go_on)

    monkeypatch.setattr(table, "incident_row", counting)
    IncidentsTable(truth, IncidentGaps()).apply(added(truth))
    assert set(written.values()) == {1}


def closed(number: int, cluster_id: str = "c", merged_into: str | None = None) -> dict[str, Any]:
    at = number * DAY
    values: dict[str, Any] = {field.name: None if field.nullable else 0 for field in SCHEMA}
    return values | {
        "incident_id": f"{cluster_id}{number}", "cluster_id": cluster_id, "cluster": cluster_id, "summary": "",
        "incident_class": "broker_loss", "opened_at": at, "updated_at": at, "closed_at": at,
        "merged_into": merged_into, "carried": None,
    }  # fmt: skip


def test_closed_incidents_stay_for_the_days_of_history_and_are_counted_afterwards() -> None:
    table = pa.Table.from_pylist([closed(1), closed(2, merged_into="c1"), closed(3), closed(9)], schema=SCHEMA)
    stay, expired = retained(table, 5, 9 * DAY)
    assert stay["incident_id"].to_pylist() == ["c9"]
    assert expired == {("c", "broker_loss"): 2}, "what became part of another one was never counted"


def test_what_became_part_of_another_one_stays_as_long_as_that_one_since_its_ids_find_it() -> None:
    parts = [closed(1, merged_into="c2"), closed(2, merged_into="open"), closed(3, merged_into="c4"), closed(4)]
    table = pa.Table.from_pylist([*parts, closed(5, merged_into="c9"), closed(9)], schema=SCHEMA)
    stay, expired = retained(table, 2, 9 * DAY, {"open"})
    assert stay["incident_id"].to_pylist() == ["c1", "c2", "c5", "c9"]
    assert expired == {("c", "broker_loss"): 1}


def test_where_history_stays_for_ever_the_newest_closed_incidents_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.delta.incidents.closed.NEWEST_RETAINED", 2)
    table = pa.Table.from_pylist(
        [closed(n, c) for n in (5, 1, 3) for c in ("c", "d")] + [closed(1, "e")], schema=SCHEMA
    )
    stay, expired = retained(table, 0, 10_000 * DAY)
    assert sorted(stay["incident_id"].to_pylist()) == ["c3", "c5", "d3", "d5", "e1"]
    assert expired == {("c", "broker_loss"): 1, ("d", "broker_loss"): 1}


def test_writing_a_row_moves_nothing_of_the_incident_that_the_fold_continues_with() -> None:
    fold = IncidentFold(IncidentGaps())
    (incident,) = fold.fold(played([(10, "kill", {"broker": 3})], 40, []))
    incident.updated_at += 5_000_000  # the counts of the fold are behind it
    before = encode_incident(incident)
    rows = [incident_row(incident, 1, fold.times("c"), may_go_on=True) for _ in range(2)]
    assert encode_incident(incident) == before
    assert rows[0] == rows[1]
