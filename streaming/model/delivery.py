"""What is on its way: addresses, events, and the interface of the network. Knows no rule of replication."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming.contracts.identifiers import BrokerId
from streaming.model.messages.outbox import Message, Outbox, Timer

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition

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
        """Whether it may go: it has stopped as agreed."""

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
    """What is to come, earliest first, among equals the one set first; and what is held for nobody knows how long."""

    __slots__ = ("_events", "_held", "_number")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._held: dict[Link, list[Event]] = {}
        self._number = 0

    @property
    def next_at(self) -> int:
        """When the next event is due."""
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
