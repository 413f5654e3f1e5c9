"""One micro-batch of a query that keeps the newest row per key: offsets, groups, transactions, broker metrics.

Knows Arrow and the tables, no Spark.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from streaming.contracts.identifiers import LogPosition, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.samples import BrokerMetricObserved
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.log.positions import NO_LOG_IDS, changed_logs
from streaming.delta.quarantine import Quarantine
from streaming.delta.samples.isr_reconciliation import ReconciliationTable
from streaming.delta.samples.newest import NewestRows
from streaming.jobs.queries import BatchResult, Stopwatch, count_reasons
from streaming.jobs.shards.decoded_batch import fresh_rows, newest_log_ids, newest_positions
from streaming.jobs.shards.sample_rows import (
    LONGEST_REST_SECONDS,
    REST_PER_WORK,
    SMALL_SHARE,
    TABLE_OF,
    SampleProgress,
    Samples,
    read_samples,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.delta.log.positions import LastCommon
    from streaming.delta.store.place import Place


class NewestBatch(SampleProgress):
    """Writes the newest row per key to the tables of samples. Their one writer."""

    def __init__(self, directory: Place, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables and read what they hold.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._clock = policy.clock
        self._rows = {kind: NewestRows(directory, table, policy) for kind, table in TABLE_OF.items()}
        self._quarantine = Quarantine(directory, Channel.SAMPLES, policy)
        super().__init__(directory, self._quarantine.by_source())
        for table in self._rows.values():
            # The job was killed before it stored how far it was: they come again, or their log is another one now.
            table.forget(table.sources - self._sources.positions.keys())
        self._reconciled = ReconciliationTable(directory, policy)
        self._reconciled.hold(self._rows[BrokerMetricObserved].rows)

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back where a log is another one now; return where its last applied record stood, by source.

        Samples of a log that has no record in common with the one before are forgotten: their collector's clock may
        have been ahead, and then no sample of the new log would replace them.
        """
        before = {source: self.at(source) for source in sources}
        now_at = changed_logs(before, last_common)
        if now_at:
            self._quarantine.go_back({source: at.position for source, at in now_at.items()})
            begun_again = {source for source, at in now_at.items() if at.position < 0}
            for table in self._rows.values():
                table.forget(begun_again)
            self._sources.go_back(now_at)
        return {source: before[source] for source in now_at}

    def check_ours(self) -> None:
        """Check that no other writer has claimed the tables.

        Raises:
            TableRefused: another one has.
        """
        for rows in self._rows.values():
            rows.check_ours()
        self._reconciled.check_ours()

    def apply(self, rows: pa.Table, offsets: Mapping[str, int] = NO_LOG_IDS) -> BatchResult:
        """Apply one batch; samples that are older than what the tables hold change nothing.

        A table is written whole, so a small batch is followed by a rest (see ``SMALL_SHARE``).

        Args:
            rows: as in ``schemas.bus_schema``.
            offsets: of the bus, by name: behind this batch.
        """
        watch = Stopwatch()
        fresh = fresh_rows(rows, self)
        samples = read_samples(fresh)
        watch.lap("decode")
        refused = self._quarantine.add(samples.refused, Micros(self._clock()))
        positions, log_ids = newest_positions(fresh), newest_log_ids(fresh)
        counts = {kind: len(table) for kind, table in samples.columns.items()}
        small = self._write(samples)
        self._sources.advance(samples.columns.values(), refused, positions, log_ids)
        self._offsets = {**self._offsets, **offsets}
        watch.lap("commit")
        seconds = watch.seconds
        time.sleep(min(small * REST_PER_WORK, LONGEST_REST_SECONDS))
        return BatchResult(
            observations=sum(counts.values()),
            changes=sum(counts.values()),
            refused=len(samples.refused),
            version=-1,
            seconds=seconds,
            stages=watch.stages,
            reasons=count_reasons(samples.refused),
        )

    def _write(self, samples: Samples) -> float:
        """Write the tables that have samples; return the seconds that those took of which a small share was new."""
        small = 0.0
        for kind, table in self._rows.items():
            if count := len(samples.columns[kind]):
                began = time.perf_counter()
                table.put(samples.columns[kind])
                small += time.perf_counter() - began if count < len(table) * SMALL_SHARE else 0.0
        if len(samples.columns[BrokerMetricObserved]):
            self._reconciled.put(samples.columns[BrokerMetricObserved])
        return small
