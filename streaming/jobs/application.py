"""The application: every query, the projections behind them, and a clean end."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from streaming.contracts.observations import Channel
from streaming.contracts.tables import BROKER_METRICS, REPLICA_OFFSETS
from streaming.delta.projections import ProjectionThread
from streaming.errors import IsrwatchError
from streaming.jobs import bus_source
from streaming.jobs.batch import ReplicationBatch
from streaming.jobs.newest import NewestBatch
from streaming.jobs.queries import Places, RunningQuery, start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming.settings import JobSettings

SAMPLES_TRIGGER_SECONDS: Final = 1.0
SECONDS_TO_FINISH_A_BATCH: Final = 30.0


class Application:
    """Runs until it is told to stop, or until a query fails."""

    def __init__(self, spark: SparkSession, settings: JobSettings, places: Places) -> None:
        """Open the tables; nothing runs yet.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._spark, self._settings, self._places = spark, settings, places
        self._stopping = threading.Event()
        self._queries: list[RunningQuery] = []
        self._replication = ReplicationBatch(places.tables)
        self._projections = ProjectionThread(
            self._replication.projections, self._replication.shared, settings.projection_seconds
        )

    def start(self) -> None:
        """Start the queries and the projections."""
        bus_source.register(self._spark)
        samples = (
            (Channel.OFFSETS, NewestBatch(self._places.tables, REPLICA_OFFSETS, Channel.OFFSETS)),
            (Channel.METRICS, NewestBatch(self._places.tables, BROKER_METRICS, Channel.METRICS)),
        )
        self._start(Channel.REPLICATION, self._replication, self._settings.trigger_seconds)
        for channel, batch in samples:
            self._start(channel, batch, SAMPLES_TRIGGER_SECONDS)
        self._projections.start()

    def _start(self, channel: Channel, batch: ReplicationBatch | NewestBatch, trigger_seconds: float) -> None:
        self._queries.append(start_query(self._spark, channel, batch, self._places, trigger_seconds))

    def request_stop(self) -> None:
        """Ask for a clean end; safe in a signal handler."""
        self._stopping.set()

    def wait(self) -> None:
        """Run until asked to stop.

        Raises:
            IsrwatchError: a query or the projections failed; what was committed stays.
        """
        try:
            while not self._stopping.wait(0.2):
                self._check()
            self._check()
        finally:
            self._finish()

    def _check(self) -> None:
        if self._projections.error is not None:
            raise IsrwatchError(f"writing the derived tables failed: {self._projections.error}")
        for running in self._queries:
            if failure := running.failure():
                raise IsrwatchError(f"the query {running.query.name} ended: {failure}")

    def _finish(self) -> None:
        for running in self._queries:
            _stop_between_batches(running.query)
        self._projections.stop()


def _stop_between_batches(query: StreamingQuery) -> None:
    """Stop while no batch runs: stopping in the middle of one has overflowed the stack of Spark's stream thread."""
    deadline = time.monotonic() + SECONDS_TO_FINISH_A_BATCH
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.005)
    query.stop()
