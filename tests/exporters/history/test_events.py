"""The history that is told is the history that was recorded, whatever is asked and however the tables lie."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.history.events import Recorded, history, rows_of
from exporters.history.moments import Clock
from exporters.history.versions import as_of, committed_at, versions_of
from exporters.history.wanted import Wanted
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.tables import PARTITION_CHANGES, REPLICATION_EVENTS
from streaming.delta.definitions import arrow_schema, create_or_check
from streaming.delta.events import events_of
from streaming.delta.tail import BEFORE_FIRST, rows_between
from streaming.errors import ConfigurationError
from tests.plugins.played import SECOND, START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def tables(played_tables: Callable[..., Path]) -> Path:
    return played_tables("under_min_isr", "broker_loss")


def told(tables: Path, version: int | None = None) -> list[dict[str, Any]]:
    """Every event, straight from the changes."""
    path = tables / PARTITION_CHANGES.name
    newest = versions_of(path)[-1] if version is None else version
    return rows_of(events_of(rows_between(path, BEFORE_FIRST, newest)))


def ids(rows: Any) -> list[str]:
    return [row["event_id"] for row in rows]


def test_every_event_of_the_changes_is_told_once_newest_last_also_those_that_the_table_lacks(tables: Path) -> None:
    rows = list(history(tables, Wanted()))
    assert sorted(ids(rows)) == sorted(ids(told(tables)))
    assert [row["occurred_not_after"] for row in rows] == sorted(row["occurred_not_after"] for row in rows)
    recorded = DeltaTable(str(tables / REPLICATION_EVENTS.name))
    assert 0 < recorded.count() < len(rows)


def test_a_row_has_the_values_of_its_change(tables: Path) -> None:
    by_id = {row["event_id"]: row for row in told(tables)}
    assert all(row == by_id[row["event_id"]] for row in history(tables, Wanted()))


def test_a_limit_keeps_the_newest(tables: Path) -> None:
    everything = list(history(tables, Wanted()))
    for limit in (1, 7, 10_000):
        assert list(history(tables, Wanted(), limit=limit)) == everything[-limit:]


WANTED = st.builds(
    Wanted,
    clusters=st.lists(st.sampled_from(["under_min_isr", "id-of-broker_loss", "o'clock"]), max_size=2).map(tuple),
    topics=st.lists(st.sampled_from(["orders", "o*", "?ayments", "*[a-z]*", "a'b*", ""]), max_size=2).map(tuple),
    partitions=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    brokers=st.lists(st.integers(1, 4), max_size=2).map(tuple),
    causes=st.lists(st.sampled_from(Cause), max_size=3).map(tuple),
    events=st.lists(st.sampled_from(EventKind), max_size=3).map(tuple),
    since=st.none() | st.integers(0, 80).map(lambda second: START + second * SECOND),
    until=st.none() | st.integers(0, 80).map(lambda second: START + second * SECOND),
    collected_since=st.none() | st.integers(0, 80).map(lambda second: START + second * SECOND),
)


@settings(deadline=None, max_examples=60)
@given(wanted=WANTED)
def test_what_delta_prunes_by_is_the_rule(tables: Path, wanted: Wanted) -> None:
    recorded = Recorded.of(tables)
    everything = list(recorded.select(Wanted(), None))
    assert list(recorded.select(wanted, None)) == [row for row in everything if wanted.matches(row)]


@pytest.mark.parametrize(
    ("wanted", "is_shown"),
    [
        ({"brokers": (3,)}, lambda row: 3 in row["left_isr"] + row["joined_isr"] + (row["leader_before"],)),
        ({"topics": ("pay*",)}, lambda row: row["topic"] == "payments"),
        ({"causes": (Cause.FENCED,)}, lambda row: row["cause"] == "fenced"),
    ],
)
def test_a_filter_shows_something_and_nothing_else(tables: Path, wanted: Any, is_shown: Any) -> None:
    rows = list(history(tables, Wanted(events=(EventKind.ISR_SHRINK, EventKind.LEADER_CHANGE), **wanted)))
    assert rows
    assert all(is_shown(row) or row["leader_after"] == 3 for row in rows)


@pytest.mark.parametrize("version", [0, 1, 7, 12, 13, 14, 20, 25, 28])
def test_as_of_a_version_is_what_the_changes_up_to_it_tell(tables: Path, version: int) -> None:
    assert sorted(ids(history(tables, Wanted(), as_of=version))) == sorted(ids(told(tables, version)))


def test_as_of_a_moment_is_the_newest_version_that_was_committed_by_then(tables: Path) -> None:
    path = tables / PARTITION_CHANGES.name
    clock = Clock(0)
    moment = committed_at(path, 20)
    newest = max(version for version in versions_of(path) if committed_at(path, version) <= moment)
    assert as_of(tables, clock.iso(moment), clock) == newest
    assert as_of(tables, "20", clock) == 20


@pytest.mark.parametrize("text", ["100000", "2001-01-01"])
def test_as_of_what_nobody_knows_is_refused(tables: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"--as-of {text}: .*partition_changes"):
        as_of(tables, text, Clock(0))


def test_days_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    table = create_or_check(tmp_path, REPLICATION_EVENTS)
    create_or_check(tmp_path, PARTITION_CHANGES)
    for day in range(3):
        at = dt.datetime(2026, 3, 1 + day, 12, tzinfo=dt.UTC)
        row = dict.fromkeys(REPLICATION_EVENTS.column_names()) | {
            "date": at.date(), "event_id": f"{day}", "event": "fenced", "cluster_id": "c", "cluster": "main",
            "subject": "broker", "occurred_not_before": at, "occurred_not_after": at, "collected_at": at, "source": "s",
        }  # fmt: skip
        write_deltalake(table, pa.Table.from_pylist([row], schema=arrow_schema(REPLICATION_EVENTS)), mode="append")
    for file in (tmp_path / REPLICATION_EVENTS.name / "date=2026-03-01").iterdir():
        file.unlink()

    clock = Clock(0)
    assert ids(history(tmp_path, Wanted(since=clock.read("2026-03-02")))) == ["1", "2"]
