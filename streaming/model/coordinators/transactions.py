"""The coordinator of transactions: the leader of the partition of ``__transaction_state`` that an id hashes to.

What it decides is decided once its record is committed there (``acks=all``); what it knows, it has from that partition,
so another broker continues where it stopped. States and steps stand in ``transaction_state``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming.model.constants import Error
from streaming.model.coordinators.transaction_log import (
    COMPLETION,
    MARKER,
    State,
    TransactionLog,
    TransactionMetadata,
    completed,
    fenced,
    prepared,
    with_new_id,
    with_next_epoch,
    with_partitions,
)
from streaming.model.messages.clients import InitProducerIdRequest, InitProducerIdResponse
from streaming.model.messages.coordinators import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    MarkersDue,
    TransactionTimeoutsDue,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.consumer_reads import MetadataCache
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.produce import Produce, ProducerIds
    from streaming.model.constants import Constants
    from streaming.model.messages.network import NetworkClient, Outbox
    from streaming.model.messages.registrations import TopicRegistration

if TYPE_CHECKING:
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


# A decision is carried to the leader of every partition, until each has its marker (``TransactionMarkerChannel``).


# Another coordinator, or a newer session, has overtaken this decision.
_OVERTAKEN: Final = frozenset({Error.INVALID_PRODUCER_EPOCH, Error.TRANSACTION_COORDINATOR_FENCED})
# A deleted topic needs no marker.
_SETTLED: Final = frozenset({Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION})


class _Decision:
    """Partitions that have no marker yet; True while one is on its way."""

    def __init__(self, metadata: TransactionMetadata, coordinator_epoch: int) -> None:
        self.metadata = metadata
        self.coordinator_epoch = coordinator_epoch
        self.missing = dict.fromkeys(metadata.partitions, False)


class MarkerSender:
    """Decisions whose markers are not all written.

    Args:
        written: told once every partition has its marker, and again after each :meth:`try_again`.
    """

    def __init__(
        self,
        metadata_cache: MetadataCache,
        network: NetworkClient,
        retry_backoff_ms: int,
        written: Callable[[int, str], None],
    ) -> None:
        self._metadata_cache = metadata_cache
        self._network = network
        self._retry_backoff_ms = retry_backoff_ms
        self._written = written
        self._decisions: dict[str, _Decision] = {}

    def send(self, now: int, transactional_id: str, metadata: TransactionMetadata, coordinator_epoch: int) -> None:
        """Coordinator has decided; its record is committed."""
        self._decisions[transactional_id] = _Decision(metadata, coordinator_epoch)
        self._send(now, transactional_id)

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """They are complete, or another broker coordinates them."""
        for transactional_id in transactional_ids:
            self._decisions.pop(transactional_id, None)

    def try_again(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """Continue after a wait."""
        self._network.outbox.after(self._retry_backoff_ms, MarkersDue(transactional_id, metadata.producer_epoch))

    def retry(self, now: int, timer: MarkersDue) -> None:
        """The wait is over."""
        decision = self._decisions.get(timer.transactional_id)
        if decision is not None and decision.metadata.producer_epoch == timer.producer_epoch:
            self._send(now, timer.transactional_id)

    def _send(self, now: int, transactional_id: str) -> None:
        decision = self._decisions[transactional_id]
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for key in [key for key, is_sent in decision.missing.items() if not is_sent]:
            leader_of_key = self._metadata_cache.leader_of(key)
            if leader_of_key.error is Error.NONE:
                by_leader.setdefault(leader_of_key.leader, []).append(key)
                decision.missing[key] = True
            elif leader_of_key.error in _SETTLED:
                del decision.missing[key]
        for leader, keys in by_leader.items():
            self._request(transactional_id, decision, leader, tuple(keys))
        if not decision.missing:
            self._written(now, transactional_id)
        elif not all(decision.missing.values()):
            self.try_again(transactional_id, decision.metadata)

    def _request(
        self, transactional_id: str, decision: _Decision, leader: BrokerId, keys: tuple[TopicPartition, ...]
    ) -> None:
        metadata = decision.metadata
        request = WriteTxnMarkersRequest(
            self._network.header(),
            metadata.producer_id,
            metadata.producer_epoch,
            MARKER[metadata.state],
            decision.coordinator_epoch,
            keys,
        )
        self._network.send(
            leader, request, lambda now, answer: self._answered(now, transactional_id, decision, keys, answer)
        )

    def _answered(
        self,
        now: int,
        transactional_id: str,
        decision: _Decision,
        keys: tuple[TopicPartition, ...],
        response: WriteTxnMarkersResponse | None,
    ) -> None:
        if self._decisions.get(transactional_id) is not decision:
            return
        errors = dict(response.errors) if response else dict.fromkeys(keys, Error.NOT_LEADER_OR_FOLLOWER)
        if _OVERTAKEN & set(errors.values()):
            del self._decisions[transactional_id]
            return
        for key, error in errors.items():
            if error in _SETTLED:
                del decision.missing[key]
            else:
                decision.missing[key] = False
        if not decision.missing:
            self._written(now, transactional_id)
        elif not all(decision.missing.values()):
            self.try_again(transactional_id, decision.metadata)


# A transactional producer begins a session: the coordinator fences the earlier user of its id.
#
# Knows what the coordinator's log holds. The states and steps stand in ``transaction_state``.


class Sessions:
    """Answers to ``InitProducerId``."""

    def __init__(
        self,
        log: TransactionLog,
        producer_ids: ProducerIds,
        abort: Callable[[int, str], None],
        constants: Constants,
        outbox: Outbox,
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {InitProducerIdRequest: self.init_producer_id}
        self._log = log
        self._producer_ids = producer_ids
        self._abort = abort
        self._longest_timeout_ms = constants.transaction_max_timeout_ms
        self._outbox = outbox

    def init_producer_id(self, now: int, request: InitProducerIdRequest) -> None:
        """Producer begins a session; the earlier user of its transactional id is fenced."""
        transactional_id = request.transactional_id
        if transactional_id is None:
            self._producer_ids.init(now, request)
            return
        error, metadata = self._refusal(transactional_id, request), self._log.find(transactional_id)
        if error is not Error.NONE:
            self._answer(request, error)
        elif metadata is not None and metadata.state is State.ONGOING:
            self._abort(now, transactional_id)
            self._answer(request, Error.CONCURRENT_TRANSACTIONS)
        elif metadata is not None and metadata.has_epochs_left:
            self._begin(now, transactional_id, request, with_next_epoch(metadata, request.transaction_timeout_ms))
        else:
            self._producer_ids.next_id(now, lambda at, new: self._begin_with_id(at, transactional_id, request, new))

    def _refusal(self, transactional_id: str, request: InitProducerIdRequest) -> Error:
        if self._log.coordinator_epoch(transactional_id) is None:
            return Error.NOT_COORDINATOR
        if request.transaction_timeout_ms > self._longest_timeout_ms:
            return Error.INVALID_TRANSACTION_TIMEOUT
        if self._log.is_pending(transactional_id):
            return Error.CONCURRENT_TRANSACTIONS
        metadata = self._log.find(transactional_id)
        if metadata is None:
            return Error.NONE
        claimed = (request.producer_id, request.producer_epoch)
        if request.producer_id >= 0 and claimed != (metadata.producer_id, metadata.producer_epoch):
            return Error.PRODUCER_FENCED
        return Error.CONCURRENT_TRANSACTIONS if metadata.state in COMPLETION else Error.NONE

    def _begin_with_id(
        self, now: int, transactional_id: str, request: InitProducerIdRequest, producer_id: int | None
    ) -> None:
        """A first session, or one after the last epoch; much may have happened while the id was on its way."""
        error, metadata = self._refusal(transactional_id, request), self._log.find(transactional_id)
        if error is Error.NONE and (producer_id is None or (metadata is not None and metadata.has_epochs_left)):
            error = Error.CONCURRENT_TRANSACTIONS
        if error is not Error.NONE or producer_id is None:
            self._answer(request, error)
        else:
            timeout = request.transaction_timeout_ms
            self._begin(now, transactional_id, request, with_new_id(metadata, producer_id, timeout))

    def _begin(
        self, now: int, transactional_id: str, request: InitProducerIdRequest, session: TransactionMetadata
    ) -> None:
        self._log.write(now, transactional_id, session, lambda _now, error: self._answer(request, error, session))

    def _answer(self, request: InitProducerIdRequest, error: Error, session: TransactionMetadata | None = None) -> None:
        identity = (session.producer_id, session.producer_epoch) if session else (-1, -1)
        self._outbox.send(
            request.header.sender, InitProducerIdResponse(request.header.correlation_id, error, *identity)
        )
