"""Side tables that are read by a thread of their own: no change waits for a large one."""

from __future__ import annotations

import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from exporters.read_model import side_tables
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import Refresher
from streaming.contracts.sample_tables import REPLICA_OFFSETS
from tests.exporters.meaning import meaning
from tests.exporters.read_model.test_reader import SECOND, partitions, shrunk

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def offsets_status(reader: TablesReader) -> side_tables.TableStatus:
    (status,) = (each for each in reader.statuses if each.table == REPLICA_OFFSETS.name)
    return status


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_first_refresh_has_the_side_tables_and_later_ones_what_was_read_apart(busy_cluster: Any) -> None:
    apart = TablesReader(busy_cluster.directory, reads_side_tables_apart=True)
    alone = TablesReader(busy_cluster.directory)
    assert meaning(apart.refresh()) == meaning(alone.refresh())
    table = apart._side_tables[0]
    table.forget()
    assert not apart.has_news()
    apart.read_side_tables()
    assert apart.has_news()
    assert meaning(apart.refresh()) == meaning(alone.snapshot)
    assert not apart.has_news()


def test_a_change_does_not_wait_for_a_side_table(busy_cluster: Any, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TablesReader(busy_cluster.directory, reads_side_tables_apart=True)
    refresher = Refresher(reader, 0.05, "1.2.3")
    refresher.refresh_once()
    is_reading, may_end = threading.Event(), threading.Event()

    def slow_query(*arguments: Any) -> pa.Table:
        is_reading.set()
        assert may_end.wait(60)
        return query(*arguments)

    query = side_tables.query
    monkeypatch.setattr(side_tables, "query", slow_query)
    reader._side_tables[0].forget()
    refresher.start()
    try:
        assert is_reading.wait(30)
        busy_cluster.commit(shrunk(rows, rows.start + 40 * SECOND, left=3))
        until(lambda: partitions(refresher.snapshot)["orders", 0].isr == (1, 2))
        may_end.set()
        until(lambda: (offsets_status(reader).read_at or 0) > time.monotonic() - 1)
    finally:
        may_end.set()
        refresher.stop()
        refresher.join()


def test_rows_that_cannot_be_taken_over_cost_their_table_only(
    busy_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = TablesReader(busy_cluster.directory)
    cluster = reader.refresh().clusters["id-of-main"]
    assert cluster.offsets
    with monkeypatch.context() as patched:
        patched.setattr("exporters.read_model.samples.messages_in", lambda *_: 1 / 0)
        reader._side_tables[0].forget()
        cluster = reader.refresh().clusters["id-of-main"]
        assert (cluster.offsets, cluster.samples.replica_logs) == ({}, None)
        assert "division by zero" in (offsets_status(reader).error or "")
        assert cluster.samples.groups
    reader._side_tables[0]._not_before = 0.0
    cluster = reader.refresh().clusters["id-of-main"]
    assert cluster.offsets
    assert offsets_status(reader).error is None


def test_a_table_that_could_never_be_read_and_is_gone_is_one_that_does_not_exist_yet(busy_cluster: Any) -> None:
    folder = busy_cluster.directory / REPLICA_OFFSETS.name
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "_delta_log").write_text("")
    reader = TablesReader(busy_cluster.directory)
    reader.refresh()
    assert "cannot read the table" in (offsets_status(reader).error or "")
    shutil.rmtree(folder)
    reader._side_tables[0]._not_before = 0.0
    reader.refresh()
    assert offsets_status(reader).error is None


def test_what_is_read_while_a_snapshot_is_prepared_changes_neither_its_rows_nor_its_statuses(busy_cluster: Any) -> None:
    """Else a scrape would show rows of a table that it says cannot be read, or miss those of one that it says can."""
    reader = TablesReader(busy_cluster.directory, reads_side_tables_apart=True)
    folder, away = busy_cluster.directory / REPLICA_OFFSETS.name, busy_cluster.directory.parent / "away"

    def is_gone() -> None:
        folder.rename(away)

    def is_back() -> None:
        away.rename(folder)
        reader._side_tables[0]._not_before = 0.0

    between, seen = [is_gone, is_back], []

    def prepare(_: object) -> bool:
        if between:
            between.pop(0)()
        reader.read_side_tables()
        return True

    refresher = Refresher(reader, 60, "1.2.3", prepare)
    for _ in range(3):
        refresher.refresh_once()
        is_readable = {each.table: each.is_readable for each in refresher.health.tables}[REPLICA_OFFSETS.name]
        seen.append((is_readable, bool(refresher.snapshot.clusters["id-of-main"].offsets)))
    assert seen == [(True, True), (False, False), (True, True)]
