"""One query, kept running: what failed is opened and started again after a pause that grows.

What a restart cannot mend stops it for good: another writer of its tables, a wrong configuration, a broken invariant.
Knows queries and time, nothing of what they do.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # ships no types

from streaming.errors import ConfigurationError, TableRefused
from streaming.jobs.queries import Run, SparkEnded, sentence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from streaming.bus.directory import DirectoryReader
    from streaming.jobs.batch import Applied
    from streaming.jobs.queries import Definition, Places, Watch
    from streaming.settings import JobSettings

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
# Who has run for so long has recovered: its next failure is a new one, and its pauses begin anew.
STEADY_SECONDS: Final = 300.0
# One start may fail because a Python worker came too late on a busy machine.
FUTILE_STARTS: Final = 2
FOR_GOOD: Final = (TableRefused, ConfigurationError, AssertionError)


class Supervised:
    """One query of the application.

    Attributes:
        name: of the query.
        batch: what it does; another one after each restart.
        restarts: how often it was started again.
        last_error: the newest failure in one sentence; it stays after the query has recovered.
        applied: is told of every batch that was applied.
        follower: what runs behind its batches, if anything does.
        is_lost: it failed with something that a restart does not mend.
        is_outrun: it is lost because another job writes its tables.
    """

    def __init__(
        self,
        name: str,
        definition: Definition,
        settings: JobSettings,
        places: Places,
        report: Callable[[str], None],
    ) -> None:
        """Open the tables of a query; nothing runs yet.

        Args:
            name: of the query.
            definition: what it is.
            settings: of the job.
            places: where the bus, the tables and the checkpoints are.
            report: tells people one sentence.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
            ConfigurationError: the tables, the bus and the checkpoint do not belong together.
        """
        self.name, self.definition = name, definition
        self._settings, self._places, self._report = settings, places, report
        self.restarts = 0
        self.last_error: str | None = None
        self.is_lost = self.is_outrun = False
        self.applied: Watch = _unwatched
        self._run: Run | None = None
        self._began = self._again_at = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._futile_starts = 0
        self._applied_before: dict[str, int] = {}
        self._open()

    def _open(self) -> None:
        self.batch = self.definition.open(self._places, self._settings)
        self.follower = self.definition.follow(self.batch, self._settings) if self.definition.follow else None

    @property
    def is_up(self) -> bool:
        """Whether it runs, and what follows it works."""
        return self._run is not None and (self.follower is None or self.follower.error is None)

    @property
    def ailing(self) -> str | None:
        """Tell in one sentence what is wrong now; None while all is well."""
        if self._run is None:
            return f"the query {self.name} is down: {self.last_error or 'it has not started yet'}"
        behind = self.follower.error if self.follower is not None else None
        return None if behind is None else f"the tables behind the query {self.name} are not written: {behind}"

    @property
    def unfinished(self) -> str | None:
        """Tell in one sentence what it could not do; None for nothing."""
        if self.is_lost:
            return f"the query {self.name} was stopped by: {self.last_error}"
        behind = self.follower.error if self.follower is not None else None
        if behind is not None:
            return f"the tables behind the query {self.name} are behind, the next start makes it good: {behind}"
        return None

    def start(self, spark: SparkSession) -> None:
        """Start the query and what follows it; what cannot start is tried again later."""
        try:
            self._start(spark)
        except SparkEnded as error:
            self._fail(error)

    def _start(self, spark: SparkSession) -> None:
        self._applied_before = {}  # a query that ended may plan its last batch again
        rows = self.definition.stream(spark, self._places, self._settings)
        pause = self.definition.trigger_seconds(self._settings)
        checkpoint = self._places.checkpoint
        self._run = Run(self.name, rows, self.batch, self.applied, checkpoint=checkpoint, trigger_seconds=pause)
        self._began = time.monotonic()
        if self.follower is not None:
            self.follower.start()

    def look(self, spark: SparkSession) -> None:
        """Notice a failure; start again what has waited long enough."""
        if self.is_lost:
            return
        if self._run is None:
            if time.monotonic() >= self._again_at:
                self._start_again(spark)
            return
        refused = self.follower.error if self.follower is not None else None
        failure = self._run.failure() or (refused if isinstance(refused, FOR_GOOD) else None)
        if failure is not None:
            self._fail(failure)

    def _start_again(self, spark: SparkSession) -> None:
        self.restarts += 1
        try:
            self.batch.check_ours()
            self._open()
            self._start(spark)
        except Py4JNetworkError:  # there is no Spark any more
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other queries go on
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._run is not None and time.monotonic() - self._began > STEADY_SECONDS:
            self._pause = FIRST_PAUSE_SECONDS
        came_further = self._run is not None and self._run.came_further
        self.stop()
        self.last_error = sentence_of(error)
        self.is_lost, self.is_outrun = isinstance(error, FOR_GOOD), isinstance(error, TableRefused)
        if self.is_lost:
            self._report(f"the query {self.name} stopped for good: {self.last_error}")
            return
        self._report(f"the query {self.name} failed: {self.last_error}; it starts again in {self._pause:g} s")
        self._futile_starts = self._futile_starts + 1 if isinstance(error, SparkEnded) and not came_further else 0
        if self._futile_starts == FUTILE_STARTS:
            self._set_checkpoint_aside()
        self._again_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def _set_checkpoint_aside(self) -> None:
        """Give Spark a new checkpoint in place of one that a crash or a full disk broke: the tables know positions."""
        checkpoint = self._places.checkpoint / self.name
        aside = checkpoint.with_name(f"{self.name}.broken")
        shutil.rmtree(aside, ignore_errors=True)
        with suppress(OSError):
            checkpoint.rename(aside)
            self._report(
                f"Spark cannot go on from the checkpoint of {self.name}: a new one begins, nothing is lost; "
                f"the old one is in {aside}"
            )

    def clean(self, bus: DirectoryReader) -> None:
        """Delete what was applied already at the last call: Spark, too, has left that behind since."""
        if self.definition.channel is None:
            return
        for source, position in self._applied_before.items():
            bus.delete_below(self.definition.channel, source, position)
        self._applied_before = self.batch.positions

    def stop(self) -> None:
        """Stop the query after its batch, and what follows it after its last round."""
        run, self._run = self._run, None
        try:
            if run is not None:
                run.stop()
        finally:
            if self.follower is not None:
                self.follower.stop()


def _unwatched(query: str, applied: Applied, stages: Mapping[str, float]) -> None:
    """Nobody wants to know."""
