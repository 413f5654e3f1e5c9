"""How the listeners of the model's brokers behave: to connection attempts, on open connections, to requests, in time.

What real ones do was recorded (``tests/listeners``); this does the same from the state of the model:

==================  ==============================  =========================  ===================================
broker              new connection                  open connection            request
==================  ==============================  =========================  ===================================
runs                accepted                        stays                      answered in milliseconds
starts              refused until it is unfenced    (none)                     (none)
stops cleanly       accepted until it is fenced     closed when it is fenced   answered until then
killed              refused                         closed at once             (none)
stands still        accepted, by the kernel         stays                      answered when it goes on
without power       neither accepted nor refused    silent; closed by the      never answered
                                                    machine when it is back
cut off             neither accepted nor refused    silent; goes on later      answered when the cut is mended
==================  ==============================  =========================  ===================================

One connection answers in the order of its requests, so a request that waits for a controller holds up all after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.model.nodes.broker import Broker
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Content, Meeting, Met
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from tests.judge.polls.answers import Answers
from tests.judge.polls.forwarding import resumed_at
from tests.judge.polls.surroundings import Proxy, Surroundings

TICK_MS: Final = 50
"""How soon a connection that was closed is noticed, at the latest."""
SILENT_EVERY_MS: Final = 1_000
CONNECT_TIMEOUT_MS: Final = 3_000
SECOND_CONNECTION_AFTER_MS: Final = 2_000
"""A second connection to a silent broker is tried then: the process may have been started again."""
ANOTHER_AFTER_MS: Final = 10_000
PROOF_TIMEOUT_MS: Final = 10_000
"""A new connection on which no node says who it is, is given up then."""
RETRY_MS: Final = 100
CONTROLLER_TIMEOUT_MS: Final = 60_000
"""A broker answers a forwarded request with an error when no controller has answered for so long."""
REQUEST_TIMED_OUT: Final = 7
_CONNECT_MS: Final = (1, 4)
_ANSWER_MS: Final = (2, 9)
_SLOW_MS: Final = (20, 250)
_SLOW_SHARE: Final = 1 / 200
_MICROS_PER_MS: Final = 1_000


class Clock(Protocol):
    """Plans what happens later, in milliseconds of the model."""

    def at(self, at: int, act: Callable[[], None]) -> None:
        """Plan one act."""


@dataclass(slots=True)
class _Line:
    """The way to one broker. Of what is waiting the first is on the way, if a connection is open.

    Attributes:
        process: at the other end of the open connection; None: a proxy accepted it, and nobody is behind.
        number: of the open connection; ``numbers``: of the newest one that was tried.
        asked: when the first question was sent, and how often silence was reported since.
        is_busy: an answer is on its way, or a connection is being opened.
        is_proven: the node has said who it is.
        not_before: no other connection is tried earlier.
        second_at: when a second connection is tried, while the first one is silent.
        lost_at: since when packets have been lost; what is then on the way goes on at ``resumes_at``.
    """

    broker: BrokerId
    process: Broker | None = None
    is_open: bool = False
    number: int = 0
    numbers: int = 0
    waiting: deque[BrokerQuestion] = field(default_factory=deque)
    asked: int = 0
    silences: int = 0
    is_busy: bool = False
    is_proven: bool = False
    opened_at: int = 0
    not_before: int = 0
    second_at: int = 0
    lost_at: int | None = None
    resumes_at: int = 0


class Listeners:
    """Carries out questions on the model, as sockets would on a real cluster.

    Args:
        simulation: the model.
        answers: of brokers that serve.
        surroundings: of the monitor.
        random: latencies.
        take: gets the end of each question.
        origin: wall-clock time of the begin of the play.
    """

    def __init__(  # noqa: PLR0913 - a cluster, what it answers, and whose clock and chance it is
        self,
        simulation: Simulation,
        answers: Answers,
        surroundings: Surroundings,
        *,
        random: Random,
        take: Callable[[Met], None],
        origin: Micros,
    ) -> None:
        self._cluster = simulation.cluster
        self._agenda: Clock = simulation.agenda
        self._answers = answers
        self._around = surroundings
        self._random = random
        self._take = take
        self._origin = origin
        self._lines: dict[BrokerId, _Line] = {}

    @property
    def now(self) -> int:
        """Return the time of the model in milliseconds."""
        return self._cluster.now

    def micros(self, at_ms: int) -> Micros:
        """Return a time of the model as the monitor's clock shows it."""
        return Micros(self._origin + (at_ms - WARM_UP_MS) * _MICROS_PER_MS)

    def ask(self, question: BrokerQuestion) -> None:
        """Begin to carry out a question; the same one is open only once."""
        line = self._lines.setdefault(question.broker, _Line(question.broker))
        if question not in line.waiting:
            line.waiting.append(question)
            if len(line.waiting) == 1:
                self._sent(line)
            self._go_on(line)

    def tick(self) -> None:
        """Notice what has happened to connections, and who is silent. Called each ``TICK_MS``."""
        for line in self._lines.values():
            self._follow_losses(line)
            if line.is_open and (self._has_closed(line) or self._is_reset(line)):
                self._lose(line)
            elif line.is_open and line.waiting:
                self._be_silent(line)
            self._go_on(line)

    # -------------------------------------------------------------- the state of one broker

    def _seconds(self) -> float:
        return (self.now - WARM_UP_MS) / 1_000

    def _is_reached(self, broker: BrokerId) -> bool:
        """Return whether packets get an answer from the machine of a broker, or from the proxy in front of it."""
        at = self._seconds()
        return self._around.is_reached(broker, at) and self._around.has_power(broker, at)

    def _process(self, broker: BrokerId) -> Broker | None:
        """Return the process that has its port open."""
        process = self._cluster.brokers.get(broker)
        return process if process is not None and process.lifecycle.is_running else None

    def _has_closed(self, line: _Line) -> bool:
        """Return whether the other end has closed, as far as that can reach the monitor."""
        if line.process is None or self._cluster.brokers.get(line.broker) is line.process:
            return False
        return self._is_reached(line.broker) and self.now >= line.resumes_at

    def _is_reset(self, line: _Line) -> bool:
        """Return whether something between has closed the connection since the last tick."""
        now = self._seconds()
        return self._around.resets_within(line.broker, now - TICK_MS / 1_000, now)

    def _follow_losses(self, line: _Line) -> None:
        """Let a connection be silent, after packets were lost on it, until TCP sends them again."""
        if not self._is_reached(line.broker):
            if line.lost_at is None and line.is_open:
                line.lost_at = self.now
        elif line.lost_at is not None:
            line.resumes_at, line.lost_at = resumed_at(line.lost_at, self.now), None

    def serves(self, broker: BrokerId) -> bool:
        """Return whether a broker answers the monitor now."""
        is_running = self._process(broker) is not None and not self._cluster.is_paused(broker)
        return is_running and self._is_reached(broker)

    def refuses(self, broker: BrokerId) -> bool:
        """Return whether an attempt to ask a broker fails at once."""
        has_answer = self._around.has_address(broker, self._seconds())
        return self._process(broker) is None and self._is_reached(broker) and has_answer

    # -------------------------------------------------------------- connections

    def _go_on(self, line: _Line) -> None:
        """Open a connection if there is none, and serve the first question on it."""
        if line.is_busy or not line.waiting:
            return
        if not line.is_open:
            if self.now >= line.not_before:
                line.is_busy = True
                line.numbers += 1
                self._try(line, self.now, is_second=False)
        elif self._can_serve(line):
            line.is_busy = True
            number = line.number
            self._agenda.at(self.now + self._latency(), lambda: self._serve(line, number))

    def _can_serve(self, line: _Line) -> bool:
        if line.process is None or not self.serves(line.broker) or self.now < line.resumes_at:
            return False
        is_late = self.now - line.asked >= CONTROLLER_TIMEOUT_MS
        return is_late or not self._answers.waits_for_controller(line.waiting[0], line.asked)

    def _latency(self) -> int:
        return self._random.randint(*(_SLOW_MS if self._random.random() < _SLOW_SHARE else _ANSWER_MS))

    def _try(self, line: _Line, began: int, *, is_second: bool) -> None:
        delay = self._random.randint(*_CONNECT_MS) if self._attempt(line.broker) is not None else TICK_MS
        self._agenda.at(self.now + delay, lambda: self._tried(line, began, is_second=is_second))

    def _attempt(self, broker: BrokerId) -> Meeting | None:
        """Return what an attempt to connect and to ask who answers meets now; None while nothing comes back.

        ``SILENT`` is a connection that is accepted, and on which nobody says who it is.
        """
        is_reached, proxy = self._is_reached(broker), self._around.proxy
        if is_reached and self._process(broker) is not None:
            return Meeting.SILENT if self._cluster.is_paused(broker) else Meeting.ANSWERED
        if proxy is Proxy.HANGS:
            return Meeting.SILENT
        if proxy is not Proxy.NONE:
            others = [each for each in self._cluster.brokers if each != broker and self.serves(each)]
            return Meeting.WRONG_NODE if proxy is Proxy.SHARED and others else Meeting.CLOSED
        has_address = self._around.has_address(broker, self._seconds()) or broker in self._cluster.brokers
        return Meeting.REFUSED if is_reached and has_address else None

    def _tried(self, line: _Line, began: int, *, is_second: bool) -> None:
        """End an attempt, or go on with it while nothing comes back."""
        if is_second and not (line.is_open and line.waiting):
            return
        how = self._attempt(line.broker)
        if how is None and self.now - began < CONNECT_TIMEOUT_MS:
            self._try(line, began, is_second=is_second)
            return
        how = how or Meeting.UNREACHABLE
        if is_second:
            self._tried_second(line, began, how)
            return
        line.is_busy = False
        if how in {Meeting.ANSWERED, Meeting.SILENT}:
            self._open(line, how)
            return
        line.not_before = self.now + RETRY_MS
        ended, line.waiting = line.waiting, deque()
        for question in ended:
            self._report(line.numbers, question, began, how)

    def _open(self, line: _Line, how: Meeting) -> None:
        """Use a new connection from now on."""
        line.number, line.opened_at, line.asked, line.silences = line.numbers, self.now, self.now, 0
        line.is_open, line.is_proven, line.is_busy = True, how is Meeting.ANSWERED, False
        line.process = self._process(line.broker) if self._is_reached(line.broker) else None
        line.second_at = self.now + SECOND_CONNECTION_AFTER_MS
        line.lost_at, line.resumes_at = None, 0
        self._go_on(line)

    def _tried_second(self, line: _Line, began: int, how: Meeting) -> None:
        """Take the second connection if a node answers on it; else report what it met, and go on with the first."""
        line.second_at = self.now + ANOTHER_AFTER_MS
        if how is Meeting.ANSWERED:
            self._open(line, how)
        else:
            self._report(line.numbers, line.waiting[0], began, how)

    def _lose(self, line: _Line) -> None:
        """Report the end of the open connection, and connect again at once."""
        question = line.waiting.popleft() if line.waiting else BrokerQuestion(Ask.PRESENCE, line.broker)
        line.is_open, line.process, line.is_busy = False, None, False
        line.lost_at, line.resumes_at = None, 0
        self._report(line.number, question, line.asked, Meeting.CLOSED)
        if not line.waiting:
            line.waiting.append(BrokerQuestion(Ask.PRESENCE, line.broker))

    def _report(  # noqa: PLR0913 - what is said of the end of a question
        self,
        number: int,
        question: BrokerQuestion,
        asked: int,
        how: Meeting,
        *,
        content: Content | None = None,
        error: int = 0,
    ) -> None:
        began = self.micros(min(asked, self.now))
        self._take(Met(question, began, self.micros(self.now), how, number, content, error))

    # -------------------------------------------------------------- answers, and silence

    def _serve(self, line: _Line, number: int) -> None:
        """Answer the first question, if the connection is still the one on which it was asked."""
        if not line.is_open or line.number != number:
            return
        line.is_busy = False
        if self._has_closed(line):
            self._lose(line)
        elif line.waiting and self._can_serve(line):
            question, asked = line.waiting.popleft(), line.asked
            line.is_proven = True
            self._sent(line)
            if self._answers.waits_for_controller(question, asked):
                self._report(number, question, asked, Meeting.ANSWERED, error=REQUEST_TIMED_OUT)
            else:
                self._report(number, question, asked, Meeting.ANSWERED, content=self._answers.to(question))
            self._go_on(line)

    def _sent(self, line: _Line) -> None:
        """Send the next question, if one waits, now."""
        line.asked, line.silences = self.now, 0
        line.second_at = self.now + SECOND_CONNECTION_AFTER_MS

    def _be_silent(self, line: _Line) -> None:
        """Report each second of silence on an open connection, and try a second one."""
        if not line.is_proven and self.now - line.opened_at >= PROOF_TIMEOUT_MS:
            line.is_open, line.process, line.not_before = False, None, self.now + RETRY_MS
            return
        if self.now - line.asked >= (line.silences + 1) * SILENT_EVERY_MS:
            line.silences += 1
            self._report(line.number, line.waiting[0], line.asked, Meeting.SILENT)
        if line.is_proven and self.now >= line.second_at:
            line.second_at = self.now + CONNECT_TIMEOUT_MS + ANOTHER_AFTER_MS
            line.numbers += 1
            self._try(line, self.now, is_second=True)
