"""The derived tables, round by round, where a commit or a round fails, and where batches come while a round runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming.bus.segments import new_log_id
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.tables import PARTITION_STATE_TABLE
from streaming.delta.log.maintenance import AppendMaintenance
from streaming.delta.log.writer import Writer
from streaming.errors import IsrwatchError
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
