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
from streaming.sources.polling.inquiry import Ask, Content, Meeting, Met, Question
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from tests.judge.polled.answers import Answers
from tests.judge.polled.surroundings import Proxy, Surroundings

TICK_MS: Final = 50
"""How soon a connection that was closed is noticed, at the latest."""
SILENT_EVERY_MS: Final = 1_000
CONNECT_TIMEOUT_MS: Final = 3_000
CHECK_ADDRESS_AFTER_MS: Final = 2_000
"""A second connection to a silent broker is attempted then: whether its address still accepts."""
GIVE_UP_AFTER_MS: Final = 30_000
"""The timeout of a request: its connection is given up, and the next question opens another one."""
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
class _Waiting:
    question: Question
    asked: int
    silences: int = 0


@dataclass(slots=True)
class _Line:
    """The way to one broker.

    Attributes:
        process: at the other end of the open connection; None while there is none.
        behind: a proxy accepted the connection, and nobody is behind it.
        number: of the newest connection.
        waiting: questions without an answer, in order.
        last: the newest question, under which the end of an idle connection is reported.
        is_busy: an answer is on its way, or a connection is being opened.
        checked: when the address of a silent broker was checked last.
    """

    broker: BrokerId
    process: Broker | None = None
    is_open: bool = False
    number: int = 0
    waiting: deque[_Waiting] = field(default_factory=deque)
    last: Question | None = None
    is_busy: bool = False
    checked: int = 0


class Listeners:
    """Carries out questions on the model, as sockets would on a real cluster.

    Args:
        simulation: the model.
        answers: of brokers that serve.
        surroundings: of the monitor.
        random: latencies.
        take: gets the end of each question.
    """

    def __init__(
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

    def ask(self, question: Question) -> None:
        """Begin to carry out a question."""
        line = self._lines.setdefault(question.broker, _Line(question.broker))
        line.waiting.append(_Waiting(question, self.now))
        line.last = question
        self._go_on(line)

    def tick(self) -> None:
        """Notice what has happened to connections, and who is silent. Called each ``TICK_MS``."""
        for line in self._lines.values():
            if line.is_open and self._has_closed(line):
                self._end(line, Meeting.CLOSED)
            elif line.waiting:
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
        if not self._is_reached(line.broker):
            return False
        return line.process is not None and self._cluster.brokers.get(line.broker) is not line.process

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
            self._connect(line)
        elif self._can_serve(line):
            line.is_busy = True
            self._agenda.at(self.now + self._latency(), lambda: self._serve(line, line.number))

    def _can_serve(self, line: _Line) -> bool:
        if line.process is None or not self.serves(line.broker):
            return False
        first = line.waiting[0]
        is_late = self.now - first.asked >= CONTROLLER_TIMEOUT_MS
        return is_late or not self._answers.waits_for_controller(first.question)

    def _latency(self) -> int:
        return self._random.randint(*(_SLOW_MS if self._random.random() < _SLOW_SHARE else _ANSWER_MS))

    def _connect(self, line: _Line) -> None:
        line.is_busy = True
        reached = self._is_reached(line.broker) or self._around.proxy is not Proxy.NONE
        delay = self._random.randint(*_CONNECT_MS) if reached else TICK_MS
        self._agenda.at(self.now + delay, lambda: self._connected(line, self.now - delay))

    def _connected(self, line: _Line, began: int) -> None:
        """End a connection attempt, or go on with it while nothing comes back."""
        line.is_busy = False
        broker, process = line.broker, self._process(line.broker)
        is_reached = self._is_reached(broker)
        if is_reached and process is not None:
            self._accept(line, process)
        elif self._around.proxy is not Proxy.NONE:
            self._accept_for_a_dead_one(line)
        elif is_reached and (self._around.has_address(broker, self._seconds()) or broker in self._cluster.brokers):
            self._end(line, Meeting.REFUSED)
        elif self.now - began >= CONNECT_TIMEOUT_MS:
            self._end(line, Meeting.UNREACHABLE)
        else:
            line.is_busy = True
            self._agenda.at(self.now + TICK_MS, lambda: self._connected(line, began))

    def _accept(self, line: _Line, process: Broker | None) -> None:
        line.number += 1
        line.is_open, line.process = True, process
        self._go_on(line)

    def _accept_for_a_dead_one(self, line: _Line) -> None:
        proxy = self._around.proxy
        if proxy is Proxy.HANGS:
            self._accept(line, None)
            return
        line.number += 1
        others = [each for each in self._cluster.brokers if each != line.broker and self.serves(each)]
        is_led_elsewhere = proxy is Proxy.SHARED and bool(others)
        self._end(line, Meeting.WRONG_NODE if is_led_elsewhere else Meeting.CLOSED)

    def _end(self, line: _Line, how: Meeting) -> None:
        """Report to every question what became of its connection."""
        line.is_open, line.process, line.is_busy = False, None, False
        ended, line.waiting = line.waiting, deque()
        if not ended and line.last is not None:
            ended = deque([_Waiting(line.last, self.now)])
        for each in ended:
            self._report(line, each, how)

    def _report(
        self, line: _Line, each: _Waiting, how: Meeting, content: Content | None = None, error: int = 0
    ) -> None:
        asked, ended = self.micros(each.asked), self.micros(self.now)
        self._take(Met(each.question, asked, ended, how, line.number, content, error))

    # -------------------------------------------------------------- answers, and silence

    def _serve(self, line: _Line, number: int) -> None:
        """Answer the first question, if the connection is still the one on which it was asked."""
        if not line.is_open or line.number != number:
            return
        line.is_busy = False
        if self._has_closed(line):
            self._end(line, Meeting.CLOSED)
        elif line.waiting and self._can_serve(line):
            first = line.waiting.popleft()
            if self._answers.waits_for_controller(first.question):
                self._report(line, first, Meeting.ANSWERED, error=REQUEST_TIMED_OUT)
            else:
                self._report(line, first, Meeting.ANSWERED, self._answers.to(first.question))
            self._go_on(line)

    def _be_silent(self, line: _Line) -> None:
        """Report each second of silence on an open connection, and give the connection up in the end."""
        if not line.is_open:
            return
        for each in list(line.waiting):
            if self.now - each.asked >= GIVE_UP_AFTER_MS and each.question.ask is not Ask.QUORUM:
                line.is_open, line.process, line.is_busy = False, None, False
                line.waiting.clear()
                return
            if self.now - each.asked >= (each.silences + 1) * SILENT_EVERY_MS:
                each.silences += 1
                self._report(line, each, Meeting.SILENT)
