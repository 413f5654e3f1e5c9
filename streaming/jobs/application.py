"""The application: every query, the projections behind them, and a clean end."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryReader
from streaming.contracts.observations import Channel
from streaming.delta.projections import ProjectionThread
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.jobs import bus_source
from streaming.jobs.batch import ReplicationBatch
from streaming.jobs.newest import NewestBatch
from streaming.jobs.queries import Places, Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming.settings import JobSettings

SAMPLES_TRIGGER_SECONDS: Final = 1.0
RESTARTS: Final = 5
SECONDS_BETWEEN_CLEANINGS: Final = 60.0
_log: Final = logging.getLogger(__name__)


class Application:
    """Runs until it is told to stop, or until something fails that a restart of a query does not mend."""

    def __init__(self, spark: SparkSession, settings: JobSettings, places: Places) -> None:
        """Open the tables; nothing runs yet.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
            ConfigurationError: the checkpoint would skip what these tables do not have.
        """
        self._spark = spark
        self._bus = DirectoryReader(places.bus)
        self._stopping = threading.Event()
        self._restarts: Counter[Channel] = Counter()
        replication = ReplicationBatch(places.tables)
        if replication.is_empty and (places.checkpoint / Channel.REPLICATION / "commits").exists():
            raise ConfigurationError(
                f"the checkpoint {places.checkpoint} belongs to other tables than {places.tables}, which are empty; "
                "delete the checkpoint, and everything that the bus still holds is applied"
            )
        self._refuse_a_replaced_bus(replication)
        offsets = NewestBatch(places.tables, Channel.OFFSETS)
        metrics = NewestBatch(places.tables, Channel.METRICS)
        self._queries = (
            Query(spark, Channel.REPLICATION, replication, places, settings.trigger_seconds),
            Query(spark, Channel.OFFSETS, offsets, places, SAMPLES_TRIGGER_SECONDS),
            Query(spark, Channel.METRICS, metrics, places, SAMPLES_TRIGGER_SECONDS),
        )
        self._projections = ProjectionThread(replication.projections, replication.shared, settings.projection_seconds)

    def _refuse_a_replaced_bus(self, replication: ReplicationBatch) -> None:
        """What the tables have applied must be in the bus that they were made from, or have been deleted from it."""
        for source, end in self._bus.end_positions(Channel.REPLICATION).items():
            if 0 < end <= replication.position(source):
                raise ConfigurationError(
                    f"the bus holds less of {source} (up to {end}) than the tables have applied: it was replaced; "
                    "bring the old bus back, or point tables.directory and job.checkpoint at new folders"
                )

    def start(self) -> None:
        """Start the queries, one after the other, and the projections."""
        bus_source.register(self._spark)
        self._projections.start()
        for query in self._queries:
            query.start()

    def request_stop(self) -> None:
        """Ask for a clean end; safe in a signal handler."""
        self._stopping.set()

    def wait(self) -> None:
        """Run until asked to stop.

        Raises:
            IsrwatchError: a query or the projections failed; what was committed stays.
        """
        try:
            cleaned = time.monotonic()
            while not self._stopping.wait(0.2):
                self._check()
                if time.monotonic() - cleaned > SECONDS_BETWEEN_CLEANINGS:
                    cleaned = time.monotonic()
                    for query in self._queries:
                        query.clean(self._bus)
        finally:
            for query in self._queries:
                query.stop()
            self._projections.stop()
        if self._projections.error is not None:
            raise IsrwatchError(f"writing the derived tables failed: {self._projections.error}")

    def _check(self) -> None:
        if self._projections.error is not None:
            raise IsrwatchError(f"writing the derived tables failed: {self._projections.error}")
        for query in self._queries:
            if query.raised is not None:
                raise query.raised
            if why := query.ended():
                self._start_again(query, why)

    def _start_again(self, query: Query, why: str) -> None:
        """Start a query again that Spark ended, a Python worker that came too late for instance."""
        if self._restarts[query.channel] == RESTARTS:
            raise IsrwatchError(f"the query {query.channel} ended {RESTARTS + 1} times, the last time because: {why}")
        self._restarts[query.channel] += 1
        _log.warning("the query %s ended (%s); starting it again", query.channel, why)
        query.start()
