"""The active controller as a broker sees it (``NodeToControllerChannelManager``).

A broker believes in one controller at a time. It turns to the next one when the connection breaks or when it is told
NOT_CONTROLLER, and to a node that speaks in a newer epoch. What was asked of the former one is lost: it may have been
done or not, and the sender asks again.

Departs from Kafka: brokers do not fetch the metadata log to find its leader; the active controller sends it to them.
And a connection to a controller of an older epoch is closed at once, where Kafka's broker keeps waiting for an answer
for its request timeout (half a session for heartbeats, 30 s for AlterPartition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.messages.membership import FromController, MetadataDelta, NotController
from streaming.model.messages.network import Message, Outbox, controllers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.constants import Constants


class ControllerChannel:
    """The connection to one controller.

    Attributes:
        outbox: the broker's.
        controller: the node that the broker asks.
        epoch: the newest raft epoch it heard of from an active controller.
        is_open: ``controller`` has spoken as the active one.
        is_listening: the process is up; while it starts, it listens to no controller.

    Args:
        constants: how many controllers there are.
        outbox: where requests go.
        told: takes in what the active controller says.
        lost: told who will not answer any more.
    """

    def __init__(
        self,
        constants: Constants,
        outbox: Outbox,
        *,
        received: Callable[[int, Message], None],
        lost: Callable[[int, BrokerId], None],
    ) -> None:
        self.outbox = outbox
        self.epoch = 0
        self.is_open = False
        self.is_listening = False
        self._voters = controllers(constants.controllers)
        self.controller = self._voters[0]
        self._received = received
        self._lost = lost
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            FromController: self._receive,
            NotController: self._refused,
        }

    def send(self, request: Message) -> None:
        """Ask the controller."""
        self.outbox.send(self.controller, request)

    def _receive(self, now: int, envelope: FromController) -> None:
        """Listen to a newer epoch from its snapshot on, and to the controller that is connected; to no other.

        A controller that has not noticed yet that the process is a new one sends it what follows a snapshot which went
        to the one before.
        """
        message = envelope.message
        is_newer = envelope.epoch > self.epoch and not (isinstance(message, MetadataDelta) and not message.snapshot)
        is_connected = self.is_open and (envelope.controller, envelope.epoch) == (self.controller, self.epoch)
        if not self.is_listening or not (is_newer or is_connected):
            return
        former, self.controller = self.controller, envelope.controller
        self.epoch, self.is_open = envelope.epoch, True
        if former != self.controller:
            self._lost(now, former)
        self._received(now, message)

    def disconnected(self, now: int, peer: BrokerId) -> None:
        """A connection broke; if it is the controller's, try the next one."""
        if peer == self.controller:
            following = self._voters.index(peer) + 1
            self.controller, self.is_open = self._voters[following % len(self._voters)], False
            self._lost(now, peer)

    def _refused(self, now: int, answer: NotController) -> None:
        """Try the leader that an inactive controller names, unless that one is known to be gone."""
        if answer.controller == self.controller:
            self.disconnected(now, answer.controller)
            if answer.leader is not None and answer.epoch > self.epoch:
                self.controller = answer.leader


# Requests that reach a process before it is registered wait in its sockets (``SocketServer.enableRequestProcessing``).
#
# What a process without its disk would answer as leader of an old epoch would cost its followers their records, too;
# its registration takes such a process out of whatever it led.


class Sockets:
    """The types of requests that a broker serves, and those that wait."""

    def __init__(self, served: Iterable[type]) -> None:
        self.are_open = False
        self._served = frozenset(served)
        self._waiting: list[Message] = []

    def hold(self, payload: Message) -> bool:
        """Keep a request that comes too early, and tell whether it was one."""
        if self.are_open or type(payload) not in self._served:
            return False
        self._waiting.append(payload)
        return True

    def open(self) -> list[Message]:
        """Process requests from now on; gives those that waited."""
        self.are_open = True
        waiting, self._waiting = self._waiting, []
        return waiting
