"""Produce requests at a broker: acks, minimum ISR, duplicates, and the wait for replicas (``ReplicaManager``).

The rule of ``acks=all`` is here: refused below the minimum with nothing appended; else appended, and answered once the
high watermark has passed it, the leader is another, or the time is over. Whatever the answer, the record stays.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.model.constants import Error
from streaming.model.messages.clients import (
    TRANSACTION_STATE,
    Acks,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    CoordinatorKey,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
)
from streaming.model.messages.coordinators import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from streaming.model.storage.batch import NO_PRODUCER, Batch
from streaming.model.storage.producer_state import duplicate_of, marker_refusal, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.consumer_reads import MetadataCache
    from streaming.model.broker.controller_channel import ControllerChannel
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.leadership import Leadership
    from streaming.model.broker.purgatory import Purgatory
    from streaming.model.constants import Constants
    from streaming.model.messages.network import NetworkClient, Outbox

if TYPE_CHECKING:
    Then = Callable[[int, tuple[ProducedPartition, ...]], None]


class AppendResult(NamedTuple):
    """Result of a batch: an error, or its offset (of a duplicate: that of the first copy)."""

    error: Error
    base_offset: int = -1
    end_offset: int = -1


class DelayedProduce:
    """Batches that wait until every in-sync replica has them (``DelayedProduce``)."""

    def __init__(
        self, led: Mapping[TopicPartition, LeaderPartition], appended: Mapping[TopicPartition, AppendResult], then: Then
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
            key: AppendResult(refused[key]) if key in refused else self.append(now, key, batch, Acks.ALL)
            for key, batch in batches.items()
        }
        self.when_in_sync(now, appended, timeout_ms, then)

    def when_in_sync(
        self, now: int, appended: Mapping[TopicPartition, AppendResult], timeout_ms: int, then: Then
    ) -> None:
        """Call ``then`` once every in-sync replica has what was appended, or it is clear that it will not be known."""
        operation = DelayedProduce(self._leadership.led, appended, then)
        self._purgatory.complete_or_watch(now, operation, operation.waiting, timeout_ms)

    def append(self, now: int, key: TopicPartition, batch: Batch, acks: Acks) -> AppendResult:
        """Append one batch, unless this broker does not lead, too few are in sync, or its producer may not."""
        partition = self._leadership.led.get(key)
        if partition is None:
            return AppendResult(Error.NOT_LEADER_OR_FOLLOWER)
        if acks is Acks.ALL and not partition.accepts_acks_all:
            return AppendResult(Error.NOT_ENOUGH_REPLICAS)
        if batch.producer_id != NO_PRODUCER:
            appended = self._refused_or_duplicate(now, partition, batch)
            if appended is not None:
                return appended
        batch = batch._replace(timestamp_ms=now)
        batch = self._leadership.append_batch(now, partition, batch, acks_all=acks is Acks.ALL)
        if batch.is_transactional:
            self._verification.written(key, batch)
        return AppendResult(Error.NONE, batch.base_offset, batch.end_offset)

    def _refused_or_duplicate(self, now: int, partition: LeaderPartition, batch: Batch) -> AppendResult | None:
        """Compare a batch with what its producer wrote; None if it is to be appended."""
        producers = partition.replica.log.producers
        entry = producers.entry_of(batch.producer_id, now, self._constants.producer_id_expiration_ms)
        if batch.marker is not None:
            error = marker_refusal(entry, batch.producer_epoch, batch.coordinator_epoch)
        else:
            duplicate = duplicate_of(entry, batch) if entry else None
            if duplicate is not None:
                return AppendResult(Error.NONE, duplicate.base_offset, duplicate.last_offset + 1)
            error = refusal(entry, batch)
        return None if error is Error.NONE else AppendResult(error)


# A leader asks the coordinator before it lets a transaction begin in its partition (KIP-890).
#
# Without it a write that comes late, after its transaction has ended, begins a transaction that never ends: the
# last stable offset stands still (a hanging transaction). In transaction version 2 the same question adds the
# partition.


# Answers to a producer: it tries again, or it learns that its epoch is over.
_ERROR_FOR_PRODUCER: Final = {
    Error.NOT_COORDINATOR: Error.NOT_ENOUGH_REPLICAS,
    Error.COORDINATOR_LOAD_IN_PROGRESS: Error.NOT_ENOUGH_REPLICAS,
    Error.COORDINATOR_NOT_AVAILABLE: Error.NOT_ENOUGH_REPLICAS,
    Error.PRODUCER_FENCED: Error.INVALID_PRODUCER_EPOCH,
}


class _Producer(NamedTuple):
    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int


class Verification:
    """Questions on their way to coordinators.

    A guard stands from the question until the transaction begins here; a marker takes it away, so that an answer from
    before the marker opens nothing after it.
    """

    def __init__(
        self, leadership: Leadership, metadata_cache: MetadataCache, constants: Constants, network: NetworkClient
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {AddPartitionsToTxnResponse: network.answered}
        self._leadership = leadership
        self._metadata_cache = metadata_cache
        self._adds = constants.leaders_add_partitions
        self._is_on = self._adds or constants.switches.transaction_verification
        self._network = network
        self._lowest_sequence: dict[_Producer, int] = {}

    def verify(
        self,
        now: int,
        transactional_id: str,
        batches: Mapping[TopicPartition, Batch],
        then: Callable[[int, Mapping[TopicPartition, Error]], None],
    ) -> None:
        """Call ``then(now, errors)`` once the coordinator knows of every partition that begins a transaction."""
        unknown = {key: batch for key, batch in batches.items() if self._is_on and self._begins(key, batch)}
        if not unknown:
            then(now, {})
            return
        coordinator = self._metadata_cache.coordinator_of(CoordinatorKey(TRANSACTION_STATE, transactional_id))
        if coordinator is None:
            then(now, dict.fromkeys(unknown, Error.NOT_ENOUGH_REPLICAS))
            return
        for key, batch in unknown.items():
            guard = _Producer(key, batch.producer_id, batch.producer_epoch)
            lowest = self._lowest_sequence.get(guard, batch.base_sequence)
            self._lowest_sequence[guard] = min(lowest, batch.base_sequence)
        first = next(iter(unknown.values()))
        question = AddPartitionsToTxnRequest(
            self._network.header(),
            transactional_id,
            first.producer_id,
            first.producer_epoch,
            tuple(unknown),
            verify_only=not self._adds,
        )
        self._network.send(coordinator, question, lambda at, answer: then(at, self._errors(unknown, answer)))

    def _begins(self, key: TopicPartition, batch: Batch) -> bool:
        partition = self._leadership.led.get(key)
        if partition is None:
            return False
        entry = partition.replica.log.producers.entries.get(batch.producer_id)
        return entry is None or entry.open_since is None or entry.epoch != batch.producer_epoch

    def _errors(
        self, asked: Mapping[TopicPartition, Batch], response: AddPartitionsToTxnResponse | None
    ) -> dict[TopicPartition, Error]:
        if response is None:
            return dict.fromkeys(asked, Error.NOT_ENOUGH_REPLICAS)
        errors = {key: _ERROR_FOR_PRODUCER.get(error, error) for key, error in response.errors}
        for key, batch in asked.items():
            if errors[key] is Error.NONE and self._begins(key, batch):
                errors[key] = self._guarded(_Producer(key, batch.producer_id, batch.producer_epoch), batch)
        return {key: error for key, error in errors.items() if error is not Error.NONE}

    def _guarded(self, guard: _Producer, batch: Batch) -> Error:
        lowest = self._lowest_sequence.get(guard)
        if lowest is None:
            return Error.INVALID_TXN_STATE
        return Error.OUT_OF_ORDER_SEQUENCE_NUMBER if batch.base_sequence > lowest else Error.NONE

    def written(self, key: TopicPartition, batch: Batch) -> None:
        """A batch began a transaction here, or a marker ended one: whatever was asked about it is settled."""
        if batch.marker is None:
            self._lowest_sequence.pop(_Producer(key, batch.producer_id, batch.producer_epoch), None)
        else:
            for guard in [guard for guard in self._lowest_sequence if guard[:2] == (key, batch.producer_id)]:
                del self._lowest_sequence[guard]


# A leader writes what a transaction's coordinator decided (``WriteTxnMarkers``).


class TransactionMarkers:
    """Control batches, one a partition, with ``acks=all``."""

    def __init__(self, produce: Produce, constants: Constants, outbox: Outbox) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {WriteTxnMarkersRequest: self._write}
        self._produce = produce
        self._timeout_ms = constants.request_timeout_ms
        self._outbox = outbox

    def _write(self, now: int, request: WriteTxnMarkersRequest) -> None:
        marker = Batch(
            0,
            1,
            request.producer_id,
            request.producer_epoch,
            is_transactional=True,
            marker=request.marker,
            coordinator_epoch=request.coordinator_epoch,
        )

        def answer(_now: int, written: tuple[ProducedPartition, ...]) -> None:
            errors = tuple((item.topic_partition, item.error) for item in written)
            self._outbox.send(request.header.sender, WriteTxnMarkersResponse(request.header.correlation_id, errors))

        self._produce.append_in_sync(now, dict.fromkeys(request.partitions, marker), self._timeout_ms, answer)


# Producer ids: a broker draws blocks of 1,000 from the controller and hands them out (``RPCProducerIdManager``).


class ProducerIds:
    """The rest of the broker's block, and who waits for the next one."""

    def __init__(self, network: NetworkClient, channel: ControllerChannel) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {AllocateProducerIdsResponse: network.answered}
        self._network = network
        self._channel = channel
        self._block = range(0)
        self._waiting: list[Callable[[int, int | None], None]] = []

    def next_id(self, now: int, then: Callable[[int, int | None], None]) -> None:
        """Call ``then(now, id)``, now or when the controller has given a block; None if it gave none in time."""
        if self._block:
            first, self._block = self._block[0], self._block[1:]
            then(now, first)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            request = AllocateProducerIdsRequest(self._network.header())
            self._network.send(self._channel.controller, request, self._allocated)

    def _allocated(self, now: int, response: AllocateProducerIdsResponse | None) -> None:
        waiting, self._waiting = self._waiting, []
        if response is not None:
            self._block = range(response.first, response.first + response.size)
        for then in waiting:
            if response is None:
                then(now, None)
            else:
                self.next_id(now, then)

    def init(self, now: int, request: InitProducerIdRequest) -> None:
        """An idempotent producer without transactions begins a session: a fresh id, epoch 0."""

        def answer(_now: int, producer_id: int | None) -> None:
            number = request.header.correlation_id
            response = (
                InitProducerIdResponse(number, Error.COORDINATOR_LOAD_IN_PROGRESS)
                if producer_id is None
                else InitProducerIdResponse(number, Error.NONE, producer_id, 0)
            )
            self._network.outbox.send(request.header.sender, response)

        self.next_id(now, answer)
