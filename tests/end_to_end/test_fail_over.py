"""Fail-over of real jobs on a store: the one that stands by takes over from one that is paused, or killed.

The clock of each job is an hour ahead of that of the one before it, or behind. At the end the tables are what the model
did, and those of an undisturbed fold.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log.table_log import newest_version
from streaming.delta.store.lease import FOLDER, NUMBERS_LEFT, numbers_below
from streaming.delta.store.place import place_of
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.chaos.comparison import all_differences, undisturbed
from tests.chaos.stage import CLOCK, EPOCH, SECOND
from tests.end_to_end.model_trace import recorded, steps
from tests.plugins.local_http import free_port
from tests.plugins.pipeline import Pipeline, Program, rows_of
from tests.stores.s3 import versitygw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stores.store import Store

pytestmark = [pytest.mark.spark, pytest.mark.store, pytest.mark.long, pytest.mark.timeout(1500)]
LEASE: Final = 15
MOST_SECONDS: Final = LEASE + 10
HOUR: Final = 3600
SECONDS: Final = 400.0  # a busy machine is no difference between tables
STOPPED: Final = "has taken over the tables below s3://isrwatch/tables, so this one stops"


class Recovery(NamedTuple):
    """Seconds after the loss of a job until the standby takes over, runs, and commits."""

    taken_over: float
    running: float
    committed: float

    def __str__(self) -> str:
        return f"took over, ran, committed after {self.taken_over:.1f} s, {self.running:.1f} s, {self.committed:.1f} s"


class Installation(Pipeline):
    """Jobs on tables in a store, and a cluster whose history is published piece by piece until it is finished."""

    def __init__(self, directory: Path, store: Store) -> None:
        super().__init__(directory)
        self.kept = directory / "kept"
        self.place = place_of(f"{store.url}/tables", store.options)
        self.storage = "".join(f'"{key}" = "{value}"\n' for key, value in store.options.items())
        self.source = SimulatedSource(
            load_scenario("broker_loss"), seed=7, cluster_id=ClusterId("c"), cluster="c", name="metadata_log:c",
            epoch=Micros(EPOCH),
        )  # fmt: skip
        self._is_over = threading.Event()
        self._publishing = threading.Thread(target=self._publish)
        self._publishing.start()

    def _publish(self) -> None:
        second = 0
        # The job deletes from its bus what it has applied.
        publishers = [
            DirectoryPublisher(folder, segment_bytes=200_000, fsync=False) for folder in (self.bus, self.kept)
        ]
        while not self._is_over.wait(1.5):
            observed = list(self.source.poll(Micros(EPOCH + second * SECOND)))
            for publisher in publishers:
                publisher.publish(observed)
            second += 2
        for publisher in publishers:
            publisher.close()

    def start_job(self, name: str, hours: int, *options: str) -> Program:
        """Start a job with a clock, a configuration and a checkpoint of its own."""
        folder = self.directory / name
        folder.mkdir()
        (folder / "clock").write_text(str(hours * HOUR))
        (folder / "isrwatch.toml").write_text(
            f'[bus]\ndirectory = "{self.bus}"\n[tables]\ndirectory = "{self.place}"\n[tables.storage]\n{self.storage}'
            f'[job]\ncheckpoint = "{folder / "checkpoint"}"\nlisten = "127.0.0.1:{free_port()}"\nlease = "{LEASE}s"\n'
        )
        path = os.pathsep.join((str(CLOCK), str(Path.cwd())))
        environment = {"PYTHONPATH": path, "CHAOS_CLOCK": str(folder / "clock")}
        return self.start(name, "job", "--config", str(folder / "isrwatch.toml"), *options, **environment)

    def standby(self, name: str, hours: int) -> Program:
        program = self.start_job(name, hours, "--standby")
        self.eventually(lambda: "standing by with Spark ready" in program.text(), "Spark is ready", program)
        return program

    def version(self) -> int:
        return newest_version(self.place / PARTITION_CHANGES.name)

    def recovery(self, program: Program, since: float) -> Recovery:
        """Return how long it takes a job from a moment on until it takes over, runs, and commits. No other one can."""
        before, seconds = self.version(), list[float]()
        for what, condition in (
            ("takes over", lambda: "taking over" in program.text()),
            ("runs", lambda: "running" in program.text()),
            ("commits", lambda: self.version() > before),
        ):
            self.eventually(condition, f"{program.name} {what}", program)
            seconds.append(time.monotonic() - since)
        return Recovery(*seconds)

    def finish(self) -> None:
        """End the history, and wait until it is applied."""
        self._is_over.set()
        self._publishing.join()

    def is_applied(self) -> bool:
        return len(self.steps()) >= len(steps(self.source.trace()))

    def steps(self) -> list[tuple[object, ...]]:
        return [step[:-1] for step in recorded(rows_of(self.place, PARTITION_CHANGES.name))]

    def differences(self) -> Iterator[str]:
        """Compare every table with that of an undisturbed fold of all that was published."""
        expected = self.directory / "expected"
        if not expected.exists():
            undisturbed(self.kept, expected)
        return all_differences(self.place, expected)

    def eventually(
        self, condition: Callable[[], Any], what: str, program: Program | None = None, seconds: float = SECONDS
    ) -> Any:
        return super().eventually(condition, what, program, seconds)

    def close(self) -> None:
        self.finish()
        super().close()


def last_line(program: Program) -> str:
    """Return the last line of a job: before it, Spark and its workers have logged what a pause does to them."""
    return program.text().splitlines()[-1]


@pytest.fixture(params=[1, -1], ids=["each an hour ahead", "each an hour behind"])
def hours(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    with versitygw(tmp_path / "store") as store:
        made = Installation(tmp_path, store)
        try:
            yield made
        finally:
            made.close()


def test_a_standby_takes_over_from_a_paused_and_from_a_killed_job(
    installation: Installation, hours: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    first = installation.start_job("first", 0)
    second = installation.standby("second", hours)
    installation.eventually(lambda: installation.version() > 3, "the first job commits", first)
    time.sleep(LEASE + 2)
    assert "taking over" not in second.text()

    first.pause()
    paused = installation.recovery(second, time.monotonic())
    say(f"paused: the standby {paused}")
    third = installation.standby("third", 2 * hours)
    first.resume()
    assert first.wait(SECONDS) == 1
    assert STOPPED in last_line(first)
    before = installation.version()
    installation.eventually(lambda: installation.version() > before, "the second job continues", second)

    second.kill()
    killed = installation.recovery(third, time.monotonic())
    say(f"killed: the standby {killed}")

    restarted = installation.start_job("restarted", 3 * hours)  # as what restarts a job within its lease does
    installation.eventually(lambda: "running" in restarted.text(), "it does not wait", restarted)
    assert third.wait(SECONDS) == 1
    assert STOPPED in last_line(third)
    waiting = installation.standby("waiting", 4 * hours)
    assert restarted.stop() == 0, restarted.text()[-3000:]
    switched = installation.recovery(waiting, time.monotonic())
    say(f"stopped: the standby {switched}")
    installation.finish()
    installation.eventually(installation.is_applied, "everything is applied", waiting)
    installation.eventually(lambda: [*installation.differences()] == [], "every table is derived", waiting)
    assert waiting.stop() == 0, waiting.text()[-3000:]

    assert installation.steps() == [step[:-1] for step in steps(installation.source.trace())]
    assert [*installation.differences()] == []
    assert len(numbers_below(installation.place / FOLDER)) <= NUMBERS_LEFT + 1
    assert max(paused.taken_over, killed.taken_over) <= LEASE + 3
    if os.getloadavg()[0] < 2 * (os.cpu_count() or 1):  # a busier machine says nothing of Spark's seconds
        assert max(paused.committed, killed.committed) <= MOST_SECONDS
    assert switched.taken_over < LEASE / 2
