"""A job that stands by, with real Spark: what it serves, when it begins, and how the one before it ends."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from streaming.delta.log.claim import LeaseClaim, LockClaim
from streaming.delta.store.lease import JobLease
from streaming.errors import IsrwatchError, TableRefused
from streaming.jobs import application as module
from streaming.jobs.application import QUERIES, Application
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.streams import bus_source
from streaming.jobs.streams.warm_up import LONGEST_SECONDS, warm_up
from streaming.settings import JobSettings
from tests.jobs.shards.test_batch import offsets_sample, published
from tests.jobs.test_isolation import eventually, publish, running
from tests.jobs.test_isolation import samples as applied
from tests.jobs.test_metrics import ask, samples
from tests.plugins.local_http import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streaming.delta.log.claim import Claim
    from streaming.jobs.queries import JobLocations

pytestmark = pytest.mark.spark
SETTINGS = JobSettings(listen="", queries=("samples",))


class Standby:
    """A standby that waits in a thread of its own, as the command does, and what it has said."""

    def __init__(self, places: JobLocations, claim: Claim, spark: SparkSession) -> None:
        self.address, self.claim, self.said = f"127.0.0.1:{free_port()}", claim, list[str]()
        settings = JobSettings(listen=self.address, queries=SETTINGS.queries)
        self.application = Application(settings, places, self.said.append, claim, stands_by=True)
        self.has_taken: bool | None = None
        self._thread = threading.Thread(target=self._wait, args=[spark])
        self._thread.start()

    def _wait(self, spark: SparkSession) -> None:
        self.has_taken = self.application.stand_by(spark, self.claim, self.said.append)

    def begun(self) -> Application:
        self._thread.join(60)
        assert self.has_taken
        self.application.open()
        return self.application

    def close(self) -> None:
        self.application.request_stop()
        self._thread.join(60)
        self.application.close()
        self.claim.release()


@pytest.fixture
def active(places: JobLocations) -> Iterator[LockClaim]:
    places.tables.mkdir()
    made = LockClaim(places.tables, QUERIES)
    made.take()
    yield made
    made.release()


def test_a_standby_is_healthy_and_not_ready_until_the_active_job_is_gone(
    places: JobLocations, active: LockClaim, spark: SparkSession
) -> None:
    standby = Standby(places, LockClaim(places.tables, QUERIES), spark)
    try:
        eventually(lambda: standby.said)
        assert standby.said == [f"standing by with Spark ready: it waits for {active.waits_for}"]
        assert ask(standby.address, "/-/healthy") == (200, "standing by\n")
        code, reason = ask(standby.address, "/-/ready")
        assert (code, reason) == (503, f"standing by: it waits for the job that holds the lock of {places.tables}\n")
        assert samples(standby.address)["isrwatch_job_active"] == 0
        assert [*places.tables.iterdir()] == [places.tables / f".{name}.lock" for name in QUERIES]
        publish(places.bus)
        active.release()
        with running(standby.begun(), spark):
            eventually(lambda: applied(places) == [1])
            assert samples(standby.address)["isrwatch_job_active"] == 1
            assert ask(standby.address, "/-/healthy") == (200, "every query runs\n")
            assert "standing by" not in ask(standby.address, "/-/ready")[1]
    finally:
        standby.close()


def test_a_job_whose_lease_is_taken_ends_with_one_sentence_and_the_other_goes_on(
    places: JobLocations, spark: SparkSession
) -> None:
    folder = places.tables / "_lease"
    first, second = (LeaseClaim(JobLease(folder, 1.0), print) for _ in range(2))
    first.take()
    publish(places.bus)
    with running(Application(SETTINGS, places, print, first), spark) as ended:
        eventually(lambda: applied(places) == [1])
        second.take()
        eventually(lambda: ended)
    (error,) = ended
    assert isinstance(error, TableRefused)
    assert "has taken over the tables below" in str(error)
    assert second.refusal is None
    first.release()
    second.release()


@pytest.mark.long
def test_a_job_with_the_lease_continues_though_the_one_before_it_has_committed_once_more(
    places: JobLocations, spark: SparkSession
) -> None:
    old, new = (LeaseClaim(JobLease(places.tables / "_lease", 5.0), print) for _ in range(2))
    old.take()
    still_at_work = SampleBatch(places.tables)
    still_at_work.apply(published([offsets_sample(1)]))
    new.take()
    said = list[str]()
    application = Application(SETTINGS, places, said.append, new)
    still_at_work.apply(published([offsets_sample(2)], start=1))  # it has not looked at its lease yet
    publish(places.bus, at=3)
    with running(application, spark) as ended:
        eventually(lambda: applied(places) == [3])
        eventually(lambda: all(query.is_up for query in application.queries))
    assert ended == []
    assert any("failed: another job writes" in line for line in said)
    with pytest.raises(TableRefused):
        still_at_work.apply(published([offsets_sample(4)], start=2))
    old.release()
    new.release()


def test_a_job_whose_lease_is_taken_ends_although_spark_does_not_stop(
    places: JobLocations, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (LeaseClaim(JobLease(places.tables / "_lease", 1.0), print) for _ in range(2))
    first.take()
    said, codes, has_ended = list[str](), list[int](), threading.Event()
    application = Application(SETTINGS, places, said.append, first)
    second.take()
    eventually(lambda: first.refusal)
    monkeypatch.setattr(module, "SECONDS_UNTIL_ENDED", 0.1)
    monkeypatch.setattr("os._exit", lambda code: (codes.append(code), has_ended.set()))
    monkeypatch.setattr(application.reporter, "stop", lambda: has_ended.wait(30))
    with pytest.raises(TableRefused):
        application.wait()
    assert codes == [1]
    assert "has taken over the tables below" in said[-1]
    first.release()
    second.release()


def test_a_standby_that_cannot_look_says_so_once_and_takes_nothing(
    places: JobLocations, active: LockClaim, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = LockClaim(places.tables, QUERIES)
    is_away = True

    def take_if_free() -> bool:
        if is_away:
            raise OSError(5, "Input/output error")
        return False

    monkeypatch.setattr(module, "warm_up", lambda *_, **__: None)
    monkeypatch.setattr(waiting, "take_if_free", take_if_free)
    monkeypatch.setattr(waiting, "seconds_between_looks", 0.01)
    standby = Standby(places, waiting, spark)
    try:
        eventually(lambda: "blind" in ask(standby.address, "/-/ready")[1])
        is_away = False
        eventually(lambda: len(standby.said) == 2)
        assert standby.said[0].startswith("the claim of the active job cannot be looked at: Input/output error")
        assert ask(standby.address, "/-/ready")[1].startswith("standing by: it waits for")
    finally:
        standby.close()
    assert standby.has_taken is False
    assert active.refusal is None


def test_a_standby_whose_spark_has_ended_ends(
    places: JobLocations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session whose Java is gone, as py4j reports it."""

    class Gone:
        @property
        def sparkContext(self) -> object:  # noqa: N802 - Spark's name
            raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(module, "warm_up", lambda *_, **__: None)
    monkeypatch.setattr(module.bus_source, "register", lambda _: None)
    waiting = Application(SETTINGS, places, print, stands_by=True)
    with pytest.raises(IsrwatchError, match="Java process ended; start the job again"):
        waiting.stand_by(Gone(), LockClaim(tmp_path, QUERIES), print)  # type: ignore[arg-type]  # a stand-in
    assert module.NO_EXECUTORS not in waiting.problems()


@pytest.mark.long
@pytest.mark.parametrize("has_directory", [True, False])
def test_a_standby_has_run_a_stream_and_leaves_nothing_of_it(spark: SparkSession, *, has_directory: bool) -> None:
    bus_source.register(spark)
    began = time.monotonic()
    warm_up(spark, has_directory=has_directory, is_over=lambda: False)
    assert time.monotonic() - began < LONGEST_SECONDS, "it has applied a batch"
    assert not spark.streams.active
