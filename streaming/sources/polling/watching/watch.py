"""Kept connections to the brokers of a polled cluster, on which questions are carried out. IO only: it knows no rule.

One thread serves all connections, and waits for none: a broker that is dead, hangs, or is cut off delays nothing. To
connect, to log in, to renew a session and to ask who answers takes another thread for so long; at rest there is none.

Only a broker that has proven its id is said to answer (:mod:`identity`). Where the user lacks the permission for that,
partitions prove it: only their leader answers for what consumers may read, and only who holds them for replicas.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.errors import ConnectionRefused
from streaming.sources.polling.inference.inquiry import Ask, Meeting, Met
from streaming.sources.polling.watching.asking import Requests, hosts_alone
from streaming.sources.polling.watching.line import FOREVER, SECOND, Established, Line
from streaming.sources.protocol import identity
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.identity import NodeIdentity, Role
from streaming.sources.protocol.offset_messages import HIGH_WATERMARK, LOG_END, list_offsets
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.sources.polling.inference.inquiry import BrokerQuestion
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.polling.watching.line import Attempt, Ready
    from streaming.sources.protocol.connection import Connection, Dialer

RESPONSE_SECONDS: Final = 10.0
"""So long the steps of opening a connection may take, each; a question may take for ever."""
_UNUSED_MICROS: Final = 300 * SECOND  # then the connection to a broker that is not asked any more is closed
_GATHERED_MICROS: Final = 50_000  # answers that show nothing by themselves may wait for others
_CHECKED_MICROS: Final = 50_000  # after anything happened it is looked up what is due when
_LONGEST_WAIT: Final = 60.0
_LED: Final = 5  # partitions that are asked for to prove who leads them


class Watch:
    """Carries out questions, each on the connection to its broker. Any thread may use it.

    Args:
        dial: opens connections.
        name: prefix of the names of threads.
    """

    def __init__(self, dial: Dialer, *, name: str) -> None:
        self._dial, self._name = dial, name
        self._lock = threading.Lock()
        self._mets: list[Met] = []
        self._arrival: Future[None] = Future()
        self._run: _Run | None = None
        self._view: ClusterView | None = None
        self._failure: BaseException | None = None

    def look_at(self, view: ClusterView) -> None:
        """Note where the brokers are; those that are not listed any more are where they were."""
        self._view = view
        if self._run is not None:
            self._run.call(partial(self._run.move, view))

    def ask(self, questions: Iterable[BrokerQuestion]) -> None:
        """Carry out questions."""
        asked = list(questions)
        if not asked or self._view is None:
            return
        if self._run is None:
            self._run = _Run(self._dial, self._name, self._put, self._fail)
            self._run.call(partial(self._run.move, self._view))
            self._run.start()
        self._run.call(partial(self._run.ask, asked))

    def take(self) -> list[Met]:
        """Return how questions have ended since the last call, and which are open without an answer.

        Raises:
            BaseException: what ended the thread; a defect.
        """
        with self._lock:
            mets, self._mets = self._mets, []
            if self._arrival.done():
                self._arrival = Future()
        if self._failure is not None:
            raise self._failure
        return mets

    def pending(self) -> list[Future[Any]]:
        """Return what to wait for: it is done when something has arrived."""
        with self._lock:
            return [self._arrival]

    def rest(self) -> None:
        """Hang up, until something is asked again; what was asked is forgotten."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def close(self) -> None:
        """Hang up."""
        self.rest()

    def _put(self, run: _Run, mets: list[Met], *, is_urgent: bool) -> None:
        with self._lock:
            if run is self._run:
                self._mets += mets
                if is_urgent and self._mets and not self._arrival.done():
                    self._arrival.set_result(None)

    def _fail(self, failure: BaseException) -> None:
        with self._lock:
            self._failure = failure
            if not self._arrival.done():
                self._arrival.set_result(None)


class _Run:
    """The thread of the connections; all but :meth:`call`, :meth:`start` and :meth:`stop` is for it alone."""

    def __init__(
        self, dial: Dialer, name: str, put: Callable[..., None], fail: Callable[[BaseException], None]
    ) -> None:
        self._dial, self._name, self._put, self._fail = dial, name, put, fail
        self._inbox: deque[Callable[[], None]] = deque()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._lines: dict[BrokerId, Line] = {}
        self._addresses: dict[BrokerId, Address] = {}
        self._view: ClusterView | None = None
        self._requests = Requests()
        self._mets: list[Met] = []
        self._gathered_at: int = FOREVER
        self._check_at: int = 0
        self._is_stopping = self._has_ended = False
        self._waking = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=f"{name} watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon, without a wait for it."""
        self._is_stopping = True
        self.call(lambda: None)

    def call(self, work: Callable[[], None]) -> None:
        """Let the thread do something."""
        self._inbox.append(work)
        with self._waking:
            if self._has_ended:
                self._work_off()
            else:
                with suppress(BlockingIOError):  # the pipe is full, so the thread wakes up
                    os.write(self._writer, b"\0")

    # ------------------------------------------------------------------ what it is called for

    def move(self, view: ClusterView) -> None:
        """Note where brokers are."""
        self._view, now = view, monotonic()
        for broker, (host, port) in view.brokers.items():
            self._addresses[broker] = Address(host, port)
            if broker in self._lines:
                self._lines[broker].move(self._addresses[broker], now)
        for broker in [each for each, line in self._lines.items() if now - line.used > _UNUSED_MICROS]:
            self._lines.pop(broker).close(now)

    def ask(self, questions: list[BrokerQuestion]) -> None:
        """Carry out questions; of a broker that was never listed nothing is known."""
        for question in questions if not self._is_stopping else ():
            now, broker = monotonic(), question.broker
            address = self._addresses.get(broker)
            if address is None:
                self.report(Met(question, now, now, Meeting.WRONG_NODE, 0))
                continue
            if broker not in self._lines:
                self._lines[broker] = Line(broker, address, self, self._requests)
            self._lines[broker].ask(question, now)

    # ------------------------------------------------------------------ the thread

    def _serve(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
        except BaseException as failure:  # noqa: BLE001 - a defect, which the source raises
            self._fail(failure)
        finally:
            for line in self._lines.values():
                line.close(monotonic())
            self._selector.close()
            with self._waking:
                self._has_ended = True
                os.close(self._reader)
                os.close(self._writer)
                self._work_off()

    def _work_off(self) -> None:
        """Do what it was called for; after the end, connections that were opened too late are closed so."""
        while self._inbox:
            self._inbox.popleft()()

    def _turn(self) -> None:
        if monotonic() >= self._check_at:
            self._check(monotonic())
        seconds = (min(self._gathered_at, self._check_at) - monotonic()) / SECOND
        ready = self._selector.select(min(_LONGEST_WAIT, max(0.0, seconds)))
        for key, _ in ready:
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(self._reader, 1 << 12)
            else:
                key.data.ready(monotonic())
        self._work_off()
        now = monotonic()
        self._check_at = min(self._check_at, now + _CHECKED_MICROS) if ready else self._check_at
        self._deliver(now)

    def _check(self, now: Micros) -> None:
        """Let lines do what is due, and note when that is the case again."""
        self._check_at = FOREVER
        for line in self._lines.values():
            if line.next_at <= now:
                line.move_on(now)
            self._check_at = min(self._check_at, line.next_at)

    def _deliver(self, now: Micros) -> None:
        """Hand over what was met: at once what shows something by itself, all else with what comes soon."""
        if not self._mets:
            return
        is_urgent = now >= self._gathered_at or any(not _is_ordinary(met) for met in self._mets)
        if is_urgent or self._gathered_at == FOREVER:
            mets, self._mets = self._mets, []
            self._gathered_at = FOREVER
            self._put(self, mets, is_urgent=True)

    # ------------------------------------------------------------------ what lines need

    def report(self, met: Met) -> None:
        """Take how a question ended, or that it has not."""
        self._mets.append(met)
        self._gathered_at = min(self._gathered_at, met.ended + _GATHERED_MICROS)

    def register(self, user: Ready, connection: Connection, *, writes: bool) -> None:
        """Call its user when a socket can be used."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
        try:
            self._selector.modify(connection.socket, events, user)
        except KeyError:
            self._selector.register(connection.socket, events, user)

    def unregister(self, connection: Connection) -> None:
        """Do so no more."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)

    def open(self, line: Line, attempt: Attempt) -> None:
        """Connect to the address of a line, and ask who answers, in another thread."""
        address, view = line.address, self._view

        def opened() -> Established:
            connection = self._dial(address, response_seconds=RESPONSE_SECONDS, accepted=attempt.accept)
            return _proven(connection, line.broker, view)

        self._apart(line, attempt, opened)

    def refresh(self, line: Line, attempt: Attempt, connection: Connection) -> None:
        """Renew the session of a connection, and ask who answers, in another thread."""
        view = self._view

        def renewed() -> Established:
            try:
                connection.renew()
            except BaseException:
                connection.close()
                raise
            return _proven(connection, line.broker, view)

        self._apart(line, attempt, renewed)

    def _apart(self, line: Line, attempt: Attempt, work: Callable[[], Established]) -> None:
        def run() -> None:
            try:
                opened = work()
            except ConnectionRefused as refusal:
                self.call(partial(line.failed, attempt, refusal, monotonic()))
            except BaseException as failure:  # noqa: BLE001 - a defect, which the source raises
                self._fail(failure)
            else:
                self.call(lambda: line.opened(attempt, opened, monotonic()))

        threading.Thread(target=run, name=f"{self._name} broker {line.broker}", daemon=True).start()


def _is_ordinary(met: Met) -> bool:
    """Return whether a question ended as nearly always: other answers may be awaited before it is looked at."""
    return met.how is Meeting.ANSWERED and met.question.ask is Ask.PRESENCE and met.ended - met.asked < SECOND


def _proven(connection: Connection, broker: BrokerId, view: ClusterView | None) -> Established:
    """Return a connection, and whether the broker that is meant answers on it.

    Raises:
        WrongNode: another one answers.
        ConnectionRefused: it does not respond; the connection is closed.
    """
    try:
        if view is None:
            return Established(connection, is_proven=False)
        by = identity.require(connection, NodeIdentity(Role.BROKER, broker, view.cluster_id))
        return Established(connection, is_proven=by.is_meant is True or _holds_partitions_of(connection, broker, view))
    except BaseException:
        connection.close()
        raise


def _holds_partitions_of(connection: Connection, broker: BrokerId, view: ClusterView) -> bool:
    """Return whether a node leads partitions that a broker leads, or holds some that together no other one holds."""
    parts = [(topic, number, part) for topic, some in view.topics.items() for number, part in some.items()]
    led: dict[str, list[int]] = {}
    for topic, number, _ in [each for each in parts if each[2].leader == broker][:_LED]:
        led.setdefault(topic, []).append(number)
    if led and any(list_offsets(connection, HIGH_WATERMARK, led).offsets.values()):
        return True
    others = {replica for *_, part in parts for replica in part.replicas} | set(view.brokers) - {broker}
    held = hosts_alone(broker, view.topics.items(), others - {broker})
    if held is None:
        return False
    answered = list_offsets(connection, LOG_END, held).offsets
    return all(number in answered.get(topic, ()) for topic, numbers in held.items() for number in numbers)
