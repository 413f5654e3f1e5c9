"""Side tables that are read by a thread of their own: no change waits for a large one."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pyarrow as pa
import pytest

from exporters.read_model import side_tables
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import Refresher
from exporters.read_model.side_tables import REST_AFTER_ERROR, REST_PER_WORK
from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
from tests.exporters.conftest import Stopwatch
from tests.exporters.meaning import meaning
from tests.exporters.read_model.test_reader import SECOND, partitions, shrunk
from tests.plugins.local_http import wait_until


def offsets_status(reader: TablesReader) -> side_tables.TableStatus:
    (status,) = (each for each in reader.statuses if each.table == "replica_offsets")
    return status


def main(snapshot: ReplicationSnapshot) -> ClusterSnapshot:
    return snapshot.clusters["id-of-main"]


def sample_again(busy_cluster: Any, rows: Any, high_watermark: int) -> None:
    """Write another version of the offsets, of one replica."""
    sample = {**rows.owner, "collected_at": rows.start + 29 * SECOND, "source": "offsets:collector-1"}
    replica = {"topic_id": "id-of-orders", "topic": "orders", "partition": 0, "broker": 1, "log_start_offset": 5}
    busy_cluster.put("replica_offsets", {**sample, **replica, "high_watermark": high_watermark})


def test_the_first_refresh_has_the_side_tables_and_later_ones_what_was_read_apart(busy_cluster: Any, rows: Any) -> None:
    apart = TablesReader(busy_cluster.directory, reads_side_tables_apart=True, monotonic=Stopwatch())
    alone = TablesReader(busy_cluster.directory, monotonic=Stopwatch())
    assert meaning(apart.refresh()) == meaning(alone.refresh())
    assert main(apart.snapshot).offsets == main(alone.snapshot).offsets
    sample_again(busy_cluster, rows, 71)
    before = main(apart.snapshot).offsets
    assert not apart.has_news()
    assert main(apart.refresh()).offsets is before
    apart.read_side_tables()
    assert apart.has_news()
    assert main(apart.refresh()).offsets == main(alone.refresh()).offsets != before
    assert not apart.has_news()


def test_a_change_does_not_wait_for_a_side_table(busy_cluster: Any, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TablesReader(busy_cluster.directory, reads_side_tables_apart=True, monotonic=Stopwatch())
    refresher = Refresher(reader, 0.05, "1.2.3")
    refresher.refresh_once()
    is_reading, may_end = threading.Event(), threading.Event()

    def slow_query(*arguments: Any) -> pa.Table:
        is_reading.set()
        assert may_end.wait(60)
        return query(*arguments)

    query = side_tables.query
    monkeypatch.setattr(side_tables, "query", slow_query)
    sample_again(busy_cluster, rows, 71)
    refresher.start()
    try:
        assert is_reading.wait(60)
        busy_cluster.commit(shrunk(rows, rows.start + 40 * SECOND, left=3))
        wait_until(lambda: partitions(refresher.snapshot)["orders", 0].isr == (1, 2))
        may_end.set()
        wait_until(lambda: main(refresher.snapshot).offsets["id-of-orders"][0][0].high_watermark == 71)
    finally:
        may_end.set()
        refresher.stop()
        refresher.join()


def test_rows_that_cannot_be_taken_over_cost_their_table_only(
    busy_cluster: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Stopwatch()
    reader = TablesReader(busy_cluster.directory, monotonic=clock)
    assert main(reader.refresh()).offsets
    with monkeypatch.context() as patched:
        patched.setattr("exporters.read_model.samples.messages_in", lambda *_: 1 / 0)
        sample_again(busy_cluster, rows, 71)
        cluster = main(reader.refresh())
        assert (cluster.offsets, cluster.samples.replica_logs) == ({}, None)
        assert "division by zero" in (offsets_status(reader).error or "")
        assert cluster.samples.groups
    assert main(reader.refresh()).offsets == {}, "it rests after an error"
    clock.now += REST_AFTER_ERROR
    assert main(reader.refresh()).offsets
    assert offsets_status(reader).error is None


def test_a_table_rests_in_proportion_to_what_its_last_reading_took(
    busy_cluster: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Stopwatch()
    reader = TablesReader(busy_cluster.directory, monotonic=clock)
    reader.refresh()
    query = side_tables.query

    def slow_query(*arguments: Any) -> pa.Table:
        clock.now += 3
        return query(*arguments)

    monkeypatch.setattr(side_tables, "query", slow_query)
    for high_watermark, later in ((71, 0.0), (72, 3 * REST_PER_WORK)):
        sample_again(busy_cluster, rows, high_watermark)
        before = main(reader.snapshot).offsets
        if later:
            clock.now += later - 0.5
            assert main(reader.refresh()).offsets is before
            clock.now += 0.5
        assert main(reader.refresh()).offsets["id-of-orders"][0][0].high_watermark == high_watermark


def test_a_table_that_could_never_be_read_and_is_gone_is_one_that_does_not_exist_yet(busy_cluster: Any) -> None:
    folder = busy_cluster.directory / "replica_offsets"
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "_delta_log").write_text("")
    clock = Stopwatch()
    reader = TablesReader(busy_cluster.directory, monotonic=clock)
    reader.refresh()
    assert "cannot read the table" in (offsets_status(reader).error or "")
    shutil.rmtree(folder)
    clock.now += REST_AFTER_ERROR
    reader.refresh()
    assert offsets_status(reader).error is None


def test_what_is_read_while_a_snapshot_is_prepared_changes_neither_its_rows_nor_its_statuses(busy_cluster: Any) -> None:
    """Else a scrape would show rows of a table that it says cannot be read, or miss those of one that it says can."""
    clock = Stopwatch()
    reader = TablesReader(busy_cluster.directory, reads_side_tables_apart=True, monotonic=clock)
    folder, away = busy_cluster.directory / "replica_offsets", busy_cluster.directory.parent / "away"
    between = [lambda: folder.rename(away), lambda: away.rename(folder)]
    seen = []

    def prepare(_: object) -> bool:
        if between:
            between.pop(0)()
        clock.now += REST_AFTER_ERROR
        reader.read_side_tables()
        return True

    refresher = Refresher(reader, 60, "1.2.3", prepare)
    for _ in range(3):
        refresher.refresh_once()
        is_readable = {each.table: each.is_readable for each in refresher.health.tables}["replica_offsets"]
        seen.append((is_readable, bool(main(refresher.snapshot).offsets)))
    assert seen == [(True, True), (False, False), (True, True)]
