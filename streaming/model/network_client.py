"""A node's own requests: which are open, which failed (``NetworkClient``). Knows nothing of what they are about.

A request has three ends: its answer, a broken connection, or ``request.timeout.ms`` without an answer, which breaks the
connection. Whoever asked is told once; whatever arrives later is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.model.messages.client_metadata import Header, RequestTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.messages.outbox import Disconnected, Outbox


class _Open(NamedTuple):
    receiver: BrokerId
    then: Callable[[int, Any], None]


class NetworkClient:
    """Requests in flight.

    Args:
        node: who asks.
        timeout_ms: how long an answer may take.
        outbox: where requests and timers go.
    """

    def __init__(self, node: BrokerId, timeout_ms: int, outbox: Outbox) -> None:
        self._node = node
        self._timeout_ms = timeout_ms
        self.outbox = outbox
        self._open: dict[int, _Open] = {}
        self._last_id = 0

    def header(self) -> Header:
        """Number the next request."""
        self._last_id += 1
        return Header(self._node, self._last_id)

    def send(
        self,
        receiver: BrokerId,
        request: Any,  # noqa: ANN401 - any request
        then: Callable[[int, Any], None],
        timeout_ms: int = 0,
    ) -> None:
        """Send a request that begins with a :meth:`header`; ``then(now, answer)`` gets None for a lost connection.

        ``timeout_ms``: for one that may take longer than others.
        """
        self._open[request.header.correlation_id] = _Open(receiver, then)
        self.outbox.send(receiver, request)
        self.outbox.after(timeout_ms or self._timeout_ms, RequestTimeout(request.header.correlation_id))

    def in_flight(self, receiver: BrokerId) -> int:
        """Count the requests that this node has not answered yet."""
        return sum(request.receiver == receiver for request in self._open.values())

    def answered(self, now: int, response: Any) -> None:  # noqa: ANN401 - any answer, as long as it names its request
        """An answer arrives; void if nobody waits for it any more."""
        request = self._open.pop(response.correlation_id, None)
        if request is not None:
            request.then(now, response)

    def timed_out(self, now: int, timer: RequestTimeout) -> None:
        """A request has waited long enough: its connection is given up, with all that is open on it."""
        request = self._open.get(timer.correlation_id)
        if request is not None:
            self._lose(now, request.receiver)

    def disconnected(self, now: int, message: Disconnected) -> None:
        """A connection broke: whatever was open on it has failed."""
        self._lose(now, message.peer)

    def _lose(self, now: int, peer: BrokerId) -> None:
        lost = [number for number, request in self._open.items() if request.receiver == peer]
        for request in [self._open.pop(number) for number in lost]:
            request.then(now, None)
