"""A broker's session with ZooKeeper (``KafkaZkClient``): connect, stay alive, ask, start again after an expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.model.messages.timers import PingDue
from streaming.model.messages.zookeeper import ENSEMBLE, Answer, CloseSession, Connect, Operation, Ping, Request, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.messages.network import Outbox

if TYPE_CHECKING:
    Then = Callable[[int, tuple[Result, ...]], None]

# A ZooKeeper client pings when a third of its timeout has passed.
_PINGS_PER_TIMEOUT: Final = 3


class Session:
    """One session after another.

    Attributes:
        number: the current session's; None while there is none.
    """

    def __init__(self, broker: BrokerId, timeout_ms: int, outbox: Outbox) -> None:
        self.number: int | None = None
        self._broker = broker
        self._ping_ms = timeout_ms // _PINGS_PER_TIMEOUT
        self._outbox = outbox
        self._last_request = 0
        self._waiting: dict[int, Then] = {}

    def connect(self) -> None:
        """Ask for a session; whatever was asked in an earlier one stays unanswered."""
        self.number = None
        self._waiting.clear()
        self._outbox.send(ENSEMBLE, Connect(self._broker))

    def connected(self, number: int) -> None:
        """The session begins."""
        self.number = number
        self._outbox.after(self._ping_ms, PingDue(number))

    def ping(self, timer: PingDue) -> None:
        """Tell that the process is alive. The timer of an ended session ends with it."""
        if timer.session == self.number:
            self._outbox.send(ENSEMBLE, Ping(timer.session))
            self._outbox.after(self._ping_ms, timer)

    def close(self) -> None:
        """End the session now."""
        if self.number is not None:
            self._outbox.send(ENSEMBLE, CloseSession(self.number))
            self.number = None

    def ask(self, operations: tuple[Operation, ...], then: Then, epoch_version: int | None = None) -> None:
        """Send operations; ``then`` gets the time and the results. Enabled within a session."""
        assert self.number is not None, "no session"  # noqa: S101 - the caller began one
        self._last_request += 1
        self._waiting[self._last_request] = then
        self._outbox.send(ENSEMBLE, Request(self.number, self._last_request, operations, epoch_version))

    def answered(self, now: int, answer: Answer) -> None:
        """Results arrive."""
        if answer.session == self.number:
            self._waiting.pop(answer.number)(now, answer.results)
