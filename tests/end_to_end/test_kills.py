"""kill -9 at any moment loses nothing and doubles nothing.

Spark has no part in a commit: a job with Spark that is killed half-way, and loses its checkpoint, is in
``test_one_job.py``.
"""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.observations import Observation
from tests.end_to_end.stories import essence, expected_changes, long_story
from tests.plugins.batches import Batches
from tests.plugins.pipeline import Pipeline

pytestmark = [pytest.mark.process]
HERE = Path(__file__).parent


class Telling:
    """Publishes a story piece by piece, each after the piece before was committed, until it is told to hurry.

    So a story makes many commits, however slow the machine is, and a kill at the N-th has something to interrupt.
    """

    def __init__(self, pipeline: Pipeline, story: Sequence[Observation]) -> None:
        self._publisher = DirectoryPublisher(pipeline.bus, segment_bytes=20_000)
        self._log = pipeline.tables / "partition_changes" / "_delta_log"
        self._story = story
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def _tell(self) -> None:
        for start in range(0, len(self._story), 20):
            commits = self._commits()
            self._publisher.publish(self._story[start : start + 20])
            while self._commits() == commits and not self._hurry.wait(0.01):
                pass

    def _commits(self) -> int:
        return len(list(self._log.glob("*.json")))

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def finish(self) -> None:
        self._hurry.set()
        self._thread.join()
        self._publisher.close()


def is_complete(pipeline: Pipeline, story: Sequence[Observation]) -> bool:
    rows = pipeline.rows("partition_changes")
    return any((row["sequence"] or 0) >= len(story) for row in rows)


def check(pipeline: Pipeline, story: Sequence[Observation]) -> None:
    """Compare every row, and every derived event, with the story."""
    expected = expected_changes(story)
    assert essence(pipeline.rows("partition_changes")) == expected
    events = sorted(row["event_id"] for row in pipeline.rows("replication_events"))
    assert events == sorted(event for row in expected for event in row["events"])
    counted = {row["partition"]: row["change_number"] for row in pipeline.rows("partition_state")}
    last = {row["key"][1]: row["after"]["change_number"] for row in expected if row["after"]}
    assert counted == last


def kill(pipeline: Pipeline, point: str, *what: str) -> None:
    """Run until the fourth commit, and kill there."""
    script = [sys.executable, str(HERE / "kill_points.py"), point, "4", *what]
    killed = pipeline.run(f"killed-{point}", script, PYTHONPATH=str(HERE.parents[1]))
    assert killed.wait() == -signal.SIGKILL, killed.text()[-3000:]
    pipeline.eventually(lambda: not killed.left(), "no process is left behind")


def test_a_writer_killed_at_each_step_of_a_commit_goes_on_where_it_was(pipeline: Pipeline) -> None:
    """One story through four kills."""
    story = long_story(seed=1)
    telling = Telling(pipeline, story)
    for point in ("before", "file", "draft", "after"):
        kill(pipeline, point, "batches", str(pipeline.bus), str(pipeline.tables))
    assert not telling.is_over()
    telling.finish()
    batches = Batches(pipeline.bus, pipeline.tables)
    batches.start()
    pipeline.eventually(lambda: batches.errors or is_complete(pipeline, story), "the whole story is applied")
    batches.end()
    assert batches.errors == []
    check(pipeline, story)


@pytest.mark.spark
@pytest.mark.long
def test_a_driver_killed_at_a_step_of_a_commit_goes_on_without_its_checkpoint(pipeline: Pipeline) -> None:
    story = long_story(seed=1)
    telling = Telling(pipeline, story)
    for point in ("draft", "after"):
        kill(pipeline, point, "job", *pipeline.job_arguments())
    assert not telling.is_over()
    telling.finish()
    shutil.rmtree(pipeline.checkpoint)
    job = pipeline.job()
    pipeline.eventually(lambda: is_complete(pipeline, story), "the whole story is applied", job)
    assert job.stop() == 0, job.text()[-3000:]
    check(pipeline, story)
