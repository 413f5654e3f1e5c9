"""Samples of a batch as columns, the table of each kind, and how far their sources were applied.

Blocks, which grow with the cluster, arrive as columns from Spark's workers. Other records are decoded here. Knows Arrow
and the contracts, no Spark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.changes.state import SourceKey
from streaming.contracts import sample_tables as tables
from streaming.contracts.identifiers import NOWHERE, LogPosition
from streaming.contracts.observations import Channel, SourceKind
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
from streaming.delta.log.positions import NO_LOG_IDS
from streaming.delta.progress import ProgressTable
from streaming.delta.quarantine import RefusedRecord
from streaming.errors import InvalidObservation
from streaming.jobs.shards.decoded_batch import decode_row
from streaming.jobs.streams.sample_columns import columns_of, from_stream, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.columns import Table
    from streaming.contracts.observations import Observation
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

# Tables are written whole. The query rests for three times as long as it took to write the tables of which less than
# this share was new, so that small batches do not keep it writing all the time. Other tables of the batch do not count.
SMALL_SHARE: Final = 0.1
REST_PER_WORK: Final = 3.0
LONGEST_REST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by kind in the order of the log, one column per field (times in microseconds), and refused records."""

    columns: Mapping[type[Observation], pa.Table]
    refused: tuple[RefusedRecord, ...]


def read_samples(rows: pa.Table) -> Samples:
    """Read the rows of a batch, as in ``bus_source.SCHEMA``; blocks are of the kind of their samples.

    Raises:
        NewerFormat: a newer program wrote one of them.
    """
    samples: dict[type[Observation], list[Observation | pa.Table]] = defaultdict(list)
    refused: list[RefusedRecord] = []
    columns = (rows[name].to_pylist() for name in ("source", "position", "payload", "damage", "samples"))
    for source, position, payload, damage, stream in zip(*columns, strict=True):
        try:
            kind, read = _read(payload, damage) if stream is None else from_stream(stream)
        except InvalidObservation as reason:
            refused.append(RefusedRecord(source=source, position=position, reason=str(reason), raw=payload))
        else:
            samples[kind].append(read)
    return Samples({kind: _table(kind, samples[kind]) for kind in TABLE_OF}, tuple(refused))


def _read(payload: bytes, damage: str | None) -> tuple[type[Observation], Observation | pa.Table]:
    observed = decode_row(payload, damage, Channel.SAMPLES)
    return (observed.sample, columns_of(observed)) if isinstance(observed, SamplesBlock) else (type(observed), observed)


def _table(kind: type[Observation], samples: Iterable[Observation | pa.Table]) -> pa.Table:
    """Return samples of one kind, single ones and columns, as one table."""
    schema = schema_of(kind)
    pieces = [schema.empty_table()]
    for are_columns, together in groupby(samples, lambda each: isinstance(each, pa.Table)):
        if are_columns:
            pieces += together
        else:
            rows = [{name: getattr(each, name) for name in schema.names} for each in together]
            pieces.append(pa.Table.from_pylist(rows, schema=schema))
    return pa.concat_tables(pieces).unify_dictionaries()


# Applied positions of the sources of samples, as the fold keeps them for replication sources.


class SampleSources:
    """The sources of samples and their positions, which are stored nowhere else.

    Another thread may read them while a batch is applied: they are never ahead of the tables.
    """

    def __init__(self, stored: Iterable[SourceState], quarantined: Mapping[str, int]) -> None:
        """Begin with the state in ``source_progress``, and the number of records of each source in ``quarantine``.

        The latter may be newer, if the job was killed after it had quarantined records.
        """
        states = {(state.cluster_id, state.source): state for state in stored}
        self._at = {state.source: LogPosition(state.position, state.log_id) for state in states.values()}
        self._quarantined = Counter({state.source: state.quarantined for state in states.values()})
        self._quarantined |= Counter(quarantined)
        self._states: dict[SourceKey, SourceState] = {key: self._current(state) for key, state in states.items()}

    @property
    def positions(self) -> dict[str, int]:
        """Position of the last applied record of each source."""
        return {source: at.position for source, at in self._at.items()}

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source is."""
        return self._at.get(source, NOWHERE)

    def states(self) -> list[SourceState]:
        """Return the state of every source."""
        return list(self._states.values())

    def go_back(self, now_at: Mapping[str, LogPosition]) -> None:
        """Set sources back to the last common records of their replaced logs.

        If there is none, the times of the source are unknown until the first sample of the new log.
        """
        self._at = {**self._at, **now_at}
        for key, state in self._states.items():
            is_begun_again = state.source in now_at and now_at[state.source].position < 0
            unheard = state._replace(observed_until=None, collected_at=None)
            self._states[key] = self._current(unheard if is_begun_again else state)

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
            refused: number of newly quarantined records of each source.
            positions: newest position of each source.
            log_ids: of the logs that have one.
        """
        self._quarantined.update(refused)
        moved = {source: LogPosition(position, log_ids.get(source)) for source, position in positions.items()}
        self._at = {**self._at, **moved}  # replaced, never changed: another thread may be reading it
        for table in samples:
            newest = table.group_by(["cluster_id", "cluster", "source"]).aggregate([("collected_at", "max")])
            for row in newest.to_pylist():
                self._observe(row["cluster_id"], row["cluster"], row["source"], row["collected_at_max"])
        for key, state in self._states.items():
            self._states[key] = self._current(state)

    def _current(self, state: SourceState) -> SourceState:
        """Return a state with the position and the refused records of its source."""
        at, quarantined = self.at(state.source), self._quarantined[state.source]
        return state._replace(position=at.position, log_id=at.log_id, quarantined=quarantined)

    def _observe(self, cluster_id: Any, cluster: str, source: str, moment: Any) -> None:  # noqa: ANN401 - columns of Arrow
        state = self._states.get((cluster_id, source)) or SourceState(
            cluster_id=cluster_id, cluster=cluster, source=source, source_kind=SourceKind.NONE
        )
        newest = max(moment, state.collected_at or moment)
        state = state._replace(cluster=cluster, observed_until=newest, collected_at=newest)
        self._states[cluster_id, source] = self._current(state)


class SampleProgress:
    """Progress of a batch of samples on the bus. Implements most of :class:`streaming.jobs.queries.BusProgress`."""

    def __init__(self, directory: Place, quarantined: Mapping[str, int]) -> None:
        """Begin with the stored progress; ``quarantined`` as in :class:`SampleSources`."""
        self._progress = ProgressTable(directory, Channel.SAMPLES)
        self._sources = SampleSources(self._progress.sources(), quarantined)
        self._offsets: dict[str, int] = {}

    @property
    def positions(self) -> dict[str, int]:
        """Position up to which the tables hold each source."""
        return self._sources.positions

    def position(self, source: str) -> int:
        """Return the position up to which the tables hold a source, -1 for none; they may hold later records, too."""
        return self.at(source).position

    def at(self, source: str) -> LogPosition:
        """Return where the last record is up to which the tables hold a source."""
        return self._sources.at(source)

    def offset(self, name: str) -> int:
        """Return the offset of the bus that is stored under a name, -1 for none."""
        return self._progress.offset(name)

    @property
    def offsets(self) -> Mapping[str, int]:
        """Offsets of the bus up to which the tables hold it, by name, to store with the sources."""
        return self._offsets

    def sources(self) -> tuple[list[SourceState], None]:
        """Return the state of every source, and None: samples follow from no version of the change log."""
        return self._sources.states(), None
