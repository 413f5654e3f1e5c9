"""Every table that the exporter and the commands read is refused if a newer isrwatch wrote it: nothing is guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from exporters.read_model.reader import TablesReader
from exporters.terminal.incidents import read_incidents
from streaming.contracts.sample_tables import BROKER_METRICS, REPLICA_OFFSETS
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    INCIDENTS,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.layouts import create_or_upgrade
from streaming.errors import TableRefused
from tests.delta.test_layout_steps import set_layout

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.contracts.columns import Table

READ = (
    PARTITION_CHANGES, PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS, INCIDENTS,
    REPLICA_OFFSETS, BROKER_METRICS,
)  # fmt: skip


@pytest.mark.parametrize("newer", READ, ids=lambda table: table.name)
def test_a_table_of_a_newer_layout_is_refused_in_one_sentence(tmp_path: Path, newer: Table) -> None:
    for table in READ:
        create_or_upgrade(tmp_path, table)
    TablesReader(tmp_path).refresh()
    set_layout(tmp_path / newer.name, newer.layout + 1)

    with pytest.raises(TableRefused, match=rf"{newer.name}.* was written by a newer isrwatch .*; upgrade isrwatch$"):
        TablesReader(tmp_path).refresh()


def test_so_are_incidents_that_a_command_lists(tmp_path: Path) -> None:
    create_or_upgrade(tmp_path, INCIDENTS)
    assert read_incidents(tmp_path) == []
    set_layout(tmp_path / INCIDENTS.name, INCIDENTS.layout + 1)

    with pytest.raises(TableRefused, match=r"was written by a newer isrwatch"):
        read_incidents(tmp_path)
