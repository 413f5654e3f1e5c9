"""Questions that are due: at rest few and cheap ones, more while something happens, within a budget. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, BrokerId, Micros
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.sources.polling.inference.conduct import Listeners
    from streaming.sources.polling.view import ClusterView, PartitionView

_SECOND: Final = 1_000_000


class Intervals(NamedTuple):
    """Times of questions and reports, and of the cluster, in microseconds.

    Attributes:
        poll: of the metadata.
        full_report: of full reports.
        presence: of the question to each broker whether it is there.
        quorum: of the question who leads the quorum.
        hot: of the questions about partitions while something happens.
        stays_hot: how long after the last change something still happens.
        hold: how long a step is held, at most, until its cause is clear.
        session: ``broker.session.timeout.ms`` of the cluster.
        lag: ``replica.lag.time.max.ms`` of the cluster.
        bytes_per_question: how large the answer of a broker may be, at most: one such question is sent to it each
            ``hot``.
        cheap: how large an answer about healthy partitions may be that is asked for each ``hot`` all the same: of a
            cluster that has no more, all are, also at rest; of a larger one only the metadata show them.
    """

    poll: Micros = Micros(5 * _SECOND)
    full_report: Micros = Micros(3_600 * _SECOND)
    presence: Micros = Micros(_SECOND)
    quorum: Micros = Micros(2 * _SECOND)
    hot: Micros = Micros(_SECOND)
    stays_hot: Micros = Micros(15 * _SECOND)
    hold: Micros = Micros(2 * _SECOND)
    session: Micros = Micros(9 * _SECOND)
    lag: Micros = Micros(30 * _SECOND)
    bytes_per_question: int = 150_000
    cheap: int = 20_000


_BYTES_PER_PARTITION: Final = 60
_BYTES_PER_REPLICA: Final = 12
_FORGOTTEN: Final = 40 * _SECOND
_WAITING: Final = 2
"""Brokers that may wait for a controller at once: one alone may be cut off, and while it waits it answers nothing."""
_MOST_ENDS: Final = 1_000
"""Partitions in one question about the ends of logs."""
_BURST: Final = 4
"""Questions about partitions within the first ``hot`` interval, each to another broker."""
_UNTOUCHED: Final = 4
"""Rank of what is healthy and on no broker that misbehaves."""
_BROKERS_ASKED: Final = 3
"""Brokers that are asked about partitions at once, each about others."""


class Schedule:
    """Times of the questions; one of a kind is open to a broker at a time."""

    def __init__(self, intervals: Intervals, listeners: Listeners) -> None:
        self._intervals, self._listeners = intervals, listeners
        self._open: dict[tuple[Ask, BrokerId], Micros] = {}
        self._presence_due: dict[BrokerId, Micros] = {}
        self._quorum_due = self._hot_due = Micros(0)
        self._hot_until = Micros(0)
        self._looked_at: ClusterView | None = None
        self._burst = 0
        self._ends_due = Micros(0)
        self._epoch_ends: dict[BrokerId, list[tuple[str, int, int]]] = {}
        self._turn = 0
        self._partitions_asked: dict[BrokerId, Micros] = {}
        self._is_cheap = False
        self.next_at = Micros(0)

    def meet(self, met: Met) -> None:
        """Note that a question has ended."""
        if met.how is not Meeting.SILENT:
            self._open.pop((met.question.ask, met.question.broker), None)

    def hasten(self, now: Micros) -> None:
        """Ask about partitions at once, a few times in turn, and then each second for a while: something happens."""
        self._burst = _BURST
        self._hot_until = Micros(now + self._intervals.stays_hot)
        self._hot_due = min(self._hot_due, now)
        self.next_at = min(self.next_at, now)

    def questions(self, now: Micros, view: ClusterView) -> list[BrokerQuestion]:
        """Return the questions that are due, each of which is taken for asked."""
        self._open = {key: asked for key, asked in self._open.items() if now - asked < _FORGOTTEN}
        due = [*self._presence(now, view), *self._quorum(now, view), *self._partitions(now, view)]
        due += [*self._log_ends(now, view), *self._wanted_epoch_ends()]
        self._open.update(((each.ask, each.broker), now) for each in due)
        self._listeners.awaiting.update((each.broker, now) for each in due if each.ask is Ask.QUORUM)
        times = [*self._presence_due.values(), self._quorum_due, self._ends_due]
        self.next_at = min([*times, self._hot_due] if now < self._hot_until or self._is_cheap else times)
        return due

    def _presence(self, now: Micros, view: ClusterView) -> Iterator[BrokerQuestion]:
        if view is not self._looked_at:
            self._looked_at = view
            replicas = {each for parts in view.topics.values() for part in parts.values() for each in part.replicas}
            asked = {*view.brokers, *(each for each in self._presence_due if each in replicas)}
            self._presence_due = {broker: self._presence_due.get(broker, now) for broker in sorted(asked)}
            self._is_cheap = sum(map(_size, view.topics.values())) <= self._intervals.cheap
        for broker in list(self._presence_due):
            if now >= self._presence_due[broker]:
                self._presence_due[broker] = Micros(now + self._intervals.presence)
                if (Ask.PRESENCE, broker) not in self._open:
                    yield BrokerQuestion(Ask.PRESENCE, broker)

    def _quorum(self, now: Micros, view: ClusterView) -> Iterator[BrokerQuestion]:
        if now < self._quorum_due:
            return
        self._quorum_due = Micros(now + self._intervals.quorum)
        waiting = sum(ask is Ask.QUORUM for ask, _ in self._open)
        if waiting < min(_WAITING, max(1, len(view.brokers) - 1)):
            others = [each for each in self._responders(view) if (Ask.QUORUM, each) not in self._open]
            yield from (BrokerQuestion(Ask.QUORUM, broker) for broker in others[:1])

    def _partitions(self, now: Micros, view: ClusterView) -> Iterator[BrokerQuestion]:
        if now < self._hot_due or (now >= self._hot_until and not self._is_cheap):
            return
        self._hot_due = Micros(now + (self._intervals.hot // _BURST if self._burst else self._intervals.hot))
        self._burst -= self._burst > 0
        topics, responders = self._worst_first(view), self._responders(view)
        self._turn += 1
        start = self._turn % max(1, len(responders))
        for broker in [*responders[start:], *responders[:start]][:_BROKERS_ASKED]:
            asked = self._partitions_asked.get(broker)
            if (Ask.PARTITIONS, broker) in self._open or (asked is not None and now - asked < self._intervals.hot):
                continue
            size, of_question = 0, list[tuple[str, int, int]]()
            while topics and (not of_question or size + topics[0][1] <= self._intervals.bytes_per_question):
                name, cost = topics.pop(0)
                size += cost
                of_question.append((name, -1, -1))
            if of_question:
                self._partitions_asked[broker] = now
                yield BrokerQuestion(Ask.PARTITIONS, broker, tuple(of_question))

    def want_epoch_end(self, leader: BrokerId, epoch: tuple[str, int, int]) -> None:
        """Ask a new leader where an epoch ends: topic, number and epoch."""
        self._epoch_ends.setdefault(leader, []).append(epoch)

    def _wanted_epoch_ends(self) -> Iterator[BrokerQuestion]:
        due, self._epoch_ends = self._epoch_ends, {}
        for leader, epochs in due.items():
            yield BrokerQuestion(Ask.EPOCH_ENDS, leader, tuple(epochs[:_MOST_ENDS]))

    def _log_ends(self, now: Micros, view: ClusterView) -> Iterator[BrokerQuestion]:
        """Ask the leaders that are alone in sync where their logs end: no other broker may have what they have."""
        if now < self._ends_due:
            return
        self._ends_due = Micros(now + (2 * self._intervals.hot if now < self._hot_until else self._intervals.poll))
        alone: dict[BrokerId, list[tuple[str, int, int]]] = {}
        for topic, parts in view.topics.items():
            for number, part in parts.items():
                if len(part.isr) == 1 and part.is_degraded and part.leader == part.isr[0]:
                    alone.setdefault(part.leader, []).append((topic, number, -1))
        for leader, partitions in sorted(alone.items()):
            if (Ask.LOG_ENDS, leader) not in self._open and not self._listeners.listener(leader).is_absent:
                yield BrokerQuestion(Ask.LOG_ENDS, leader, tuple(partitions[:_MOST_ENDS]))

    def _worst_first(self, view: ClusterView) -> list[tuple[str, int]]:
        """Return the topics with trouble, and the size of an answer about each: without a leader first."""
        bad = {broker for broker, each in self._listeners.of.items() if each.is_absent}
        bad |= {broker for broker in self._listeners.of if self._listeners.is_listed(broker) is False}
        ranked = []
        for name, parts in view.topics.items():
            rank = min((_rank(part, bad) for part in parts.values()), default=_UNTOUCHED)
            if name not in view.hidden:
                ranked.append((rank, name, _size(parts)))
        left = self._intervals.bytes_per_question if self._burst else self._intervals.cheap
        worst = []
        for rank, name, size in sorted(ranked):
            left -= size
            if rank < _UNTOUCHED or left >= 0:
                worst.append((name, size))
        return worst

    def _responders(self, view: ClusterView) -> list[BrokerId]:
        """Return the brokers that answer, those that are listed first."""
        listeners = self._listeners
        present = [broker for broker in sorted(view.brokers) if not listeners.listener(broker).is_absent]
        best = [each for each in present if listeners.is_listed(each) is not False and each not in listeners.awaiting]
        return best or present


def _size(parts: Mapping[int, PartitionView]) -> int:
    """Return about how many bytes an answer about a topic has."""
    return sum(_BYTES_PER_PARTITION + _BYTES_PER_REPLICA * len(part.replicas) for part in parts.values())


def _rank(part: PartitionView, bad: set[BrokerId]) -> int:
    if part.leader == NO_LEADER:
        return 0
    if part.is_degraded:
        return 1
    return 2 if part.leader in bad else 3 if not bad.isdisjoint(part.replicas) else _UNTOUCHED
