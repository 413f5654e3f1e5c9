"""The example queries are correct, and Spark and DuckDB return the same rows for them and for every table."""

from __future__ import annotations

import datetime as dt
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from exporters.read_model.event_filter import EventFilter
from exporters.read_model.reader import TablesReader
from exporters.read_model.recorded_events import history
from exporters.read_model.snapshot import ClusterSnapshot
from streaming.contracts.columns import Column, Table
from streaming.contracts.state import ObservedTime
from streaming.contracts.tables import TABLES
from streaming.delta.log.definitions import arrow_schema, create_or_upgrade
from tests.exporters.answers.asked import objects
from tests.exporters.conftest import SECOND, Tables
from tests.plugins.table_writes import write

SQL = Path(__file__).parents[3] / "conf" / "sql"
QUERIES = sorted(path.stem for path in SQL.glob("*.sql") if path.stem != "duckdb")
IN_BOTH = ("log_directories", "who_left_isrs")
"""Asked of Spark, too, in ``make test``; the others in ``make test-long``: a query takes it seconds."""
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


CLUSTER = {"cluster_id": "id-of-under_min_isr", "cluster": "under_min_isr"}
SAMPLED_AT = 1_700_000_030 * SECOND


@pytest.fixture(scope="module")
def tables(played_tables: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a simulation samples, and beside it what it does not."""
    folder = tmp_path_factory.mktemp("sql") / "tables"
    shutil.copytree(played_tables("under_min_isr", "hanging_transaction", seconds=60), folder)
    put_settings(folder)
    put_lag(folder)
    return folder


def put_lag(folder: Path) -> None:
    """Groups with and without members, a replica that is behind, a broker that stands out."""
    tables, sample = Tables(folder), {**CLUSTER, "collected_at": SAMPLED_AT, "source": "samples:collector-1"}
    group = {**sample, "group_protocol": "classic", "group_state": "Stable", "members": 1, "coordinator": 1}
    tables.put("groups", *({**group, "group": name} for name in ("payments", "billing")))
    offsets = {
        **group,
        "topic_id": "id-of-payments",
        "topic": "payments",
        "lag": 10,
        "records_lost": 0,
        "member": "app",
    }
    nobody = {**offsets, "group": "nobody", "group_state": "Empty", "members": 0, "member": None}
    tables.put(
        "group_offsets",
        *({**offsets, "group": "payments", "partition": number, "lag_seconds": 6.5 + number} for number in (0, 1)),
        *({**nobody, "partition": number, "records_lost": number} for number in (0, 1)),
        {**offsets, "group": "read", "partition": 0, "lag": 0, "lag_seconds": 0.0},
    )
    replica = {**sample, "topic_id": "id-of-payments", "topic": "payments", "partition": 0}
    tables.put(
        "replica_offsets",
        {**replica, "broker": 1, "lag": 0},
        {**replica, "broker": 2, "lag": 40, "behind_since": SAMPLED_AT - 9 * SECOND},
        {**replica, "broker": 3, "lag": 1, "behind_since": SAMPLED_AT},
    )
    metric = {**sample, "metric": "kafka_server_replicamanager_leadercount"}
    tables.put("broker_metrics", *({**metric, "broker": each, "metric_value": 4.0**each} for each in (0, 1, 2)))
    counted = {"counted": 9, "recorded": 6, "missed": 3, "resets": 0, "meter_value": 9, "as_of_version": 2}
    window = {"since": SAMPLED_AT - SECOND, "until": SAMPLED_AT, "meter": "isr_shrinks", "broker": 2}
    tables.put("isr_reconciliation", {**CLUSTER, **counted, **window})


def put_settings(folder: Path) -> None:
    """Topics that are not durable, throttles that were left behind, brokers of two versions."""
    tables, sample = Tables(folder), {**CLUSTER, "collected_at": SAMPLED_AT, "source": "samples:collector-1"}
    topics = {topic.topic: topic.topic_id for each in snapshot_of(folder) for topic in each.topics.values()}
    weak: tuple[dict[str, Any], ...] = (
        {"weaknesses": ["min_isr_one"], "leader_throttled_replicas": ""},
        {"weaknesses": ["unclean_election", "min_isr_one"], "follower_throttled_replicas": "*"},
    )
    topic = {**sample, "partition_count": 3, "replication_factor": 3, "min_isr": 1}
    tables.put("topic_settings", *(
        {**topic, "topic": name, "topic_id": topic_id, "allows_unclean_election": number == 1, **weak[number]}
        for number, (name, topic_id) in enumerate(sorted(topics.items())[:2])
    ))  # fmt: skip
    rates = {1: {"leader_throttled_rate": 1000}, 2: {}}
    tables.put("broker_settings", *({**sample, "broker": number, **rate} for number, rate in rates.items()))
    level = {**sample, "feature": "metadata.version", "finalized_level": 25}
    tables.put(
        "broker_features",
        {**level, "broker": 1, "supported_level": 25},
        {**level, "broker": 2, "supported_level": 29},
        {**level, "broker": 2, "feature": "transaction.version", "supported_level": 2, "finalized_level": 0},
    )


def snapshot_of(folder: Path) -> list[ClusterSnapshot]:
    return [each for each in TablesReader(folder).refresh().clusters.values() if each.name == CLUSTER["cluster"]]


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
    (shown,) = (row for row in objects(tables, "transactions", now=1) if row["is_hanging"])
    assert hanging == {name: shown[name] for name in hanging}
    of_member = ("cluster_id", "node", "lag", "behind_seconds")
    lags = {tuple(row[name] for name in of_member) for row in answer(duck, "quorum_lag")}
    assert lags == {tuple(row[name] for name in of_member) for row in objects(tables, "quorum", now=1)}
    of_group = ("cluster_id", "group", "partitions", "lag", "lag_seconds", "records_lost")
    shown_groups = {
        tuple(row[name] for name in of_group) for row in objects(tables, "groups", now=1) if row["partitions"]
    }
    assert {tuple(row[name] for name in of_group) for row in answer(duck, "groups_behind")} == shown_groups
    assert {seconds for *_, seconds, _ in shown_groups} == {None, 7.5, 0.0}
    of_directory = ("cluster_id", "broker", "log_dir", "replica_bytes", "used_percent")
    directories = {tuple(row[name] for name in of_directory) for row in answer(duck, "log_directories")}
    assert directories == {tuple(row[name] for name in of_directory) for row in objects(tables, "directories", now=1)}
    speeds = {(row["cluster_id"], row["broker"]): row["is_slow"] for row in answer(duck, "slow_brokers")}
    slow = {(row["cluster_id"], row["broker"]): row["is_slow"] for row in objects(tables, "brokers", now=1)}
    assert speeds == {key: slow[key] for key in speeds} != {}


def test_settings_and_lag_agree_with_what_the_terminal_shows(duck: Any, tables: Path) -> None:
    shown = objects(tables, "settings", now=1)
    weak = [(row["weakness"], row["topic"]) for row in answer(duck, "weak_topics")]
    assert set(weak) == {(row["finding"], row["topic"]) for row in shown if row["topic"]} - left_behind(shown)
    assert [weakness for weakness, _ in weak] == ["unclean_election", "min_isr_one", "min_isr_one"]
    left = {("throttle_left_behind", row["topic"] or row["broker"]) for row in answer(duck, "left_throttles")}
    assert left == left_behind(shown)
    assert [row["broker"] for row in answer(duck, "mixed_versions")] == [1, 1]
    (mixed,) = (row["reason"] for row in shown if row["finding"] == "mixed_versions")
    assert mixed.startswith("broker 1 runs an older version")
    groups = {
        row["group"]: (row["lag"], row["records_lost"])
        for row in objects(tables, "groups", now=1)
        if row["lag"] is not None
    }
    by_group = {row["group"]: (row["lag"], row["records_lost"]) for row in answer(duck, "group_lag")}
    assert by_group == groups
    assert [row["group"] for row in answer(duck, "group_lag") if row["is_unattended"]] == ["nobody"]
    behind = [(row["broker"], row["lag"], row["behind_seconds"]) for row in answer(duck, "lagging_replicas")]
    replicas = objects(tables, "replicas", now=1)
    assert behind == [(row["broker"], row["lag"], row["behind_seconds"]) for row in replicas] == [(2, 40, 9.0)]


def left_behind(shown: list[dict[str, Any]]) -> set[Any]:
    found = {(row["finding"], row["topic"] or row["broker"]) for row in shown}
    return {each for each in found if each[0] == "throttle_left_behind"}


def test_replicas_that_are_not_in_sync_are_those_of_the_state(duck: Any, tables: Path) -> None:
    missing: Counter[tuple[str, int]] = Counter()
    states = "SELECT cluster_id, replicas, isr FROM partition_state WHERE NOT is_deleted"
    for cluster_id, replicas, isr in duck.execute(states).fetchall():
        missing.update((cluster_id, broker) for broker in set(replicas) - set(isr))
    rows = answer(duck, "recovery_progress")
    assert {(row["cluster_id"], row["broker"]): row["replicas_to_rejoin"] for row in rows} == missing
    assert len(answer(duck, "directories_full_soon")) == len(
        [row for row in objects(tables, "directories", now=1) if row["is_online"]]
    )


def test_time_left_of_directories_and_brokers_is_counted_as_the_tables_say() -> None:
    duckdb = pytest.importorskip("duckdb")
    c = "'c' AS cluster_id"
    with duckdb.connect() as connection:
        connection.execute((SQL / "duckdb.sql").read_text())
        connection.execute(f"CREATE TABLE broker_state AS SELECT {c}, unnest([1, 2, 3]) AS broker, false AS is_fenced")
        connection.execute(
            f"CREATE TABLE partition_state AS SELECT {c}, 't' AS topic_id, unnest([0, 1]) AS partition, "
            "[1, 2, 3] AS replicas, [1] AS isr, false AS is_deleted"
        )
        connection.execute(
            "CREATE TABLE replica_offsets AS SELECT 'c' AS cluster_id, 't' AS topic_id, * FROM "
            "(VALUES (0, 2, 9000, -70.0), (1, 2, 1000, -30.0), (0, 3, 5, -1.0)) "
            "AS s(partition, broker, lag, lag_per_second)"
        )
        rows = connection.execute((SQL / "recovery_progress.sql").read_text()).fetchall()
        assert [(row[1], row[3], row[4], row[5]) for row in rows] == [(3, 2, None, None), (2, 2, 10_000, 100.0)]
        connection.execute(
            "CREATE TABLE log_directories AS SELECT 'c' AS cluster_id, 1 AS broker, * FROM "
            "(VALUES ('/a', true, 10, NULL, NULL), "
            "('/b', true, 10, 2.0, 5.0), ('/c', false, 10, 2.0, 1.0)) "
            "AS s(log_dir, is_online, usable_bytes, bytes_per_second, seconds_until_full)"
        )
        rows = connection.execute((SQL / "directories_full_soon.sql").read_text()).fetchall()
        assert [(row[2], row[5]) for row in rows] == [("/b", 5.0), ("/a", None)]


@pytest.fixture(scope="module")
def by_spark(spark: Any, tables: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Give what Spark answers to a query over the tables that it names."""
    session = spark.newSession()

    @cache
    def register(table: str) -> None:
        if DeltaTable.is_deltatable(str(tables / table)):
            session.read.format("delta").load(str(tables / table)).createOrReplaceTempView(table)

    def answered(sql: str) -> list[dict[str, Any]]:
        for table in TABLES.keys() & set(re.findall(r"\w+", sql)):
            register(table)
        return [row.asDict() for row in session.sql(sql).collect()]

    return answered


@pytest.mark.spark
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_BOTH else pytest.mark.long) for name in QUERIES]
)
def test_spark_and_duckdb_give_the_same_answer(
    by_spark: Callable[[str], list[dict[str, Any]]], duck: Any, name: str
) -> None:
    expected = answer(duck, name)
    assert expected or name == "recovery_progress"  # every replica is in sync at the end
    found = by_spark((SQL / f"{name}.sql").read_text())
    assert [nearly(same(row)) for row in found] == [nearly(same(row)) for row in expected]


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
    return bytes(value) if isinstance(value, bytes | bytearray) else value


def nearly(value: Any) -> Any:
    """The same, where each adds up numbers in an order of its own."""
    if isinstance(value, dict):
        return {name: nearly(item) for name, item in value.items()}
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
    return sorted((same(row) for row in rows), key=repr)


def kinds(columns: Any, within: str = "") -> Iterator[str]:
    """Name the types of columns, and of the fields within them."""
    for column in columns:
        if isinstance(column.type, str):
            yield f"{within}{column.type}{'?' if column.nullable else ''}"
        else:
            is_array = isinstance(column.type, list)
            yield from kinds(column.type[0] if is_array else column.type, f"{within}{'array of ' * is_array}struct of ")


def of_every_kind() -> list[Table]:
    """Give a table with a column of every type that one of ours has, nested or not, and one of each partitioning."""
    seen: set[str] = set()
    chosen: list[Column] = []
    every = (column for table in TABLES.values() for column in table.columns)
    for column in sorted(every, key=lambda column: -len({*kinds([column])})):
        if {*kinds([column])} - seen:
            chosen.append(replace(column, name=f"column_{len(chosen)}"))
            seen |= {*kinds([column])}
    smallest = sorted(TABLES.values(), key=lambda table: -len(table.columns))
    partitioned = {table.partitioned_by: table for table in smallest if table.partitioned_by}
    return [Table("every_kind", "", tuple(chosen), key=(chosen[-1].name,)), *partitioned.values()]


@pytest.mark.spark
@pytest.mark.parametrize(
    "read", [of_every_kind(), pytest.param([*TABLES.values()], marks=pytest.mark.long)], ids=["every kind", "every one"]
)
def test_spark_deltalake_pyarrow_and_duckdb_read_the_same_rows_of_every_table(
    spark: Any, tmp_path: Path, read: list[Table]
) -> None:
    duckdb = pytest.importorskip("duckdb")
    for table in read:
        values = {plain: cycle(some) for plain, some in VALUES.items()}
        rows = [filled(table.columns, values, with_nulls=number == 1) for number in range(4)]
        for row in rows if "channel" in table.partitioned_by else ():
            row["channel"] = "samples"  # the name of a folder
        write(create_or_upgrade(tmp_path, table), pa.Table.from_pylist(rows, schema=arrow_schema(table)))
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
