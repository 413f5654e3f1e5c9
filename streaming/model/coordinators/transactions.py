"""The coordinator of transactions: whoever leads the partition of ``__transaction_state`` that an id hashes to.

What it decides is decided once its record is committed there (``acks=all``); what it knows, it has from that partition,
so another broker goes on where it stopped. States and steps stand in ``transaction_state``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming.model.coordinators.marker_sender import MarkerSender
from streaming.model.coordinators.sessions import Sessions
from streaming.model.coordinators.transaction_log import TransactionLog
from streaming.model.coordinators.transaction_state import (
    COMPLETION,
    State,
    TransactionMetadata,
    completed,
    fenced,
    prepared,
    with_partitions,
)
from streaming.model.errors import Error
from streaming.model.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    MarkersDue,
    TransactionTimeoutsDue,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.metadata_cache import MetadataCache
    from streaming.model.broker.produce import Produce
    from streaming.model.broker.producer_ids import ProducerIds
    from streaming.model.constants import Constants
    from streaming.model.network_client import NetworkClient
    from streaming.model.registrations import TopicRegistration

    Then = Callable[[int, Error], None]

_PREPARE: Final = {True: State.PREPARE_COMMIT, False: State.PREPARE_ABORT}
# A decision that was taken before, and asked for again.
_ALREADY: Final = {
    (State.PREPARE_COMMIT, True): Error.CONCURRENT_TRANSACTIONS,
    (State.PREPARE_ABORT, False): Error.CONCURRENT_TRANSACTIONS,
    (State.COMPLETE_COMMIT, True): Error.NONE,
    (State.COMPLETE_ABORT, False): Error.NONE,
}


class TransactionCoordinator:
    """Partitions and decisions of the transactional ids that this broker coordinates; their sessions have a file."""

    def __init__(
        self,
        produce: Produce,
        producer_ids: ProducerIds,
        metadata_cache: MetadataCache,
        constants: Constants,
        network: NetworkClient,
    ) -> None:
        self._log = TransactionLog(produce, constants.request_timeout_ms)
        self._markers = MarkerSender(metadata_cache, network, constants.retry_backoff_ms, self._complete)
        self._constants = constants
        self._raises_epochs = constants.leaders_add_partitions
        self._outbox = network.outbox
        self._looks_for_timeouts = False
        sessions = Sessions(self._log, producer_ids, self._fence_and_abort, constants, self._outbox)
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            **sessions.handlers,
            AddPartitionsToTxnRequest: self.add_partitions,
            EndTxnRequest: self.end_transaction,
            WriteTxnMarkersResponse: network.answered,
            TransactionTimeoutsDue: self._abort_timed_out,
            MarkersDue: self._markers.retry,
        }

    # -------------------------------------------------------------- leader epochs

    def elected(self, now: int, partition: LeaderPartition, topic: TopicRegistration) -> None:
        """This broker leads a partition of ``__transaction_state``: read it, and finish what was decided."""
        number, epoch = partition.key.partition, partition.committed.leader_epoch
        if self._log.is_loaded(number, epoch):
            return
        for transactional_id, metadata in self._log.load(partition, topic.partitions).items():
            if metadata.state in COMPLETION:
                self._markers.send(now, transactional_id, metadata, epoch)
        if not self._looks_for_timeouts:
            self._looks_for_timeouts = True
            self._outbox.after(self._constants.transaction_abort_check_interval_ms, TransactionTimeoutsDue())

    def resigned(self, key: TopicPartition) -> None:
        """Another broker coordinates what this one did."""
        self._markers.forget(self._log.unload(key))

    def transactions(self) -> list[tuple[str, TransactionMetadata]]:
        """Give what this broker coordinates, by transactional id."""
        return list(self._log.all())

    # -------------------------------------------------------------- partitions

    def add_partitions(self, now: int, request: AddPartitionsToTxnRequest) -> None:
        """Producer or leader: these partitions belong to the open transaction, or open it."""

        def answer(_now: int, *errors: Error) -> None:
            each = errors * len(request.partitions) if len(errors) == 1 else errors
            verdicts = tuple(zip(request.partitions, each, strict=True))
            self._outbox.send(
                request.header.sender, AddPartitionsToTxnResponse(request.header.correlation_id, verdicts)
            )

        metadata = self._owned(request.transactional_id, request.producer_id, request.producer_epoch)
        if isinstance(metadata, Error):
            answer(now, metadata)
        elif metadata.state in COMPLETION:
            answer(now, Error.CONCURRENT_TRANSACTIONS)
        else:
            added = metadata.partitions if metadata.state is State.ONGOING else ()
            missing = set(request.partitions) - set(added)
            if request.verify_only:
                answer(now, *(Error.INVALID_TXN_STATE if key in missing else Error.NONE for key in request.partitions))
            elif missing:
                self._log.write(
                    now, request.transactional_id, with_partitions(metadata, request.partitions, now), answer
                )
            else:
                answer(now, Error.NONE)

    def _owned(self, transactional_id: str, producer_id: int, producer_epoch: int) -> TransactionMetadata | Error:
        """Give the transaction of a producer, unless another session has taken it over."""
        if self._log.coordinator_epoch(transactional_id) is None:
            return Error.NOT_COORDINATOR
        metadata = self._log.find(transactional_id)
        if metadata is None or metadata.producer_id != producer_id:
            return Error.INVALID_PRODUCER_ID_MAPPING
        if metadata.producer_epoch != producer_epoch:
            return Error.PRODUCER_FENCED
        return Error.CONCURRENT_TRANSACTIONS if self._log.is_pending(transactional_id) else metadata

    # -------------------------------------------------------------- decisions

    def end_transaction(self, now: int, request: EndTxnRequest) -> None:
        """Producer commits or aborts; answered once the decision is committed, before any marker is written."""

        def answer(_now: int, error: Error) -> None:
            metadata = self._log.find(request.transactional_id)
            identity = (metadata.producer_id, metadata.producer_epoch) if metadata else (-1, -1)
            self._outbox.send(request.header.sender, EndTxnResponse(request.header.correlation_id, error, *identity))

        verdict = self._verdict(request)
        if isinstance(verdict, Error):
            answer(now, verdict)
            return
        after = prepared(verdict, _PREPARE[request.committed], raises_epoch=self._raises_epochs)

        def decided(at: int, error: Error) -> None:
            answer(at, error)
            self._carry_out(at, request.transactional_id, after, error)

        self._log.write(now, request.transactional_id, after, decided)

    def _verdict(self, request: EndTxnRequest) -> TransactionMetadata | Error:
        """Give what is to be decided; or an error, which is NONE if it was decided like this before."""
        verdict = self._owned(request.transactional_id, request.producer_id, request.producer_epoch)
        if verdict is Error.PRODUCER_FENCED and self._raises_epochs:
            metadata = self._log.find(request.transactional_id)
            if metadata is not None and metadata.previous_epoch == request.producer_epoch:  # its answer was lost
                return _ALREADY.get((metadata.state, request.committed), Error.INVALID_TXN_STATE)
        if isinstance(verdict, Error) or verdict.state is State.ONGOING:
            return verdict
        if not self._raises_epochs:
            return _ALREADY.get((verdict.state, request.committed), Error.INVALID_TXN_STATE)
        if verdict.state in COMPLETION:
            return Error.CONCURRENT_TRANSACTIONS
        return Error.INVALID_TXN_STATE if request.committed else verdict

    def _carry_out(self, now: int, transactional_id: str, decision: TransactionMetadata, error: Error) -> None:
        epoch = self._log.coordinator_epoch(transactional_id)
        if error is Error.NONE and epoch is not None:
            self._markers.send(now, transactional_id, decision, epoch)

    def _complete(self, now: int, transactional_id: str) -> None:
        """Every partition has its marker: the next transaction may begin."""
        decision = self._log.find(transactional_id)
        if decision is None:
            return

        def written(_now: int, error: Error) -> None:
            if error is Error.COORDINATOR_NOT_AVAILABLE:
                self._markers.try_again(transactional_id, decision)
            else:
                self._markers.forget([transactional_id])

        self._log.write(now, transactional_id, completed(decision), written)

    def _fence_and_abort(self, now: int, transactional_id: str) -> None:
        """A newer session, or too long a time: raise the epoch and abort.

        A record that is not committed leaves the epoch as it was; the next attempt raises it to the same.
        """
        before = self._log.find(transactional_id)
        assert before is not None, transactional_id  # noqa: S101 - only what is open is aborted
        self._log.replace(transactional_id, fenced(before))
        after = prepared(fenced(before), State.PREPARE_ABORT, raises_epoch=self._raises_epochs)

        def decided(at: int, error: Error) -> None:
            if error is Error.COORDINATOR_NOT_AVAILABLE:
                self._log.replace(transactional_id, before)
            self._carry_out(at, transactional_id, after, error)

        self._log.write(now, transactional_id, after, decided)

    def _abort_timed_out(self, now: int, timer: TransactionTimeoutsDue) -> None:
        """Coordinator, each 10 s: abort what was open longer than its producer asked for."""
        self._looks_for_timeouts = not self._log.is_empty
        if self._looks_for_timeouts:
            self._outbox.after(self._constants.transaction_abort_check_interval_ms, timer)
        for transactional_id, metadata in list(self._log.all()):
            if metadata.is_timed_out(now) and not self._log.is_pending(transactional_id):
                self._fence_and_abort(now, transactional_id)
