"""Producer ids: a broker draws blocks of 1,000 from the controller and hands them out (``RPCProducerIdManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.model.errors import Error
from streaming.model.messages.produce import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.controller_channel import ControllerChannel
    from streaming.model.network_client import NetworkClient


class ProducerIds:
    """The rest of the broker's block, and who waits for the next one."""

    def __init__(self, network: NetworkClient, channel: ControllerChannel) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            AllocateProducerIdsResponse: network.answered,
        }
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
