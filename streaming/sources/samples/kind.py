"""The interface of a kind of sample: it asks brokers when it is due, and makes observations of their answers."""

from __future__ import annotations

import queue
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from streaming.contracts.identifiers import Micros
from streaming.errors import ConnectionRefused
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.protocol.identity import WrongNode
from streaming.sources.source import AT_ONCE, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.observations import Observation
    from streaming.sources.permissions import Probe
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.connection import Connection, Dial

# Asks many brokers at once: each on one connection, one request after the other, so a hung one delays only its own.


if TYPE_CHECKING:
    Work = Callable[[Any], object]
    """Takes the connection; None where there is no address to connect to."""

_AT_ONCE: Final = 32  # brokers; more than that only wait where so many hang
WRONG_MICROS: Final = 10_000_000
"""So long an address that led to another node is not tried again."""


class BrokerAnswer(NamedTuple):
    """Response of a broker.

    Attributes:
        kind: what was asked.
        broker: who was.
        asked_at: when the question was put; UTC microseconds.
        value: what the work returned; None if it was refused.
        refusal: why the broker gave no answer.
    """

    kind: str
    broker: BrokerId
    asked_at: Micros
    value: Any = None
    refusal: ConnectionRefused | None = None


@dataclass(slots=True)
class _Line:
    """Questions to one broker, in order. Without an address: work that is done here, on a thread of its own."""

    address: Address | None
    waiting: deque[tuple[str, Micros, Work]] = field(default_factory=deque)
    kinds: set[str] = field(default_factory=set)
    connection: Connection | None = None
    wrong: WrongNode | None = None
    believed_until: Micros = AT_ONCE
    is_busy: bool = False
    is_closed: bool = False


class BrokerCalls:
    """Puts questions to brokers, and keeps the answers until they are taken.

    Invariants: of one kind at most one question is outstanding at a broker; no question is put to another broker than
    the one that it is for.

    Args:
        dial: opens a connection.
        require: is asked once per connection whether it leads to the broker; raises ``WrongNode`` if not.
        name: prefix of the threads' names.
        seconds: timeout of each request.
        ahead: the kind of question that is put before those that wait.
    """

    def __init__(
        self,
        dial: Dial,
        *,
        name: str,
        seconds: float,
        ahead: str = "",
        require: Callable[[Connection, BrokerId], object] = lambda *_: None,
    ) -> None:
        self._dial, self._seconds, self._ahead, self._require = dial, seconds, ahead, require
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix=name)
        self._answers: queue.SimpleQueue[BrokerAnswer | Exception] = queue.SimpleQueue()
        self._lock = Lock()
        self._lines: dict[BrokerId, _Line] = {}

    def ask(self, kind: str, broker: BrokerId, address: Address | None, work: Work, now: Micros) -> bool:
        """Put a question; return whether it was, which it is not while the last one of its kind is outstanding."""
        with self._lock:
            line = self._lines.get(broker)
            if line is None or line.address != address:
                self._forget(broker)
                line = self._lines[broker] = _Line(address)
            if kind in line.kinds:
                return False
            line.kinds.add(kind)
            put = line.waiting.appendleft if kind == self._ahead else line.waiting.append
            put((kind, now, work))
            if not line.is_busy:
                line.is_busy = True
                self._threads.submit(self._work_through, broker, line)
        return True

    def is_outstanding(self, kind: str) -> bool:
        """Return whether a broker has not answered a question of a kind."""
        with self._lock:
            return any(kind in line.kinds for line in self._lines.values())

    def take(self, seconds: float) -> list[BrokerAnswer]:
        """Return the answers since the last call; wait for one for so long.

        Raises:
            Exception: what failed in a question, and is no refusal.
        """
        answers: list[BrokerAnswer] = []
        try:
            answer = self._answers.get(timeout=max(0.0, seconds))
            while True:
                if isinstance(answer, Exception):
                    raise answer
                answers.append(answer)
                answer = self._answers.get_nowait()
        except queue.Empty:
            return answers

    def retain(self, brokers: Collection[BrokerId]) -> None:
        """Hang up on every other broker."""
        with self._lock:
            for broker in self._lines.keys() - set(brokers):
                self._forget(broker)

    def close(self) -> None:
        """Hang up; a request in flight ends by its own timeout."""
        self.retain(())
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _forget(self, broker: BrokerId) -> None:
        """Give up the line of a broker; who works on it closes its connection."""
        line = self._lines.pop(broker, None)
        if line is None:
            return
        line.is_closed = True
        if line.connection is not None and not line.is_busy:
            line.connection.close()

    def _work_through(self, broker: BrokerId, line: _Line) -> None:
        while True:
            with self._lock:
                if line.is_closed or not line.waiting:
                    line.is_busy = False
                    if line.is_closed and line.connection is not None:
                        line.connection.close()
                    return
                kind, asked_at, work = line.waiting.popleft()
            answer: BrokerAnswer | Exception
            try:
                answer = self._answer(kind, broker, asked_at, line, work)
            except Exception as failure:  # noqa: BLE001 - raised again by take()
                answer = failure
            with self._lock:
                line.kinds.discard(kind)
                if not line.is_closed:
                    self._answers.put(answer)

    def _answer(self, kind: str, broker: BrokerId, asked_at: Micros, line: _Line, work: Work) -> BrokerAnswer:
        """Ask; a broker may have ended the connection meanwhile, for instance with its login (KIP-368)."""
        had_connection = line.connection is not None
        while True:
            try:
                self._connect(broker, line)
                return BrokerAnswer(kind, broker, asked_at, work(line.connection))
            except WrongNode as refusal:
                _hang_up(line)
                if refusal is not line.wrong:
                    line.wrong, line.believed_until = refusal, Micros(monotonic() + WRONG_MICROS)
                return BrokerAnswer(kind, broker, asked_at, refusal=refusal)
            except ServiceRefused as refusal:
                return BrokerAnswer(kind, broker, asked_at, refusal=refusal)
            except ConnectionRefused as refusal:
                _hang_up(line)
                if not had_connection:
                    return BrokerAnswer(kind, broker, asked_at, refusal=refusal)
                had_connection = False

    def _connect(self, broker: BrokerId, line: _Line) -> None:
        """Connect, unless there is a connection; an address that led to another broker is not tried for a while."""
        if line.connection is not None or line.address is None:
            return
        if line.wrong is not None and monotonic() < line.believed_until:
            raise line.wrong.with_traceback(None)
        line.connection = self._dial(line.address, response_seconds=self._seconds)
        self._require(line.connection, broker)
        line.wrong = None


def _hang_up(line: _Line) -> None:
    if line.connection is not None:
        line.connection.close()
        line.connection = None


if TYPE_CHECKING:
    Ask = Callable[[str, BrokerId, Work], bool]
    """Puts a question of a kind to a broker, unless the last one of that kind is outstanding there.

    What is put to ``NO_BROKER`` is done here, without a connection.
    """


NEVER: Final = Micros(1 << 62)


@runtime_checkable
class ProbingKind(Protocol):
    """A kind of sample that asks for a name on purpose, because others may be hidden."""

    probe: Probe


class AnswerContent(NamedTuple):
    """Observations in an answer, and the reason why some are missing."""

    observations: Sequence[Observation]
    refusal: ConnectionRefused | None = None


class Kind(Protocol):
    """A kind of sample.

    Attributes:
        names: of the kinds of questions that it puts.
        next_at: when it is due, by the monotonic clock.
    """

    names: Sequence[str]

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock."""

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Put the questions that are due."""

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:
        """Return what an answer shows; ``envelope`` are the fields that all observations share."""
