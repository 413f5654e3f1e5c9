"""Network parts that every node shares: its address, and what it wants done.

A broker's address is its id, a controller's is its id with a minus: no broker has it, and the metadata log names 100
and not -100. Messages and timers are named tuples, and a node looks up what to do with one by its type.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from streaming.contracts.identifiers import BrokerId
from streaming.model.messages.clients import Header, RequestTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import TopicPartition

CONTROLLER: Final = BrokerId(-100)


def controllers(count: int) -> tuple[BrokerId, ...]:
    """Give the addresses of the first controllers: -100, -101, …; where there is one, it is ``CONTROLLER``."""
    return tuple(BrokerId(CONTROLLER - number) for number in range(count))


Message = tuple[Any, ...]
Timer = tuple[Any, ...]


class Disconnected(NamedTuple):
    """The connection to a node broke: its process ended."""

    peer: BrokerId


class Outbox:
    """Messages to send and timers to set by a node. The loop empties it after every input."""

    __slots__ = ("messages", "timers")

    def __init__(self) -> None:
        self.messages: list[tuple[BrokerId, Message]] = []
        self.timers: list[tuple[int, Timer]] = []

    def send(self, receiver: BrokerId, message: Message) -> None:
        """Hand a message to the network."""
        self.messages.append((receiver, message))

    def after(self, delay_ms: int, timer: Timer) -> None:
        """Ask to be woken with ``timer``."""
        self.timers.append((delay_ms, timer))


# Messages on their way: addresses, events, and the interface of the network. Knows no rule of replication.


Link = tuple[BrokerId, BrokerId]
NEVER: Final = 1 << 62


class Network(Protocol):
    """Says when messages arrive. A link keeps its order, as a TCP connection does."""

    def arrival(self, now: int, sender: BrokerId, receiver: BrokerId, records: int) -> int | None:
        """Give the time at which a message of ``records`` records arrives; None while the link is held."""


class Process(Protocol):
    """A node of the cluster: a broker, a controller or a client. The loop empties ``outbox`` after every input."""

    outbox: Outbox

    @property
    def has_ended(self) -> bool:
        """True if it may go: it has stopped as agreed."""

    def receive(self, now: int, payload: Message | Timer) -> None:
        """Take one message or timer."""


class Address(NamedTuple):
    """A process, not a broker: what is meant for a process that ended is lost."""

    node: BrokerId
    process: int


class Event(NamedTuple):
    """Something that happens to a process at a time; ``number`` decides among equals."""

    at: int
    number: int
    receiver: Address
    payload: Message | Timer
    sender: Address


class EventQueue:
    """Pending deliveries by time, then insertion; plus those held indefinitely."""

    __slots__ = ("_events", "_held", "_number")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._held: dict[Link, list[Event]] = {}
        self._number = 0

    @property
    def next_at(self) -> int:
        """Due time of the next event."""
        return self._events[0].at if self._events else NEVER

    def push(self, at: int, receiver: Address, payload: Message | Timer, sender: Address) -> None:
        """Set an event."""
        self._number += 1
        heapq.heappush(self._events, Event(at, self._number, receiver, payload, sender))

    def pop(self) -> Event:
        """Take the next event. Enabled while there is one."""
        return heapq.heappop(self._events)

    def hold(self, receiver: Address, payload: Message, sender: Address) -> None:
        """Keep a message until its link is withdrawn."""
        self._held.setdefault((sender.node, receiver.node), []).append(Event(0, 0, receiver, payload, sender))

    def withdraw(self, link: Link) -> list[Event]:
        """Take out everything that creeps or is held on a link, in order. Costs as much as there are events."""
        withdrawn = sorted(event for event in self._events if (event.sender.node, event.receiver.node) == link)
        if withdrawn:
            self._events = [event for event in self._events if (event.sender.node, event.receiver.node) != link]
            heapq.heapify(self._events)
        return withdrawn + self._held.pop(link, [])


class Pause:
    """A frozen process: since when, and what waits for it."""

    __slots__ = ("appends", "events", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.events: list[Event] = []
        self.appends: dict[TopicPartition, int] = {}


# A node's own requests: which are open, which failed (``NetworkClient``). Knows nothing of what they are about.
#
# A request has three ends: its answer, a broken connection, or ``request.timeout.ms`` without an answer, which breaks
# the connection. The sender learns it once; later messages are ignored.


class _Open(NamedTuple):
    receiver: BrokerId
    then: Callable[[int, Any], None]


class NetworkClient:
    """Requests in flight."""

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
        """An answer arrives; void if no request waits for it any more."""
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
