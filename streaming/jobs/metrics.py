"""The job's own metrics, in a separate registry: Spark's report of each batch, our stages, lag and health of queries.

Knows queries, no HTTP.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streaming.changes.sources import several_names
from streaming.contracts.identifiers import SECOND
from streaming.contracts.observations import Channel
from streaming.contracts.state import SourceLag
from streaming.contracts.tables import TABLES
from streaming.delta.log.table_log import BEFORE_FIRST, newest_version
from streaming.delta.progress import ProgressTable
from streaming.delta.store.place import Url
from streaming.jobs.batch_rows import BatchRows
from streaming.jobs.queries import now
from streaming.jobs.spark_errors import sentence_of
from streaming.jobs.supervised import Waiting
from streaming.movement import STILL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from streaming.contracts.state import SourceState
    from streaming.delta.store.place import Place
    from streaming.jobs.listener import Report
    from streaming.jobs.queries import BatchResult, JobLocations
    from streaming.jobs.supervised import SupervisedQuery

PREFIX: Final = "isrwatch_job_"
BUCKETS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
WHOLE_BATCH: Final = "triggerExecution"
QUERY: Final = ("query",)


class JobMetrics:
    """Counts batches, by query; their rows go to the log, or nowhere."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter, unused
        self.registry = CollectorRegistry()
        self.totals: dict[str, tuple[int, int]] = {}
        self.rows = BatchRows(lambda _: None)
        ours: dict[str, Any] = {"registry": self.registry}
        self._batches = Histogram(
            f"{PREFIX}batch_duration_seconds",
            "Duration of a micro-batch, planning and the rest after few samples included.",
            QUERY, buckets=BUCKETS, **ours,
        )  # fmt: skip
        self._stages = Summary(
            f"{PREFIX}batch_stage_seconds",
            "Duration of a stage of a micro-batch: Spark's own names, and within its addBatch toArrow, then ours.",
            ("query", "stage"), **ours,
        )  # fmt: skip
        self._rows = Counter(f"{PREFIX}rows", "Rows that Spark read.", QUERY, **ours)
        self._changes = Counter(f"{PREFIX}changes", "Rows that batches brought to the tables.", QUERY, **ours)
        self._rate = Gauge(f"{PREFIX}processed_rows_per_second", "As of the last batch with rows.", QUERY, **ours)
        self._commits = Counter(f"{PREFIX}applied_batches", "Batches that were applied.", QUERY, **ours)
        self._success = Gauge(
            f"{PREFIX}last_success_timestamp_seconds", "When a batch was applied last, since 1970.", QUERY, **ours
        )
        self._quarantined = Counter(
            f"{PREFIX}quarantined", "Unparseable records, by kind of reason.", ("query", "reason"),
            **ours,
        )  # fmt: skip

    def watch(self, queries: Sequence[SupervisedQuery], reporter: Reporter, tables: Place) -> None:
        """Read their state at each scrape, and count the batches of the queries."""
        self.registry.register(_CurrentState(queries, reporter, tables))
        for query in queries:
            query.applied = self.applied
            for counter in (self._rows, self._changes, self._commits, self._batches):
                counter.labels(query.name)

    def applied(self, query: str, applied: BatchResult, stages: Mapping[str, float]) -> None:
        """Count a batch that a query has applied; add it to the rows of the log."""
        self.rows.add(query, applied)
        for stage, seconds in {**stages, **applied.stages}.items():
            self._stages.labels(query, stage).observe(seconds)
        observations, changes = self.totals.get(query, (0, 0))
        self.totals[query] = (observations + applied.observations, changes + applied.changes)
        self._changes.labels(query).inc(applied.changes)
        self._commits.labels(query).inc()
        self._success.labels(query).set(now() / SECOND)
        for reason, count in applied.reasons.items():
            self._quarantined.labels(query, reason).inc(count)

    def progressed(self, report: Report) -> None:
        """Count a batch as Spark reports it."""
        query, rows = report["name"], report["numInputRows"]
        self._rows.labels(query).inc(rows)
        if rows:
            self._rate.labels(query).set(report["processedRowsPerSecond"])
        for stage, taken in report["durationMs"].items():
            if stage == WHOLE_BATCH:
                self._batches.labels(query).observe(taken / 1000)
            else:
                self._stages.labels(query, stage).observe(taken / 1000)


class _CurrentState(Collector):
    """State that is read at each scrape."""

    def __init__(self, queries: Sequence[SupervisedQuery], reporter: Reporter, tables: Place) -> None:
        self._queries, self._reporter, self._tables = queries, reporter, tables

    def collect(self) -> Iterator[Metric]:
        """Read the queries, the lags and the versions of the tables."""
        up = GaugeMetricFamily(f"{PREFIX}query_up", "1 while the query runs and its tables are written.", labels=QUERY)
        lost = GaugeMetricFamily(f"{PREFIX}query_lost", "1 once the query has stopped for good.", labels=QUERY)
        restarts = CounterMetricFamily(f"{PREFIX}query_restarts", "Restarts of the query.", labels=QUERY)
        round_seconds = GaugeMetricFamily(
            f"{PREFIX}projection_duration_seconds", "Duration of the last write of the derived tables.", labels=QUERY
        )
        for query in self._queries:
            up.add_metric((query.name,), int(query.is_up))
            lost.add_metric((query.name,), int(query.is_lost))
            restarts.add_metric((query.name,), query.restarts)
            if (background := query.background) is not None:
                round_seconds.add_metric((query.name,), background.seconds)
        yield from (up, lost, restarts, round_seconds, *self._lag(), self._versions())

    def _lag(self) -> tuple[Metric, Metric]:
        labels = ("channel", "source")
        behind = GaugeMetricFamily(f"{PREFIX}source_behind_bytes", "Bytes of a log not applied yet.", labels=labels)
        age = GaugeMetricFamily(
            f"{PREFIX}source_age_seconds", "Time since the newest moment that was applied of a source.", labels=labels
        )
        moment = now()
        for source, lag in sorted(self._reporter.lags.items()):
            behind.add_metric(source, lag.behind_bytes)
            if lag.observed_until is not None:
                age.add_metric(source, max(0, moment - lag.observed_until) / SECOND)
        return behind, age

    def _versions(self) -> Metric:
        versions = GaugeMetricFamily(f"{PREFIX}table_version", "Newest version of a table.", labels=("table",))
        for name in sorted(TABLES):
            if (version := newest_version(self._tables / name)) > BEFORE_FIRST:
                versions.add_metric((name,), version)
        return versions


# The lag of the job behind the bus, measured every few seconds for ``source_progress`` and ``/metrics``.
#
# One thread does so for all queries of this process, also while a query is down: that is when the lag matters.


SECONDS: Final = 5.0
SECONDS_IN_STORES: Final = 15.0
"""Seconds between two writes to a store; the job's own metrics are measured each ``SECONDS``."""
NOT_MEASURED: Final = "how much of the bus is not applied yet was not measured since the start"
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLag:
    """Progress of one log of the bus.

    Attributes:
        bus_end: position after its newest record.
        behind_bytes: bytes that are not applied yet.
        observed_until: newest time that its source has reported, in microseconds; None for none.
    """

    bus_end: int
    behind_bytes: int
    observed_until: int | None


class Reporter(threading.Thread):
    """Measures and writes until it is stopped; ``lags`` is replaced as a whole by each measurement."""

    def __init__(
        self, queries: Sequence[SupervisedQuery], places: JobLocations, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name="reporter", daemon=True)
        self._tables: dict[str, ProgressTable] = {}
        for query in queries:
            if (channel := query.definition.channel) is not None:
                shared = next(iter(self._tables.values()), None)
                self._tables[query.name] = ProgressTable(places.tables, channel, places.retention, shared)
        self._rests = SECONDS_IN_STORES - SECONDS / 2 if isinstance(places.tables, Url) else 0.0
        self._write_at = 0.0
        self._queries = [query for query in queries if query.name in self._tables]
        self._has_rows: dict[str, bool] = {}
        self._bus = places.reader()
        self._stopped = threading.Event()
        self.lags: dict[tuple[Channel, str], LogLag] = {}
        self._all_queries, self._clock = queries, clock
        self._waiting: dict[str, Waiting] = {}
        self._ends: deque[tuple[float, dict[tuple[Channel, str], LogLag]]] = deque()
        self._reported_at: float | None = None
        self._unread: dict[Channel, int] = {}
        self._warned = set[str]()

    def run(self) -> None:
        """Report periodically, and once more at the end."""
        while not self._stopped.wait(SECONDS):
            self.report()
        self._write_at = 0.0
        self.report()

    def stop(self) -> None:
        """Report once more, and join the thread."""
        self._stopped.set()
        if self.is_alive():
            self.join()

    def waiting(self, query: str) -> Waiting | None:
        """Return what waits for a query, None if nothing does; if that is not known any more, the bus may."""
        at = self._reported_at
        if at is not None and (silent := self._clock() - at) > STILL_SECONDS:
            return Waiting(at, f"how much waits is unknown, as bus and tables have not answered for {silent:.0f} s")
        return self._waiting.get(query)

    def behind(self) -> list[str]:
        """Say which logs have records that were there a minute ago and are not applied yet, one sentence each."""
        if not self._ends:
            return [NOT_MEASURED] if any(query.is_up for query in self._queries) else []
        then = self._ends[0][1]
        unread = [
            f"{count:,} records of {channel} wait, and none was applied since the start"
            for channel, count in sorted(self._unread.items())
            if count
        ]
        behind = {
            log: lag
            for log, lag in sorted(self.lags.items())
            if log in then and lag.bus_end - lag.behind_bytes < then[log].bus_end
        }
        return unread + [
            f"the log {channel}/{source} is behind: {lag.behind_bytes:,} bytes are not applied"
            for (channel, source), lag in behind.items()
        ]

    def _note(self, lags: dict[tuple[Channel, str], LogLag]) -> None:
        """Note what waits for each query since when, and the ends of the logs of the last minute."""
        now = self._clock()
        made = max((each.version or 0 for each in self._queries), default=0)
        waiting: dict[str, Waiting] = {}
        for query in self._all_queries:
            channel = query.definition.channel
            count = sum(lag.behind_bytes for (each, _), lag in lags.items() if each is channel)
            what = f"{count:,} bytes of the bus wait"
            if channel is not None and (unread := self._unread.get(channel, 0)):
                count, what = unread, f"{unread:,} records of the bus wait"
            if channel is None:
                count = 0 if query.version is None else made - query.version
                what = f"{count:,} versions of the change log wait"
            if count > 0:
                before = self._waiting.get(query.name)
                waiting[query.name] = Waiting(now if before is None else before.since, what)
        self._waiting, self._reported_at = waiting, now
        self._ends.append((now, lags))
        while len(self._ends) > 1 and self._ends[1][0] <= now - STILL_SECONDS:
            self._ends.popleft()

    def report(self) -> None:
        """Measure and write once. A failure is logged and retried with the next report."""
        lags: dict[tuple[Channel, str], LogLag] = {}
        writes = self._clock() >= self._write_at
        if writes:
            self._write_at = self._clock() + self._rests
        for query in self._queries:
            try:
                lags |= self._report(query, writes=writes)
            except Exception as error:  # noqa: BLE001 - one failed report must not end the thread
                _log.warning("the progress of the query %s was not written: %s", query.name, sentence_of(error))
        ours = [query.definition.channel for query in self._queries if not query.is_superseded]
        self._unread = {channel: self._bus.unread(channel) for channel in ours if channel is not None}
        self.lags = lags
        self._note(lags)

    def _report(self, query: SupervisedQuery, *, writes: bool) -> dict[tuple[Channel, str], LogLag]:
        channel, progress = query.definition.channel, query.progress
        if channel is None or progress is None or query.is_superseded:
            return {}  # another job applies the channel now, and reports its own progress
        offsets = progress.offsets  # before the sources: records in between are read again, and change nothing
        states, version = progress.sources()
        state_of = {state.source: state for state in states}
        if channel is Channel.REPLICATION:
            self._warn(several_names(states))
        lags = {
            source: self._lag(channel, source, progress.at(source).position, state_of.get(source))
            for source in self._bus.logs(channel)
        }
        rows = [(state, _source_lag(query, lags.get(state.source))) for state in states]
        if writes and (rows or self._has_rows.get(query.name, True)):
            self._tables[query.name].replace(rows, version, offsets)
            self._has_rows[query.name] = bool(rows)
        return {(channel, source): lag for source, lag in lags.items()}

    def _warn(self, sentences: Iterable[str]) -> None:
        """Log each sentence once."""
        for sentence in sentences:
            if sentence not in self._warned:
                self._warned.add(sentence)
                _log.warning("%s", sentence)

    def _lag(self, channel: Channel, source: str, applied: int, state: SourceState | None) -> LogLag:
        end, behind = self._bus.bytes_behind(channel, source, applied)
        return LogLag(bus_end=end, behind_bytes=behind, observed_until=state.observed_until if state else None)


def _source_lag(query: SupervisedQuery, lag: LogLag | None) -> SourceLag:
    return SourceLag(
        bus_end=None if lag is None else lag.bus_end,
        behind_bytes=None if lag is None else lag.behind_bytes,
        is_query_up=query.is_up,
        restarts=query.restarts,
        last_error=query.last_error,
        reported_at=now(),
    )
