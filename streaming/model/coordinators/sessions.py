"""A transactional producer begins a session: the coordinator fences whoever had its id before.

Knows what the coordinator's log holds. The states and steps stand in ``transaction_state``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.model.coordinators.transaction_state import (
    COMPLETION,
    State,
    TransactionMetadata,
    with_new_id,
    with_next_epoch,
)
from streaming.model.errors import Error
from streaming.model.messages.produce import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.producer_ids import ProducerIds
    from streaming.model.constants import Constants
    from streaming.model.coordinators.transaction_log import TransactionLog
    from streaming.model.messages.outbox import Outbox


class Sessions:
    """Answers to ``InitProducerId``.

    Args:
        abort: fences and aborts the open transaction of an id.
    """

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
        """Producer begins a session; whoever used the same transactional id before is fenced."""
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
