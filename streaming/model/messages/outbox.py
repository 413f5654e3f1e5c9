"""What every node shares: its address, and what it wants done.

A broker's address is its id, a controller's is its id with a minus: no broker has it, and the metadata log names 100
and not -100. Messages and timers are named tuples, and a node looks up what to do with one by its type.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId

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
    """What a node wants done: messages to send and timers to set. The loop empties it after every input."""

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
