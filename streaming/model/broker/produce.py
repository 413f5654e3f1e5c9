"""How a broker takes batches: acks, minimum ISR, duplicates, and the wait for replicas (``ReplicaManager``).

The rule of ``acks=all`` is here: refused below the minimum with nothing appended; else appended, and answered once the
high watermark has passed it, the leader is another, or the time is over. Whatever the answer, the record stays.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.model.errors import Error
from streaming.model.messages.produce import Acks, ProducedPartition, ProduceRequest, ProduceResponse
from streaming.model.storage.batch import NO_PRODUCER, Batch
from streaming.model.storage.producer_state import duplicate_of, marker_refusal, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.leadership import Leadership
    from streaming.model.broker.purgatory import Purgatory
    from streaming.model.broker.verification import Verification
    from streaming.model.constants import Constants
    from streaming.model.messages.outbox import Outbox

    Then = Callable[[int, tuple[ProducedPartition, ...]], None]


class Appended(NamedTuple):
    """What became of a batch: an error, or where it stands (a duplicate: where it has stood before)."""

    error: Error
    base_offset: int = -1
    end_offset: int = -1


class DelayedProduce:
    """Batches that wait until everybody in sync has them (``DelayedProduce``)."""

    def __init__(
        self, led: Mapping[TopicPartition, LeaderPartition], appended: Mapping[TopicPartition, Appended], then: Then
    ) -> None:
        self._led = led
        self._appended = appended
        self._then = then
        self._outcomes: dict[TopicPartition, Error] = {
            key: outcome.error for key, outcome in appended.items() if outcome.error is not Error.NONE
        }

    @property
    def waiting(self) -> tuple[TopicPartition, ...]:
        """The partitions that are not decided yet."""
        return tuple(key for key in self._appended if key not in self._outcomes)

    def try_complete(self, now: int) -> bool:
        """Decide what can be decided; answer once everything is."""
        for key in self.waiting:
            outcome = self._outcome(key)
            if outcome is not None:
                self._outcomes[key] = outcome
        if self.waiting:
            return False
        self._answer(now)
        return True

    def expire(self, now: int) -> None:
        """``request.timeout.ms`` are over."""
        self._outcomes |= dict.fromkeys(self.waiting, Error.REQUEST_TIMED_OUT)
        self._answer(now)

    def _outcome(self, key: TopicPartition) -> Error | None:
        partition = self._led.get(key)
        if partition is None:
            return Error.NOT_LEADER_OR_FOLLOWER
        if partition.replica.high_watermark < self._appended[key].end_offset:
            return None
        # Rare since the high watermark stands still below the minimum (KAFKA-15583).
        return Error.NONE if partition.has_min_isr else Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def _answer(self, now: int) -> None:
        self._then(
            now,
            tuple(
                ProducedPartition(key, self._outcomes[key], batch.base_offset) for key, batch in self._appended.items()
            ),
        )


class Produce:
    """Batches from producers, and from coordinators on the same broker."""

    def __init__(
        self,
        leadership: Leadership,
        verification: Verification,
        purgatory: Purgatory,
        constants: Constants,
        outbox: Outbox,
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {ProduceRequest: self.produce}
        self._leadership = leadership
        self._verification = verification
        self._purgatory = purgatory
        self._constants = constants
        self._outbox = outbox

    def produce(self, now: int, request: ProduceRequest) -> None:
        """Producer writes. ``acks=0`` is never answered, ``acks=1`` at once."""

        def answer(_now: int, partitions: tuple[ProducedPartition, ...]) -> None:
            self._outbox.send(request.header.sender, ProduceResponse(request.header.correlation_id, partitions))

        batches = {item.topic_partition: item.batch for item in request.partitions}
        if request.transactional_id is not None:
            self._verification.verify(
                now,
                request.transactional_id,
                batches,
                lambda at, refused: self.append_in_sync(at, batches, request.timeout_ms, answer, refused),
            )
            return
        if request.acks is Acks.ALL:
            self.append_in_sync(now, batches, request.timeout_ms, answer)
            return
        appended = {key: self.append(now, key, batch, request.acks) for key, batch in batches.items()}
        if request.acks is Acks.LEADER:
            answer(
                now,
                tuple(ProducedPartition(key, outcome.error, outcome.base_offset) for key, outcome in appended.items()),
            )

    def append_in_sync(
        self,
        now: int,
        batches: Mapping[TopicPartition, Batch],
        timeout_ms: int,
        then: Then,
        refused: Mapping[TopicPartition, Error] = MappingProxyType({}),
    ) -> None:
        """Append with ``acks=all`` what is not refused; ``then`` is told of every partition at once, now or later."""
        appended = {
            key: Appended(refused[key]) if key in refused else self.append(now, key, batch, Acks.ALL)
            for key, batch in batches.items()
        }
        self.when_in_sync(now, appended, timeout_ms, then)

    def when_in_sync(self, now: int, appended: Mapping[TopicPartition, Appended], timeout_ms: int, then: Then) -> None:
        """Call ``then`` once everybody in sync has what was appended, or it is clear that it will not be known."""
        operation = DelayedProduce(self._leadership.led, appended, then)
        self._purgatory.complete_or_watch(now, operation, operation.waiting, timeout_ms)

    def append(self, now: int, key: TopicPartition, batch: Batch, acks: Acks) -> Appended:
        """Append one batch, unless this broker does not lead, too few are in sync, or its producer may not."""
        partition = self._leadership.led.get(key)
        if partition is None:
            return Appended(Error.NOT_LEADER_OR_FOLLOWER)
        if acks is Acks.ALL and not partition.accepts_acks_all:
            return Appended(Error.NOT_ENOUGH_REPLICAS)
        if batch.producer_id != NO_PRODUCER:
            appended = self._refused_or_duplicate(now, partition, batch)
            if appended is not None:
                return appended
        batch = batch._replace(timestamp_ms=now)
        batch = self._leadership.append_batch(now, partition, batch, acks_all=acks is Acks.ALL)
        if batch.is_transactional:
            self._verification.written(key, batch)
        return Appended(Error.NONE, batch.base_offset, batch.end_offset)

    def _refused_or_duplicate(self, now: int, partition: LeaderPartition, batch: Batch) -> Appended | None:
        """Compare a batch with what its producer wrote; None if it is to be appended."""
        producers = partition.replica.log.producers
        entry = producers.entry_of(batch.producer_id, now, self._constants.producer_id_expiration_ms)
        if batch.marker is not None:
            error = marker_refusal(entry, batch.producer_epoch, batch.coordinator_epoch)
        else:
            duplicate = duplicate_of(entry, batch) if entry else None
            if duplicate is not None:
                return Appended(Error.NONE, duplicate.base_offset, duplicate.last_offset + 1)
            error = refusal(entry, batch)
        return None if error is Error.NONE else Appended(error)
