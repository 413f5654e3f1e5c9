"""A job that hangs is unhealthy, one whose batch is long is not, and one that is behind is not ready. Without Spark."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from streaming import movement
from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.changes.fold import fold
from streaming.contracts.observations import Channel
from streaming.jobs.application import Application
from streaming.jobs.metrics import NOT_MEASURED, Reporter
from streaming.jobs.shards import task
from streaming.jobs.supervised import read_mark
from streaming.movement import STARTING_SECONDS, STILL_SECONDS, Motion
from streaming.settings import JobSettings
from tests.end_to_end.stories import long_story
from tests.jobs.shards.test_batch import published
from tests.jobs.test_application import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.contracts.observations import Observation
    from streaming.jobs.queries import JobLocations
    from streaming.jobs.supervised import SupervisedQuery

SOURCE = "metadata_log:a"


class Hanging:
    """A job of the replication query, whose clock the test moves; reports come by themselves, each 5 s of it."""

    def __init__(self, places: JobLocations, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.places = 1_000.0, places
        self.application = Application(JobSettings(listen="", queries=("replication",)), places, print)
        (self.query,) = self.application.queries
        self.query.movement = Motion(lambda: self.now)
        monkeypatch.setattr(self.query, "background", None)
        self.reporter = self.application.reporter = Reporter([self.query], places, lambda: self.now)
        self.story = long_story(seed=1, steps=100)

    def runs(self) -> SupervisedQuery:
        self.query._run = Run()  # type: ignore[assignment]  # what Spark would do is done by the test
        self.query.movement.begin()
        return self.query

    def publish(self, first: int, last: int) -> None:
        with closing(DirectoryPublisher(self.places.bus, segment_bytes=1 << 20)) as publisher:
            publisher.publish(self.story[first:last])

    def apply(self, first: int, last: int) -> None:
        """Apply what was published, as the batch of the query."""
        (end,) = DirectoryReader(self.places.bus).end_positions(Channel.REPLICATION).values()
        log_id = DirectoryReader(self.places.bus).segments(Channel.REPLICATION, SOURCE)[-1].log_id
        rows = published(self.story[first:last], start=end - (last - first))
        column = rows.column_names.index("log_id")
        with self.query.movement.of_this_thread():
            self.query.batch.apply(rows.set_column(column, "log_id", [[log_id] * len(rows)]))

    def after(self, seconds: float) -> list[str]:
        for _ in range(int(seconds // 5)):
            self.now += 5
            self.reporter.report()
        self.now += seconds % 5
        return self.application.problems()


@pytest.fixture
def job(places: JobLocations, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    return Hanging(places, monkeypatch)


def test_a_job_is_starting_for_a_while_then_its_query_is_down(job: Hanging) -> None:
    sentence = "the query replication is down: it has not started yet"
    assert (job.application.problems(), job.application.unready()) == ([], [sentence])
    job.now += STARTING_SECONDS + 1
    assert job.application.problems() == job.application.unready() == [sentence]


def test_bytes_that_wait_for_a_minute_in_which_nothing_moves_make_it_unhealthy_until_it_moves(job: Hanging) -> None:
    job.runs()
    job.publish(0, 50)
    job.apply(0, 50)
    assert job.after(3 * STILL_SECONDS) == [], "nothing waits"
    job.publish(50, 60)
    assert job.after(STILL_SECONDS) == []
    (problem,) = job.after(15)
    assert problem.startswith("the query replication hangs: ")
    assert "bytes of the bus wait, and no row was read or folded and nothing committed for " in problem
    job.apply(50, 60)
    assert job.after(0) == []


def test_a_query_that_has_never_moved_may_take_longer(job: Hanging) -> None:
    job.runs()
    job.publish(0, 50)
    assert job.after(STARTING_SECONDS) == []
    assert job.after(15)


def test_a_long_batch_is_healthy_while_rows_are_read_and_folded(job: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    job.runs().movement.note()
    job.publish(0, 50)
    mark = read_mark(job.places, "replication")
    for number in range(20):
        mark.write_text(str(number))  # as the workers that read the bus do
        assert job.after(STILL_SECONDS - 10) == []
    seen: list[list[str]] = []

    def slowly(observations: Iterable[Observation]) -> Iterator[Observation]:
        for observed in observations:
            seen.append(job.after(STILL_SECONDS - 10))
            yield observed

    monkeypatch.setattr(movement, "ITEMS", 1)
    monkeypatch.setattr(task, "fold", lambda state, observations: fold(state, slowly(observations)))
    job.apply(0, 50)
    assert len(seen) == 50
    assert not any(seen)


def test_a_bus_that_does_not_answer_is_one_of_which_nothing_is_known(job: Hanging) -> None:
    job.runs()
    job.publish(0, 50)
    job.apply(0, 50)
    job.after(5)
    job.now += 2 * STILL_SECONDS + 1
    (problem,) = job.application.problems()
    assert "how much waits is unknown, as bus and tables have not answered for 121 s" in problem


def test_records_of_kafka_of_which_none_was_read_yet_keep_it_unready_and_may_not_wait_for_ever(
    job: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.runs()
    assert job.application.unready() == [NOT_MEASURED]
    unread = 7
    monkeypatch.setattr(DirectoryReader, "unread", lambda *_: unread)
    assert job.after(STARTING_SECONDS) == []
    assert job.application.unready() == ["7 records of replication wait, and none was applied since the start"]
    (problem,) = job.after(15)
    assert problem.startswith("the query replication hangs: 7 records of the bus wait, and no row was read")
    unread = 0
    assert job.after(5) == job.application.unready() == []


def test_it_is_not_ready_while_records_of_a_minute_ago_are_not_applied(job: Hanging) -> None:
    job.runs()
    job.publish(0, 50)
    job.apply(0, 50)
    job.after(10)
    assert job.application.unready() == []
    job.publish(50, 60)
    job.after(30)
    assert job.application.unready() == [], "they are half a minute old"
    job.query.movement.note()
    job.after(40)
    (behind,) = job.application.unready()
    assert behind.startswith(f"the log replication/{SOURCE} is behind: ")
    job.apply(50, 60)
    job.after(5)
    assert job.application.unready() == []
