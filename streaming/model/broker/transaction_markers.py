"""A leader writes what a transaction's coordinator decided (``WriteTxnMarkers``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.model.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from streaming.model.storage.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.produce import Produce
    from streaming.model.constants import Constants
    from streaming.model.messages.outbox import Outbox
    from streaming.model.messages.produce import ProducedPartition


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
