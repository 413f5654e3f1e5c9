"""A producer: sends batches to leaders, again and again until they are written or its patience ends (``Sender``).

Departs from Kafka: every :meth:`Producer.send` is a batch of its own (``linger.ms=0``), and batches are never split.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.model.clients.client import Client
from streaming.model.constants import Error
from streaming.model.messages.clients import (
    Acks,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    WakeUp,
)
from streaming.model.storage.batch import NO_PRODUCER, Batch
from streaming.model.storage.producer_state import NO_SEQUENCE, advance_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.constants import Constants

_WRONG_LEADER: Final = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION})
RETRIABLE: Final = _WRONG_LEADER | {
    Error.NOT_ENOUGH_REPLICAS,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Error.REQUEST_TIMED_OUT,
    Error.CONCURRENT_TRANSACTIONS,
}


class Producer(Client):
    """A producer, idempotent unless told otherwise.

    Args:
        acks: see :class:`Acks`; an idempotent producer must want ``ALL``.
        idempotence: ``enable.idempotence``.

    Attributes:
        sent: everything it was asked to send, in order.
        producer_id: -1 until the first answer, and without idempotence.
    """

    def __init__(
        self,
        node: BrokerId,
        bootstrap: Sequence[BrokerId],
        constants: Constants,
        *,
        acks: Acks = Acks.ALL,
        idempotence: bool = True,
    ) -> None:
        super().__init__(node, bootstrap, constants)
        assert acks is Acks.ALL or not idempotence, "an idempotent producer needs acks=all"  # noqa: S101 - as Kafka's own configuration check
        self.acks = acks
        self.idempotence = idempotence
        self.sent: list[SentRecords] = []
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._initialise_at = 0

    def send(
        self, now: int, key: TopicPartition, size: int = 1, keys: tuple[str, ...] = (), values: tuple[object, ...] = ()
    ) -> SentRecords:
        """Application sends records; what becomes of them can be seen in the answer."""
        sent = SentRecords(len(self.sent), key, Batch(0, size, keys=keys, values=values), created_ms=now)
        self.sent.append(sent)
        self._queues.setdefault(key, PartitionQueue()).waiting.append(sent)
        self.outbox.after(self.constants.delivery_timeout_ms, WakeUp())
        self.act(now)
        return sent

    def poll(self, now: int) -> None:
        """Give up what is too old, then send what may be sent, to each leader up to its limit of requests."""
        for queue in self._queues.values():
            for sent in queue.too_old(now, self.constants.delivery_timeout_ms):
                self._decide(now, sent, Error.REQUEST_TIMED_OUT)
        if not self._is_ready(now):
            return
        while requests := self._drain(now):
            for leader, batches in requests.items():
                self._request(now, leader, batches)

    def _is_ready(self, now: int) -> bool:
        """Make sure that it has its producer id before the first batch."""
        if not self.idempotence or self.producer_id != NO_PRODUCER:
            return True
        if now >= self._initialise_at and any(queue.waiting for queue in self._queues.values()):
            self._initialise_at = self.constants.delivery_timeout_ms + now
            self._initialise()
        return False

    def _drain(self, now: int) -> dict[BrokerId, list[SentRecords]]:
        """Take the first batch of every partition that may be sent now, by leader."""
        requests: dict[BrokerId, list[SentRecords]] = {}
        most = self.constants.max_in_flight_requests_per_connection
        for key, queue in self._queues.items():
            if not self._may_write(now, key) or not queue.has_ready(now):
                continue
            leader = self.leader_of(key)
            if leader is not None and self.network.in_flight(leader) < most:
                requests.setdefault(leader, []).append(self._take(queue))
        return requests

    def _may_write(self, _now: int, _key: TopicPartition) -> bool:
        """Return whether a partition may be written to; a transactional producer adds it to its transaction first."""
        return True

    def _take(self, queue: PartitionQueue) -> SentRecords:
        if not self.idempotence:
            return queue.take()
        if queue.needs_epoch:
            self.producer_epoch += 1
            queue.begin_epoch(self.producer_epoch)
        return queue.take_in_sequence(self.producer_id, self.producer_epoch)

    def _request(self, now: int, leader: BrokerId, batches: list[SentRecords]) -> None:
        items = tuple(ProducePartition(sent.key, self._stamped(sent.batch)) for sent in batches)
        request = ProduceRequest(
            self.network.header(), self.acks, self.constants.request_timeout_ms, items, self._transactional_id()
        )
        if self.acks is Acks.NONE:
            self.outbox.send(leader, request)
            for sent in batches:
                self._decide(now, sent, Error.NONE)
            return
        self.network.send(leader, request, lambda now, answer: self._produced(now, batches, answer))

    def _stamped(self, batch: Batch) -> Batch:
        return batch

    def _transactional_id(self) -> str | None:
        return None

    def _produced(self, now: int, batches: list[SentRecords], response: ProduceResponse | None) -> None:
        outcomes = {item.topic_partition: item for item in response.partitions} if response else {}
        for sent in batches:
            outcome = outcomes.get(sent.key, ProducedPartition(sent.key, Error.NOT_LEADER_OR_FOLLOWER))
            if sent.error is None:  # else it was given up while it was in flight
                self._settle(now, sent, outcome)

    def _settle(self, now: int, sent: SentRecords, outcome: ProducedPartition) -> None:
        """Take one verdict; a lost connection counts as the wrong leader."""
        queue, error = self._queues[sent.key], outcome.error
        if error in _WRONG_LEADER:
            self.forget_leader(sent.key)
        if error is Error.NONE:
            self._decide(now, sent, error, outcome.base_offset)
        elif error in RETRIABLE or error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Out of order behind a batch that failed: it follows that one. Else the leader lost track: a new epoch.
            queue.needs_epoch |= error not in RETRIABLE and not queue.has_earlier(sent)
            queue.put_back(sent, now + self.constants.retry_backoff_ms)
            self.outbox.after(self.constants.retry_backoff_ms, WakeUp())
        else:
            self._decide(now, sent, error)

    def _decide(self, now: int, sent: SentRecords, error: Error, base_offset: int = -1) -> None:
        self._queues[sent.key].decide(now, sent, error, base_offset)

    # -------------------------------------------------------------- identity

    def _initialise(self) -> None:
        """Ask any broker for a producer id."""
        request = InitProducerIdRequest(self.network.header())
        self.network.send(self.any_broker(), request, self._initialised)

    def _initialised(self, now: int, response: InitProducerIdResponse | None) -> None:
        if response is not None and response.error is Error.NONE:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        else:
            self._initialise_at = now + self.constants.retry_backoff_ms
            self.outbox.after(self.constants.retry_backoff_ms, WakeUp())


# One partition of a producer: what waits, what is in flight, and the sequence (``TxnPartitionEntry``).
#
# Knows no broker and no network.


@dataclass(slots=True)
class SentRecords:
    """Records that an application sent together.

    Attributes:
        number: counts what its producer sent.
        attempts: how often it went to a leader.
        not_before: a retry waits until then.
        error: None while it is not decided; NONE once it is acknowledged.
        base_offset: where it stands, as far as the leader said.
        decided_ms: when it was decided.
    """

    number: int
    key: TopicPartition
    batch: Batch
    created_ms: int
    attempts: int = 0
    not_before: int = 0
    error: Error | None = None
    base_offset: int = -1
    decided_ms: int = -1

    @property
    def has_sequence(self) -> bool:
        """True if it was sent with a sequence before, which a retry must keep."""
        return self.batch.base_sequence != NO_SEQUENCE


class PartitionQueue:
    """Batches, oldest first. With a sequence, one that failed holds up those behind it until it is decided.

    Attributes:
        waiting: to be sent, or sent again.
        in_flight: sent and not answered.
        needs_epoch: a batch with a sequence was given up: the sequence is broken, and a new epoch must begin.
    """

    def __init__(self) -> None:
        self.waiting: list[SentRecords] = []
        self.in_flight: list[SentRecords] = []
        self.needs_epoch = False
        self._epoch = -1
        self._next_sequence = 0

    def has_ready(self, now: int) -> bool:
        """Return whether the first waiting batch may go: no retry may overtake an earlier batch with a sequence."""
        if not self.waiting or self.waiting[0].not_before > now or (self.needs_epoch and self.in_flight):
            return False
        return not (self.waiting[0].has_sequence and self.has_earlier(self.waiting[0]))

    def has_earlier(self, sent: SentRecords) -> bool:
        """Return whether a batch before this one is in flight or waits."""
        return any(batch.number < sent.number for batch in (*self.in_flight, *self.waiting))

    def take(self) -> SentRecords:
        """Take the first waiting batch into flight."""
        sent = self.waiting.pop(0)
        sent.attempts += 1
        self.in_flight.append(sent)
        return sent

    def begin_epoch(self, epoch: int) -> None:
        """Renumber everything from 0. Enabled while nothing is in flight."""
        self.needs_epoch = False
        self._epoch, self._next_sequence = epoch, 0
        for sent in self.waiting:
            sent.batch = sent.batch._replace(base_sequence=NO_SEQUENCE)

    def take_in_sequence(self, producer_id: int, producer_epoch: int) -> SentRecords:
        """Take the first waiting batch into flight, numbered.

        A newer epoch begins here once no batch of the older one is undecided.
        """
        if producer_epoch != self._epoch and not self.in_flight and not self.waiting[0].has_sequence:
            self.begin_epoch(producer_epoch)
        sent = self.take()
        if not sent.has_sequence:
            sent.batch = sent.batch._replace(
                producer_id=producer_id, producer_epoch=self._epoch, base_sequence=self._next_sequence
            )
            self._next_sequence = advance_sequence(self._next_sequence, sent.batch.size)
        return sent

    def put_back(self, sent: SentRecords, not_before: int) -> None:
        """It failed and is to be sent again: before everything, or in its place if it has a sequence."""
        self.in_flight.remove(sent)
        sent.not_before = not_before
        if sent.has_sequence:
            insort(self.waiting, sent, key=lambda batch: batch.number)
        else:
            self.waiting.insert(0, sent)

    def decide(self, now: int, sent: SentRecords, error: Error, base_offset: int = -1) -> None:
        """It is acknowledged, or given up."""
        (self.in_flight if sent in self.in_flight else self.waiting).remove(sent)
        sent.error, sent.base_offset, sent.decided_ms = error, base_offset, now
        if error is not Error.NONE and sent.has_sequence:
            self.needs_epoch = True

    def too_old(self, now: int, delivery_timeout_ms: int) -> list[SentRecords]:
        """Give what was not decided within ``delivery.timeout.ms``."""
        return [batch for batch in (*self.in_flight, *self.waiting) if now - batch.created_ms >= delivery_timeout_ms]
