"""A small cluster, as a poller meets it: what each listener does, whom brokers list, and what became of partitions.

Everything is stated by a test, second by second, and nothing is derived: the rules are what is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import BrokerObserved, Observation, PartitionObserved
from streaming.sources.polling.inference.inference import Inference
from streaming.sources.polling.inference.inquiry import (
    Ask,
    BrokerQuestion,
    Content,
    Meeting,
    Met,
    Presence,
    QuorumLeader,
)
from streaming.sources.polling.inference.schedule import Intervals
from streaming.sources.polling.view import ClusterView, PartitionView

SECOND: Final = 1_000_000
_TICK: Final = 50_000
_ANSWER: Final = 4_000
_START: Final = 100 * SECOND
TOPIC: Final = "orders"
LED: Final = QuorumLeader(100, 1)
USUAL: Final = Intervals()


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def part(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, epoch: int = 0, **more: object) -> PartitionView:
    """Give a partition; ``more`` are fields of brokers."""
    view = PartitionView(ids(*replicas), ids(*isr), BrokerId(leader), leader_epoch=epoch)
    return view._replace(**{name: ids(*value) for name, value in more.items()})  # type: ignore[misc, arg-type]


@dataclass(slots=True)
class _Open:
    question: BrokerQuestion
    asked: Micros
    silences: int = 0


@dataclass(slots=True)
class SmallCluster:
    """Seconds are those of the test, from 0.

    Attributes:
        how: what each listener does; brokers that are not in it answer.
        partitions: of the topic, by number.
        listed: by all brokers; ``lists`` by single ones that see something else.
        registered: brokers, those that are fenced included; None where they are not listed.
        quorum: None while no controller answers; ``quorum_error`` of brokers that do not ask for it.
        ends: of logs, by broker and number; ``epoch_ends`` of epochs, by number and epoch.
        addresses: of brokers that share one.
        viewed_at: broker whose metadata are read; None: the first one that answers and is listed.
        paused: from when until when the poller does nothing; ``is_suspended``: its clock stands still meanwhile.
        unseen: brokers without a listener of the name that is asked.
        seen: what was published, with the second.
        asked: every question, with the second.
    """

    partitions: dict[int, PartitionView]
    brokers: tuple[int, ...] = (1, 2, 3)
    how: dict[int, Meeting] = field(default_factory=dict)
    listed: set[int] = field(default_factory=set)
    lists: dict[int, set[int]] = field(default_factory=dict)
    sees: dict[int, dict[int, PartitionView]] = field(default_factory=dict)
    registered: set[int] | None = None
    quorum: QuorumLeader | None = LED
    quorum_error: int = 0
    ends: dict[tuple[int, int], int] = field(default_factory=dict)
    epoch_ends: dict[tuple[int, int], int] = field(default_factory=dict)
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    unseen: set[int] = field(default_factory=set)
    viewed_at: int | None = None
    paused: tuple[float, float] = (0, 0)
    is_suspended: bool = False
    intervals: Intervals = USUAL
    viewed_each: float = 5.0
    seen: list[tuple[float, Observation]] = field(default_factory=list)
    asked: list[tuple[float, BrokerQuestion]] = field(default_factory=list)
    _plan: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)

    def at(self, second: float, act: Callable[[], None]) -> None:
        """Plan what happens."""
        self._plan.append((second, act))

    def meets(self, second: float, broker: int, how: Meeting) -> None:
        """Plan that a listener behaves otherwise from then on."""
        self.at(second, lambda: self.how.update({broker: how}))

    def becomes(self, second: float, number: int, view: PartitionView) -> None:
        """Plan a step of a partition."""
        self.at(second, lambda: self.partitions.update({number: view}))

    def unlisted(self, second: float, broker: int) -> None:
        """Plan that a broker is fenced."""
        self.at(second, lambda: self.listed.discard(broker))

    def relisted(self, second: float, broker: int) -> None:
        """Plan that a broker is unfenced."""
        self.at(second, lambda: self.listed.add(broker))

    def play(self, seconds: float) -> list[Observation]:
        """Play, and give what was published."""
        self.listed = self.listed or set(self.brokers)
        inference = Inference("admin:t", "t", self.intervals)
        view_at, now, end, slept = 0.0, Micros(_START), _START + round(seconds * SECOND), 0
        self._plan.sort(key=lambda planned: planned[0])
        while now + slept < end:
            second = (now + slept - _START) / SECOND
            if self.paused[0] <= second < self.paused[1]:
                lasted = round((self.paused[1] - second) * SECOND)
                if self.is_suspended:
                    slept = lasted
                    inference.sleep(now, Micros(lasted))
                else:
                    now = Micros(now + lasted)
                continue
            while self._plan and self._plan[0][0] <= second:
                self._plan.pop(0)[1]()
            if second >= view_at:
                view_at = max(view_at, second - self.viewed_each) + self.viewed_each
                self._view(inference, now)
            self._answer(inference, now)
            if now >= inference.next_at:
                for question in inference.questions(now):
                    self.asked.append((second, question))
                    self._open.append(_Open(question, now))
            self._answer(inference, Micros(now + _ANSWER))
            self.seen += ((second, each) for each in inference.take(Micros(now + _ANSWER), slept))
            now = Micros(now + _TICK)
        return [each for _, each in self.seen]

    def _present(self) -> list[int]:
        return [each for each in self.brokers if self.how.get(each, Meeting.ANSWERED) is Meeting.ANSWERED]

    def _view(self, inference: Inference, now: Micros) -> None:
        answering = [each for each in self._present() if each in self.listed]
        if self.viewed_at is not None:
            answering = [self.viewed_at]
        if not answering:
            inference.miss_changes()
            return
        inference.view(self.view_of(answering[0]), now, Micros(now + _ANSWER // 2))

    def view_of(self, broker: int) -> ClusterView:
        """Give the metadata as a broker has them."""
        partitions = self.sees.get(broker, self.partitions)
        listed = self.lists.get(broker, self.listed)
        return ClusterView(
            cluster_id=ClusterId("c"),
            answered_by=broker,
            brokers={BrokerId(each): self.addresses.get(each, (f"b{each}", 9092)) for each in sorted(listed)},
            topics={TOPIC: dict(partitions)},
            topic_ids={TOPIC: TopicId("T")},
            partition_counts={TOPIC: len(self.partitions)},
            has_reassignments=True,
            has_elr=True,
            unseen=frozenset(ids(*self.unseen)),
        )

    def _answer(self, inference: Inference, now: Micros) -> None:
        waiting, self._open = self._open, []
        for each in waiting:
            how = self.how.get(each.question.broker, Meeting.ANSWERED)
            content = self._content(each.question) if how is Meeting.ANSWERED else None
            error = self.quorum_error if each.question.ask is Ask.QUORUM and how is Meeting.ANSWERED else 0
            if how is Meeting.ANSWERED and content is None and not error:
                how = Meeting.SILENT
            if how is not Meeting.SILENT:
                inference.meet(Met(each.question, each.asked, now, how, 1, None if error else content, error))
                continue
            self._open.append(each)
            if now - each.asked >= (each.silences + 1) * SECOND:
                each.silences += 1
                inference.meet(Met(each.question, each.asked, now, how, 1))

    def _content(self, question: BrokerQuestion) -> Content | None:
        listed = self.lists.get(question.broker, self.listed)
        match question.ask:
            case Ask.PRESENCE:
                fenced = None if self.registered is None else frozenset(ids(*self.registered)) - frozenset(ids(*listed))
                return Presence(None, frozenset(ids(*listed)), fenced)
            case Ask.QUORUM:
                return self.quorum
            case Ask.PARTITIONS:
                return {TOPIC: dict(self.sees.get(question.broker, self.partitions))}
            case Ask.LOG_ENDS:
                numbers = [number for _, number, _ in question.partitions]
                return {(TOPIC, n): self.ends[question.broker, n] for n in numbers if (question.broker, n) in self.ends}
            case Ask.EPOCH_ENDS:
                asked = [(number, epoch) for _, number, epoch in question.partitions]
                return {(TOPIC, n): self.epoch_ends[n, epoch] for n, epoch in asked if (n, epoch) in self.epoch_ends}

    # ------------------------------------------------------------------ what was published

    def steps(self, number: int = 0) -> list[PartitionObserved]:
        """Give the steps of a partition that were published."""
        return [
            each
            for _, each in self.seen
            if isinstance(each, PartitionObserved) and each.partition == number and each.cause is not None
        ]

    def of_broker(self, broker: int) -> list[BrokerObserved]:
        """Give what was published of a broker outside of full reports."""
        return [
            each
            for _, each in self.seen
            if isinstance(each, BrokerObserved) and each.broker == broker and not each.in_snapshot
        ]

    def questions(self, ask: Ask, since: float = 0, until: float = 1e9) -> list[tuple[float, BrokerQuestion]]:
        """Give the questions of a kind that were asked in a time."""
        return [(at, each) for at, each in self.asked if each.ask is ask and since <= at < until]


def of_three(leaders: Iterable[int] = (1, 2, 3)) -> SmallCluster:
    """Give a cluster of three brokers, each of which leads one partition of all."""
    return SmallCluster({number: part((1, 2, 3), (1, 2, 3), leader) for number, leader in enumerate(leaders)})


def without(view: PartitionView, *gone: int, leader: int | None = None, elr: tuple[int, ...] = ()) -> PartitionView:
    """Give a partition after brokers have left its ISR; another leader means another epoch."""
    isr = tuple(broker for broker in view.isr if broker not in gone)
    led_by = BrokerId(view.leader if leader is None else leader)
    epoch = (view.leader_epoch or 0) + (led_by != view.leader)
    return replace_part(view, isr=isr, leader=led_by, leader_epoch=epoch, elr=ids(*elr))


def replace_part(view: PartitionView, **fields: object) -> PartitionView:
    return view._replace(**fields)  # type: ignore[arg-type]


def lose(cluster: SmallCluster, second: float, broker: int, successor: int, *, is_fenced: bool = True) -> None:
    """Plan that the controllers take a broker out of every ISR, in one batch."""

    def act() -> None:
        for number, view in cluster.partitions.items():
            leader = successor if view.leader == broker else view.leader
            cluster.partitions[number] = without(view, broker, leader=leader)
        if is_fenced:
            cluster.listed.discard(broker)

    cluster.at(second, act)


def rejoin(cluster: SmallCluster, second: float, broker: int) -> None:
    """Plan that a broker is unfenced, and joins every ISR."""

    def act() -> None:
        cluster.listed.add(broker)
        for number, view in cluster.partitions.items():
            isr = tuple(each for each in view.replicas if each in view.isr or each == broker)
            cluster.partitions[number] = view._replace(isr=isr)

    cluster.at(second, act)
