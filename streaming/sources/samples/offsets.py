"""Log positions of every replica: first each leader is asked for its partitions, then each follower for where it is.

In this order, so that the lag of a follower is never too large: it is what it still lacked of that which its leader had
a moment before. Within that moment, at most ``ROUND_MICROS`` and the time that a broker takes, it may be too small.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, BrokerId, Micros
from streaming.sources.high_watermarks import HighWatermarks
from streaming.sources.permissions import DESCRIBE_TOPICS, Denied
from streaming.sources.samples.held_partitions import HeldPartitions
from streaming.sources.samples.kind import NEVER, Shown
from streaming.sources.samples.listed_offsets import (
    HIGH_WATERMARK,
    LAST_STABLE,
    LOG_END,
    LOG_START,
    Listed,
    list_offsets,
)
from streaming.sources.samples.offset_blocks import offset_blocks
from streaming.sources.timer import AT_ONCE, Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.contracts.identifiers import TopicId
    from streaming.sources.admin_view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.broker_calls import BrokerAnswer
    from streaming.sources.samples.directories import DirectoriesKind
    from streaming.sources.samples.kind import Ask
    from streaming.sources.samples.listed_offsets import OffsetSpec

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
class Hosted:
    """The partitions that a broker leads, and those that it follows, by topic."""

    led: Partitions = field(default_factory=dict)
    followed: Partitions = field(default_factory=dict)


def hosted_by(view: ClusterView) -> dict[BrokerId, Hosted]:
    """Group the partitions by the live brokers that hold them."""
    hosted = {broker: Hosted() for broker in view.brokers}
    for topic, parts in view.topics.items():
        for number, partition in parts.items():
            leader = partition.leader
            for broker in {leader, *partition.replicas} - {NO_LEADER}:
                if broker in hosted:
                    by_topic = hosted[broker].led if broker == leader else hosted[broker].followed
                    by_topic.setdefault(topic, []).append(number)
    return hosted


class LogEnds(NamedTuple):
    """Where logs ended in one round: those of leaders, and a moment later those of followers, by broker."""

    leaders: ByTopic
    followers: dict[BrokerId, ByTopic]


class Positions(NamedTuple):
    """What a broker answered.

    Attributes:
        topic_ids: of its topics, at the time of the question.
        fields: the offsets.
        leader_ends: of a follower: the log ends of the leaders that had answered by then.
        read_at: when it had answered for the high watermarks, by the monotonic clock.
    """

    topic_ids: Mapping[str, TopicId]
    fields: dict[str, Listed]
    leader_ends: ByTopic | None = None
    read_at: Micros = AT_ONCE


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
        """When it is due, by the monotonic clock."""
        return self._due.next_at if self._followers_at == NEVER else self._followers_at

    @property
    def leaders_until(self) -> Micros:
        """Until when leaders are asked at the latest, by the monotonic clock; in the past unless some are."""
        return AT_ONCE if self._followers_at == NEVER else self._followers_at

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

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> Shown:
        """Return the positions that a broker reports."""
        is_compared = answer.kind == LEADERS and self._is_in_time(answer)
        if answer.refusal is not None:
            return Shown([], answer.refusal)
        asked_of, fields, leader_ends, read_at = answer.value
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
        return Shown([*offset_blocks(answer.broker, reported, topic_ids, envelope)], _denied(fields))

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
    fields, read_at = dict[str, Listed](), AT_ONCE
    for name, spec in specs.items():
        fields[name] = list_offsets(connection, spec, partitions)
        if spec == HIGH_WATERMARK:
            read_at = monotonic()
    return Positions(topic_ids, fields, leader_ends, read_at)


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


def _denied(fields: Mapping[str, Listed]) -> Denied | None:
    """Return the permission that was missing for one of the answers."""
    topic = next((listed.denied for listed in fields.values() if listed.denied is not None), None)
    return None if topic is None else Denied(DESCRIBE_TOPICS, on=f"topic {topic}")
