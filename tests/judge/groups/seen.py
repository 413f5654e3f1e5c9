"""What a collector sees of the judge's groups: answers of coordinators, as its own rounds and blocks make them.

Coordinators and leaders are the brokers of the model: a group is coordinated by the leader of its partition of
``__consumer_offsets``, and a partition is led by that of a partition of the model. So they move and are silent when
brokers are restarted, crash or move. A new coordinator loads for a while: it lists nothing, or refuses to. Beside this
coordinators are silent, late with some groups, refuse to say what one has committed, and the collector is restarted.
Where groups stand still, leaders and coordinators prove what is there to read, as far as they can: of a producer it is
known how its last transaction ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId, Micros, TopicId, partition_for
from streaming.contracts.observations import Observation, SourceKind
from streaming.sources.samples.groups.blocks import CoordinatorAnswer, group_blocks, group_offset_blocks
from streaming.sources.samples.groups.described import DescribedGroup
from streaming.sources.samples.groups.listed import ListedGroups
from streaming.sources.samples.groups.readable import StandingGroups
from streaming.sources.samples.groups.rounds import Round
from streaming.sources.samples.high_watermarks import HighWatermarks
from tests.judge.groups.applications import Application, Protocol, Reading
from tests.judge.groups.logs import Log, LogKind
from tests.judge.play import SECOND, START

_OFFSETS_PARTITIONS: Final = 12
_APART: Final = Micros(90 * SECOND)
_NOTHING_SHARE: Final = 1 / 2
_LOADS: Final = ((0.0, 0.5), (30.0, 0.8), (90.0, 0.95), (240.0, 1.0))
"""So many seconds at most, in so many cases."""
_SILENT, _LATE, _UNREAD = 1 / 2_000, 1 / 150, 1 / 600
"""How often in a round."""
_PROTOCOLS: Final = {Protocol.ASSIGN: "classic"}


class Loading(NamedTuple):
    """A coordinator loads a partition until then; whether it lists nothing without an error meanwhile."""

    leader: BrokerId
    until: float
    lists_nothing: bool


class Led(NamedTuple):
    """The brokers that respond, and the leaders of a topic's partitions, at a moment."""

    alive: frozenset[BrokerId]
    offsets: Sequence[BrokerId]
    topics: Sequence[BrokerId]

    def leader_of(self, log: Log) -> BrokerId:
        return self.topics[partition_for(log.part, len(self.topics))]


class Positions(NamedTuple):
    """Log start, high watermark and last stable offset of partitions whose leader responded, and when it was asked."""

    at: float
    of: dict[str, tuple[int, int, int]]


class Asked(NamedTuple):
    """What a coordinator is asked for: its groups, those that are gone, and positions that were read before."""

    own: dict[str, Application]
    gone: frozenset[str]
    positions: Positions

    def topics(self) -> set[str]:
        """Name the topics of its groups."""
        return {reading.log.topic for group in self.own.values() for reading in group.readings.values()}


class Seen(NamedTuple):
    """What one round says, the parts of each group that it has, with their leaders' positions, and who is gone."""

    observations: list[Observation]
    said: dict[str, list[str]]
    gone: set[str]


class GroupsCollector:
    """The collector's memory of groups, and the coordinators as they stand."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._loading: dict[int, Loading] = {}
        self._silent: dict[BrokerId, float] = {}
        self.restart(0.0, 0.0)

    def restart(self, now: float, seconds: float) -> None:
        """Begin without any memory after so many seconds."""
        self._down_until, self._listed, self._read = now + seconds, ListedGroups(), HighWatermarks(_APART)
        self._late: dict[BrokerId, list[str]] = {}
        self._standing = StandingGroups()

    def positions(self, now: float, led: Led, logs: Collection[Log]) -> Positions:
        """Ask the leaders."""
        answering = [log for log in logs if led.leader_of(log) in led.alive]
        by_topic: dict[str, dict[int, int]] = {}
        for log in answering:
            by_topic.setdefault(log.topic, {})[log.number] = log.end
        at = _micros(now)
        self._read.put({topic: topic_id(topic) for topic in by_topic}, by_topic, at, at)
        return Positions(now, {log.part: (log.start, log.end, log.stable) for log in answering})

    def round(self, now: float, led: Led, groups: Sequence[Application], positions: Positions) -> Seen:
        """Ask the coordinators."""
        coordinators = self._coordinators(now, led)
        seen = Seen([], {}, set())
        if now < self._down_until:
            return seen
        for broker in sorted(led.alive):
            if self.random.random() < _SILENT:
                self._silent[broker] = now + self.random.uniform(30, 400)
            loading = [each for each in self._loading.values() if each.leader == broker and now < each.until]
            if now < self._silent.get(broker, 0.0) or any(not each.lists_nothing for each in loading):
                continue
            its = [group for group in groups if coordinators[_place(group.name)] == broker]
            own = {group.name: group for group in its if group.exists and not _is_empty(group)}
            gone = {group.name for group in its if not group.exists} & self._listed.expected(broker)
            self._answer(now, broker, Asked(own, frozenset(gone), positions), seen)
        self._prove(now, led, {place: reading.log for group in groups for place, reading in _places(group)})
        return seen

    def _prove(self, now: float, led: Led, logs: dict[tuple[str, int], Log]) -> None:
        """Ask what there is to read where groups stand still."""
        ids = {topic: topic_id(topic) for topic, _ in logs}
        for place in self._standing.unproven(ids):
            log, known = logs[place], dict[str, Any]()
            if led.leader_of(log) in led.alive:
                is_transactional = log.kind is LogKind.TRANSACTIONAL
                came = now if not is_transactional else None if log.transaction else log.committed_from
                known = {"is_transactional": is_transactional, "readable_at": None if came is None else _micros(came)}
            self._standing.put(place, ids, asked_at=_micros(now), **known)

    def _coordinators(self, now: float, led: Led) -> list[BrokerId | None]:
        """Give the broker that answers for each partition of the offsets' topic; None while it loads, or is away."""
        of: list[BrokerId | None] = []
        for number, leader in enumerate(led.offsets):
            before = self._loading.get(number)
            responds = leader in led.alive
            if before is None or before.leader != leader or not responds:
                chance = self.random.random()
                longest = next(seconds for seconds, share in _LOADS if chance <= share) if before else 0.0
                until = now + self.random.uniform(longest / 3, longest) if responds else now
                before = Loading(leader, until, self.random.random() < _NOTHING_SHARE)
                self._loading[number] = before if responds else before._replace(leader=BrokerId(-1))
            of.append(leader if responds and now >= before.until else None)
        return of

    def _answer(self, now: float, broker: BrokerId, asked: Asked, seen: Seen) -> None:
        """Let a coordinator answer: for all groups, or not for all."""
        own = asked.own
        names = [*dict.fromkeys((*(name for name in self._late.get(broker, ()) if name in own), *own))]
        is_late = bool(names) and self.random.random() < _LATE
        reached = self.random.randrange(len(names) + 1) if is_late else len(names)
        described = {name: _described(own[name], now) for name in names}
        groups, left = ({name: described[name] for name in some} for some in (names[:reached], names[reached:]))
        self._late[broker] = [*left]
        unread = frozenset(name for name in groups if self.random.random() < _UNREAD)
        envelope, ids = _envelope(now), {topic: topic_id(topic) for topic in asked.topics()}
        answer = self._standing.with_proofs(self._coordinated(now, asked, groups, unread), ids, _micros(now))
        of_round = Round(_micros(now), {}, self._listed.take(broker, set(names), asked.gone, _micros(now)))
        blocks = [*group_blocks(broker, groups, unread, envelope), *group_offset_blocks(broker, answer, ids, envelope)]
        of_round.add(blocks, CoordinatorAnswer(groups, unread=unread, left=left, ended=asked.gone))
        seen.observations.extend(of_round.shown(broker, envelope))
        seen.gone.update(asked.gone)
        read = asked.positions.of
        seen.said.update(
            {name: [part for part in own[name].readings if part in read] for name in groups.keys() - unread}
        )

    def _coordinated(
        self, now: float, asked: Asked, groups: dict[str, DescribedGroup], unread: frozenset[str]
    ) -> CoordinatorAnswer:
        own, positions = asked.own, asked.positions
        offsets: dict[str, dict[str, dict[int, int]]] = {}
        lags: dict[str, dict[str, dict[int, int]]] = {}
        topics = set[str]()
        for name in groups.keys() - unread:
            of, lag = offsets.setdefault(name, {}), lags.setdefault(name, {})
            for reading in own[name].readings.values():
                topics.add(reading.log.topic)
                if reading.committed is not None:
                    of.setdefault(reading.log.topic, {})[reading.log.number] = reading.committed
                    behind = max(0, reading.log.end - max(reading.committed, reading.log.start))
                    lag.setdefault(reading.log.topic, {})[reading.log.number] = behind
        sharing = {name for name in offsets if groups[name].protocol == Protocol.SHARE}
        ends = _by_topic(positions, 1)
        return CoordinatorAnswer(
            groups,
            committed={name: each for name, each in offsets.items() if name not in sharing},
            lags={name: lags[name] for name in sharing},
            starts={name: offsets[name] for name in sharing},
            unread=unread,
            gone=asked.gone,
            topic_ids={topic: topic_id(topic) for topic in topics},
            positions={
                name: _by_topic(positions, place)
                for place, name in enumerate(("log_start_offset", "high_watermark", "last_stable_offset"))
            },
            positions_at=_micros(positions.at),
            lag_seconds={
                name: {
                    topic: self._read.lag_seconds(topic_id(topic), of, ends[topic], _micros(now))
                    for topic, of in by_topic.items()
                    if topic in ends
                }
                for name, by_topic in offsets.items()
            },
        )


def _places(group: Application) -> Iterator[tuple[tuple[str, int], Reading]]:
    yield from (((reading.log.topic, reading.log.number), reading) for reading in group.readings.values())


def _is_empty(group: Application) -> bool:
    """Return whether Kafka knows nothing of a group: nobody has joined, nothing is committed."""
    return not group.has_members and all(each.committed is None for each in group.readings.values())


def _by_topic(positions: Positions, place: int) -> dict[str, dict[int, int]]:
    of: dict[str, dict[int, int]] = {}
    for part, values in positions.of.items():
        topic, _, number = part.rpartition("-")
        of.setdefault(topic, {})[int(number)] = values[place]
    return of


def _described(group: Application, now: float) -> DescribedGroup:
    owners: dict[str, dict[int, str]] = {}
    for reading, owner in group.owners(now):
        owners.setdefault(reading.log.topic, {})[reading.log.number] = owner
    members = group.members if group.has_members else 0
    return DescribedGroup(_PROTOCOLS.get(group.protocol, group.protocol), group.state(now), members, None, owners)


def _place(group: str) -> int:
    return partition_for(group, _OFFSETS_PARTITIONS)


def topic_id(topic: str) -> TopicId:
    return TopicId(f"id of {topic}")


def _micros(second: float) -> Micros:
    return Micros(START + round(second * SECOND))


def _envelope(now: float) -> dict[str, Any]:
    moments = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), _micros(now))
    identity = {"cluster_id": "judged", "cluster": "judged", "source": "samples:judge"}
    return {**identity, **moments, "source_kind": SourceKind.NONE}
