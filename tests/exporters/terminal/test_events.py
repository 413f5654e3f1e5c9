"""Every recorded event is read once, whatever the filter and whichever table holds it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.read_model.event_filter import EventFilter
from exporters.read_model.recorded_events import EventsTable, history, rows_of
from exporters.read_model.times import Clock
from exporters.read_model.versions import checked_version, committed_at, newest_version_at
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.tables import PARTITION_CHANGES, REPLICATION_EVENTS
from streaming.delta.changes.reader import ChangeReader, events_of, rows_between
from streaming.delta.log.definitions import arrow_schema, create_or_upgrade
from streaming.delta.log.table_log import BEFORE_FIRST, newest_version
from streaming.errors import ConfigurationError
from tests.examples import examples
from tests.plugins.played import SECOND, START
from tests.plugins.table_writes import write


@pytest.fixture(scope="module")
def tables(played_tables: Callable[..., Path]) -> Path:
    return played_tables("under_min_isr", "broker_loss")


def events_from_changes(tables: Path, version: int | None = None) -> list[dict[str, Any]]:
    """Every event, straight from the changes."""
    path = tables / "partition_changes"
    upto = newest_version(path) if version is None else version
    return rows_of(events_of(rows_between(path, BEFORE_FIRST, upto)))


by_id = itemgetter("event_id")


def ids(rows: Any) -> list[str]:
    return [*map(by_id, rows)]


def test_every_event_of_the_changes_is_read_once_newest_last_also_those_that_the_table_lacks(tables: Path) -> None:
    rows = list(history(tables, EventFilter()))
    assert sorted(rows, key=by_id) == sorted(events_from_changes(tables), key=by_id)
    assert [row["occurred_not_after"] for row in rows] == sorted(row["occurred_not_after"] for row in rows)
    recorded = DeltaTable(str(tables / "replication_events"))
    assert 0 < recorded.count() < len(rows)


def test_a_limit_keeps_the_newest(tables: Path) -> None:
    everything = list(history(tables, EventFilter()))
    for limit in (1, 7, 10_000):
        assert list(history(tables, EventFilter(), limit=limit)) == everything[-limit:]


CLUSTERS = ("under_min_isr", "id-of-*", "o'clock", "!under*", "!id-of-broker_loss")
TOPICS = ("orders", "o*", "?ayments", "*[a-z]*", "a'b*", "!p*", "!orders")
FILTERS = st.builds(
    EventFilter,
    clusters=st.lists(st.sampled_from(CLUSTERS), max_size=2).map(tuple),
    topics=st.lists(st.sampled_from(TOPICS), max_size=2).map(tuple),
    partitions=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    brokers=st.lists(st.integers(1, 4), max_size=2).map(tuple),
    causes=st.lists(st.sampled_from(Cause), max_size=3).map(tuple),
    events=st.lists(st.sampled_from(EventKind), max_size=3).map(tuple),
    since=st.none() | st.integers(0, 80).map(lambda second: START + second * SECOND),
    until=st.none() | st.integers(0, 80).map(lambda second: START + second * SECOND),
    collected_since=st.none() | st.integers(0, 80).map(lambda second: START + second * SECOND),
)


@settings(max_examples=examples(20))
@given(selection=FILTERS)
def test_the_sql_predicate_selects_the_same_rows(tables: Path, selection: EventFilter) -> None:
    recorded = EventsTable.of(tables)
    everything = list(recorded.select(EventFilter(), None))
    assert list(recorded.select(selection, None)) == [row for row in everything if selection.matches(row)]


@pytest.mark.parametrize(
    ("conditions", "is_selected"),
    [
        ({"brokers": (3,)}, lambda row: 3 in row["left_isr"] + row["joined_isr"] + (row["leader_before"],)),
        ({"topics": ("pay*",)}, lambda row: row["topic"] == "payments"),
        ({"causes": (Cause.FENCED,)}, lambda row: row["cause"] == "fenced"),
    ],
)
def test_a_filter_selects_some_rows_and_no_others(tables: Path, conditions: Any, is_selected: Any) -> None:
    rows = list(history(tables, EventFilter(events=(EventKind.ISR_SHRINK, EventKind.LEADER_CHANGE), **conditions)))
    assert rows
    assert all(is_selected(row) or row["leader_after"] == 3 for row in rows)


@pytest.mark.parametrize(
    "version", [0, 13, 28, *(pytest.param(it, marks=pytest.mark.long) for it in (1, 7, 12, 14, 20, 25))]
)
def test_as_of_a_version_only_the_events_of_changes_up_to_it_are_read(tables: Path, version: int) -> None:
    assert sorted(ids(history(tables, EventFilter(), as_of=version))) == sorted(
        ids(events_from_changes(tables, version))
    )


def test_the_versions_of_a_table_say_when_they_were_committed(tables: Path) -> None:
    path = tables / "partition_changes"
    table = DeltaTable(str(path))
    for version, rows in ChangeReader(path).poll():
        (moment,) = pc.unique(rows["committed_at"].cast(pa.int64())).to_pylist()
        assert committed_at(table, version) == moment
        assert newest_version_at(table, moment) == checked_version(tables, version) == version
    assert checked_version(tables, newest_version(path)) == version


def test_as_of_outside_the_log_is_refused(tables: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--as-of 100000: .*partition_changes has the versions 0 to"):
        checked_version(tables, 100_000)


def test_days_outside_the_time_range_are_not_read(tmp_path: Path) -> None:
    table = create_or_upgrade(tmp_path, REPLICATION_EVENTS)
    create_or_upgrade(tmp_path, PARTITION_CHANGES)
    for day in range(3):
        at = dt.datetime(2026, 3, 1 + day, 12, tzinfo=dt.UTC)
        row = dict.fromkeys(REPLICATION_EVENTS.column_names()) | {
            "date": at.date(), "version": day, "ordinal": 0, "event_id": f"{day}", "event": "fenced",
            "cluster_id": "c", "cluster": "main",
            "subject": "broker", "occurred_not_before": at, "occurred_not_after": at, "collected_at": at, "source": "s",
        }  # fmt: skip
        write(table, pa.Table.from_pylist([row], schema=arrow_schema(REPLICATION_EVENTS)))
    for file in (tmp_path / "replication_events" / "date=2026-03-01").iterdir():
        file.unlink()

    clock = Clock(0)
    assert ids(history(tmp_path, EventFilter(since=clock.read("2026-03-02")))) == ["1", "2"]
