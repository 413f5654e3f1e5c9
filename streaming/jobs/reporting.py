"""Measures every few seconds how far the job lags behind the bus, for ``source_progress`` and ``/metrics``.

One thread for all queries of this process. It continues while a query is down: that is when the lag matters.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryReader
from streaming.contracts.state import SourceLag
from streaming.delta.progress import ProgressTable
from streaming.jobs.applied import now
from streaming.jobs.spark_errors import sentence_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.observations import Channel
    from streaming.contracts.state import SourceState
    from streaming.jobs.queries import Places
    from streaming.jobs.supervised import SupervisedQuery

SECONDS: Final = 5.0
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLag:
    """How far one log of the bus is applied.

    Attributes:
        bus_end: position after its newest record.
        behind_bytes: bytes that are not applied yet.
        observed_until: newest time that its source reported, microseconds; None before it reported any.
    """

    bus_end: int
    behind_bytes: int
    observed_until: int | None


class Reporter(threading.Thread):
    """Measures and writes until it is stopped.

    Attributes:
        lags: the newest measurement, by channel and source; replaced as a whole.
    """

    def __init__(self, queries: Sequence[SupervisedQuery], places: Places) -> None:
        super().__init__(name="reporter", daemon=True)
        self._tables = {
            query.name: ProgressTable(places.tables, query.definition.channel, places.retention)
            for query in queries
            if query.definition.channel is not None
        }
        self._queries = [query for query in queries if query.name in self._tables]
        self._has_rows: dict[str, bool] = {}
        self._bus = DirectoryReader(places.bus)
        self._stopped = threading.Event()
        self.lags: dict[tuple[Channel, str], LogLag] = {}

    def run(self) -> None:
        """Report periodically, and once more at the end."""
        while not self._stopped.wait(SECONDS):
            self.report()
        self.report()

    def stop(self) -> None:
        """Report once more, and join the thread."""
        self._stopped.set()
        if self.is_alive():
            self.join()

    def report(self) -> None:
        """Measure and write once. A failure is logged and retried with the next report."""
        lags: dict[tuple[Channel, str], LogLag] = {}
        for query in self._queries:
            try:
                lags |= self._report(query)
            except Exception as error:  # noqa: BLE001 - one failed report must not end the thread
                _log.warning("the progress of the query %s was not written: %s", query.name, sentence_of(error))
        self.lags = lags

    def _report(self, query: SupervisedQuery) -> dict[tuple[Channel, str], LogLag]:
        channel, progress = query.definition.channel, query.progress
        if channel is None or progress is None or query.is_superseded:
            return {}  # another job applies the channel now, and reports its own progress
        states, version = progress.sources()
        state_of = {state.source: state for state in states}
        lags = {
            source: self._lag(channel, source, progress.position(source), state_of.get(source))
            for source in self._bus.logs(channel)
        }
        rows = [(state, _source_lag(query, lags.get(state.source))) for state in states]
        if rows or self._has_rows.get(query.name, True):
            self._tables[query.name].replace(rows, version)
            self._has_rows[query.name] = bool(rows)
        return {(channel, source): lag for source, lag in lags.items()}

    def _lag(self, channel: Channel, source: str, applied: int, state: SourceState | None) -> LogLag:
        if state is not None:  # a sample table that got no row in a batch keeps its old position
            applied = max(applied, state.position)
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
