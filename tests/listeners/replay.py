"""A recorded cluster, polled once more: ``Inference`` asks, and what real listeners did then is what it meets.

The recording is at rest before its first row and after its last one. What a recording does not have is left out: a
question about epochs other than those before the fault is answered with nothing, and racks are unknown.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Final

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import ConfigObserved, ConfigOrigin, Observation, SourceKind
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
from streaming.sources.polling.view import ClusterView, PartitionView, Reassignment
from tests.listeners.recordings import NEVER, Play, Record

CLUSTER: Final = ClusterId("recorded")
ORDERS: Final = "orders"
MILLI: Final = 1_000
SECOND: Final = 1_000 * MILLI
BEFORE_MS: Final = 30_000
AFTER_MS: Final = 40_000
_STEP_MS: Final = 50
_ANSWER_MS: Final = 5
_PROBES: Final = {
    Ask.PRESENCE: "DescribeCluster",
    Ask.QUORUM: "DescribeQuorum",
    Ask.PARTITIONS: "DescribeTopicPartitions",
    Ask.LOG_ENDS: "ListOffsets",
    Ask.EPOCH_ENDS: "OffsetForLeaderEpoch",
}
_ENDED: Final = {"closed", "reset", "timed out"}
_SECOND_CONNECTION_MS: Final = 2_000
"""After so long without an answer a second connection is opened, as the product does."""


class RecordedCluster:
    """What each probe of a play met, by time."""

    def __init__(self, play: Play) -> None:
        self.play = play
        nodes = play.data["brokers"]
        self._hows = {(node, name): list(play.hows(node, name)) for node in nodes for name in self._names()}
        self._answers = {(node, name): list(play.answers(node, name)) for node in nodes for name in self._names()}
        self.end_ms = max(row[0] for row in play.data["met"])

    @staticmethod
    def _names() -> tuple[str, ...]:
        return (*_PROBES.values(), "Metadata", "log ends", "epoch ends", "new connection")

    def how(self, node: int, probe: str, at: int) -> str:
        """Return how a probe fares at a time."""
        hows = self._hows[node, probe]
        return next((how for when, how in reversed(hows) if when <= at), hows[0][1])

    def change(self, node: int, probe: str, at: int) -> tuple[int, str]:
        """Return when a probe next fares otherwise, and how."""
        return next(((when, how) for when, how in self._hows[node, probe] if when > at), (NEVER, ""))

    def answer(self, node: int, probe: str, at: int) -> Record:
        """Return the newest answer at a time."""
        answers = self._answers[node, probe]
        return next((answer for when, answer in reversed(answers) if when <= at), answers[0][1] if answers else {})

    # ------------------------------------------------------------------ answers as values

    def content(self, question: BrokerQuestion, at: int) -> Content | None:
        """Return what a question is answered."""
        node, answer = int(question.broker), self.answer(question.broker, _PROBES[question.ask], at)
        if question.ask is Ask.PRESENCE:
            fenced = answer.get("fenced")
            return Presence(
                None,
                frozenset(map(BrokerId, answer["listed"])),
                None if fenced is None else frozenset(map(BrokerId, fenced)),
            )
        if question.ask is Ask.QUORUM:
            return None if answer.get("error") else QuorumLeader(answer["leader"], answer["epoch"])
        if question.ask is Ask.PARTITIONS:
            topics = {topic for topic, _, _ in question.partitions}
            return {topic: parts for topic, parts in _topics(answer).items() if topic in topics}
        ends = self.answer(node, "log ends" if question.ask is Ask.LOG_ENDS else "epoch ends", at)
        asked = {
            f"{topic}-{number}": (topic, number)
            for topic, number, epoch in question.partitions
            if question.ask is Ask.LOG_ENDS or epoch == self._epoch(f"{topic}-{number}")
        }
        return {asked[name]: end for name, end in ends.items() if name in asked and name not in answer}

    def _epoch(self, partition: str) -> int:
        return int(self.answer(1, "Metadata", -BEFORE_MS)[partition]["epoch"])

    def view(self, at: int) -> ClusterView | None:
        """Return what the metadata of the first broker that answers shows."""
        for node in self.play.data["brokers"]:
            if self.how(node, "Metadata", at) == "answered":
                answer, described = self.answer(node, "Metadata", at), self.answer(node, "DescribeTopicPartitions", at)
                topics = _topics({name: described.get(name, part) for name, part in answer.items()})
                return ClusterView(
                    cluster_id=CLUSTER,
                    answered_by=node,
                    brokers={BrokerId(each): (f"10.99.{each}.2", 9092) for each in answer["listed"]},
                    topics=topics,
                    topic_ids={topic: TopicId(topic) for topic in topics},
                    has_elr=True,
                ).with_reassignments(self._reassignments(at))
        return None

    def _reassignments(self, at: int) -> dict[tuple[str, int], Reassignment]:
        """Return what ListPartitionReassignments would answer, by the metadata log."""
        moving: dict[tuple[str, int], Reassignment] = {}
        for when, record in self.play.records():
            if when <= at and "adding_replicas" in record:
                adding, removing = (tuple(map(BrokerId, record[f"{what}_replicas"])) for what in ("adding", "removing"))
                moving[_split(record["partition"])] = Reassignment(adding, removing)
        return {key: each for key, each in moving.items() if each.adding or each.removing}


def _topics(answer: Record) -> dict[str, dict[int, PartitionView]]:
    topics: dict[str, dict[int, PartitionView]] = {}
    for name, part in sorted(answer.items()):
        if isinstance(part, dict) and "isr" in part:
            topic, number = _split(name)
            topics.setdefault(topic, {})[number] = PartitionView(
                replicas=tuple(map(BrokerId, part["replicas"])),
                isr=tuple(BrokerId(each) for each in part["replicas"] if each in part["isr"]),
                leader=BrokerId(part["leader"]),
                leader_epoch=part["epoch"],
                elr=tuple(map(BrokerId, part.get("elr", ()))),
                last_known_elr=tuple(map(BrokerId, part.get("last_known_elr", ()))),
                offline=tuple(map(BrokerId, part["offline"])),
            )
    return topics


def _split(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


class Replay:
    """Polls a recorded cluster from before the recording until some time after it.

    Args:
        play: what was recorded.
        poll_seconds: interval of reads of the metadata.
        phase_ms: when the first of them is.
    """

    def __init__(self, play: Play, *, poll_seconds: float = 5.0, phase_ms: int = 0) -> None:
        self._cluster = RecordedCluster(play)
        self._poll_ms = round(poll_seconds * 1000)
        self._begin_ms = -BEFORE_MS + phase_ms
        intervals = Intervals(
            poll=Micros(self._poll_ms * MILLI), session=Micros(play.session_ms * MILLI), lag=Micros(play.lag_ms * MILLI)
        )
        self._inference = Inference("admin:replay", "recorded", intervals)
        self._ends: list[tuple[int, int, Callable[[int], None]]] = []
        self._numbers = iter(range(10**9))
        self._connection = dict.fromkeys(play.data["brokers"], 1)
        self._was_refused: set[int] = set()

    def observations(self) -> Iterator[tuple[int, list[Observation]]]:
        """Yield what is published, with the millisecond of the play at which it is."""
        due, minima = self._begin_ms, _minima(self._begin_ms)
        for now in range(self._begin_ms, self._cluster.end_ms + AFTER_MS, _STEP_MS):
            while self._ends and self._ends[0][0] <= now:
                at, _, end = heapq.heappop(self._ends)
                end(at)
            if now >= due:
                due += self._poll_ms
                if (view := self._cluster.view(now)) is None:
                    self._inference.miss_changes()
                else:
                    self._inference.view(view, _micros(now - _ANSWER_MS), _micros(now))
            for question in self._inference.questions(_micros(now)):
                self._ask(question, now)
            if seen := self._inference.take(_micros(now), 0):
                yield now, [*seen, *minima]
                minima = []

    def _ask(self, question: BrokerQuestion, now: int) -> None:
        probe, node = _PROBES[question.ask], int(question.broker)
        how = self._cluster.how(node, probe, now)
        if how == "silent":
            self._wait(question, now)
        elif how in {"refused", *_ENDED}:
            self._was_refused.add(node)
            self._end(now + 1, question, now, Meeting.REFUSED)
        elif how == "unreachable":
            self._end(now + 1000, question, now, Meeting.UNREACHABLE)
        else:
            if node in self._was_refused:
                self._was_refused.discard(node)
                self._connection[node] += 1
            self._end(now + _ANSWER_MS, question, now, Meeting.ANSWERED)

    def _wait(self, question: BrokerQuestion, asked: int) -> None:
        """Meet silence each second until the recording has something else, or a second connection is answered."""
        node, probe = int(question.broker), _PROBES[question.ask]
        at, how = self._cluster.change(node, probe, asked)
        second = max(asked + _SECOND_CONNECTION_MS, self._answers_again(node, asked))
        if question.ask is not Ask.QUORUM and second < at:
            self._connection[node] += 1
            at, how = second, "answered"
        for silent in range(asked + 1000, min(at, self._cluster.end_ms + AFTER_MS), 1000):
            self._end(silent, question, asked, Meeting.SILENT)
        if at < NEVER:
            self._end(at, question, asked, Meeting.CLOSED if how in _ENDED else Meeting.ANSWERED)

    def _answers_again(self, node: int, asked: int) -> int:
        if self._cluster.how(node, "new connection", asked) == "answered":
            return asked
        at, how = self._cluster.change(node, "new connection", asked)
        while at < NEVER and how != "answered":
            at, how = self._cluster.change(node, "new connection", at)
        return at

    def _end(self, at: int, question: BrokerQuestion, asked: int, how: Meeting) -> None:
        def end(now: int) -> None:
            content = self._cluster.content(question, now) if how is Meeting.ANSWERED else None
            connection = self._connection[int(question.broker)]
            self._inference.meet(Met(question, _micros(asked), _micros(now), how, connection, content))

        heapq.heappush(self._ends, (at, next(self._numbers), end))


def _minima(at: int) -> list[Observation]:
    """Return what DescribeConfigs answers of the topic with a minimum."""
    return [
        ConfigObserved(
            cluster_id=CLUSTER,
            cluster="recorded",
            source="admin:replay",
            source_kind=SourceKind.POLL,
            occurred_not_before=_micros(at),
            occurred_not_after=_micros(at),
            collected_at=_micros(at),
            topic=ORDERS,
            key="min.insync.replicas",
            value="2",
            origin=ConfigOrigin.DESCRIBE,
        )
    ]


def _micros(millis: int) -> Micros:
    """Return a monotonic time: that of the fault is a hundred seconds."""
    return Micros((100_000 + millis) * MILLI)


def incidents_of(replay: Replay, job: Any) -> list[dict[str, Any]]:
    """Return the rows of incidents that follow, in micro-batches of a second, and are not merged into others."""
    batches: dict[int, list[Observation]] = {}
    for at, seen in replay.observations():
        batches.setdefault(at // 1000, []).extend(seen)
    for second in sorted(batches):
        job.batch(_micros(second * 1000), batches[second])
    rows: list[dict[str, Any]] = job.incidents_of_their_own()
    return rows
