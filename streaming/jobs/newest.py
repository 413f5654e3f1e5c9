"""One micro-batch of a query that keeps the newest row of a key: positions, groups, transactions, broker metrics.

Knows Arrow and the tables, no Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from streaming.contracts import sample_tables as tables
from streaming.contracts.samples import (
    BrokerMetricObserved,
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)
from streaming.delta.newest import NewestRows
from streaming.delta.quarantine import Quarantine
from streaming.delta.reconciled import Reconciled
from streaming.jobs.batch import Applied, Stopwatch, kinds_of, now
from streaming.jobs.sample_sources import SampleSources
from streaming.jobs.samples import read_samples
from streaming.jobs.understood import fresh_rows, newest_positions

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.state import SourceState
    from streaming.contracts.columns import Table
    from streaming.contracts.observations import Channel, Observation

# Which samples go where. Every kind of a channel has its table.
TABLE_OF: Final[dict[type[Observation], Table]] = {
    ReplicaOffsetsObserved: tables.REPLICA_OFFSETS,
    GroupOffsetsObserved: tables.GROUP_OFFSETS,
    TransactionObserved: tables.TRANSACTIONS,
    LogDirectoryObserved: tables.LOG_DIRECTORIES,
    QuorumMemberObserved: tables.QUORUM_MEMBERS,
    BrokerMetricObserved: tables.BROKER_METRICS,
}

# A batch of less than this share of a table rests after it: writing takes a quarter of the time at most.
MUCH: Final = 0.1
REST_PER_WORK: Final = 3.0
LONGEST_REST_SECONDS: Final = 5.0


class NewestBatch:
    """Writes the newest row of each key to the tables of a channel. Their one writer."""

    def __init__(self, directory: Path, channel: Channel) -> None:
        """Open the tables and read what they hold.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._channel = channel
        self._rows = {kind: NewestRows(directory, table) for kind, table in TABLE_OF.items() if kind.channel is channel}
        self._quarantine = Quarantine(directory, channel)
        self._sources = SampleSources(directory, channel)
        self._reconciled: Reconciled | None = None
        if BrokerMetricObserved in self._rows:
            self._reconciled = Reconciled(directory)
            self._reconciled.hold(self._rows[BrokerMetricObserved].rows)

    @property
    def positions(self) -> dict[str, int]:
        """How far each source was applied, in every table."""
        heard = {source for rows in self._rows.values() for source in rows.positions}
        return {source: self.position(source) for source in heard}

    def position(self, source: str) -> int:
        """Give the position up to which every table has a source; -1 for none. What is newer may come again."""
        return min(rows.position(source) for rows in self._rows.values())

    def sources(self) -> tuple[list[SourceState], None]:
        """Give how far every source came; samples follow from no version of the truth."""
        return self._sources.states(), None

    def check_ours(self) -> None:
        """Look whether somebody else writes the tables since.

        Raises:
            TableRefused: somebody does.
        """
        for rows in self._rows.values():
            rows.check_ours()
        if self._reconciled is not None:
            self._reconciled.check_ours()

    def apply(self, rows: pa.Table) -> Applied:
        """Apply one batch; samples that are older than what the tables hold change nothing.

        A table is written whole, so a batch that brought little rests for what it cost before the next one begins.
        """
        watch = Stopwatch()
        fresh = fresh_rows(rows, self)
        samples = read_samples(fresh, self._rows, self._channel)
        watch.lap("decode")
        self._quarantine.add(samples.refused, now())
        positions = newest_positions(fresh)
        told = {kind: len(table) for kind, table in samples.columns.items()}
        if any(told.values()):
            for kind, table in self._rows.items():
                table.put(samples.columns[kind], positions)
            if self._reconciled is not None:
                self._reconciled.put(samples.columns[BrokerMetricObserved])
        refused = Counter(record.source for record in samples.refused)
        self._sources.told(samples.columns.values(), refused, positions)
        watch.lap("commit")
        seconds = watch.seconds
        if any(0 < told[kind] < len(table) * MUCH for kind, table in self._rows.items()):
            time.sleep(min(seconds * REST_PER_WORK, LONGEST_REST_SECONDS))
        return Applied(
            observations=sum(told.values()),
            changes=sum(told.values()),
            refused=len(samples.refused),
            version=-1,
            seconds=seconds,
            stages=watch.stages,
            reasons=kinds_of(samples.refused),
        )
