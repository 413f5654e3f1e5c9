"""Tables that are written whole, again and again: their disk is bounded, and who has opened a version can read it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from streaming.contracts.sample_tables import REPLICA_OFFSETS
from streaming.delta.log import maintenance as upkeep
from streaming.delta.log.definitions import arrow_schema, create_or_upgrade
from streaming.delta.log.maintenance import Maintenance
from streaming.delta.log.queries import read_all
from streaming.delta.log.writer import OVERWRITE, Writer
from tests.delta.test_maintenance import A_MINUTE, age, data_files

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def newest(count: int) -> pa.Table:
    row: dict[str, Any] = {"cluster_id": "c", "cluster": "main", "topic": "t", "topic_id": "i"}
    schema = arrow_schema(REPLICA_OFFSETS)
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rest = {field.name: 0 if pa.types.is_integer(field.type) else None for field in schema if field.name not in row}
    rest |= {field.name: "" for field in schema if pa.types.is_string(field.type) and field.name not in row}
    rest |= {field.name: moment for field in schema if pa.types.is_timestamp(field.type) and not field.nullable}
    return pa.Table.from_pylist([{**rest, **row, "partition": number} for number in range(count)], schema=schema)


def test_the_disk_of_a_table_that_is_overwritten_is_bounded_and_an_opened_version_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SECONDS_BETWEEN_SWEEPS", 0.0)
    path = tmp_path / REPLICA_OFFSETS.name
    table = create_or_upgrade(tmp_path, REPLICA_OFFSETS)
    writer, keeper = Writer(table), Maintenance(table, path, A_MINUTE)
    opened = None
    for number in range(120):
        writer.write(newest(10), OVERWRITE, {})
        age(path, seconds=20)
        keeper.after_commit()
        if number % 10 == 9:
            opened = DeltaTable(str(path))
        elif opened is not None and number % 10 < 3:
            assert read_all(opened).num_rows == 10, "opened a minute ago"

    assert len(list((path / "_delta_log").iterdir())) < 20
    assert len(data_files(path)) < 20
    assert read_all(DeltaTable(str(path))).num_rows == 10
