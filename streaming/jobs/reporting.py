"""How far the job is behind the bus: measured every few seconds, written to ``source_progress``, kept for ``/metrics``.

One thread for all queries of this process. It goes on while a query is down: that is when people look.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streaming.bus.directory import DirectoryReader
from streaming.delta.progress import ProgressTable
from streaming.delta.rows import state_row
from streaming.jobs.batch import now
from streaming.jobs.queries import sentence_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.state import SourceState
    from streaming.contracts.observations import Channel
    from streaming.jobs.queries import Places
    from streaming.jobs.supervised import Supervised

SECONDS: Final = 5.0
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far one log of the bus is applied.

    Attributes:
        bus_end: position behind its newest record.
        behind_bytes: bytes that are not applied yet.
        observed_until: newest moment that its source told of, microseconds; None before it told anything.
    """

    bus_end: int
    behind_bytes: int
    observed_until: int | None


class Reporter(threading.Thread):
    """Measures and writes until it is stopped.

    Attributes:
        lags: the newest measure, by channel and source; replaced as a whole.
    """

    def __init__(self, queries: Sequence[Supervised], places: Places) -> None:
        super().__init__(name="reporter", daemon=True)
        self._tables = {
            query.name: ProgressTable(places.tables, query.definition.channel)
            for query in queries
            if query.definition.channel is not None
        }
        self._queries = [query for query in queries if query.name in self._tables]
        self._bus = DirectoryReader(places.bus)
        self._stopped = threading.Event()
        self.lags: dict[tuple[Channel, str], Lag] = {}

    def run(self) -> None:
        """Report, rest, report."""
        while not self._stopped.wait(SECONDS):
            self.report()
        self.report()

    def stop(self) -> None:
        """Report once more and end."""
        self._stopped.set()
        if self.is_alive():
            self.join()

    def report(self) -> None:
        """Measure and write once. What fails is told and tried again the next time."""
        lags: dict[tuple[Channel, str], Lag] = {}
        for query in self._queries:
            try:
                lags |= self._report(query)
            except Exception as error:  # noqa: BLE001 - a report must not end the reporting
                _log.warning("the progress of the query %s was not written: %s", query.name, sentence_of(error))
        self.lags = lags

    def _report(self, query: Supervised) -> dict[tuple[Channel, str], Lag]:
        channel = query.definition.channel
        if channel is None or query.is_outrun:
            return {}  # whoever applies the channel now tells how far it is
        states, version = query.batch.sources()
        told = {state.source: state for state in states}
        lags = {source: self._lag(query, channel, source, told.get(source)) for source in self._bus.logs(channel)}
        self._tables[query.name].replace(
            [{**_row(state, query, lags.get(state.source)), "as_of_version": version} for state in states], version
        )
        return {(channel, source): lag for source, lag in lags.items()}

    def _lag(self, query: Supervised, channel: Channel, source: str, state: SourceState | None) -> Lag:
        applied = query.batch.position(source)
        if state is not None:  # tables of samples say less: those that a batch brought nothing for do not move
            applied = max(applied, state.position)
        end, behind = self._bus.bytes_behind(channel, source, applied)
        return Lag(bus_end=end, behind_bytes=behind, observed_until=state.observed_until if state else None)


def _row(state: SourceState, query: Supervised, lag: Lag | None) -> dict[str, Any]:
    return {
        "cluster_id": state.cluster_id,
        "cluster": state.cluster,
        "source": state.source,
        "authority": state.authority,
        **(state_row(state) or {}),
        "bus_end": None if lag is None else lag.bus_end,
        "behind_bytes": None if lag is None else lag.behind_bytes,
        "is_query_up": query.is_up,
        "restarts": query.restarts,
        "last_error": query.last_error,
        "reported_at": now(),
    }
