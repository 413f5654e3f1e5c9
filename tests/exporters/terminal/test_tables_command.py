"""The reference of the tables comes from their definitions; their sizes come from their logs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable
from typer.testing import CliRunner

from docs.builder.tables import markdown
from streaming.commands import app
from streaming.contracts.tables import PARTITION_CHANGES, TABLES
from streaming.delta.log.definitions import create_or_upgrade
from tests.delta.test_layouts import set_layout
from tests.exporters.conftest import Tables


def tables(*options: str) -> str:
    done = CliRunner().invoke(app, ["tables", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_reference_names_every_column_of_every_table() -> None:
    text = markdown()
    assert [name for name in TABLES if f"\n## {name}\n" not in text] == []
    assert [
        column.name for table in TABLES.values() for column in table.columns if f"`{column.name}`" not in text
    ] == []


def test_a_table_shows_its_columns() -> None:
    rows = json.loads(tables("broker_metrics", "-o", "json"))["rows"]
    assert [row["column"] for row in rows] == list(TABLES["broker_metrics"].column_names())
    assert rows[0] == {"column": "cluster_id", "type": "string", "nullable": False, "meaning": "Kafka's cluster id"}


def test_an_unknown_table_is_refused_with_the_names_there_are() -> None:
    done = CliRunner().invoke(app, ["tables", "partitions"])
    assert (done.exit_code, "there is no table 'partitions'; choose one of partition_changes, " in done.stderr) == (
        2,
        True,
    )


def test_every_table_is_measured_and_one_that_is_not_there_is_unknown(busy_cluster: Tables) -> None:
    path = busy_cluster.directory / "partition_changes"
    written_at = DeltaTable(str(path)).history(1)[0]["timestamp"] / 1000
    youngest = time.time() - written_at
    lines = tables("--tables", str(busy_cluster.directory), "-o", "json")
    oldest = time.time() - written_at
    rows = {row["table"]: row for row in json.loads(lines)["rows"]}
    assert list(rows) == list(TABLES)
    changes = rows["partition_changes"]
    assert changes["rows"] == DeltaTable(str(path)).count() == 9
    assert changes["version"] == DeltaTable(str(path)).version()
    assert {name: rows[name]["layout"] for name in rows if rows[name]["layout"] is not None} == {
        name: table.layout for name, table in TABLES.items() if (busy_cluster.directory / name).is_dir()
    }
    assert changes["bytes"] == sum(file.stat().st_size for file in path.glob("date=*/*.parquet"))
    assert youngest - 0.1 <= changes["age_seconds"] <= oldest + 0.1
    assert {name: value for name, value in rows["quarantine"].items() if value is not None} == {"table": "quarantine"}


def test_the_layout_that_a_table_says_is_shown_also_where_it_is_not_that_of_this_program(tmp_path: Path) -> None:
    create_or_upgrade(tmp_path, PARTITION_CHANGES)
    set_layout(tmp_path / "partition_changes", 7)
    lines = tables("--tables", str(tmp_path), "-o", "json")
    layouts = {row["layout"] for row in json.loads(lines)["rows"] if row["version"] is not None}
    assert layouts == {7}
    heading, *_ = tables("--tables", str(tmp_path), "-o", "table").splitlines()
    assert heading.split() == ["table", "rows", "files", "bytes", "version", "layout", "last", "write"]


def test_a_table_with_millions_of_rows_is_measured_without_reading_them(
    played_tables: Callable[..., Path], tmp_path: Path
) -> None:
    source = played_tables("under_min_isr", "broker_loss") / "partition_changes" / "_delta_log"
    log = tmp_path / "partition_changes" / "_delta_log"
    log.mkdir(parents=True)
    for entry in source.iterdir():
        (log / entry.name).write_bytes(entry.read_bytes())
    row, *_ = json.loads(tables("--tables", str(tmp_path), "-o", "json"))["rows"]
    assert row["rows"] > 0
