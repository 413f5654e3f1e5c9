"""Brokers draw blocks of producer ids (``ProducerIdControlManager``). Knows the next free id and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.model.messages.produce import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from streaming.model.controller.registry import Registry
    from streaming.model.messages.outbox import Outbox

BLOCK: Final = 1_000


class ProducerIdBlocks:
    """Every id is given once. Departs from Kafka: no ProducerIds record tells of it."""

    def __init__(self, registry: Registry, outbox: Outbox) -> None:
        self._registry = registry
        self._outbox = outbox

    def allocate(self, request: AllocateProducerIdsRequest) -> None:
        """Broker draws its next block."""
        first = self._registry.next_producer_id
        self._registry.next_producer_id += BLOCK
        answer = AllocateProducerIdsResponse(request.header.correlation_id, first, BLOCK)
        self._outbox.send(request.header.sender, answer)
