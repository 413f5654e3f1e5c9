"""The incidents table, encode_incident from a real truth: what a kill, a replay and a new start make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming.changes.remembered_incidents import IncidentGaps
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.change_reader import ChangeReader
from streaming.delta.incidents import IncidentsTable
from streaming.delta.queries import read_all
from streaming.delta.table_log import BEFORE_FIRST
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest_plugins = ["tests.plugins.played"]
SCENARIO = "rolling_restart_unclean"


@pytest.fixture
def truth(played_tables: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder of its own, with the truth of a scenario."""
    played = played_tables(SCENARIO, seconds=100)
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


@pytest.mark.parametrize("is_overlapping", [False, True])
@pytest.mark.parametrize("stops", [3, 17])
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
    (whole / PARTITION_CHANGES.name).symlink_to(played_tables(SCENARIO, seconds=100) / PARTITION_CHANGES.name)
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
