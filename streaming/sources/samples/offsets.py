"""Log positions of every replica: first each leader is asked for its partitions, then each follower for where it is.

In this order, so that the lag of a follower is never too large: it is what it still lacked of that which its leader had
a moment before. Within that moment, at most ``ROUND_MICROS`` and the time that a broker takes, it may be too small.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, BrokerId, Micros
from streaming.contracts.sample_blocks import SAMPLES_PER_BLOCK, BrokerOffsetsObserved, reported
from streaming.sources.permissions import DESCRIBE_TOPICS, PermissionDenied
from streaming.sources.protocol.offset_messages import (
    HIGH_WATERMARK,
    LAST_STABLE,
    LOG_END,
    LOG_START,
    ListedOffsets,
    OffsetSpec,
    list_offsets,
)
from streaming.sources.samples.high_watermarks import HighWatermarks
from streaming.sources.samples.kind import NEVER, AnswerContent
from streaming.sources.source import AT_ONCE, Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import TopicId
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.directories import DirectoriesKind
    from streaming.sources.samples.kind import Ask, BrokerAnswer

# Log positions of one broker's replicas, field by field, as blocks. Pure.


if TYPE_CHECKING:
    ByPartition = Mapping[str, Mapping[int, Any]]
    """By topic and partition."""


def offset_blocks(
    broker: BrokerId, fields: Mapping[str, ByPartition], topic_ids: Mapping[str, TopicId], envelope: Mapping[str, Any]
) -> Iterator[BrokerOffsetsObserved]:
    """Gather what is reported of a broker's replicas into blocks, by field of a sample.

    Left out are replicas of which nothing but their place is reported, and topics without id.
    """
    replicas = sorted(
        (topic_ids[topic], topic, number)
        for topic in {topic for by_topic in fields.values() for topic in by_topic} & topic_ids.keys()
        for number in set[int]().union(*(fields[name].get(topic, ()) for name in _PLACES if name in fields))
    )
    for start in range(0, len(replicas), SAMPLES_PER_BLOCK):
        some = [
            (key, [number for *_, number in same])
            for key, same in groupby(replicas[start : start + SAMPLES_PER_BLOCK], itemgetter(0, 1))
        ]
        arrays: dict[str, tuple[Any, ...]] = {
            "topic_id": tuple(topic_id for (topic_id, _), _ in some),
            "topic": tuple(topic for (_, topic), _ in some),
            "partition": tuple(chain.from_iterable(numbers for _, numbers in some)),
        }
        for name, by_topic in fields.items():
            of_topics = (map(by_topic.get(topic, {}).get, numbers) for (_, topic), numbers in some)
            arrays[name] = tuple(chain.from_iterable(of_topics))
        counts = tuple(len(numbers) for _, numbers in some)
        yield BrokerOffsetsObserved(**envelope, broker=broker, samples_by_topic=counts, arrays=reported(arrays))


_PLACES: Final = ("log_end_offset", "log_start_offset", "high_watermark")
"""Fields of which one at least is reported of every replica that is there."""


if TYPE_CHECKING:
    ByTopic = dict[str, dict[int, int]]
    Partitions = dict[str, list[int]]

LEADERS: Final = "leader offsets"
FOLLOWERS: Final = "follower offsets"
ROUND_MICROS: Final = 1_000_000
"""So long followers wait for the answers of all leaders; a hung one delays them no more."""
_OF_LEADER: Final = {
    "log_start_offset": LOG_START,
    "high_watermark": HIGH_WATERMARK,
    "last_stable_offset": LAST_STABLE,
    "log_end_offset": LOG_END,
}
_OF_GROUPS: Final = ("log_start_offset", "last_stable_offset", "high_watermark")
_OF_FOLLOWER: Final = {"log_end_offset": LOG_END}
_ROUNDS_APART: Final = 3  # a leader that does not answer once or twice is no reason to say nothing


@dataclass(slots=True)
class HostedPartitions:
    """The partitions that a broker leads, and those that it follows, by topic."""

    led: Partitions = field(default_factory=dict)
    followed: Partitions = field(default_factory=dict)


def hosted_by(view: ClusterView) -> dict[BrokerId, HostedPartitions]:
    """Group the partitions by the live brokers that hold them."""
    hosted = {broker: HostedPartitions() for broker in view.brokers}
    for topic, parts in view.topics.items():
        for number, partition in parts.items():
            leader = partition.leader
            for broker in {leader, *partition.replicas} - {NO_LEADER}:
                if broker in hosted:
                    by_topic = hosted[broker].led if broker == leader else hosted[broker].followed
                    by_topic.setdefault(topic, []).append(number)
    return hosted


class LogEnds(NamedTuple):
    """Ends of logs in one round: those of leaders, and a moment later those of followers, by broker."""

    leaders: ByTopic
    followers: dict[BrokerId, ByTopic]


class Positions(NamedTuple):
    """Response of a broker.

    Attributes:
        topic_ids: of its topics, at the time of the question.
        fields: the offsets.
        leader_ends: of a follower: the log ends of the leaders that had answered by then.
        read_at: when it had answered for the high watermarks, by the monotonic clock.
        asked_at: when it was asked for the first of them, by the same clock.
    """

    topic_ids: Mapping[str, TopicId]
    fields: dict[str, ListedOffsets]
    leader_ends: ByTopic | None = None
    read_at: Micros = AT_ONCE
    asked_at: Micros = AT_ONCE


class OffsetsKind:
    """Asks for log positions; see :class:`kind.Kind`.

    Attributes:
        held: the partitions that an open transaction holds.
        ends: where logs ended in the round before this one.
        high_watermarks: when they passed which offset, by the monotonic clock.

    Args:
        period: microseconds.
        directories: knows where the replicas lie, and how large they are.
    """

    names: Sequence[str] = (LEADERS, FOLLOWERS)

    def __init__(self, period: Micros, directories: DirectoriesKind) -> None:
        self._due, self._directories = Timer(period), directories
        self.held = HeldPartitions()
        self.high_watermarks = HighWatermarks(Micros(_ROUNDS_APART * period))
        self._round_at = NEVER
        self._followers_at = NEVER
        self._unanswered: set[BrokerId] = set()
        self.ends = LogEnds({}, {})
        self._ends = LogEnds({}, {})
        self._led: dict[BrokerId, Positions] = {}

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock."""
        return self._due.next_at if self._followers_at == NEVER else self._followers_at

    @property
    def leaders_until(self) -> Micros:
        """Until when leaders are asked at the latest, by the monotonic clock; in the past unless some are."""
        return AT_ONCE if self._followers_at == NEVER else self._followers_at

    @property
    def positions_asked_at(self) -> Micros | None:
        """Time of the first question of which there are positions, by the monotonic clock; None without any."""
        return min((each.asked_at for each in self._led.values()), default=None)

    def positions(self, topic_ids: Mapping[str, TopicId]) -> dict[str, ByTopic]:
        """Return what leaders answered last of their partitions: by field of a sample, topic and partition.

        Nothing of leaders that did not answer when they were asked last, or left; of two that both led a partition the
        later answer; nothing of a topic that has another id now.
        """
        positions: dict[str, ByTopic] = {name: {} for name in _OF_GROUPS}
        for asked_of, fields, *_ in self._led.values():
            for name in _OF_GROUPS:
                for topic, offsets in fields[name].offsets.items():
                    if asked_of.get(topic) == topic_ids.get(topic):
                        positions[name].setdefault(topic, {}).update(offsets)
        return positions

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask the leaders when the time has come, and when these have answered the followers, before leaders again."""
        if self._followers_at == NEVER and self._due.take_due(moment):
            self.ends, self._ends = self._ends, LogEnds({}, {})
            self._round_at, self._followers_at = moment, Micros(moment + ROUND_MICROS)
            self.high_watermarks.retain(view.topic_ids.values())
            questions = {
                broker: partial(_positions, _OF_LEADER, view.topic_ids, hosted.led)
                for broker, hosted in hosted_by(view).items()
                if hosted.led
            }
            self._led = {broker: positions for broker, positions in self._led.items() if broker in questions}
            self._unanswered = {broker for broker, question in questions.items() if ask(LEADERS, broker, question)}
        elif moment >= self._followers_at:
            self._followers_at = NEVER
            for broker, hosted in hosted_by(view).items():
                if hosted.followed:
                    asked = (_OF_FOLLOWER, view.topic_ids, hosted.followed)
                    ask(FOLLOWERS, broker, partial(_positions, *asked, leader_ends=self._ends.leaders))

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:
        """Return the positions that a broker reports."""
        is_compared = answer.kind == LEADERS and self._is_in_time(answer)
        if answer.refusal is not None:
            return AnswerContent([], answer.refusal)
        asked_of, fields, leader_ends, read_at, _ = answer.value
        offsets = {name: listed.offsets for name, listed in fields.items()}
        topic_ids = {topic: each for topic, each in asked_of.items() if view.topic_ids.get(topic) == each}
        if answer.kind == LEADERS:
            self.high_watermarks.put(topic_ids, offsets["high_watermark"], self._round_at, read_at)
            leader_ends = _of_present_leader(offsets["log_end_offset"], offsets["log_start_offset"])
            self.held.put(topic_ids, offsets["high_watermark"], offsets["last_stable_offset"])
        if is_compared:
            for topic, ends in leader_ends.items():
                self._ends.leaders.setdefault(topic, {}).update(ends)
        elif leader_ends is self._ends.leaders:
            self._ends.followers[answer.broker] = offsets["log_end_offset"]
        placed = self._directories.placed_at(answer.broker, topic_ids)
        reported = {**offsets, "leader_log_end_offset": leader_ends, **placed}
        return AnswerContent([*offset_blocks(answer.broker, reported, topic_ids, envelope)], _denied(fields))

    def _is_in_time(self, answer: BrokerAnswer) -> bool:
        """Note what a leader answered; return whether followers, who are compared with it, were not asked before."""
        self._led.pop(answer.broker, None)
        if answer.refusal is None:
            self._led[answer.broker] = answer.value
        is_in_time = answer.broker in self._unanswered and self._followers_at != NEVER
        self._unanswered.discard(answer.broker)
        if is_in_time and not self._unanswered:
            self._followers_at = AT_ONCE
        return is_in_time


def _positions(
    specs: Mapping[str, OffsetSpec],
    topic_ids: Mapping[str, TopicId],
    partitions: Partitions,
    connection: Connection,
    leader_ends: ByTopic | None = None,
) -> Positions:
    fields, read_at, asked_at = dict[str, ListedOffsets](), AT_ONCE, monotonic()
    for name, spec in specs.items():
        fields[name] = list_offsets(connection, spec, partitions)
        if spec == HIGH_WATERMARK:
            read_at = monotonic()
    return Positions(topic_ids, fields, leader_ends, read_at, asked_at)


def _of_present_leader(log_ends: ByTopic, log_starts: ByTopic) -> ByTopic:
    """Leave out who does not lead (any more): it says where its own log ends, but to no consumer where it starts.

    A new leader may not say its high watermark for a while, as that is not of its own epoch yet (KIP-207).
    """
    if all(ends.keys() == log_starts.get(topic, {}).keys() for topic, ends in log_ends.items()):
        return log_ends
    return {
        topic: {number: end for number, end in ends.items() if number in log_starts.get(topic, {})}
        for topic, ends in log_ends.items()
    }


def _denied(fields: Mapping[str, ListedOffsets]) -> PermissionDenied | None:
    """Return the permission that was missing for one of the answers."""
    topic = next((listed.denied for listed in fields.values() if listed.denied is not None), None)
    return None if topic is None else PermissionDenied(DESCRIBE_TOPICS, on=f"topic {topic}")


# Partitions whose last stable offset stands still below the high watermark: the oldest open transaction holds it.


if TYPE_CHECKING:
    OffsetsByTopic = Mapping[str, Mapping[int, int]]
    TopicPartition = tuple[str, int]


class HeldPartition(NamedTuple):
    """A partition that is held.

    Attributes:
        last_stable_offset: where, the first offset of the oldest open transaction.
        high_watermark: when this was first seen: all before it is of transactions that had begun then.
        since: when this was first seen, by the monotonic clock.
    """

    last_stable_offset: int
    high_watermark: int
    since: Micros


class HeldPartitions:
    """Notes which partitions are held, from the offsets of one leader after the other."""

    def __init__(self, clock: Callable[[], Micros] = monotonic) -> None:
        self._clock = clock
        self._ids: dict[str, TopicId] = {}
        self._held: dict[str, dict[int, HeldPartition]] = {}

    def put(
        self, topic_ids: Mapping[str, TopicId], high_watermarks: OffsetsByTopic, last_stable: OffsetsByTopic
    ) -> None:
        """Note the offsets of a leader's partitions. The high watermarks were read first, so none is held by chance."""
        now = self._clock()
        for topic, stable in last_stable.items():
            topic_id = topic_ids.get(topic)
            if topic_id is None:
                continue
            before = self._held.get(topic, {}) if self._ids.get(topic) == topic_id else {}
            kept = {number: held for number, held in before.items() if number not in stable}
            watermarks = high_watermarks.get(topic, {})
            if stable != watermarks:
                kept |= {
                    number: held
                    if (held := before.get(number)) is not None and held.last_stable_offset == offset
                    else HeldPartition(offset, watermarks[number], now)
                    for number, offset in stable.items()
                    if offset < watermarks.get(number, 0)
                }
            self._ids[topic], self._held[topic] = topic_id, kept

    def for_long(self, topic_ids: Mapping[str, TopicId], micros: Micros) -> dict[TopicPartition, HeldPartition]:
        """Return the partitions that have been held for so long, of topics that still exist; forget other topics."""
        gone = [topic for topic, topic_id in self._ids.items() if topic_ids.get(topic) != topic_id]
        for topic in gone:
            del self._ids[topic], self._held[topic]
        until = self._clock() - micros
        return {
            (topic, number): held
            for topic, parts in self._held.items()
            for number, held in parts.items()
            if held.since <= until
        }
