"""Requests that reach a process before it is registered wait in its sockets (``SocketServer.enableRequestProcessing``).

What a process without its disk would answer as leader of an old epoch would cost its followers their records, too; its
registration takes such a process out of whatever it led.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.model.messages.outbox import Message


class Sockets:
    """The types of requests that a broker serves, and those that wait.

    Attributes:
        are_open: requests are processed.
    """

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
