"""Every table that the exporter and the commands read is refused if a newer isrwatch wrote it: nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporters.read_model.reader import TablesReader
from exporters.terminal.incidents import read_incidents
from streaming.contracts.columns import Table
from streaming.contracts.sample_tables import BROKER_METRICS, REPLICA_OFFSETS
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    INCIDENTS,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.log.definitions import create_or_upgrade
from streaming.errors import TableRefused
from tests.delta.test_layouts import set_layout

STATE = (PARTITION_CHANGES, PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS)
SIDE = (INCIDENTS, REPLICA_OFFSETS, BROKER_METRICS)
READ = (*STATE, *SIDE)


@pytest.mark.parametrize("newer", STATE, ids=lambda table: table.name)
def test_a_table_of_a_newer_layout_is_refused_in_one_sentence(tmp_path: Path, newer: Table) -> None:
    for table in READ:
        create_or_upgrade(tmp_path, table)
    TablesReader(tmp_path).refresh()
    set_layout(tmp_path / newer.name, newer.layout + 1)

    with pytest.raises(TableRefused, match=rf"{newer.name}.* was written by a newer isrwatch .*; upgrade isrwatch$"):
        TablesReader(tmp_path).refresh()


@pytest.mark.parametrize("newer", SIDE, ids=lambda table: table.name)
def test_beside_the_state_only_the_newer_table_is_left_out(tmp_path: Path, newer: Table) -> None:
    for table in READ:
        create_or_upgrade(tmp_path, table)
    set_layout(tmp_path / newer.name, newer.layout + 1)
    reader = TablesReader(tmp_path)
    reader.refresh()
    errors = {status.table: status.error for status in reader.statuses if status.error is not None}
    assert list(errors) == [newer.name]
    assert (errors[newer.name] or "").endswith("; upgrade isrwatch")


def test_so_are_incidents_that_a_command_lists(tmp_path: Path) -> None:
    create_or_upgrade(tmp_path, INCIDENTS)
    assert read_incidents(tmp_path) == []
    set_layout(tmp_path / "incidents", INCIDENTS.layout + 1)

    with pytest.raises(TableRefused, match=r"was written by a newer isrwatch"):
        read_incidents(tmp_path)
