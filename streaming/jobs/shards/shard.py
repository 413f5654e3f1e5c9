"""Whole Kafka clusters in one place: rows of the bus in, changes out; keeps the state between batches.

On a local master the driver has one shard with all clusters; on a Spark cluster there is one per partition of the bus,
on the executor that reads it. A shard commits nothing. Depends on Arrow and the state, not on Spark or tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streaming.changes.fold import fold
from streaming.changes.sources import newest_of
from streaming.changes.state import Change
from streaming.changes.tombstones import without_expired
from streaming.contracts.blocks import PartitionsBlock
from streaming.contracts.events import Subject
from streaming.contracts.observations import CauseRevised, Channel, ConfigObserved, PartitionObserved, TopicRemoved
from streaming.delta.changes.log import changes_to_arrow
from streaming.jobs.queries import BatchResult, Stopwatch, count_reasons
from streaming.jobs.shards.decoded_batch import RepeatedBlocks, decode_batch

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.state import FoldResult, ReplicationState, TopicKey
    from streaming.contracts.identifiers import ClusterId, TopicId
    from streaming.contracts.observations import Observation
    from streaming.delta.projections.shared_state import SharedState
    from streaming.delta.quarantine import RefusedRecord
    from streaming.jobs.shards.decoded_batch import AppliedPositions, DecodedBatch, ReadLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Changes of one batch, before they are committed.

    Attributes:
        rows: of ``partition_changes``, without the columns that the commit adds.
        touched: the changed part of the state.
        decoded: what was read.
        unreported: by source, refused records up to the new positions that its state does not count.
        changes: number of changes.
        only_sources: nothing changed except how far sources were read.
    """

    rows: pa.Table
    touched: ReplicationState
    decoded: DecodedBatch
    unreported: Mapping[str, int]
    changes: int
    only_sources: bool

    @property
    def refused(self) -> tuple[RefusedRecord, ...]:
        """The records that were refused."""
        return self.decoded.refused

    def result(self, version: int, watch: Stopwatch) -> BatchResult:
        """Return the result of the batch; ``version`` is the newest of the change log."""
        return BatchResult(
            observations=self.decoded.count,
            changes=self.changes,
            refused=len(self.refused),
            version=version,
            seconds=watch.seconds,
            stages=watch.stages,
            reasons=count_reasons(self.refused),
        )


class Shard:
    """Folds batches; the only owner of the state of its clusters."""

    def __init__(
        self, shared: SharedState, refused: Counter[str], read: ReadLog | None = None, published: Path | None = None
    ) -> None:
        """Continue a state.

        Args:
            shared: the state of the clusters at a version of the change log.
            refused: by source, the number of applied records that were refused and that its state does not count.
            read: reads blocks of a log that workers left out.
            published: the file with the digests of these blocks; None if the workers read every block.
        """
        self.shared, self.refused = shared, refused
        self.repeated, self._read = RepeatedBlocks(published), read

    def fold(self, rows: pa.Table, applied: AppliedPositions, watch: Stopwatch) -> Folded:
        """Fold one batch of rows, as in ``bus_source.SCHEMA``; the state changes when :meth:`applied` is called."""
        decoded = decode_batch(rows, applied, Channel.REPLICATION, self.repeated, self._read)
        watch.lap("decode")
        self.prepare({observed.cluster_id for observed in decoded.observations})
        state = self.shared.state
        state.load(set(_topics_of(decoded.observations, state.topic_ids)))
        folded = without_expired(state, fold(state, decoded.observations))
        watch.lap("fold")
        self.refused.update(record.source for record in decoded.refused)
        unreported = set(self.refused)
        steps = (*folded.changes, *self._of_refused_only(folded, decoded.positions))
        changes = [self._with_position(change, decoded) for change in steps]
        for change in changes:
            if change.source_after is not None:
                folded.touched.sources[change.source_after.cluster_id, change.source_after.source] = change.source_after
        return Folded(
            rows=changes_to_arrow(changes),
            touched=folded.touched,
            decoded=decoded,
            unreported={source: self.refused[source] for source in unreported},
            changes=sum(change.count for change in folded.changes),
            only_sources=all(change.subject is Subject.SOURCE for change in changes),
        )

    def prepare(self, clusters: AbstractSet[ClusterId]) -> None:
        """Load the state of clusters before their observations are folded; this shard has all of it."""

    def applied(self, folded: Folded, version: int) -> None:
        """Apply the changes of a batch to the state, at the version that contains them."""
        self.shared.applied(folded.touched, version)
        self.repeated.learn(folded.decoded.blocks, folded.touched, self.shared.state)

    def _of_refused_only(self, folded: FoldResult, positions: Mapping[str, int]) -> Iterator[Change]:
        """Yield a change for each source whose records in this batch were all refused, to move its position and count.

        Refused records have no time, so the change has the time of the source's newest applied observation.
        """
        observed = {change.source_after.source for change in folded.changes if change.source_after is not None}
        for source in self.shared.state.sources.values():
            if source.source in positions and source.source not in observed:
                yield Change(subject=Subject.SOURCE, observation=newest_of(source), source_after=source)

    def _with_position(self, change: Change, decoded: DecodedBatch) -> Change:
        """Add position and refused records to the state of a source, which the fold does not know."""
        after = change.source_after
        if change.subject is not Subject.SOURCE or after is None:
            return change
        quarantined = after.quarantined + self.refused.pop(after.source, 0)
        if after.source in decoded.positions:
            position, log_id = decoded.positions[after.source], decoded.log_ids.get(after.source)
            after = after._replace(position=position, log_id=log_id)
        return replace(change, source_after=after._replace(quarantined=quarantined))


def _topics_of(
    observations: Iterable[Observation], topic_ids: Mapping[tuple[ClusterId, str], TopicId]
) -> Iterator[TopicKey]:
    """Yield the topics whose partitions a fold will look up; ``topic_ids`` are by cluster and name."""
    for observed in observations:
        if isinstance(observed, PartitionObserved | PartitionsBlock | CauseRevised | TopicRemoved):
            yield observed.cluster_id, observed.topic_id
        elif isinstance(observed, ConfigObserved):
            topic_id = topic_ids.get((observed.cluster_id, observed.topic))
            if topic_id is not None:
                yield observed.cluster_id, topic_id
