"""Every table that the exporter and the commands read is refused if a newer isrwatch wrote it: nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporters.read_model.incident_archive import IncidentArchive
from exporters.read_model.reader import TablesReader
from streaming.contracts.tables import TABLES
from streaming.delta.log.definitions import create_or_upgrade
from streaming.errors import TableRefused
from tests.delta.test_layouts import set_layout

STATE = ("partition_changes", "partition_state", "broker_state", "cluster_state", "source_progress")
SIDE = ("incidents", "replica_offsets", "broker_metrics")


@pytest.fixture
def reader(tmp_path: Path) -> TablesReader:
    for name in (*STATE, *SIDE):
        create_or_upgrade(tmp_path, TABLES[name])
    return TablesReader(tmp_path)


def make_newer(tables: Path, name: str) -> None:
    set_layout(tables / name, TABLES[name].layout + 1)


@pytest.mark.parametrize("newer", STATE)
def test_a_table_of_a_newer_layout_is_refused_in_one_sentence(reader: TablesReader, newer: str) -> None:
    TablesReader(reader.tables).refresh()
    make_newer(reader.tables, newer)
    with pytest.raises(TableRefused, match=rf"{newer}.* was written by a newer isrwatch .*; upgrade isrwatch$"):
        reader.refresh()


@pytest.mark.parametrize("newer", SIDE)
def test_beside_the_state_only_the_newer_table_is_left_out(reader: TablesReader, newer: str) -> None:
    make_newer(reader.tables, newer)
    reader.refresh()
    errors = {status.table: status.error for status in reader.statuses if status.error is not None}
    assert list(errors) == [newer]
    assert (errors[newer] or "").endswith("; upgrade isrwatch")


def test_so_are_incidents_that_a_command_lists(reader: TablesReader) -> None:
    assert IncidentArchive(reader.tables).all() == []
    make_newer(reader.tables, "incidents")
    with pytest.raises(TableRefused, match=r"was written by a newer isrwatch"):
        IncidentArchive(reader.tables).all()
