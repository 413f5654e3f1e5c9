"""A cluster's metadata, applied record batch by record batch: metadata records in, observations out.

Pure: no clock, no IO. It knows contracts, :mod:`image_state` (what a record changes) and :mod:`causes` (why). Both the
metadata-log source of a real cluster and the simulated source drive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import ClusterId, Micros, Offset
from streaming.contracts.observations import (
    Authority,
    Heartbeat,
    Observation,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
)
from streaming.contracts.records import (
    ClearElr,
    MetadataRecord,
    Partition,
    RecordBatch,
    TransactionMarker,
    Undecodable,
)
from streaming.sources.causes import explain
from streaming.sources.causes_moves import Explanation, Step, proven
from streaming.sources.causes_revised import Doubt, Doubts
from streaming.sources.image_document import state_document, state_from_document
from streaming.sources.image_observed import observed
from streaming.sources.image_state import (
    MIN_ISR,
    BrokerStep,
    ConfigStep,
    Effect,
    MetadataState,
    PartitionStep,
    Revision,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DOCUMENT_VERSION: Final = 1
HEARTBEAT_MICROS: Final = Micros(5_000_000)

_BEGIN_TRANSACTION: Final = 23
_END_TRANSACTION: Final = 24
# Records whose partition steps explain themselves; a PartitionChange is explained by its neighbours.
_FIXED: Final[dict[type, Explanation]] = {Partition: proven(Cause.CREATED), ClearElr: proven(Cause.CONFIG)}


class _Entry(NamedTuple):
    offset: Offset
    record: MetadataRecord


class _Position(NamedTuple):
    offset: Offset
    epoch: int
    timestamp: Micros


class ClusterImage:
    """Everything a metadata log says about replication, and the observations each batch adds.

    Attributes:
        image_offset: offset of the last record read, -1 before the first; older records are ignored, so a batch may
            be applied twice. After :meth:`load` of a KRaft snapshot the caller sets it, because the records of a
            snapshot are not numbered by the log.
        image_epoch: raft epoch of that record.
        image_timestamp: time of the image: the newest batch timestamp, never running backwards.
        undecodable: records that could not be read or contradict the image, with their offsets; the caller drains it.
    """

    def __init__(
        self, *, cluster_id: ClusterId, cluster: str, source: str, heartbeat_micros: int = HEARTBEAT_MICROS
    ) -> None:
        self.image_offset = Offset(-1)
        self.image_epoch = 0
        self.image_timestamp = Micros(0)
        self.undecodable: list[tuple[Offset, Undecodable]] = []
        self._identity = {"cluster_id": cluster_id, "cluster": cluster, "source": source}
        self._heartbeat_micros = heartbeat_micros
        self._state = MetadataState()
        self._doubts = Doubts()
        self._spoke_at = Micros(0)
        self._transaction: list[_Entry] | None = None
        self._before_transaction: _Position | None = None

    def apply(self, batch: RecordBatch, collected_at: Micros) -> list[Observation]:
        """Apply one batch and return what it changed, in the order of its records.

        A batch that changes nothing gives a heartbeat when the last observation is ``heartbeat_micros`` of record
        time ago. Records of an open metadata transaction (KIP-868) wait for its end.
        """
        found = [item for unit in self._units(batch) for item in self._observe(unit, collected_at)]
        if not found and self.image_timestamp - self._spoke_at >= self._heartbeat_micros:
            found = [Heartbeat(**self._envelope(collected_at), metadata_offset=self._settled().offset)]
        if found:
            self._spoke_at = self.image_timestamp
        return found

    def load(self, batches: Iterable[RecordBatch]) -> None:
        """Apply a KRaft snapshot, or history that was told before, without observing it."""
        for batch in batches:
            for unit in self._units(batch):
                for offset, record in unit:
                    self._changes(offset, self._state.apply(record))

    def snapshot(self, *, snapshot_id: str, reason: SnapshotReason, collected_at: Micros) -> list[Observation]:
        """Tell the whole image between two markers; the image itself stays as it is."""
        state = self._state
        common = {**self._envelope(collected_at), "metadata_offset": self._settled().offset}
        inside = {**common, "in_snapshot": True}
        counts = {topic_id: len(parts) for topic_id, parts in state.partitions.items()}
        settings: list[Effect] = [] if state.controller is None else [state.controller]
        # A minimum that is unset is told, too: it may have been unset while nobody was looking.
        told: dict[tuple[str, str], str | None] = {(topic, MIN_ISR): None for topic in ("", *state.topics.values())}
        told |= state.configs
        settings += [ConfigStep(topic, key, value) for (topic, key), value in sorted(told.items())]
        members: list[Effect] = [BrokerStep(one) for _, one in sorted(state.brokers.items())]
        members += [
            PartitionStep(state.topics[topic_id], None, one)
            for topic_id, parts in state.partitions.items()
            for _, one in sorted(parts.items())
        ]
        return [
            SnapshotBegin(**common, snapshot_id=snapshot_id, reason=reason),
            *(observed(effect, common, None, 0) for effect in settings),
            *(observed(effect, inside, None, 0) for effect in members),
            SnapshotEnd(
                **common,
                snapshot_id=snapshot_id,
                topic_ids=tuple(counts),
                partition_counts=tuple(counts.values()),
                brokers=tuple(sorted(state.brokers)),
            ),
        ]

    def to_document(self) -> dict[str, Any]:
        """Write the image as JSON values; an open transaction is left out and read again."""
        return {
            "version": DOCUMENT_VERSION,
            **self._identity,
            **self._settled()._asdict(),
            "spoke_at": self._spoke_at,
            "heartbeat_micros": self._heartbeat_micros,
            "state": state_document(self._state),
            "doubts": self._doubts.to_rows(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ClusterImage:
        """Read an image back, to go on at ``image_offset + 1``.

        Raises:
            ValueError: the document is not one of ours, or is of another version.
        """
        try:
            if document["version"] != DOCUMENT_VERSION:
                raise ValueError(f"image version {document['version']!r}, this program reads {DOCUMENT_VERSION}")
            image = cls(**{key: document[key] for key in ("cluster_id", "cluster", "source", "heartbeat_micros")})
            image.image_offset, image.image_epoch = document["offset"], document["epoch"]
            image.image_timestamp, image._spoke_at = document["timestamp"], document["spoke_at"]
            image._state = state_from_document(document["state"])
            image._doubts = Doubts(document["doubts"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a cluster image: {error!r}") from None
        return image

    def _settled(self) -> _Position:
        """Give the last position whose records the image holds."""
        return self._before_transaction or _Position(self.image_offset, self.image_epoch, self.image_timestamp)

    def _units(self, batch: RecordBatch) -> list[list[_Entry]]:
        """Cut a batch into what took effect together, and advance the position."""
        timestamp = Micros(max(self.image_timestamp, batch.timestamp))
        units: list[list[_Entry]] = [[]]
        for offset, record in enumerate(batch.records, start=batch.base_offset):
            if offset <= self.image_offset:
                continue
            entry = _Entry(Offset(offset), record)
            if isinstance(record, TransactionMarker):
                units += [self._mark(record), []]
            elif self._transaction is not None:
                self._transaction.append(entry)
            else:
                units[-1].append(entry)
            self.image_offset, self.image_epoch, self.image_timestamp = entry.offset, batch.epoch, timestamp
        return [unit for unit in units if unit]

    def _mark(self, marker: TransactionMarker) -> list[_Entry]:
        """Begin, end or abort a metadata transaction, and give what took effect."""
        finished = self._transaction or []
        if marker.marker == _BEGIN_TRANSACTION:
            self._before_transaction, self._transaction = self._settled(), []
            return []
        self._before_transaction, self._transaction = None, None
        return finished if marker.marker == _END_TRANSACTION else []

    def _observe(self, unit: list[_Entry], collected_at: Micros) -> list[Observation]:
        """Apply records that took effect together; the cause of each depends on its neighbours."""
        shutting_down = self._state.shutting_down()
        changes = [self._changes(offset, self._state.apply(record)) for offset, record in unit]
        steps = [_step(record, effects) for (_, record), effects in zip(unit, changes, strict=True)]
        why = explain(steps, shutting_down=shutting_down, unclean_enabled=self._state.unclean_enabled)
        common = self._envelope(collected_at)
        found: list[Observation] = []
        for (offset, record), effects, step, cause in zip(unit, changes, steps, why, strict=True):
            envelope = {**common, "metadata_offset": offset}
            cleared = [self._revision(doubt) for doubt in self._doubts.follow(offset, step, cause)]
            told = (effect for effect in (*effects, *cleared) if effect is not None)
            found += [
                observed(effect, envelope, _FIXED.get(type(record), cause), index) for index, effect in enumerate(told)
            ]
        return found

    def _revision(self, doubt: Doubt) -> Revision | None:
        """Tell what a proof is about; nothing where its topic is gone."""
        topic = self._state.topics.get(doubt.topic_id)
        return None if topic is None else Revision(topic, doubt.topic_id, doubt.partition, doubt.offset)

    def _changes(self, offset: Offset, effects: list[Effect]) -> list[Effect]:
        """Put aside what could not be read."""
        self.undecodable += [(offset, effect) for effect in effects if isinstance(effect, Undecodable)]
        return [effect for effect in effects if not isinstance(effect, Undecodable)]

    def _envelope(self, collected_at: Micros) -> dict[str, Any]:
        return {
            **self._identity,
            "authority": Authority.METADATA_LOG,
            "occurred_not_before": self.image_timestamp,
            "occurred_not_after": self.image_timestamp,
            "collected_at": collected_at,
        }


def _step(record: MetadataRecord, effects: list[Effect]) -> Step:
    match effects:
        case [PartitionStep(before=before, after=after)]:
            return Step(record, before, after)
        case _:
            return Step(record)
