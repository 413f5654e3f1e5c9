"""One micro-batch of a query that keeps the newest row per key: offsets, groups, transactions, broker metrics.

Knows Arrow and the tables, no Spark.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.state import SourceKey
from streaming.contracts import sample_tables as tables
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import SourceKind
from streaming.contracts.sample_blocks import SamplesBlock
from streaming.contracts.samples import (
    BrokerMetricObserved,
    BrokerSpeedObserved,
    GroupObserved,
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)
from streaming.contracts.settings import BrokerFeatureObserved, BrokerSettingsObserved, TopicSettingsObserved
from streaming.contracts.state import SourceState
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.log.positions import NO_LOG_IDS
from streaming.delta.progress import ProgressTable
from streaming.delta.quarantine import Quarantine, RefusedRecord
from streaming.delta.samples.isr_reconciliation import ReconciliationTable
from streaming.delta.samples.newest import NewestRows
from streaming.errors import InvalidObservation
from streaming.jobs.queries import BatchResult, Stopwatch, count_reasons
from streaming.jobs.shards.decoded_batch import decode_row, fresh_rows, newest_log_ids, newest_positions
from streaming.jobs.streams.sample_columns import columns_of, from_stream, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.columns import Table
    from streaming.contracts.identifiers import LogPosition
    from streaming.contracts.observations import Channel, Observation
    from streaming.delta.log.positions import LastCommon
    from streaming.delta.store.place import Place

# The table of each kind of sample.
TABLE_OF: Final[dict[type[Observation], Table]] = {
    ReplicaOffsetsObserved: tables.REPLICA_OFFSETS,
    GroupObserved: tables.GROUPS,
    GroupOffsetsObserved: tables.GROUP_OFFSETS,
    TransactionObserved: tables.TRANSACTIONS,
    LogDirectoryObserved: tables.LOG_DIRECTORIES,
    QuorumMemberObserved: tables.QUORUM_MEMBERS,
    TopicSettingsObserved: tables.TOPIC_SETTINGS,
    BrokerSettingsObserved: tables.BROKER_SETTINGS,
    BrokerFeatureObserved: tables.BROKER_FEATURES,
    BrokerSpeedObserved: tables.BROKER_SPEED,
    BrokerMetricObserved: tables.BROKER_METRICS,
}

# Tables are written whole. After a batch of less than this share of a table the query rests for three times as long as
# writing took, so that small batches do not keep it writing all the time.
SMALL_SHARE: Final = 0.1
REST_PER_WORK: Final = 3.0
LONGEST_REST_SECONDS: Final = 5.0


class NewestBatch:
    """Writes the newest row per key to the tables of a channel. Their one writer."""

    def __init__(self, directory: Place, channel: Channel, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables and read what they hold.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._channel, self._clock = channel, policy.clock
        self._rows = {
            kind: NewestRows(directory, table, policy) for kind, table in TABLE_OF.items() if kind.channel is channel
        }
        self._quarantine = Quarantine(directory, channel, policy)
        self._sources = SampleSources(directory, channel)
        self._add_unreported()
        self._sources.count_at_least(self._quarantine.by_source())
        self._reconciled: ReconciliationTable | None = None
        if BrokerMetricObserved in self._rows:
            self._reconciled = ReconciliationTable(directory, policy)
            self._reconciled.hold(self._rows[BrokerMetricObserved].rows)

    def _add_unreported(self) -> None:
        """Know the sources that were applied after the last report, before the job was killed, too.

        If the log of one is another one now, or is not there yet, it must not be read by the old one's positions.
        """
        in_tables = set[str]().union(*(rows.sources for rows in self._rows.values()))
        others = sorted(in_tables - {state.source for state in self._sources.states()})
        if not others:
            return
        samples = [
            table.filter(pc.is_in(table["source"], pa.array(others)))
            for table in (rows.rows for rows in self._rows.values())
        ]
        applied = {source: self.at(source) for source in others}
        positions = {source: at.position for source, at in applied.items() if at.position >= 0}
        log_ids = {source: at.log_id for source, at in applied.items() if at.log_id is not None}
        self._sources.advance(samples, {}, positions, log_ids)

    @property
    def positions(self) -> dict[str, int]:
        """Position up to which every table holds each source."""
        sources = {source for rows in self._rows.values() for source in rows.positions}
        return {source: self.position(source) for source in sources}

    def position(self, source: str) -> int:
        """Return the position up to which every table holds a source, -1 for none. Newer records may come again."""
        return self.at(source).position

    def at(self, source: str) -> LogPosition:
        """Return where the record stands up to which every table holds a source.

        A table that never had a sample of it is at none of its records: then at none, but of the log that the others
        hold, so that another one in its place is recognised.
        """
        held = [rows.applied.at(source) for rows in self._rows.values()]
        oldest, newest = min(held, key=itemgetter(0)), max(held, key=itemgetter(0))
        return oldest if oldest.position >= 0 else oldest._replace(log_id=newest.log_id)

    def offset(self, name: str) -> int:
        """Return the offset that the newest commit of any table holds under a name, -1 for none.

        Batches come one after the other: before that of the newest commit, every batch is in every table.
        """
        return max(rows.applied.position(name) for rows in self._rows.values())

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back where a log is another one now; return where its last applied record stood, by source.

        Samples of a log that has no record in common with the one before are forgotten: their collector's clock may
        have been ahead, and then no sample of the new log would replace them.
        """
        names = list(sources)
        before: dict[str, LogPosition] = {}
        for rows in self._rows.values():
            before |= rows.applied.go_back(names, last_common)
        now_at = {source: self.at(source) for source in before}
        if now_at:
            # A table that never had a sample of a source is at none of its records; the log is common up to the latest.
            common = {
                source: max(rows.applied.at(source).position for rows in self._rows.values()) for source in now_at
            }
            self._quarantine.go_back(common)
            begun_again = [source for source, at in now_at.items() if at.position < 0]
            for rows in self._rows.values():
                rows.forget(begun_again)
                rows.store_positions(now_at)
        self._sources.go_back(now_at)
        return before

    def sources(self) -> tuple[list[SourceState], None]:
        """Return the state of every source, and None: samples follow from no version of the change log."""
        return self._sources.states(), None

    def check_ours(self) -> None:
        """Check that no other writer has claimed the tables.

        Raises:
            TableRefused: another one has.
        """
        for rows in self._rows.values():
            rows.check_ours()
        if self._reconciled is not None:
            self._reconciled.check_ours()

    def apply(self, rows: pa.Table, offsets: Mapping[str, int] = NO_LOG_IDS) -> BatchResult:
        """Apply one batch; samples that are older than what the tables hold change nothing.

        A table is written whole, so a small batch is followed by a rest (see ``SMALL_SHARE``).

        Args:
            rows: as in ``schemas.bus_schema``.
            offsets: what the commits hold besides positions, by name: where this batch began.
        """
        watch = Stopwatch()
        fresh = fresh_rows(rows, self)
        samples = read_samples(fresh, self._rows, self._channel)
        watch.lap("decode")
        refused = self._quarantine.add(samples.refused, Micros(self._clock()))
        positions, log_ids = newest_positions(fresh), newest_log_ids(fresh)
        counts = {kind: len(table) for kind, table in samples.columns.items()}
        if any(counts.values()):
            for kind, table in self._rows.items():
                table.put(samples.columns[kind], {**positions, **offsets}, log_ids)
            if self._reconciled is not None:
                self._reconciled.put(samples.columns[BrokerMetricObserved])
        self._sources.advance(samples.columns.values(), refused, positions, log_ids)
        watch.lap("commit")
        seconds = watch.seconds
        if any(0 < counts[kind] < len(table) * SMALL_SHARE for kind, table in self._rows.items()):
            time.sleep(min(seconds * REST_PER_WORK, LONGEST_REST_SECONDS))
        return BatchResult(
            observations=sum(counts.values()),
            changes=sum(counts.values()),
            refused=len(samples.refused),
            version=-1,
            seconds=seconds,
            stages=watch.stages,
            reasons=count_reasons(samples.refused),
        )


# Payloads of samples as Arrow columns.
#
# Blocks, which grow with the cluster, come as columns from Spark's workers. What they left as records is decoded here.
# Knows Arrow and the contracts, no Spark.


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by kind, one column per field (times in microseconds), in the order of the log; and refused records."""

    columns: Mapping[type[Observation], pa.Table]
    refused: tuple[RefusedRecord, ...]


def read_samples(rows: pa.Table, kinds: Iterable[type[Observation]], channel: Channel) -> Samples:
    """Read every row of a batch.

    Args:
        rows: as in ``schemas.bus_schema``.
        kinds: the kinds of the channel; a block is of the kind of its samples.
        channel: where they were read; a sample of another channel is refused.

    Raises:
        NewerFormat: a newer program wrote one of them.
    """
    samples: dict[type[Observation], list[Observation | pa.Table]] = defaultdict(list)
    refused: list[RefusedRecord] = []
    columns = (rows[name].to_pylist() for name in ("source", "position", "payload", "damage", "samples"))
    for source, position, payload, damage, stream in zip(*columns, strict=True):
        try:
            kind, read = _read(payload, damage, channel) if stream is None else from_stream(stream)
        except InvalidObservation as reason:
            refused.append(RefusedRecord(source=source, position=position, reason=str(reason), raw=payload))
        else:
            samples[kind].append(read)
    return Samples({kind: _table(kind, samples[kind]) for kind in kinds}, tuple(refused))


def _read(payload: bytes, damage: str | None, channel: Channel) -> tuple[type[Observation], Observation | pa.Table]:
    observed = decode_row(payload, damage, channel)
    return (observed.sample, columns_of(observed)) if isinstance(observed, SamplesBlock) else (type(observed), observed)


def _table(kind: type[Observation], samples: Iterable[Observation | pa.Table]) -> pa.Table:
    """Return samples of one kind, singly or in columns, as one table."""
    schema = schema_of(kind)
    pieces = [schema.empty_table()]
    for are_columns, together in groupby(samples, lambda each: isinstance(each, pa.Table)):
        if are_columns:
            pieces += together
        else:
            rows = [{name: getattr(each, name) for name in schema.names} for each in together]
            pieces.append(pa.Table.from_pylist(rows, schema=schema))
    return pa.concat_tables(pieces).unify_dictionaries()


# Applied positions of the sources of a channel of samples: the state that the fold keeps of replication sources.


class SampleSources:
    """The sources of one channel."""

    def __init__(self, directory: Place, channel: Channel) -> None:
        """Read the state that the table holds."""
        sources = ProgressTable(directory, channel).sources()
        self._quarantined = Counter({source.source: source.quarantined for source in sources})
        self._states: dict[SourceKey, SourceState] = {(source.cluster_id, source.source): source for source in sources}

    def count_at_least(self, quarantined: Mapping[str, int]) -> None:
        """Count records of each source that are in ``quarantine``.

        Some may have come there after the last report of the sources, and before the job was killed.
        """
        self._quarantined |= Counter(quarantined)
        self._states = {key: self._counted(state) for key, state in self._states.items()}

    def states(self) -> list[SourceState]:
        """Return every source; safe to call from another thread while a batch is applied."""
        return list(self._states.values())

    def go_back(self, now_at: Mapping[str, LogPosition]) -> None:
        """Set sources back whose logs are other ones now, each to its last record that both have.

        Of a log that has no record in common with the one before, its first sample says when it was collected.
        """
        for key, state in self._states.items():
            if (at := now_at.get(state.source)) is not None:
                gone_back = state if at.position >= 0 else state._replace(observed_until=None, collected_at=None)
                self._states[key] = gone_back._replace(position=at.position, log_id=at.log_id)

    def advance(
        self,
        samples: Iterable[pa.Table],
        refused: Mapping[str, int],
        positions: Mapping[str, int],
        log_ids: Mapping[str, int] = NO_LOG_IDS,
    ) -> None:
        """Move the sources of an applied batch forward.

        Args:
            samples: tables with cluster_id, cluster, source, and collected_at in microseconds.
            refused: how many records of each source were unparseable, and not in ``quarantine`` before.
            positions: newest position of each source.
            log_ids: of the logs that have one.
        """
        self._quarantined.update(refused)
        for table in samples:
            newest = table.group_by(["cluster_id", "cluster", "source"]).aggregate([("collected_at", "max")])
            for row in newest.to_pylist():
                self._observe(row["cluster_id"], row["cluster"], row["source"], row["collected_at_max"])
        for key, state in self._states.items():
            if state.source in positions:
                position, log_id = positions[state.source], log_ids.get(state.source)
                self._states[key] = state._replace(position=position, log_id=log_id)
            self._states[key] = self._counted(self._states[key])

    def _counted(self, state: SourceState) -> SourceState:
        """Count what was refused, also before the first sample said which cluster the source is of."""
        return state._replace(quarantined=self._quarantined[state.source])

    def _observe(self, cluster_id: Any, cluster: str, source: str, moment: Any) -> None:  # noqa: ANN401 - columns of Arrow
        state = self._states.get((cluster_id, source)) or SourceState(
            cluster_id=cluster_id, cluster=cluster, source=source, authority=SourceKind.NONE
        )
        newest = max(moment, state.collected_at or moment)
        self._states[cluster_id, source] = state._replace(cluster=cluster, observed_until=newest, collected_at=newest)
