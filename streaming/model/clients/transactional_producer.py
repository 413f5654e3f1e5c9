"""A transactional producer: batches of several partitions count together or not at all (``TransactionManager``)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from streaming.model.clients.producer import Producer
from streaming.model.constants import Error
from streaming.model.messages.clients import (
    TRANSACTION_STATE,
    CoordinatorKey,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducedPartition,
    WakeUp,
)
from streaming.model.messages.coordinators import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.clients.producer import PartitionQueue, SentRecords
    from streaming.model.constants import Constants


class Phase(Enum):
    """Phase of the producer."""

    INITIALISING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    FATAL = auto()
    """Fenced by another session, or because it took too long. Nothing helps but a new producer."""


_LOST_COORDINATOR: Final = frozenset({Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE})
_TRY_AGAIN: Final = _LOST_COORDINATOR | {Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS}
_FATAL: Final = frozenset(
    {Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_TXN_STATE}
)


class TransactionalProducer(Producer):
    """A producer with a ``transactional.id``; it fences the earlier user of the id.

    Attributes:
        phase: see :class:`Phase`.
        has_failed: a batch was given up: the open transaction can only be aborted.
        fatal: why the phase is FATAL.
    """

    def __init__(
        self, node: BrokerId, bootstrap: Sequence[BrokerId], constants: Constants, transactional_id: str
    ) -> None:
        super().__init__(node, bootstrap, constants)
        self.phase = Phase.INITIALISING
        self.has_failed = False
        self.fatal: Error | None = None
        self.transactional_id = transactional_id
        self._coordinator_key = CoordinatorKey(TRANSACTION_STATE, transactional_id)
        self._leaders_add_partitions = constants.leaders_add_partitions
        self._to_add: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._is_asking_coordinator = False
        self._not_before = 0

    # -------------------------------------------------------------- what the application does

    def begin(self, now: int) -> None:
        """Open a transaction. Enabled once the one before is over."""
        assert self.phase is Phase.READY, f"begin while {self.phase.name}"  # noqa: S101 - as Kafka's own state check
        self.phase = Phase.IN_TRANSACTION
        self.act(now)

    def commit(self, now: int) -> None:
        """Make everything count, once all of it is acknowledged. Enabled while nothing has failed."""
        assert self.phase is Phase.IN_TRANSACTION, f"commit while {self.phase.name}"  # noqa: S101 - as above
        assert not self.has_failed, "a failed transaction can only be aborted"  # noqa: S101 - as above
        self.phase = Phase.COMMITTING
        self.act(now)

    def abort(self, now: int) -> None:
        """Make nothing count; what was not sent yet is given up."""
        assert self.phase is Phase.IN_TRANSACTION, f"abort while {self.phase.name}"  # noqa: S101 - as above
        self.phase = Phase.ABORTING
        for queue in self._queues.values():
            for sent in list(queue.waiting):
                queue.decide(now, sent, Error.INVALID_TXN_STATE)
        self.act(now)

    # -------------------------------------------------------------- batches

    def poll(self, now: int) -> None:
        """Talk to the coordinator, then to the leaders, and end the transaction once nothing is undecided."""
        self._talk(now)
        super().poll(now)
        self._talk(now)

    def _is_ready(self, _now: int) -> bool:
        return self.phase in {Phase.IN_TRANSACTION, Phase.COMMITTING}

    def _may_write(self, _now: int, key: TopicPartition) -> bool:
        if self._leaders_add_partitions or key in self._added:
            return True
        if self._queues[key].waiting:
            self._to_add[key] = None
        return False

    def _take(self, queue: PartitionQueue) -> SentRecords:
        """Number the batch; only the coordinator raises the epoch here."""
        sent = queue.take_in_sequence(self.producer_id, self.producer_epoch)
        sent.batch = sent.batch._replace(is_transactional=True)
        self._added.add(sent.key)
        return sent

    def _transactional_id(self) -> str | None:
        return self.transactional_id

    def _settle(self, now: int, sent: SentRecords, outcome: ProducedPartition) -> None:
        """Take one verdict. Nothing is sent again for a transaction that ends, nor in a new epoch within one."""
        breaks = outcome.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER and not self._queues[sent.key].has_earlier(sent)
        if outcome.error is not Error.NONE and (self.phase in {Phase.ABORTING, Phase.FATAL} or breaks):
            self._decide(now, sent, outcome.error)
        else:
            super()._settle(now, sent, outcome)

    def _decide(self, now: int, sent: SentRecords, error: Error, base_offset: int = -1) -> None:
        super()._decide(now, sent, error, base_offset)
        if self.phase is Phase.ABORTING:
            return
        if error in _FATAL:
            self._die(error)
        elif error is not Error.NONE:
            self.has_failed = True
            if self.phase is Phase.COMMITTING:
                self.phase = Phase.IN_TRANSACTION

    def _die(self, error: Error) -> None:
        self.phase, self.fatal = Phase.FATAL, error

    # -------------------------------------------------------------- the coordinator

    def _talk(self, now: int) -> None:
        """Ask the coordinator the next thing, one at a time."""
        if self._is_asking_coordinator or now < self._not_before:
            return
        if self._is_ending() and not self._added:
            self._begin_anew()  # nothing was written: the coordinator need not know
        question = self._question()
        if question is None:
            return
        coordinator = self.coordinator_of(self._coordinator_key)
        if coordinator is not None:
            request, then = question
            self._is_asking_coordinator = True
            self.network.send(coordinator, request, then)

    def _question(self) -> tuple[Any, Callable[[int, Any], None]] | None:
        identity = (self.producer_id, self.producer_epoch)
        if self.phase is Phase.INITIALISING:
            timeout = self.constants.transaction_timeout_ms
            init = InitProducerIdRequest(self.network.header(), self.transactional_id, timeout, *identity)
            return init, self._initialised
        if self._to_add and self._is_ready(0):
            add = AddPartitionsToTxnRequest(
                self.network.header(), self.transactional_id, *identity, tuple(self._to_add)
            )
            return add, self._partitions_added
        if self._is_ending():
            committed = self.phase is Phase.COMMITTING
            return EndTxnRequest(self.network.header(), self.transactional_id, *identity, committed), self._ended
        return None

    def _is_ending(self) -> bool:
        """True if commit or abort was called, and every batch is decided."""
        is_decided = not any(queue.waiting or queue.in_flight for queue in self._queues.values())
        return self.phase in {Phase.COMMITTING, Phase.ABORTING} and is_decided

    def _verdict(self, now: int, error: Error | None) -> bool:
        """Take a coordinator's answer; return whether it was a yes. After a lost connection ask for the coordinator."""
        self._is_asking_coordinator = False
        if error is None or error in _LOST_COORDINATOR:
            self.forget_coordinator(self._coordinator_key)
        if error is None or error in _TRY_AGAIN:
            self._not_before = now + self.constants.retry_backoff_ms
            self.outbox.after(self.constants.retry_backoff_ms, WakeUp())
        elif error is not Error.NONE:
            self._die(error)
        return error is Error.NONE

    def _initialised(self, now: int, response: InitProducerIdResponse | None) -> None:
        if self._verdict(now, response.error if response else None) and response:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self._begin_anew()

    def _partitions_added(self, now: int, response: AddPartitionsToTxnResponse | None) -> None:
        if self._verdict(now, response.errors[0][1] if response else None) and response:
            for key, _ in response.errors:
                self._to_add.pop(key, None)
                self._added.add(key)

    def _ended(self, now: int, response: EndTxnResponse | None) -> None:
        """The decision is committed. After a failure an older producer also needs a new epoch for its sequences."""
        if not self._verdict(now, response.error if response else None) or response is None:
            return
        self.producer_epoch = response.producer_epoch
        if self.has_failed and not self._leaders_add_partitions:
            self.phase = Phase.INITIALISING
        else:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self.phase = Phase.READY
        self.has_failed = False
        self._to_add.clear()
        self._added.clear()
