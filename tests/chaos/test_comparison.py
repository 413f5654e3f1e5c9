"""The comparison after a chaos run accepts tables that are right, and no others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from streaming.contracts.observations import Channel
from tests.chaos.comparison import differences, undisturbed
from tests.chaos.harms import copy_collector, jump_collector_clock, kill_collector, publish_nonsense
from tests.chaos.schedule import Schedule
from tests.chaos.stage import ChaosStage
from tests.plugins.table_writes import write


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosStage]:
    """The tables of a history that two collectors published, with unparseable records, applied piece by piece."""
    folder = tmp_path_factory.mktemp("chaos")
    with closing(ChaosStage(folder / "stage", Schedule(3, "broker_loss", (), ()))) as made:
        made.publish_pieces(20)
        apply(made)
        publish_nonsense(made)
        kill_collector(made)
        made.publish_pieces(20)
        copy_collector(made)
        apply(made)
        made.publish_pieces(20)
        publish_nonsense(made)
        made.publish_pieces(20)
        apply(made)
        undisturbed(made.pipeline.bus, folder / "undisturbed")
        yield made


@pytest.fixture
def stage(played: ChaosStage, tmp_path: Path) -> Iterator[ChaosStage]:
    """What was played; whatever a test changes of it is put back."""
    copy, refused = tmp_path / "tables", played.refused.copy()
    shutil.copytree(played.pipeline.tables, copy)
    yield played
    shutil.rmtree(played.pipeline.tables)
    copy.rename(played.pipeline.tables)
    played.refused = refused


@pytest.fixture
def expected(played: ChaosStage) -> Path:
    return played.pipeline.directory.with_name("undisturbed")


def apply(stage: ChaosStage) -> None:
    """Open the tables anew and apply everything that was published so far."""
    undisturbed(stage.pipeline.bus, stage.pipeline.tables)


def test_tables_that_are_right_differ_in_nothing(stage: ChaosStage, expected: Path) -> None:
    assert list(differences(stage, expected)) == []


@pytest.mark.long
def test_tables_of_two_collectors_of_which_one_had_a_wrong_clock_differ_in_nothing(tmp_path: Path) -> None:
    with closing(ChaosStage(tmp_path / "stage", Schedule(79007, "reassignment", (), ()))) as stage:
        stage.publish_pieces(8)
        jump_collector_clock(stage)
        stage.publish_pieces(20)
        apply(stage)
        copy_collector(stage)
        stage.publish_pieces(30)
        apply(stage)
        undisturbed(stage.pipeline.bus, tmp_path / "undisturbed")
        assert list(differences(stage, tmp_path / "undisturbed")) == []


@pytest.mark.parametrize("table", ["partition_changes", "quarantine"])
def test_a_doubled_row_is_found(stage: ChaosStage, expected: Path, table: str) -> None:
    rows = DeltaTable(stage.pipeline.tables / table).to_pyarrow_table()
    partitions = rows.filter(pc.field("subject") == "partition") if "subject" in rows.column_names else rows
    write(DeltaTable(stage.pipeline.tables / table), partitions.slice(0, 1))
    found = list(differences(stage, expected))
    assert any(sentence.startswith(f"{table}: 1 rows too many, 0 missing") for sentence in found), found


@pytest.mark.parametrize("table", ["partition_state", "replica_offsets"])
def test_a_lost_row_is_found(stage: ChaosStage, expected: Path, table: str) -> None:
    rows = DeltaTable(stage.pipeline.tables / table).to_pyarrow_table()
    write(DeltaTable(stage.pipeline.tables / table), rows.slice(1), "overwrite")
    found = list(differences(stage, expected))
    assert any(sentence.startswith(f"{table}: 0 rows too many, 1 missing") for sentence in found), found


def test_what_was_refused_and_is_not_in_quarantine_is_found(stage: ChaosStage, expected: Path) -> None:
    stage.publish_refused(Channel.SAMPLES, b"refused, and never applied")
    found = list(differences(stage, expected))
    assert [sentence.partition(":")[0] for sentence in found] == ["how much was refused"]


def test_a_number_of_an_incident_of_tables_that_are_gone_which_another_one_has_is_found(
    stage: ChaosStage, expected: Path
) -> None:
    (short_id, *_) = (row["short_id"] for row in stage.pipeline.rows("incidents"))
    stage.remember_short_ids()
    assert list(differences(stage, expected)) == [], "the same incidents have them"
    stage.short_ids.add((short_id, "another"))
    assert list(differences(stage, expected)) == [f"{short_id} was given to 2 incidents"]
    stage.short_ids.clear()
