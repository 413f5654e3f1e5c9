"""The derived tables, round by round, where a commit or a round fails, and where batches come while a round runs."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming.bus.segments import new_log_id
from streaming.contracts.tables import PARTITION_STATE_TABLE
from streaming.delta.changes.log import ChangeLog
from streaming.delta.log.maintenance import AppendMaintenance
from streaming.delta.log.writer import Writer
from streaming.errors import IsrwatchError, TableUnreadable
from streaming.jobs.shards.batch import ReplicationBatch
from tests.changes.conftest import Story
from tests.chaos.comparison import all_differences
from tests.end_to_end.stories import long_story
from tests.jobs.shards.test_batch import published
from tests.jobs.shards.test_kafka_batch import OpenBatch, Reader, as_directory, log, open_batch, reader, rows, sent
from tests.jobs.shards.test_shards import of_cluster, report, shipped
from tests.plugins.executors import OnExecutors
from tests.plugins.pipeline import rows_of

__all__ = ["open_batch", "reader"]
DERIVED = {"replication_events", "partition_state", "broker_state", "cluster_state"}


def refused(*_given: Any) -> Any:
    raise IsrwatchError("the store does not answer")


def test_what_fails_behind_a_commit_leaves_no_cluster_out_of_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query is opened again then, but not before its last round, which is as of that commit."""
    first, second = shipped([of_cluster(long_story(number, steps=20), number) for number in range(2)])
    batch = ReplicationBatch(tmp_path / "tables")
    batch.apply(as_directory(first))
    with monkeypatch.context() as patched:
        patched.setattr(AppendMaintenance, "after_commit", refused)
        with pytest.raises(IsrwatchError, match="does not answer"):
            batch.apply(as_directory(second))
    batch.project()
    ReplicationBatch(tmp_path / "tables").project()

    expected = ReplicationBatch(tmp_path / "expected")
    expected.apply(as_directory([*first, *second]))
    expected.project()
    found = all_differences(tmp_path / "tables", tmp_path / "expected")
    assert [each for each in found if each.partition(":")[0] in DERIVED] == []


def test_tombstones_leave_the_table_with_the_round_after_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, story = ReplicationBatch(tmp_path), Story()
    story.snapshot([{}, {}])
    story.later(5).removed()
    for day in range(3):
        batch.apply(published(story.seen, day * 100))
        if day == 0:
            batch.project()
        story.seen = []
        story.later(86_400).heartbeat()
    assert [row["is_deleted"] for row in rows_of(tmp_path, "partition_state")] == [True, True]
    add = Writer.add_files

    def failing(self: Writer, *given: Any) -> int:
        return refused() if self.path.name == PARTITION_STATE_TABLE.name else add(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "add_files", failing)
        with pytest.raises(IsrwatchError, match="does not answer"):
            batch.project()
    batch.project()
    assert rows_of(tmp_path, "partition_state") == []


def with_batches_meanwhile(batch: Any, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let something happen in each round, once it has begun: its thread gives way to that of the batches."""
    workers = batch.workers
    deriving = workers.deriving

    def begun(*given: Any) -> Callable[[], Any]:
        derive = deriving(*given)

        def ended() -> Any:
            meanwhile()
            return derive()

        return ended

    monkeypatch.setattr(workers, "deriving", begun)


def test_a_round_is_of_one_version_also_if_batches_are_applied_and_reported_meanwhile(
    tmp_path: Path, reader: Reader, open_batch: OpenBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, tables, expected = Story(), tmp_path / "tables", tmp_path / "expected"
    story.snapshot()
    story.later(10).partition(isr=(1, 2), partition_epoch=1, cause="lag", evidence="proven")
    cut = len(story.seen)
    story.later(600).partition(partition_epoch=2, cause="expand", evidence="proven")
    records = sent(log(story.seen, new_log_id(None)))
    open_batch(tables, reader).apply(rows(records[:cut]))  # a job that is killed before its first round
    shutil.copytree(tables, expected)
    ReplicationBatch(expected).project()
    opened = open_batch(tables, reader)
    batch = opened.batch if isinstance(opened, OnExecutors) else opened
    assert isinstance(batch, ReplicationBatch)

    def meanwhile() -> None:
        opened.apply(rows(records[cut:]))
        report(tables, *batch.sources())

    with monkeypatch.context() as patched:
        with_batches_meanwhile(batch, patched, meanwhile)
        opened.project()
    for name in sorted(DERIVED):
        assert sorted(map(repr, rows_of(tables, name))) == sorted(map(repr, rows_of(expected, name)))
    assert [row["under_replicated_seconds"] for row in rows_of(tables, "cluster_state")] == [0.0]
    opened.project()
    assert [row["under_replicated_seconds"] for row in rows_of(tables, "cluster_state")] == [600.0]


def test_a_round_says_in_one_sentence_which_file_of_a_cluster_is_missing(tmp_path: Path) -> None:
    batch, story = ReplicationBatch(tmp_path), Story()
    story.snapshot()
    batch.apply(published(story.seen))
    batch.project()
    (file,) = (tmp_path / "partition_state").glob("of-*/*.parquet")
    file.unlink()
    known = len(story.seen)
    story.later().partition(isr=(1, 2), partition_epoch=1, cause="lag", evidence="proven")
    batch.apply(published(story.seen[known:], known))
    with pytest.raises(TableUnreadable, match=f"/{file.name} is missing; bring back the whole folder of the tables"):
        batch.project()


def test_what_a_round_waits_for_a_batch_is_no_work_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It rests for some times as long as it has worked: else the tables would lag the more, the longer batches take."""
    batch, story = ReplicationBatch(tmp_path), Story()
    story.snapshot()
    batch.apply(published(story.seen))
    known = len(story.seen)
    story.later().heartbeat()
    is_begun, is_round_begun, ended = threading.Event(), threading.Event(), list[float]()
    commit = ChangeLog.commit_files

    def slow(*given: Any) -> int:
        is_begun.set()
        is_round_begun.wait()
        time.sleep(0.3)
        ended.append(time.monotonic())
        return commit(*given)

    monkeypatch.setattr(ChangeLog, "commit_files", slow)
    applying = threading.Thread(target=batch.apply, args=(published(story.seen[known:], known),))
    applying.start()
    is_begun.wait()
    is_round_begun.set()
    seconds = batch.project()
    assert 0 < seconds <= time.monotonic() - ended[0]
    applying.join()


def test_a_round_that_failed_is_due_at_once_also_after_a_mere_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread rests after a failure; until the next round the query counts as one that does not write its tables."""
    monkeypatch.setattr("streaming.jobs.shards.batch.SECONDS_BETWEEN_HEARTBEATS", 0.5)
    batch, story = ReplicationBatch(tmp_path), Story()
    story.snapshot()
    batch.apply(published(story.seen))
    batch.project()
    known = len(story.seen)
    story.later().heartbeat()
    batch.apply(published(story.seen[known:], known))
    time.sleep(0.5)
    assert batch.is_due()
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "write", refused)
        with pytest.raises(IsrwatchError, match="does not answer"):
            batch.project()
    assert batch.is_due()
    batch.project()
    assert not batch.is_due()
