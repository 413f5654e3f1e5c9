"""A cluster's metadata, applied record batch by record batch: metadata records in, observations out.

Pure: no clock, no IO. Depends on contracts, :mod:`image_state` (what a record changes) and :mod:`causes` (why). Used by
the metadata log source of a real cluster and by the simulated source.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.blocks import in_blocks, with_changes_in_blocks
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import ClusterId, Micros, Offset
from streaming.contracts.observations import (
    DISKLESS,
    MIN_ISR,
    ControllerObserved,
    Heartbeat,
    Observation,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
)
from streaming.contracts.records import (
    METADATA_VERSION,
    ClearElr,
    EndPoint,
    MetadataRecord,
    Partition,
    PartitionChange,
    RecordBatch,
    TransactionMarker,
    UndecodableRecord,
)
from streaming.sources.metadata_log.causes import AppliedRecord, Explanation, explain, proven
from streaming.sources.metadata_log.causes_revised import AmbiguousRemoval, AmbiguousRemovals
from streaming.sources.metadata_log.image_state import (
    BrokerStep,
    CauseRevision,
    ConfigStep,
    Effect,
    MetadataState,
    PartitionStep,
    observed,
    partition_observed,
    state_document,
    state_from_document,
)
from streaming.sources.metadata_log.silence import ControllerClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

DOCUMENT_VERSION: Final = 1
HEARTBEAT_MICROS: Final = Micros(5_000_000)
MOST_BEHIND: Final = 30_000_000
"""A controller's clock that is further behind the clock here dates no record, or data would look stale for ever."""

_BEGIN_TRANSACTION: Final = 23
_END_TRANSACTION: Final = 24
# Records with a fixed cause; the cause of a PartitionChange depends on the records around it.
_FIXED_CAUSES: Final[dict[type, Explanation]] = {Partition: proven(Cause.CREATED), ClearElr: proven(Cause.CONFIG)}


class _Entry(NamedTuple):
    offset: Offset
    record: MetadataRecord


class _Position(NamedTuple):
    offset: Offset
    epoch: int
    timestamp: Micros


class ClusterImage:
    """The replication state of a metadata log, and the observations that each batch adds.

    Invariants: ``image_offset`` and ``image_timestamp`` never decrease; a record at or below ``image_offset`` has no
    effect, so a batch may be applied twice.

    A record that is unreadable or contradicts the image, and may have changed the state, leaves it incomplete: from
    then on nothing is observed, because neither a state nor a cause could be believed, and no heartbeat says that the
    data are fresh. The image does not become whole again; another one is loaded from a KRaft snapshot.

    Attributes:
        identity: the cluster and the source, as in every observation.
        image_offset: offset of the last record read, -1 before the first. After :meth:`load` of a KRaft snapshot the
            caller sets it, because the records of a snapshot do not carry offsets of the log.
        image_epoch: leader epoch (of the metadata quorum) of that record.
        image_timestamp: the newest batch timestamp, by the clock here if that of the controller is far behind.
        behind: by how much it is, microseconds; 0 if it is not.
        undecodable: records that could not be decoded or contradict the image, with offsets; the caller drains it.
        incomplete_since: offset of the record that left the image incomplete, None while it is whole.
        incomplete_because: why that record could not be applied.
    """

    def __init__(
        self, *, cluster_id: ClusterId, cluster: str, source: str, heartbeat_micros: int = HEARTBEAT_MICROS
    ) -> None:
        self.image_offset = Offset(-1)
        self.image_epoch = 0
        self.image_timestamp = Micros(0)
        self.behind = 0
        self.undecodable: list[tuple[Offset, UndecodableRecord]] = []
        self.incomplete_since: Offset | None = None
        self.incomplete_because = ""
        self.identity = {"cluster_id": cluster_id, "cluster": cluster, "source": source}
        self._heartbeat_micros = heartbeat_micros
        self._state = MetadataState()
        self._ambiguous_removals = AmbiguousRemovals()
        self._clock = ControllerClock()
        self._last_observation_at = Micros(0)
        self._written_at, self._has_records = Micros(0), False  # the newest batch by the controller; since a heartbeat
        self._transaction: list[_Entry] | None = None
        self._before_transaction: _Position | None = None

    def apply(self, batch: RecordBatch, collected_at: Micros) -> list[Observation]:
        """Apply one batch and return its observations, ordered as its records are.

        A batch without effect gives a heartbeat when the last observation is ``heartbeat_micros`` of record time old.
        Records of an open metadata transaction (KIP-868) are applied at its end.
        """
        late = min(self.behind, collected_at - batch.timestamp)  # less if that clock was set
        self.behind = late if late > MOST_BEHIND else 0
        observations = self._after_silence(batch, collected_at)
        for unit in self._units(batch):
            if self.incomplete_since is None:
                observations += with_changes_in_blocks(self._observe(unit, collected_at))
        is_due = self.image_timestamp - self._last_observation_at >= self._heartbeat_micros
        if self.incomplete_since is None and not observations and is_due:
            observations = [Heartbeat(**self._envelope(collected_at), metadata_offset=self._settled().offset)]
        if observations:
            self._last_observation_at = self.image_timestamp
        return observations

    def _after_silence(self, batch: RecordBatch, collected_at: Micros) -> list[Observation]:
        """Report that the controller wrote nothing for long before a batch, before what the batch says."""
        silence = self._clock.follow(batch) if batch.base_offset > self.image_offset else None
        leader = self._state.controller
        if silence is None or leader is None or self.incomplete_since is not None:
            return []
        until = self._time_of(batch)
        times = {"occurred_not_before": until, "occurred_not_after": until}
        return [
            ControllerObserved(
                **{**self._envelope(collected_at), **times},
                metadata_offset=batch.base_offset,
                controller=leader.controller,
                controller_epoch=leader.epoch,
                silent_since=Micros(until - (silence.until - silence.since)),
            )
        ]

    def heartbeat(self, at: Micros, collected_at: Micros) -> Heartbeat:
        """Return a heartbeat of a log that has no new record, or of another time: all of it is known at a time."""
        late = at - self._written_at if self._has_records else 0
        self.behind, self._has_records = late if late > MOST_BEHIND else 0, False
        self.image_timestamp = self._last_observation_at = max(self.image_timestamp, at)
        return Heartbeat(**self._envelope(collected_at), metadata_offset=self._settled().offset)

    def learn_listener(self, advertised: Mapping[int, tuple[str, int]]) -> None:
        """Take the addresses that brokers advertise to us: the host of a broker is that of this listener."""
        self._state.learn_listener(advertised)

    @property
    def end_points(self) -> dict[tuple[str, int], tuple[EndPoint, ...]]:
        """The listeners that brokers and controllers have registered, by role and id."""
        brokers, controllers = list(self._state.brokers.values()), list(self._state.controller_end_points.items())
        return {("broker", int(each.broker)): each.end_points for each in brokers} | {
            ("controller", node): points for node, points in controllers
        }

    @property
    def metadata_version(self) -> int | None:
        """The level of the feature metadata.version, None while no record has said it."""
        return self._state.features.get(METADATA_VERSION)

    def load(self, batches: Iterable[RecordBatch]) -> None:
        """Apply a KRaft snapshot, or history that was reported before, without observations."""
        for batch in batches:
            for unit in self._units(batch):
                for offset, record in unit if self.incomplete_since is None else ():
                    self._without_undecodable(offset, self._state.apply(record))
                    self._ambiguous_removals.session.follow(record, self._written_at)

    def snapshot(
        self, *, snapshot_id: str, reason: SnapshotReason, collected_at: Micros, is_new_log: bool = False
    ) -> list[Observation]:
        """Return a full report of the image, between two markers; the image does not change."""
        state = self._state
        common = {**self._envelope(collected_at), "metadata_offset": self._settled().offset}
        inside = {**common, "in_snapshot": True}
        counts = {topic_id: len(parts) for topic_id, parts in state.partitions.items()}
        settings: list[Effect] = state.of_controllers()
        # What is unset is reported, too: it may have been unset while no collector was running.
        configs: dict[tuple[str, str], str | None] = {("", MIN_ISR): None}
        configs |= dict.fromkeys(product(state.topics.values(), (MIN_ISR, DISKLESS)))
        configs |= state.reported_configs()
        settings += [ConfigStep(topic, key, value) for (topic, key), value in sorted(configs.items())]
        settings += state.of_minima()
        members: list[Effect] = [BrokerStep(state.labelled(one)) for _, one in sorted(state.brokers.items())]
        return [
            SnapshotBegin(**common, snapshot_id=snapshot_id, reason=reason, is_new_log=is_new_log),
            *(observed(effect, common, None, 0) for effect in settings),
            *(observed(effect, inside, None, 0) for effect in members),
            *in_blocks(partition_observed(step, inside) for step in self._partitions()),
            SnapshotEnd(
                **common,
                snapshot_id=snapshot_id,
                topic_ids=tuple(counts),
                partition_counts=tuple(counts.values()),
                brokers=tuple(sorted(state.brokers)),
            ),
        ]

    def _partitions(self) -> Iterator[PartitionStep]:
        for topic_id, partitions in self._state.partitions.items():
            for _, one in sorted(partitions.items()):
                yield PartitionStep(self._state.topics[topic_id], None, one)

    def to_document(self) -> dict[str, Any]:
        """Return the image as JSON values; an open transaction is left out and read again after a restart."""
        return {
            "version": DOCUMENT_VERSION,
            **self.identity,
            **self._settled()._asdict(),
            "spoke_at": self._last_observation_at,
            "heartbeat_micros": self._heartbeat_micros,
            "state": state_document(self._state),
            "doubts": self._ambiguous_removals.to_rows(),
            "session": self._ambiguous_removals.session.to_document(),
            "clock": self._clock.to_document(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ClusterImage:
        """Restore an image that continues at ``image_offset + 1``.

        Raises:
            ValueError: it is not such a document, or one of another version.
        """
        try:
            if document["version"] != DOCUMENT_VERSION:
                raise ValueError(f"image version {document['version']!r}, this program reads {DOCUMENT_VERSION}")
            image = cls(**{key: document[key] for key in ("cluster_id", "cluster", "source", "heartbeat_micros")})
            image.image_offset, image.image_epoch = document["offset"], document["epoch"]
            image.image_timestamp, image._last_observation_at = document["timestamp"], document["spoke_at"]
            image._state = state_from_document(document["state"])
            image._ambiguous_removals = AmbiguousRemovals(document["doubts"], document["session"])
            image._clock = ControllerClock(document.get("clock"))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a cluster image: {error!r}") from None
        return image

    def _settled(self) -> _Position:
        """Return the last position whose records are applied: before an open transaction, if there is one."""
        return self._before_transaction or _Position(self.image_offset, self.image_epoch, self.image_timestamp)

    def _units(self, batch: RecordBatch) -> list[list[_Entry]]:
        """Split a batch into runs of records that take effect together, and advance the position."""
        timestamp = self._time_of(batch)
        self._written_at, self._has_records = batch.timestamp, True
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

    def _time_of(self, batch: RecordBatch) -> Micros:
        return Micros(max(self.image_timestamp, batch.timestamp + self.behind))

    def _mark(self, marker: TransactionMarker) -> list[_Entry]:
        """Begin, end or abort a metadata transaction, and return the records that take effect."""
        finished = self._transaction or []
        if marker.marker == _BEGIN_TRANSACTION:
            self._before_transaction, self._transaction = self._settled(), []
            return []
        self._before_transaction, self._transaction = None, None
        return finished if marker.marker == _END_TRANSACTION else []

    def _observe(self, unit: list[_Entry], collected_at: Micros) -> list[Observation]:
        """Apply records that take effect together; the cause of each depends on the records around it.

        If one of them leaves the image incomplete, none is observed: the causes of the others cannot be known.
        """
        shutting_down, apply = self._state.shutting_down(), self._state.apply  # to bind it costs as much
        is_placed = any(isinstance(record, PartitionChange) and record.directories for _, record in unit)
        log_dirs = self._state.log_dirs() if is_placed else None
        effects_of = [self._without_undecodable(offset, apply(record)) for offset, record in unit]
        if self.incomplete_since is not None:
            return []
        steps = [_step(record, effects) for (_, record), effects in zip(unit, effects_of, strict=True)]
        why = explain(
            steps,
            shutting_down=shutting_down,
            unclean_enabled=self._state.unclean_enabled,
            may_have_elr=self._state.may_have_elr(),
            log_dirs=log_dirs,
        )
        common = self._envelope(collected_at)
        observations: list[Observation] = []
        for (offset, record), effects, step, cause in zip(unit, effects_of, steps, why, strict=True):
            envelope = {**common, "metadata_offset": offset}
            proven_removals = self._ambiguous_removals.follow(
                offset, self._written_at, step, cause, keeps_sessions=self._state.is_4_0()
            )
            revisions = [revision for removal in proven_removals if (revision := self._revision(removal)) is not None]
            observations += [
                observed(effect, envelope, _FIXED_CAUSES.get(type(record), cause), index)
                for index, effect in enumerate((*effects, *revisions))
            ]
        return observations

    def _revision(self, removal: AmbiguousRemoval) -> CauseRevision | None:
        """Return the revision of a removal's cause, None when its topic was deleted."""
        topic = self._state.topics.get(removal.topic_id)
        place = (removal.topic_id, removal.partition, removal.offset, removal.broker)
        return None if topic is None else CauseRevision(topic, *place)

    def _without_undecodable(self, offset: Offset, effects: list[Effect]) -> list[Effect]:
        """Move effects that are undecodable records to ``undecodable``."""
        for effect in effects:
            if isinstance(effect, UndecodableRecord):
                self.undecodable.append((offset, effect))
                if effect.hides_state and self.incomplete_since is None:
                    self.incomplete_since, self.incomplete_because = offset, effect.reason
        return [effect for effect in effects if not isinstance(effect, UndecodableRecord)]

    def _envelope(self, collected_at: Micros) -> dict[str, Any]:
        return {
            **self.identity,
            "source_kind": SourceKind.METADATA_LOG,
            "occurred_not_before": self.image_timestamp,
            "occurred_not_after": self.image_timestamp,
            "collected_at": collected_at,
        }


def _step(record: MetadataRecord, effects: list[Effect]) -> AppliedRecord:
    match effects:
        case [PartitionStep(before=before, after=after)]:
            return AppliedRecord(record, before, after)
        case [BrokerStep(is_amended=True)]:
            return AppliedRecord(record, is_amended=True)
    return AppliedRecord(record)
