"""Queries of Spark as groups: their offsets are in no topic, but in checkpoints, which are read when groups are due.

As of :mod:`groups` the positions beside a committed offset were read before the checkpoint, so lag is never too large.
A checkpoint that cannot be read is no group for that time. Topics have no ids in it: one of which a query has read more
than there is, is another topic by now, or has lost records, and is left out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.group_blocks import BrokerGroupsObserved
from streaming.contracts.identifiers import NO_BROKER, Micros
from streaming.sources.samples.described_groups import DescribedGroup
from streaming.sources.samples.group_blocks import CoordinatorAnswer, group_offset_blocks, with_lag_seconds
from streaming.sources.samples.kind import Shown
from streaming.sources.samples.spark_checkpoints import Checkpoint, CheckpointUnreadable, read_checkpoint
from streaming.sources.timer import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from streaming.contracts.identifiers import TopicId
    from streaming.contracts.observations import Observation
    from streaming.sources.admin_view import ClusterView
    from streaming.sources.high_watermarks import HighWatermarks
    from streaming.sources.samples.broker_calls import BrokerAnswer
    from streaming.sources.samples.committed_offsets import ByTopic
    from streaming.sources.samples.kind import Ask
    from streaming.sources.samples.offsets import OffsetsKind

KIND: Final = "spark checkpoints"
PROTOCOL: Final = "spark"
ACTIVE: Final = "Active"
UNKNOWN: Final = "Unknown"
ACTIVE_MICROS: Final = 60_000_000
"""A query that began or finished a batch so long ago was active then; of an idle one its checkpoint says nothing."""


class _Read(NamedTuple):
    """What was read, and when it was begun: the ids of the topics, and the positions of their partitions before.

    ``read_at`` is by the monotonic clock.
    """

    read_at: Micros
    topic_ids: Mapping[str, TopicId]
    positions: Mapping[str, ByTopic]
    checkpoints: Mapping[str, Checkpoint | CheckpointUnreadable]


class SparkGroupsKind:
    """Reads checkpoints; see :class:`kind.Kind`. Stands behind ``offsets`` in the list of kinds.

    Args:
        period: microseconds.
        settled: after so many microseconds positions that were read before a batch was finished are not used any more.
        offsets: has read the positions of the partitions.
        folders: of the checkpoints, by the name of the group.
        is_group: whether a name is that of a group of Kafka.
        report: takes one line for the user.
    """

    names: Sequence[str] = (KIND,)

    def __init__(  # noqa: PLR0913 - two of them are keywords
        self,
        period: Micros,
        settled: Micros,
        offsets: OffsetsKind,
        folders: Mapping[str, Path],
        *,
        is_group: Callable[[str], bool],
        report: Callable[[str], None],
    ) -> None:
        self._due, self._settled, self._offsets, self._folders = Timer(period), settled, offsets, folders
        self._is_group, self._report = is_group, report
        self._problems = _Lasting()

    @property
    def next_at(self) -> Micros:
        """When it is due, by the monotonic clock: not while leaders are asked for the positions."""
        return Micros(max(self._due.next_at, self._offsets.leaders_until))

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Read all of them when the time has come."""
        if moment < self._offsets.leaders_until or not self._due.take_due(moment):
            return
        positions = self._offsets.positions(view.topic_ids)
        ask(KIND, NO_BROKER, partial(_read, self._folders, view.topic_ids, positions))

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> Shown:
        """Return the queries, and report what is wrong with a checkpoint if it was so the last time, too."""
        read: _Read = answer.value
        topic_ids = {topic: each for topic, each in read.topic_ids.items() if view.topic_ids.get(topic) == each}
        problems: list[str] = []
        checkpoints: dict[str, Checkpoint] = {}
        for name, checkpoint in read.checkpoints.items():
            if isinstance(checkpoint, CheckpointUnreadable):
                problems.append(f"the Spark checkpoint {name} is not read: {checkpoint}")
            elif self._is_group(name):
                problems.append(
                    f"the Spark checkpoint {name} is not read: Kafka has a group of that name; give it another one in "
                    "collect.spark_checkpoints"
                )
            else:
                moved = self._passed(checkpoint, read.positions, envelope["collected_at"])
                committed = {topic: each for topic, each in checkpoint.committed.items() if topic not in moved}
                checkpoints[name] = checkpoint._replace(committed=committed)
                problems += _problems_of(name, checkpoint, topic_ids, moved)
        for problem in self._problems.new(problems):
            self._report(f"{envelope['source']}: {problem}")
        return Shown([*_blocks(checkpoints, read, topic_ids, self._offsets.high_watermarks, envelope)])

    def _passed(self, checkpoint: Checkpoint, positions: Mapping[str, ByTopic], now: Micros) -> set[str]:
        """Return the topics that end before what the query has read, although it had read it before they were asked."""
        if checkpoint.finished_at is None or checkpoint.finished_at > now - self._settled:
            return set()
        ends = positions["high_watermark"]
        return {
            topic
            for topic, committed in checkpoint.committed.items()
            if any(position > ends.get(topic, {}).get(number, position) for number, position in committed.items())
        }


class _Lasting:
    """Problems that outlast two rounds: what is written while it is read is whole by the next one."""

    def __init__(self) -> None:
        self._before, self._reported = set[str](), set[str]()

    def new(self, problems: Sequence[str]) -> list[str]:
        """Return the problems to report: each once, and again if it was gone meanwhile."""
        present = set(problems)
        lasting = [each for each in problems if each in self._before and each not in self._reported]
        self._before, self._reported = present, (self._reported & present) | {*lasting}
        return lasting


def _read(
    folders: Mapping[str, Path],
    topic_ids: Mapping[str, TopicId],
    positions: Mapping[str, ByTopic],
    _connection: object,
) -> _Read:
    read_at, checkpoints = monotonic(), dict[str, Checkpoint | CheckpointUnreadable]()
    for name, folder in folders.items():
        try:
            checkpoints[name] = read_checkpoint(folder)
        except CheckpointUnreadable as reason:
            checkpoints[name] = reason
    return _Read(read_at, topic_ids, positions, checkpoints)


def _problems_of(name: str, checkpoint: Checkpoint, topic_ids: Mapping[str, TopicId], moved: set[str]) -> Iterator[str]:
    if checkpoint.other_sources:
        yield f"of the query with the Spark checkpoint {name} only what it reads of Kafka is shown"
    for topic in sorted(checkpoint.committed.keys() - topic_ids.keys()):
        yield f"the Spark checkpoint {name} names the topic {topic}, which is not there or may not be described: no lag"
    for topic in sorted(moved & topic_ids.keys()):
        yield (
            f"the query with the Spark checkpoint {name} has read more of the topic {topic} than there is: the topic "
            "was created again, or has lost records; its lag is unknown"
        )


def _blocks(
    checkpoints: Mapping[str, Checkpoint],
    read: _Read,
    topic_ids: Mapping[str, TopicId],
    high_watermarks: HighWatermarks,
    envelope: dict[str, Any],
) -> Iterator[Observation]:
    states = {
        name: ACTIVE if abs(envelope["collected_at"] - each.progress_at) < ACTIVE_MICROS else UNKNOWN
        for name, each in checkpoints.items()
    }
    yield BrokerGroupsObserved(
        **envelope,
        broker=NO_BROKER,
        group_by_sample=tuple(states),
        group_protocol_by_sample=(PROTOCOL,) * len(states),
        group_state_by_sample=tuple(states.values()),
        last_progress_at_by_sample=tuple(each.progress_at for each in checkpoints.values()) or None,
    )
    answer = CoordinatorAnswer(
        {name: DescribedGroup(PROTOCOL, state) for name, state in states.items()},
        committed={name: each.committed for name, each in checkpoints.items()},
        topic_ids=read.topic_ids,
        positions=read.positions,
        read_at=read.read_at,
    )
    timed = with_lag_seconds(answer, topic_ids, high_watermarks)
    yield from group_offset_blocks(NO_BROKER, timed, topic_ids, envelope)
