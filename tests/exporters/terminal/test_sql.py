"""The example queries are correct, and Spark and DuckDB return the same rows for them and for every table."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from exporters.read_model.reader import TablesReader
from exporters.terminal.broker_speeds import speeds_by_broker
from exporters.terminal.event_filter import EventFilter
from exporters.terminal.events import history
from exporters.terminal.sample_rows import directory_rows, quorum_rows, transaction_rows
from streaming.contracts.tables import TABLES
from streaming.contracts.totals import ObservedTime
from streaming.delta.definitions import arrow_schema
from streaming.delta.layouts import create_or_upgrade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SQL = Path(__file__).parents[3] / "conf" / "sql"
QUERIES = sorted(path.stem for path in SQL.glob("*.sql") if path.stem != "duckdb")
MOMENT = dt.datetime(2026, 3, 29, 1, 30, 0, 123_456, tzinfo=dt.UTC)
VALUES: dict[str, tuple[Any, ...]] = {
    "string": ("", "päper ' \" \\ \n", "x" * 300),
    "int": (0, -1, 2**31 - 1),
    "long": (0, -1, 2**63 - 1),
    "double": (0.0, -0.5, math.pi),
    "boolean": (True, False),
    "binary": (b"", b"\x00\xff"),
    "date": (dt.date(2026, 3, 29), dt.date(1970, 1, 1)),
    "timestamp": (MOMENT, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
    "int[]": ([], [3, 1, 2]),
    "string[]": ([], ["", "b"]),
}


@pytest.fixture(scope="module")
def tables(played_tables: Callable[..., Path]) -> Path:
    return played_tables("under_min_isr", "broker_loss", "hanging_transaction")


def arrow(path: Path) -> pa.Table:
    return pa.table(QueryBuilder().register("whole", DeltaTable(str(path))).execute("select * from whole"))


@pytest.fixture(scope="module")
def duck(tables: Path) -> Iterator[Any]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.execute((SQL / "duckdb.sql").read_text())
        for name in TABLES:
            if DeltaTable.is_deltatable(str(tables / name)):
                connection.register(name, arrow(tables / name))
        yield connection


def answer(duck: Any, name: str) -> list[dict[str, Any]]:
    result = duck.execute((SQL / f"{name}.sql").read_text())
    columns = [column[0] for column in result.description]
    return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]


def test_who_left_and_why_agrees_with_the_events(duck: Any, tables: Path) -> None:
    rows = list(history(tables, EventFilter(events=("isr_shrink",))))
    key = ("cluster_id", "broker", "cause", "evidence")
    departures = {tuple(row[name] for name in key): row["isr_removals"] for row in answer(duck, "who_left_isrs")}
    left = [(row["cluster_id"], broker, row["cause"], row["evidence"]) for row in rows for broker in row["left_isr"]]
    assert departures == Counter(left)


def test_time_under_min_isr_agrees_with_the_state(duck: Any, tables: Path) -> None:
    seconds = {
        (row["cluster_id"], row["topic"]): row["under_min_isr_seconds"]
        for row in answer(duck, "under_min_isr_by_topic")
    }
    newest = "SELECT cluster_id, max(unix_micros(occurred_not_after)) FROM partition_changes GROUP BY cluster_id"
    until = dict(duck.execute(newest).fetchall())
    for cluster_id, cluster in TablesReader(tables).refresh().clusters.items():
        for topic in cluster.topics.values():
            spent = sum(
                ObservedTime(until[cluster_id]).seconds_in(partition, "under_min_isr_seconds")
                for partition in topic.partitions.values()
            )
            assert seconds[cluster_id, topic.topic] == pytest.approx(spent, abs=1e-6)
    assert any(seconds.values())


def test_availability_is_a_percentage_and_less_where_writes_were_refused(duck: Any) -> None:
    available = {(row["cluster_id"], row["topic"]): row["available_percent"] for row in answer(duck, "availability")}
    assert all(0 <= percent <= 100 for percent in available.values())
    assert available["id-of-under_min_isr", "payments"] < available["id-of-under_min_isr", "clicks"] == 100


def test_the_state_as_of_a_moment_is_not_the_state_of_now(duck: Any) -> None:
    rows = answer(duck, "state_as_of")
    assert any(len(row["isr"]) < 3 for row in rows)


def test_samples_agree_with_what_the_terminal_shows(duck: Any, tables: Path) -> None:
    (hanging,) = (row for row in answer(duck, "open_transactions") if row["is_hanging"])
    (shown,) = (row for row in transaction_rows(tables, (), 0) if row["is_hanging"])
    hanging["transaction_partitions"] = tuple(hanging["transaction_partitions"])
    assert hanging == {name: shown[name] for name in hanging}
    of_member = ("cluster_id", "node", "lag", "behind_seconds")
    lags = {tuple(row[name] for name in of_member) for row in answer(duck, "quorum_lag")}
    assert lags == {tuple(row[name] for name in of_member) for row in quorum_rows(tables, 0)}
    of_directory = ("cluster_id", "broker", "log_dir", "replica_bytes", "used_percent")
    directories = {tuple(row[name] for name in of_directory) for row in answer(duck, "log_directories")}
    assert directories == {tuple(row[name] for name in of_directory) for row in directory_rows(tables, 0)}
    speeds = {(row["cluster_id"], row["broker"]): row for row in answer(duck, "slow_brokers")}
    shown_speeds = speeds_by_broker(tables, 0)
    assert {key: row["is_slow"] for key, row in speeds.items()} == {
        key: row["is_slow"] for key, row in shown_speeds.items()
    }
    assert shown_speeds


@pytest.mark.spark
@pytest.mark.parametrize("name", QUERIES)
def test_spark_and_duckdb_give_the_same_answer(spark: Any, duck: Any, tables: Path, name: str) -> None:
    for table in TABLES:
        if DeltaTable.is_deltatable(str(tables / table)):
            spark.read.format("delta").load(str(tables / table)).createOrReplaceTempView(table)
    expected = answer(duck, name)
    assert expected
    by_spark = [row.asDict() for row in spark.sql((SQL / f"{name}.sql").read_text()).collect()]
    assert [same(row) for row in by_spark] == [same(row) for row in expected]


def same(value: Any) -> Any:
    """A value in one spelling: Spark gives naive local times and rows, DuckDB zoned times and dictionaries."""
    if isinstance(value, dict):
        return {name: same(item) for name, item in value.items()}
    if hasattr(value, "asDict"):
        return same(value.asDict())
    if isinstance(value, list | tuple):
        return [same(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return pytest.approx(float(value)) if type(value).__name__ in {"Decimal", "float"} else value


def filled(columns: Any, values: dict[str, Iterator[Any]], *, with_nulls: bool) -> dict[str, Any]:
    return {
        column.name: None if with_nulls and column.nullable else value(column.type, values, with_nulls=with_nulls)
        for column in columns
    }


def value(plain: Any, values: dict[str, Iterator[Any]], *, with_nulls: bool) -> Any:
    if isinstance(plain, str):
        return next(values[plain])
    if isinstance(plain, list):
        return [filled(plain[0], values, with_nulls=nulls) for nulls in (with_nulls, True)]
    return filled(plain, values, with_nulls=with_nulls)


def sorted_rows(rows: list[dict[str, Any]]) -> list[Any]:
    return sorted((same_exactly(row) for row in rows), key=repr)


def same_exactly(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: same_exactly(item) for name, item in value.items()}
    if hasattr(value, "asDict"):
        return same_exactly(value.asDict())
    if isinstance(value, list):
        return [same_exactly(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    return bytes(value) if isinstance(value, bytes | bytearray) else value


@pytest.mark.spark
def test_spark_deltalake_pyarrow_and_duckdb_read_the_same_rows_of_every_table(spark: Any, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    for table in TABLES.values():
        values = {plain: cycle(some) for plain, some in VALUES.items()}
        rows = [filled(table.columns, values, with_nulls=number == 1) for number in range(4)]
        for row in rows if "channel" in table.partitioned_by else ():
            row["channel"] = "offsets"  # the name of a folder
        write_deltalake(
            create_or_upgrade(tmp_path, table), pa.Table.from_pylist(rows, schema=arrow_schema(table)), mode="append"
        )
        path = tmp_path / table.name
        with duckdb.connect() as connection:
            connection.execute((SQL / "duckdb.sql").read_text())
            connection.register("whole", arrow(path))
            result = connection.execute("SELECT * FROM whole")
            names = [column[0] for column in result.description]
            by_duckdb = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        by_spark = [row.asDict() for row in spark.read.format("delta").load(str(path)).collect()]
        by_pyarrow = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
        expected = sorted_rows(rows)
        assert sorted_rows(arrow(path).to_pylist()) == expected, table.name
        assert sorted_rows(by_pyarrow) == expected, table.name
        assert sorted_rows(by_spark) == expected, table.name
        assert sorted_rows(by_duckdb) == expected, table.name
