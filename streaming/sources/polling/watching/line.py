"""The connection to one broker, which is kept: what is asked on it, how that ends, and how the listener behaves.

One thread uses it, and nothing in it waits. What waits (to connect, to log in, to ask who answers) is done by a thread
of its own for so long; meanwhile the connection is lent to that thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming.contracts.identifiers import Micros
from streaming.errors import ConnectionRefused
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met
from streaming.sources.protocol.connection import TURNED_AWAY_SECONDS
from streaming.sources.protocol.sockets import Failure, NoAnswer
from streaming.sources.protocol.unwaited import Exchange, is_closed
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId
    from streaming.sources.polling.watching.asking import Reply, Requests, Steps
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.connection import Connection

FOREVER: Final = 1 << 62
SECOND: Final = 1_000_000
SILENT_EVERY: Final = SECOND
"""A question without an answer is reported so often."""
SECOND_CONNECTION_AFTER: Final = 2 * SECOND
"""So long an open connection is silent before another one is tried."""
_ANOTHER_AFTER: Final = 10 * SECOND  # and then again: the broker may have been started again elsewhere
_AGAIN_AFTER: Final = 100_000  # a connection that could not be opened is not tried at once, whatever is asked
_WRONG_AGAIN_AFTER: Final = round(TURNED_AWAY_SECONDS * SECOND)
_PROVEN_AGAIN_AFTER: Final = 10 * SECOND
_METS: Final = {
    Failure.REFUSED: Meeting.REFUSED,
    Failure.UNREACHED: Meeting.UNREACHABLE,
    Failure.CLOSED: Meeting.CLOSED,
    Failure.SILENT: Meeting.SILENT,
}


class Established(NamedTuple):
    """Connection that is open and logged in, and whether the node has proven that it is the broker that is meant."""

    connection: Connection
    is_proven: bool


@dataclass(eq=False, slots=True)
class Attempt:
    """Work of another thread on a connection.

    Attributes:
        number: of the connection.
        began: when the work began.
        accepted: when a node accepted the connection; set by the other thread.
        is_given_up: its result is not used.
        silences: how often it was reported as silent.
    """

    number: int
    began: Micros
    accepted: Micros | None = None
    is_given_up: bool = False
    silences: int = 0

    def accept(self) -> None:
        """Note that the connection was accepted."""
        self.accepted = monotonic()


class Ready(Protocol):
    """Takes a socket that can be used."""

    def ready(self, now: Micros) -> None:
        """Read and write what the socket allows."""


class Surroundings(Protocol):
    """Whatever a connection needs of others."""

    def open(self, line: Line, attempt: Attempt) -> None:
        """Connect in another thread, which ends with :meth:`Line.opened` or :meth:`Line.failed`."""

    def refresh(self, line: Line, attempt: Attempt, connection: Connection) -> None:
        """Renew the session, and the proof, in another thread, which ends in the same way."""

    def register(self, user: Ready, connection: Connection, *, writes: bool) -> None:
        """Call :meth:`Ready.ready` when the socket can be used."""

    def unregister(self, connection: Connection) -> None:
        """Do so no more."""

    def report(self, met: Met) -> None:
        """Take how a question ended, or that it has not."""


@dataclass(eq=False, slots=True)
class Asked:
    """A question that was sent, the requests that it still takes, and the one that is on the way."""

    question: BrokerQuestion
    steps: Steps
    exchange: Exchange
    asked: Micros
    silences: int = 0


@dataclass(eq=False, slots=True)
class Aside:
    """A question that the broker has passed on to a controller that is silent, and its connection.

    A broker answers nothing else on a connection before, so all else is asked on another one.
    """

    line: Line
    asked: Asked
    connection: Connection
    number: int
    is_proven: bool

    @property
    def next_at(self) -> int:
        """Time at which silence is to be reported."""
        return self.asked.exchange.asked + (self.asked.silences + 1) * SILENT_EVERY

    def report_silence(self, now: Micros) -> None:
        """Report that the question is still open."""
        if now >= self.next_at:
            self.asked.silences = (now - self.asked.exchange.asked) // SILENT_EVERY
            self.line.around.report(Met(self.asked.question, self.asked.asked, now, Meeting.SILENT, self.number))

    def ready(self, now: Micros) -> None:
        """Take the answer; where the connection ends instead, it is asked again."""
        try:
            self.asked.exchange.advance()
            if not self.asked.exchange.is_answered:
                return
            self.asked.steps.send(self.asked.exchange.value)
        except StopIteration as reply:
            self.close()
            asked = self.asked
            self.line.answer(asked.question, asked.asked, reply.value, self.number, is_proven=self.is_proven)
        except ConnectionRefused:
            self.close()
            self.line.ask(self.asked.question, now)

    def close(self) -> None:
        """Hang up."""
        self.line.aside = None
        self.line.around.unregister(self.connection)
        self.connection.close()


@dataclass(eq=False, slots=True)
class Line:
    """The connection to one broker.

    Invariants: a connection is open, or lent, or an attempt is under way, or nothing is asked. A second attempt is
    under way only while the open connection is silent. Each question ends once.

    Attributes:
        address: where the broker is.
        used: when something was asked last.
        aside: what waits for a controller, on a connection of its own.
    """

    broker: BrokerId
    address: Address
    around: Surroundings
    requests: Requests
    used: Micros = field(default_factory=monotonic)
    aside: Aside | None = None
    _waiting: deque[BrokerQuestion] = field(default_factory=deque)
    _connection: Connection | None = None
    _is_proven: bool = False
    _prove_at: int = 0
    _number: int = 0
    _numbers: int = 0
    _asked: Asked | None = None
    _attempt: Attempt | None = None
    _second: Attempt | None = None
    _second_at: int = FOREVER
    _not_before: int = 0

    def ask(self, question: BrokerQuestion, now: Micros) -> None:
        """Ask when all that was asked before has ended; the same question is open only once."""
        self.used = now
        on_way = [self._asked, None if self.aside is None else self.aside.asked]
        if question not in self._waiting and question not in [each.question for each in on_way if each is not None]:
            self._waiting.append(question)
            self.move_on(now)

    def move(self, address: Address, now: Micros) -> None:
        """Ask at another address from now on."""
        if address == self.address:
            return
        self.address, self._not_before = address, 0
        self._hang_up_all()
        self.move_on(now)

    def close(self, now: Micros) -> None:
        """Hang up; what is asked ends as closed."""
        self._hang_up_all()
        self._end_all(Meeting.CLOSED, now, now, self._number)

    @property
    def next_at(self) -> int:
        """Time at which :meth:`move_on` is due, if nothing else calls for it before."""
        times = [FOREVER if self.aside is None else self.aside.next_at]
        if self._asked is not None:
            times.append(self._asked.exchange.moved + (self._asked.silences + 1) * SILENT_EVERY)
            if self._second is None:
                times.append(max(self._second_at, self._asked.exchange.moved + SECOND_CONNECTION_AFTER))
        elif self._waiting and self._connection is not None:
            times.append(round(self._connection.muted_until * SECOND))
        elif self._waiting and self._attempt is None:
            times.append(self._not_before)
        if self._attempt is not None:
            times.append((self._attempt.accepted or monotonic()) + (self._attempt.silences + 1) * SILENT_EVERY)
        if self._second is not None and not self._second.silences:
            times.append((self._second.accepted or monotonic()) + SECOND // 10)
        return min(times)

    def move_on(self, now: Micros) -> None:
        """Do what is due: ask, connect, or report that a node is silent."""
        if self.aside is not None:
            self.aside.report_silence(now)
        if self._asked is not None:
            self._report_silence(self._asked, now)
        elif self._connection is not None and self._waiting:
            self._ask_next(self._connection, now)
        elif self._attempt is not None:
            self._report_silent_attempt(self._attempt, now)
        elif self._waiting and now >= self._not_before:
            self._attempt = self._begun(now)
            self.around.open(self, self._attempt)

    def ready(self, now: Micros) -> None:
        """Use the socket, which may be read or written."""
        connection, asked = self._connection, self._asked
        if connection is None:
            return
        try:
            if asked is None:
                if is_closed(connection):
                    self._lose(Meeting.CLOSED, now)
                return
            is_writing = not asked.exchange.is_sent
            before = asked.exchange.moved
            asked.exchange.advance()
            if asked.exchange.is_answered:
                self._step(asked, connection, asked.exchange.value)
            else:
                asked.silences = asked.silences if asked.exchange.moved == before else 0
                if is_writing and asked.exchange.is_sent:
                    self.around.register(self, connection, writes=False)
        except ConnectionRefused as refusal:
            self._lose(_met(refusal), now)

    def opened(self, attempt: Attempt, opened: Established, now: Micros) -> None:
        """Use a connection that another thread has opened, or given back."""
        if attempt.is_given_up:
            opened.connection.close()
            return
        if attempt is self._second:
            self._replace_silent()
        self._attempt = self._second = None
        self._connection, self._is_proven, self._number = opened.connection, opened.is_proven, attempt.number
        self._prove_at = FOREVER if opened.is_proven else now + _PROVEN_AGAIN_AFTER
        opened.connection.socket.setblocking(False)
        self.around.register(self, opened.connection, writes=False)
        self.move_on(now)

    def failed(self, attempt: Attempt, refusal: ConnectionRefused, now: Micros) -> None:
        """Note that a connection could not be opened, or is lost."""
        if attempt.is_given_up:
            return
        how = _met(refusal)
        if attempt is self._second:
            self._second, self._second_at = None, now + _ANOTHER_AFTER
            if self._asked is not None and how is not Meeting.SILENT:
                self.around.report(Met(self._asked.question, attempt.began, now, how, attempt.number))
            return
        self._attempt = None
        self._not_before = now + (_WRONG_AGAIN_AFTER if how is Meeting.WRONG_NODE else _AGAIN_AFTER)
        if how is not Meeting.SILENT:
            self._end_all(how, attempt.began, now, attempt.number)
        self.move_on(now)

    # ------------------------------------------------------------------ one question after the other

    def _ask_next(self, connection: Connection, now: Micros) -> None:
        if now < connection.muted_until * SECOND:
            return
        if connection.session.is_due(now / SECOND) or now >= self._prove_at:
            self._lend(connection, now)
            return
        question = self._waiting.popleft()
        steps = self.requests.of(question, connection)
        try:
            self._begin(question, steps, connection)
        except ConnectionRefused as refusal:
            self._waiting.appendleft(question)
            self._lose(_met(refusal), now)

    def _begin(self, question: BrokerQuestion, steps: Steps, connection: Connection) -> None:
        """Send the first request of a question; some take none, because the node has no such request."""
        try:
            call = next(steps)
        except StopIteration as reply:
            self.answer(question, monotonic(), reply.value, self._number, is_proven=self._is_proven)
            return
        exchange = Exchange(connection, call)
        self._asked = Asked(question, steps, exchange, exchange.asked)
        self._second_at = exchange.asked + SECOND_CONNECTION_AFTER
        if not exchange.is_sent:
            self.around.register(self, connection, writes=True)

    def _step(self, asked: Asked, connection: Connection, value: object) -> None:
        """Send the next request of a question, or end it."""
        try:
            asked.exchange = Exchange(connection, asked.steps.send(value))
            asked.silences = 0
            if not asked.exchange.is_sent:
                self.around.register(self, connection, writes=True)
        except StopIteration as reply:
            self._asked = None
            self._give_up_second()
            self.answer(asked.question, asked.asked, reply.value, self._number, is_proven=self._is_proven)
            self.move_on(monotonic())

    def answer(self, question: BrokerQuestion, asked: Micros, reply: Reply, number: int, *, is_proven: bool) -> None:
        """Report the answer to a question; one of a node that may be another one says nothing."""
        how = Meeting.ANSWERED if is_proven else Meeting.WRONG_NODE
        content = reply.content if is_proven else None
        self.around.report(Met(question, asked, monotonic(), how, number, content, reply.error))

    def _lend(self, connection: Connection, now: Micros) -> None:
        """Let another thread renew the session, and ask again who answers; nothing is asked meanwhile."""
        self.around.unregister(connection)
        self._connection = None
        self._attempt = Attempt(self._number, now, accepted=now)
        self.around.refresh(self, self._attempt, connection)

    # ------------------------------------------------------------------ silence, and the end of connections

    def _report_silence(self, asked: Asked, now: Micros) -> None:
        if now >= asked.exchange.moved + (asked.silences + 1) * SILENT_EVERY:
            asked.silences = (now - asked.exchange.moved) // SILENT_EVERY
            self.around.report(Met(asked.question, asked.asked, now, Meeting.SILENT, self._number))
        if self._second is None and now >= max(self._second_at, asked.exchange.moved + SECOND_CONNECTION_AFTER):
            self._second = self._begun(now)
            self.around.open(self, self._second)
        elif self._second is not None and self._second.accepted is not None and not self._second.silences:
            self._second.silences = 1  # it is accepted: by the system of a process that hangs, or by a proxy
            accepted = self._second.accepted
            self.around.report(Met(asked.question, self._second.began, accepted, Meeting.SILENT, self._second.number))

    def _report_silent_attempt(self, attempt: Attempt, now: Micros) -> None:
        if attempt.accepted is None or now < attempt.accepted + (attempt.silences + 1) * SILENT_EVERY:
            return
        attempt.silences = (now - attempt.accepted) // SILENT_EVERY
        if self._waiting:
            self.around.report(Met(self._waiting[0], attempt.began, now, Meeting.SILENT, attempt.number))

    def _lose(self, how: Meeting, now: Micros) -> None:
        """Report the end of the connection, and connect again at once: that shows whether the process is gone."""
        asked, self._asked = self._asked, None
        if asked is not None and self._connection is not None:
            self._connection.peer.count(errors=1)
        if how is Meeting.WRONG_NODE:
            self._not_before = now + _WRONG_AGAIN_AFTER
        question = BrokerQuestion(Ask.PRESENCE, self.broker) if asked is None else asked.question
        began = now if asked is None else asked.asked
        self._hang_up()
        self._attempt, self._second = self._second, None
        self.around.report(Met(question, began, now, how, self._number))
        if not self._waiting:
            self._waiting.append(BrokerQuestion(Ask.PRESENCE, self.broker))
        self.move_on(now)

    def _replace_silent(self) -> None:
        """Let the second connection, on which the node answers, take the place of the silent one.

        What the broker asks a controller for is awaited on the silent one.
        """
        asked, connection = self._asked, self._connection
        if asked is None or connection is None or asked.question.ask is not Ask.QUORUM or self.aside is not None:
            self._hang_up()
            return
        self.aside = Aside(self, asked, connection, self._number, self._is_proven)
        self.around.register(self.aside, connection, writes=False)
        self._asked = self._connection = None

    def _hang_up(self) -> None:
        if self._asked is not None:
            self._waiting.appendleft(self._asked.question)
            self._asked = None
        if self._connection is not None:
            self.around.unregister(self._connection)
            self._connection.close()
            self._connection = None

    def _end_all(self, how: Meeting, asked: Micros, now: Micros, number: int) -> None:
        ended, self._waiting = self._waiting, deque()
        for question in ended:
            self.around.report(Met(question, asked, now, how, number))

    def _begun(self, now: Micros) -> Attempt:
        self._numbers += 1
        return Attempt(self._numbers, now)

    def _give_up_second(self) -> None:
        if self._second is not None:
            self._second.is_given_up = True
            self._second = None

    def _hang_up_all(self) -> None:
        if self.aside is not None:
            self._waiting.append(self.aside.asked.question)
            self.aside.close()
        self._give_up_attempts()
        self._hang_up()

    def _give_up_attempts(self) -> None:
        self._give_up_second()
        if self._attempt is not None:
            self._attempt.is_given_up = True
            self._attempt = None


def _met(refusal: ConnectionRefused) -> Meeting:
    """Return what a refusal shows; who answers, but not as the broker that is meant, shows nothing of it.

    Nor is anything shown where TLS fails, or this machine has no files left to connect.
    """
    return _METS.get(refusal.how, Meeting.WRONG_NODE) if isinstance(refusal, NoAnswer) else Meeting.WRONG_NODE
