"""The application: the queries of this process, independent of each other, from start to clean stop."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import Gauge
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # ships no types

from streaming.bus.directory import DirectoryReader
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.contracts.identifiers import LogPosition
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log.claim import EVERY_QUERY
from streaming.delta.log.durable import cut_unflushed, flush
from streaming.delta.log.storage import make_folder
from streaming.delta.log.table_log import BEFORE_FIRST, newest_version
from streaming.delta.projections.rollback import roll_back
from streaming.delta.store.objects import prove_exclusive
from streaming.delta.store.place import at_once
from streaming.errors import ConfigurationError, IsrwatchError, reason_of
from streaming.jobs.batch_rows import BatchRows
from streaming.jobs.incidents import IncidentsBatch
from streaming.jobs.listener import listening
from streaming.jobs.metrics import PREFIX, JobMetrics, Reporter
from streaming.jobs.projection_thread import ProjectionThread
from streaming.jobs.queries import OpenedQuery, QueryDefinition
from streaming.jobs.session import end_planners, waits_for_executors
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch, SampleResult, SampleTask, apply_partitions
from streaming.jobs.shards.task import FoldInDriver, FoldOnExecutors
from streaming.jobs.shards.workers import OnExecutors
from streaming.jobs.spark_errors import sentence_of
from streaming.jobs.streams import bus_source
from streaming.jobs.streams.kafka_source import kafka_stream
from streaming.jobs.streams.warm_up import warm_up
from streaming.jobs.supervised import SupervisedQuery, read_mark
from streaming.runtime.listening import listen_all
from streaming.runtime.memory import Heap
from streaming.web.protection import protection_of
from streaming.web.status import StatusServer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from streaming.delta.log.claim import Claim
    from streaming.delta.store.place import Place
    from streaming.errors import TableRefused
    from streaming.jobs.queries import BusProgress, JobLocations
    from streaming.jobs.shards.task import FoldWorkers
    from streaming.settings import JobSettings

SECONDS_BETWEEN_CHECKS: Final = 0.2
SECONDS_BETWEEN_DELETIONS: Final = 60.0
SECONDS_BETWEEN_PROGRESS: Final = 10.0
SECONDS_WITHOUT_EXECUTORS: Final = 30.0
"""So long a Spark cluster may take to start one, or another one in place of one that was lost."""
SECONDS_UNTIL_ENDED: Final = 60.0
"""Limit of the stop of a job that another one has superseded: nothing that it still does can be committed."""
NO_EXECUTORS: Final = (
    "Spark has no executor for this job, so nothing is applied: start workers, or free cores and memory of theirs; the "
    "page of Spark's master, or of YARN, shows both"
)


class Application:
    """Runs until a stop is requested, until none of its queries can continue, or until another job takes over.

    While it stands by, it is not active: its tables are not open.
    """

    def __init__(
        self,
        settings: JobSettings,
        places: JobLocations,
        report: Callable[[str], None],
        claim: Claim | None = None,
        *,
        stands_by: bool = False,
    ) -> None:
        """Check the places, and open the tables, without Spark; nothing runs yet.

        This job ends once another one takes its claim. If it ``stands_by``, the claim is not taken yet, and
        :meth:`open` is called later.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
            ConfigurationError: a setting or a folder is wrong; names the key and the fix.
        """
        _check_checkpoint(places)
        self._settings, self._places = settings, places
        self._tables, self._report = places.tables, report
        self._bus = places.reader()
        self._stopping = threading.Event()
        self._executors_at, self._lacks_executors = time.monotonic(), False
        self.queries: tuple[SupervisedQuery, ...] = ()
        self.reporter = Reporter((), places)
        self.metrics = JobMetrics()
        self._listening = ExitStack()
        self._active = Gauge(
            f"{PREFIX}active",
            "1 while this job writes the tables, 0 while it stands by.",
            registry=self.metrics.registry,
        )
        self.is_active, self._standing_by = False, ["standing by: the claim of the active job was not looked at yet"]
        self._claim = claim
        if not stands_by:
            self.open()
        self._server = _server(settings, self)

    def open(self) -> None:
        """Open the tables, which only this job may write now; raises as the constructor does."""
        make_folder(self._tables)
        self._flush()  # before opening, which may add columns
        opened = [
            (name, definition)
            for name, definition in chosen(self._settings.queries).items()
            if name != INCIDENTS or not shards_fold_incidents(self._settings, self._places)
        ]
        self.queries = tuple(
            at_once(
                self._tables, lambda each: SupervisedQuery(*each, self._settings, self._places, self._report), opened
            )
        )
        self._flush()
        for query in self.queries:
            query.is_stopping = self._stopping.is_set
        if self._claim is not None:
            for query in self.queries:  # the job before this one may still commit before it finds out
                query.is_rightful = self._claim.is_proven
        self.reporter = Reporter(self.queries, self._places)
        self.metrics.watch(self.queries, self.reporter, self._tables)
        self.is_active = True
        self._active.set(1)

    def start(self, spark: SparkSession) -> None:
        """Start the queries, one after the other, until a stop is requested.

        Raises:
            IsrwatchError: Spark died.
        """
        self._spark = spark
        try:
            bus_source.register(spark)
            self._listening.enter_context(listening(spark, self.metrics.progressed))
            for query in self.queries:
                if not self._stopping.is_set():
                    query.start(spark)
        except (Py4JError, ConnectionError) as error:
            if not self.is_stopping():
                self._raise_ended(error)
        self.reporter.start()

    def log_batches(self, write: Callable[[str], None]) -> None:
        """Write a row for each batch, as :class:`BatchRows` does."""
        self.metrics.rows = BatchRows(write)

    def hangs(self) -> list[str]:
        """List what hangs, one sentence each: the only problems that a restart solves."""
        waiting = {query.name: self.reporter.waiting(query.name) for query in self.queries}
        return [problem for query in self.queries if (problem := query.hangs(waiting[query.name]))]

    def problems(self) -> list[str]:
        """List why nothing, or not everything, is applied: queries that do not run or hang, no executor of Spark.

        A query that has not started yet is none, unless that takes too long; neither is a long batch.
        """
        down = [problem for query in self.queries if not query.is_starting and (problem := query.problem)]
        return [*down, *self.hangs(), *([NO_EXECUTORS] if self._lacks_executors else ())]

    def healthy(self) -> str:
        """Say what is so while there are no problems."""
        return "every query runs" if self.is_active else "standing by"

    def unready(self) -> list[str]:
        """List why the tables do not show the present, one sentence each: problems, starts, logs that are behind."""
        if not self.is_active:
            return self._standing_by
        starting = [problem for query in self.queries if query.is_starting and (problem := query.problem)]
        return [*self.problems(), *starting, *self.reporter.behind()]

    def stand_by(self, spark: SparkSession, claim: Claim, show: Callable[[str], None]) -> bool:
        """Wait until this job has the claim; return False if a stop was requested first.

        Spark must live on, because it is what a standby has ready; ``show`` gets a line each time that it waits for
        another job.

        Raises:
            IsrwatchError: Spark died.
        """
        bus_source.register(spark)
        warm_up(spark, has_directory=self._places.kafka is None, is_over=self._stopping.is_set)
        shown, is_blind = "", False
        while not self._stopping.wait(claim.seconds_between_looks):
            self._check_alive(spark)
            try:
                if claim.take_if_free():
                    return True
                self._standing_by, is_blind = [f"standing by: it waits for {claim.waits_for}"], False
            except OSError as error:
                self._standing_by = [f"standing by, and blind: {sentence_of(error)}"]
                if not is_blind:
                    self._report(f"the claim of the active job cannot be looked at: {sentence_of(error)}")
                is_blind = True
            if not is_blind and claim.waits_for != shown:
                show(f"standing by with Spark ready: it waits for {(shown := claim.waits_for)}")
        return False

    def _check_alive(self, spark: SparkSession) -> None:
        try:
            is_stopped = bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - PySpark's own says so of Python's side
        except (Py4JError, ConnectionError) as error:
            if not self.is_stopping():
                self._raise_ended(error)
            return
        if is_stopped:
            raise IsrwatchError("Spark ended this application; start the job again")

    def close(self) -> None:
        """Stop serving; for one that never ran."""
        self._close_server()

    def is_stopping(self) -> bool:
        """Return whether a stop was requested, after a moment: a signal to the group may end Spark's Java first."""
        return self._stopping.wait(SECONDS_BETWEEN_CHECKS)

    def request_stop(self) -> None:
        """Request a clean stop; safe in a signal handler."""
        self._stopping.set()

    def progress(self) -> str:
        """Return one line with what was applied since the start, and what is not yet; empty before the first batch."""
        totals = [
            f"{query} {observations:,} observations, {changes:,} changes"
            for query, (observations, changes) in sorted(self.metrics.totals.items())
        ]
        behind = sum(lag.behind_bytes for lag in self.reporter.lags.values())
        return "; ".join((*totals, f"{behind:,} bytes behind")) if totals else ""

    def wait(self, show_progress: Callable[[str], None] = lambda _: None) -> None:
        """Run until a stop is requested.

        ``show_progress`` gets the line of ``progress`` every few seconds when it changed, and one when a stop begins.

        Raises:
            IsrwatchError: a query stopped for good, none is left, or Spark died; what was committed stays.
            TableRefused: another job has taken over.
        """
        try:
            try:
                self._supervise(show_progress)
            finally:
                if self._stopping.is_set():
                    show_progress("stopping: each query ends its batch first")
                if (refusal := self._refusal()) is not None:
                    self._stop_superseded(refusal)
                else:
                    self._stop()
        except (Py4JError, ConnectionError) as error:  # from the stop, too, which must not hide that Spark died
            # Stopping a group of processes, as systemd does, stops Spark's as well, which loses nothing.
            if not self.is_stopping():
                self._raise_ended(error)
        if (refusal := self._refusal()) is not None:
            raise refusal
        if unfinished := [sentence for query in self.queries if (sentence := query.unfinished)]:
            raise IsrwatchError("; ".join(unfinished))

    def _stop_superseded(self, refusal: TableRefused) -> None:
        """Stop everything, or end the process where Spark does not stop: it may have lost its executors in a pause."""

        def end() -> None:
            self._report(str(refusal))
            with suppress(OSError):  # a log that cannot be written
                sys.stderr.flush()
            os._exit(refusal.exit_code)

        for query in self.queries:  # so that none of them reports progress over that of the other job
            query.is_superseded = True
        late = threading.Timer(SECONDS_UNTIL_ENDED, end)
        late.daemon = True
        late.start()
        try:
            with suppress(Py4JError, ConnectionError):  # the sentence is that of the refusal
                self._stop()
        finally:
            late.cancel()

    def _raise_ended(self, error: Exception) -> None:
        if isinstance(error, Py4JNetworkError | ConnectionError):
            sentence = "Spark's Java process ended; start the job again: it continues where it stopped"
            raise IsrwatchError(sentence) from error
        raise error

    def _refusal(self) -> TableRefused | None:
        return None if self._claim is None else self._claim.refusal

    def _supervise(self, show_progress: Callable[[str], None]) -> None:
        deleted_at = shown_at = time.monotonic()
        shown, heap = "", Heap()
        while not self._stopping.wait(SECONDS_BETWEEN_CHECKS) and not self._is_over():
            for query in self.queries:
                if not self._stopping.is_set():  # a start that fails takes ten seconds
                    query.check(self._spark)
            self.metrics.rows.write_due()
            if time.monotonic() - deleted_at > SECONDS_BETWEEN_DELETIONS:
                deleted_at = time.monotonic()
                self._delete_applied()
            if time.monotonic() - shown_at > SECONDS_BETWEEN_PROGRESS:
                shown_at = time.monotonic()
                self.look_for_executors(self._spark)
                for query in self.queries:
                    query.note_tasks()
                if (line := self.progress()) != shown:
                    show_progress(shown := line)
                heap.trim_when_due()
                if all(query.is_settled for query in self.queries):
                    end_planners(self._spark)

    def _is_over(self) -> bool:
        """Return whether nothing is left to do: no query can continue, or another job writes the tables."""
        return self._refusal() is not None or all(query.is_lost for query in self.queries)

    def _delete_applied(self) -> None:
        """Delete from the bus what is certainly on the disk of the tables; a bus that refuses keeps it."""
        if not self._flush():  # the bus keeps what a power cut could take
            return
        try:
            for query in self.queries:
                query.delete_applied(self._bus)
        except (OSError, IsrwatchError) as error:
            self._report(f"what was applied cannot be deleted from the bus, which grows: {sentence_of(error)}")

    def look_for_executors(self, spark: SparkSession) -> None:
        """Report once that Spark has had no executor for a while: its queries run, and wait."""
        now = time.monotonic()
        if not waits_for_executors(spark):
            self._executors_at = now
        lacked, self._lacks_executors = self._lacks_executors, now - self._executors_at > SECONDS_WITHOUT_EXECUTORS
        if self._lacks_executors and not lacked:
            self._report(NO_EXECUTORS)

    def _flush(self) -> bool:
        """Flush the tables to the disk; report a failure, and return whether it succeeded."""
        try:
            flush(self._tables, self._flush_bus)
        except (OSError, IsrwatchError) as error:
            self._report(
                f"the tables cannot be flushed to the disk, so the bus keeps what they hold: {sentence_of(error)}"
            )
            return False
        return True

    def _flush_bus(self) -> None:
        for channel in Channel:
            self._bus.flush(channel)

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()

    def _stop(self) -> None:
        """Stop everything, even if stopping one of them fails."""
        failures: list[Exception] = []
        stops: tuple[Callable[[], object], ...] = (
            *(query.stop for query in self.queries),
            self._listening.close,
            partial(self.metrics.rows.write_due, is_last=True),
            self.reporter.stop,
            self._flush,
            self._close_server,
        )
        for stop in stops:
            try:
                stop()
            except Exception as failure:  # noqa: BLE001 - the others must be stopped, too
                failures.append(failure)
        if failures:
            raise failures[0]


def _server(settings: JobSettings, application: Application) -> StatusServer | None:
    if not settings.listen:
        return None
    protected = protection_of(settings.web_config_file)
    return StatusServer(
        listen_all(settings.listen, "--listen (job.listen)"),
        application.metrics.registry,
        application.problems,
        program="job",
        prefix=PREFIX,
        healthy=application.healthy,
        hangs=application.hangs,
        unready=application.unready,
        protected=protected,
    )


def _check_checkpoint(places: JobLocations) -> None:
    try:
        places.checkpoint.mkdir(parents=True, exist_ok=True)
        if os.access(places.checkpoint, os.W_OK):
            return
        reason = "Permission denied"
    except OSError as error:
        reason = reason_of(error)
    raise ConfigurationError(
        f"cannot write checkpoints to {places.checkpoint}: {reason}; point job.checkpoint (--checkpoint) at a folder "
        "that can be written"
    )


def recover(tables: Place, report: Callable[[str], None], held: Collection[str] = ()) -> None:
    """Make the tables agree again after a power cut, or after only some of them were restored from a copy.

    Called before the tables of a query are opened. A store without tables is checked first. The tables of the queries
    that are ``held`` are locked by this process already.

    Raises:
        ConfigurationError: the store is not suitable for tables.
        TableRefused: tables must be changed, and another job writes them.
        TableUnreadable: a table lacks versions that had been flushed to the disk.
    """
    if not isinstance(tables, Path) and newest_version(tables / PARTITION_CHANGES.name) == BEFORE_FIRST:
        prove_exclusive(tables)
    others = QUERIES.keys() - {*held}
    if cut := cut_unflushed(tables, others):
        report(
            f"the machine stopped before {sum(cut.values())} versions of the tables had certainly reached the disk "
            f"({', '.join(sorted(cut))}): they are cut off, and what they held is read from the bus again"
        )
    if ahead := roll_back(tables, others):
        report(f"{', '.join(ahead)} were ahead of partition_changes, which is older: they are rolled back to it")


# The queries of the job, by name: each is one entry of ``QUERIES``, and runs alone or with the others. A new query is
# an entry here and a module that applies its micro-batches.


SAMPLES_TRIGGER_SECONDS: Final = 1.0
# Each batch of samples rewrites tables as large as the Kafka cluster, so its batches exceed advanced.batch_bytes.
SAMPLES_BATCH_FACTOR: Final = 4
INCIDENTS_TRIGGER_SECONDS: Final = 1.0
REPLICATION, SAMPLES, INCIDENTS = EVERY_QUERY


def _bus(
    channel: Channel, spark: SparkSession, places: JobLocations, _settings: JobSettings, progress: BusProgress | None
) -> DataFrame:
    is_replication = channel is Channel.REPLICATION
    factor = 1 if is_replication else SAMPLES_BATCH_FACTOR
    if places.kafka is not None:
        starts = places.kafka.start(channel, lambda name: -1 if progress is None else progress.offset(name))
        return kafka_stream(spark, places.kafka.settings, channel, starts, places.advanced.batch_bytes * factor)
    begins = {} if progress is None else unapplied(channel, places, progress)
    max_bytes = places.advanced.batch_bytes * factor
    moved = read_mark(places, REPLICATION if is_replication else SAMPLES)
    if is_replication:
        return bus_source.bus_stream(
            spark, places.bus, channel, begins, max_bytes, repeated=_repeated_blocks(places), moved=moved
        )
    # With a trigger interval a batch need not wait for records.
    return bus_source.bus_stream(spark, places.bus, channel, begins, max_bytes, moved=moved, wait_seconds=0.0)


def unapplied(channel: Channel, places: JobLocations, progress: BusProgress) -> dict[str, LogPosition]:
    """Return where to continue in each log: at the last applied record, or at the start of the log if that is later.

    The tables do not know where that record ends. Missing logs are included: if one appears later, it is another log.
    """
    bus = DirectoryReader(places.bus)
    names = {*bus.logs(channel), *(state.source for state in progress.sources()[0])}
    begins = {
        source: LogPosition(log[0].base, log[0].log_id) for source in names if (log := bus.segments(channel, source))
    }
    applied = {source: progress.at(source) for source in names}
    return {
        source: max(begins.get(source, LogPosition(0, at.log_id)), at, key=itemgetter(0))
        for source, at in applied.items()
        if source in begins or at.position >= 0
    }


def shards_fold_incidents(settings: JobSettings, places: JobLocations) -> bool:
    """Return whether the shards fold incidents with the changes that they write, so that incidents need no query."""
    return places.on_executors and {REPLICATION, INCIDENTS} <= chosen(settings.queries).keys()


def _open_incidents(places: JobLocations, settings: JobSettings) -> OpenedQuery:
    batch = IncidentsBatch(places.tables, settings.incident_gap, settings.incident_rolling_gap, places.retention)
    return OpenedQuery(batch=batch, after=batch.version)


def _open_replication(places: JobLocations, settings: JobSettings) -> OpenedQuery:
    workers: FoldWorkers
    if places.on_executors:
        workers = FoldOnExecutors(places.advanced.projection_interval)
    else:
        published = _repeated_blocks(places) if places.kafka is None else None  # only our own source omits blocks
        workers = FoldInDriver(partial(DirectoryReader(places.bus).read, Channel.REPLICATION), published)
    gaps = None
    if shards_fold_incidents(settings, places):
        gaps = IncidentGaps.of_seconds(settings.incident_gap, settings.incident_rolling_gap)
    batch = ReplicationBatch(places.tables, places.retention, workers, places.kafka, gaps)
    background = ProjectionThread(batch.project, places.advanced.projection_interval, batch.is_due)
    return OpenedQuery(batch=batch, on_executors=places.on_executors, progress=batch, background=background)


def _repeated_blocks(places: JobLocations) -> Path:
    """Return the file with the digests of blocks that workers leave out; without it they read all blocks."""
    return places.checkpoint / "repeated_blocks"


def _open_samples(places: JobLocations, _settings: JobSettings) -> OpenedQuery:
    workers = OnExecutors[SampleTask, SampleResult](apply_partitions) if places.on_executors else None
    batch = SampleBatch(places.tables, places.retention, workers, places.kafka)
    return OpenedQuery(batch=batch, on_executors=places.on_executors, progress=batch)


def _open_on_same_bus(
    channel: Channel,
    open_query: Callable[[JobLocations, JobSettings], OpenedQuery],
    places: JobLocations,
    settings: JobSettings,
) -> OpenedQuery:
    """Open a query, and go back in logs of the directory that do not contain the last applied record."""
    opened = open_query(places, settings)
    if opened.progress is None or places.kafka is not None:  # records in Kafka name their log
        return opened
    bus = DirectoryReader(places.bus)
    applied = {source: opened.progress.at(source) for source in bus.logs(channel)}
    common = {source: bus.last_common(channel, source, at) for source, at in applied.items()}
    if now_at := {source: at for source, at in common.items() if at != applied[source]}:
        opened.progress.set_back(now_at)
    return replace(opened, notes=tuple(_note(channel, source, at) for source, at in sorted(now_at.items())))


def _note(channel: Channel, source: str, now_at: LogPosition) -> str:
    begin = "its beginning" if now_at.position < 0 else f"position {now_at.position}, up to which both are the same"
    return (
        f"the log {channel}/{source} on the bus was replaced, restored from a copy, or cut since it was read: it is "
        f"read from {begin}; what the bus has lost meanwhile is recorded as missed"
    )


QUERIES: Final[dict[str, QueryDefinition]] = {
    REPLICATION: QueryDefinition(
        stream=partial(_bus, Channel.REPLICATION),
        open=partial(_open_on_same_bus, Channel.REPLICATION, _open_replication),
        trigger_seconds=lambda places: places.advanced.trigger_interval,
        channel=Channel.REPLICATION,
    ),
    SAMPLES: QueryDefinition(
        stream=partial(_bus, Channel.SAMPLES),
        open=partial(_open_on_same_bus, Channel.SAMPLES, _open_samples),
        trigger_seconds=lambda _: SAMPLES_TRIGGER_SECONDS,
        channel=Channel.SAMPLES,
    ),
    INCIDENTS: QueryDefinition(stream=None, open=_open_incidents, trigger_seconds=lambda _: INCIDENTS_TRIGGER_SECONDS),
}


def chosen(names: Iterable[str]) -> dict[str, QueryDefinition]:
    """Return the queries with these names, or all if no name is given; ``ConfigurationError`` for an unknown name."""
    selected = set(names) or set(QUERIES)
    for name in sorted(selected - set(QUERIES)):
        raise ConfigurationError(f"job.queries (--query): no query is named {name!r}; use {', '.join(QUERIES)}")
    return {name: definition for name, definition in QUERIES.items() if name in selected}
