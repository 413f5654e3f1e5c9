"""Tables of b3f2e02 of which files are gone or damaged: upgraded without a loss, or refused in one sentence."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from streaming.contracts.tables import PARTITION_CHANGES, TABLES
from streaming.delta.definitions import LAYOUT_PROPERTY
from streaming.delta.layouts import create_or_upgrade
from streaming.errors import IsrwatchError, TableRefused
from streaming.jobs.driver.batch import ReplicationBatch
from tests.delta.test_upgrade import DERIVED, OldJob, comparable, now
from tests.plugins.old_layout import CHANGES, differences, facts, read, tables, unpack

if TYPE_CHECKING:
    from pathlib import Path


def files_of(path: Path) -> list[Path]:
    return [path / unquote(file) for file in DeltaTable(str(path)).get_add_actions()["path"].to_pylist()]


def vacuum(path: Path) -> int:
    """Delete every file that the newest version does not need, as VACUUM does; return how many."""
    files = set(path.glob("date=*/*.parquet")) - set(files_of(path))
    for file in files:
        file.unlink()
    return len(files)


def test_files_that_were_compacted_and_vacuumed_since_are_not_missed(tmp_path: Path) -> None:
    unpack(tmp_path, settled=True)
    before = read(tmp_path / "tables", CHANGES)
    assert vacuum(tmp_path / "tables" / CHANGES) > 0

    final = {row["incident_id"] for row in read(tmp_path / "tables", "incidents") if "carried" not in row}
    OldJob(tmp_path)

    assert differences(read(tmp_path / "tables", CHANGES), before) == {}
    OldJob(tmp_path).read_on(facts()["batches"])
    for name, rows in tables("after").items():
        if name in DERIVED:
            expected = [row for row in rows if name != "incidents" or row["incident_id"] in final]
            found = now(tmp_path, name, final)
            assert differences(comparable(name, found), comparable(name, expected)) == {}, name


@pytest.mark.parametrize("table", [CHANGES, "replication_events"])
@pytest.mark.parametrize("harm", ["gone", "torn"])
def test_a_table_that_lacks_a_file_is_refused_in_one_sentence_and_left_alone(
    tmp_path: Path, table: str, harm: str
) -> None:
    unpack(tmp_path)
    path = tmp_path / "tables" / table
    if table != CHANGES:
        create_or_upgrade(tmp_path / "tables", PARTITION_CHANGES)
    file = files_of(path)[0]
    content = file.read_bytes()
    file.unlink() if harm == "gone" else file.write_bytes(content[:500])

    with pytest.raises(IsrwatchError, match=r"bring back the whole folder of the tables from (a|one) copy$") as refused:
        create_or_upgrade(tmp_path / "tables", TABLES[table])

    assert "\n" not in str(refused.value)
    file.write_bytes(content)
    OldJob(tmp_path)


@pytest.mark.parametrize("layout", ["x", "", "0", "-1"])
def test_a_layout_that_is_none_is_refused_in_one_sentence(tmp_path: Path, layout: str) -> None:
    unpack(tmp_path)
    path = tmp_path / "tables" / CHANGES
    DeltaTable(str(path)).alter.set_table_properties({LAYOUT_PROPERTY: layout}, raise_if_not_exists=False)

    with pytest.raises(TableRefused, match="is not a table of isrwatch"):
        create_or_upgrade(tmp_path / "tables", PARTITION_CHANGES)


@pytest.mark.parametrize("left", ["replication_events", "partition_state", "cluster_state"])
def test_one_derived_table_of_another_change_log_is_refused(tmp_path: Path, left: str) -> None:
    unpack(tmp_path)
    for name in {each.name for each in (tmp_path / "tables").iterdir() if each.is_dir()} - {left}:
        shutil.rmtree(tmp_path / "tables" / name)

    for _ in range(2):
        with pytest.raises(TableRefused, match="bring back the whole folder of the tables from one copy"):
            ReplicationBatch(tmp_path / "tables")
