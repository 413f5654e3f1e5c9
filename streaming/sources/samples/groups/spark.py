"""Queries of Spark as groups: their offsets are in no topic, but in checkpoints, which are read when groups are due.

As of :mod:`groups` the positions next to a committed offset were read before the checkpoint, so lag is never too large.
A checkpoint that cannot be read is no group for that time. Topics have no ids in it: one of which a query has read more
than there is, is another topic by now, or has lost records, and is left out.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import NO_BROKER, Micros
from streaming.contracts.sample_blocks import BrokerGroupsObserved, reported
from streaming.sources.samples.groups.blocks import CoordinatorAnswer, group_offset_blocks, timed
from streaming.sources.samples.groups.described import DescribedGroup
from streaming.sources.samples.kind import AnswerContent
from streaming.sources.source import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from streaming.contracts.identifiers import TopicId
    from streaming.contracts.observations import Observation
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.samples.groups.blocks import ByTopic
    from streaming.sources.samples.groups.readable import StandingGroups
    from streaming.sources.samples.kind import Ask, BrokerAnswer
    from streaming.sources.samples.offsets import OffsetsKind

KIND: Final = "spark checkpoints"
PROTOCOL: Final = "spark"
ACTIVE: Final = "Active"
UNKNOWN: Final = "Unknown"
ACTIVE_MICROS: Final = 60_000_000
"""A query that began or finished a batch so long ago was active then; of an idle one its checkpoint says nothing."""


class _Read(NamedTuple):
    """Result of a reading and its begin: the ids of the topics, and the positions of their partitions before.

    ``asked_at``, when the first leader was asked for these, and ``read_at`` are by the monotonic clock.
    """

    asked_at: Micros | None
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
        standing: notes where groups stand still.
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
        standing: StandingGroups,
        report: Callable[[str], None],
    ) -> None:
        self._due, self._settled, self._offsets, self._folders = Timer(period), settled, offsets, folders
        self._is_group, self._standing, self._report = is_group, standing, report
        self._problems = _LastingProblems()

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock: not while leaders are asked for the positions."""
        return Micros(max(self._due.next_at, self._offsets.leaders_until))

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Read all of them when the time has come."""
        if moment < self._offsets.leaders_until or not self._due.take_due(moment):
            return
        asked = self._offsets.positions_asked_at, view.topic_ids, self._offsets.positions(view.topic_ids)
        ask(KIND, NO_BROKER, partial(_read, self._folders, *asked))

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:
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

        def with_all(answer: CoordinatorAnswer) -> CoordinatorAnswer:
            at = envelope["collected_at"]
            with_times = timed(answer, topic_ids, self._offsets.high_watermarks, at)
            return self._standing.with_proofs(with_times, topic_ids, at)

        return AnswerContent([*_blocks(checkpoints, read, topic_ids, with_all, envelope)])

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


class _LastingProblems:
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
    asked_at: Micros | None,
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
    return _Read(asked_at, read_at, topic_ids, positions, checkpoints)


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
    with_all: Callable[[CoordinatorAnswer], CoordinatorAnswer],
    envelope: dict[str, Any],
) -> Iterator[Observation]:
    states = {
        name: ACTIVE if abs(envelope["collected_at"] - each.progress_at) < ACTIVE_MICROS else UNKNOWN
        for name, each in checkpoints.items()
    }
    arrays = {
        "group": tuple(states),
        "group_protocol": (PROTOCOL,) * len(states),
        "group_state": tuple(states.values()),
        "last_progress_at": tuple(each.progress_at for each in checkpoints.values()),
    }
    yield BrokerGroupsObserved(**envelope, broker=NO_BROKER, arrays=reported(arrays))
    answer = CoordinatorAnswer(
        {name: DescribedGroup(PROTOCOL, state) for name, state in states.items()},
        committed={name: each.committed for name, each in checkpoints.items()},
        topic_ids=read.topic_ids,
        positions=read.positions,
        positions_asked_at=read.asked_at,
        read_at=read.read_at,
    )
    yield from group_offset_blocks(NO_BROKER, with_all(answer), topic_ids, envelope)


# A checkpoint of Spark Structured Streaming: how far its query has come in the topics of Kafka that it reads.
#
# Spark writes ``offsets/N`` before a batch and ``commits/N`` after it. So what the query has finished are the offsets
# of the newest batch in ``commits``, each the next record to read. An offsets file has a version, a line of metadata,
# and one line per source of the query; that of a Kafka source is ``{"topic": {"partition": offset}}``. Other sources,
# such as a Delta table, have JSON of their own.


if TYPE_CHECKING:
    OffsetsRead = dict[str, dict[int, int]]

_OFFSETS: Final = "offsets"
_COMMITS: Final = "commits"
_NEWEST_OFFSETS: Final = 2  # the versions of Spark 4.2
_NEWEST_COMMITS: Final = 3
_NAMES_SOURCES: Final = 2  # since this version an offset stands behind the name of its source and a colon
_NO_BATCH: Final = -1
_NO_OFFSET: Final = "-"
_VERSION: Final = re.compile(r"v(\d{1,9})")
_PARTITION: Final = re.compile(r"\d{1,9}")
_LOG: Final = range(1 << 63)


class CheckpointUnreadable(Exception):
    """Why a folder is not read as a checkpoint, as the second half of a sentence."""


class Checkpoint(NamedTuple):
    """Content of a checkpoint.

    Attributes:
        committed: the next record to read, by topic and partition; of two sources that read a partition the lower one.
        other_sources: how many sources of the query are not Kafka.
        finished_at: when its newest finished batch was, UTC microseconds; None before the first one.
        progress_at: when it last began or finished a batch, or was created.
    """

    committed: OffsetsRead
    other_sources: int
    finished_at: Micros | None
    progress_at: Micros


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint of a query, which may be running.

    Raises:
        CheckpointUnreadable: there is none, or a file of it is incomplete, or of a newer version than this program
            reads.
    """
    metadata = folder / "metadata"
    try:
        created_at, finished = _written_at(metadata), newest_batch(folder / _COMMITS)
        while True:
            try:
                return _read_batch(folder, finished, created_at)
            except FileNotFoundError:
                before, finished = finished, newest_batch(folder / _COMMITS)
                if finished == before:  # else Spark has deleted what is not the newest any more
                    raise
    except FileNotFoundError as error:
        if error.filename == str(metadata):
            raise CheckpointUnreadable(
                f"{folder} has no file metadata; name the folder that is the checkpointLocation of a query"
            ) from None
        raise CheckpointUnreadable(f"{error.filename} is missing") from None
    except OSError as error:
        raise CheckpointUnreadable(f"{error.filename} cannot be read: {error.strerror}") from None


def _read_batch(folder: Path, finished: int, created_at: Micros) -> Checkpoint:
    begun, progress_at = newest_batch(folder / _OFFSETS), created_at
    if begun != _NO_BATCH:
        progress_at = max(progress_at, _written_at(folder / _OFFSETS / str(begun)))
    if finished == _NO_BATCH:
        return Checkpoint({}, 0, None, progress_at)
    commit, offsets = (folder / log / str(finished) for log in (_COMMITS, _OFFSETS))
    _, lines = _content(commit, _NEWEST_COMMITS)
    _parsed(commit, "\n".join(lines))
    version, (metadata, *sources) = _content(offsets, _NEWEST_OFFSETS)
    _parsed(offsets, metadata)
    if version >= _NAMES_SOURCES:
        sources = [line.partition(":")[2] for line in sources]
    if not sources or not all(sources):
        raise CheckpointUnreadable(f"{offsets} is incomplete")
    read = [_parsed(offsets, line) for line in sources if line != _NO_OFFSET]
    of_kafka = [each for each in read if _is_of_kafka(each)]
    finished_at = _written_at(commit)
    return Checkpoint(_lowest(of_kafka), len(read) - len(of_kafka), finished_at, max(progress_at, finished_at))


def newest_batch(log: Path) -> int:
    """Return the highest number of a file of ``offsets`` or ``commits``; -1 for none."""
    try:
        return max((int(each.name) for each in log.iterdir() if each.name.isdecimal()), default=_NO_BATCH)
    except FileNotFoundError:
        return _NO_BATCH


def _content(path: Path, newest: int) -> tuple[int, list[str]]:
    """Return the version of a file, and its other lines, of which there is at least one."""
    head, *lines = path.read_bytes().decode(errors="replace").split("\n")
    match = _VERSION.fullmatch(head)
    if match is None or not lines:
        raise CheckpointUnreadable(f"{path} is incomplete")
    if int(match[1]) > newest:
        raise CheckpointUnreadable(
            f"{path} is of version {match[1]}, and this program reads up to {newest}: upgrade it"
        )
    return int(match[1]), lines


def _parsed(path: Path, text: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON; an empty text stands for no metadata."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        raise CheckpointUnreadable(f"{path} is incomplete") from None


def _is_of_kafka(offset: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether the offset of a source names topics, partitions and offsets."""
    return isinstance(offset, dict) and all(
        isinstance(of_topic, dict)
        and all(
            _PARTITION.fullmatch(number) and type(position) is int and position in _LOG
            for number, position in of_topic.items()
        )
        for of_topic in offset.values()
    )


def _lowest(sources: list[dict[str, dict[str, int]]]) -> OffsetsRead:
    lowest: OffsetsRead = {}
    for source in sources:
        for topic, of_topic in source.items():
            partitions = lowest.setdefault(topic, {})
            for number, position in of_topic.items():
                partitions[int(number)] = min(position, partitions.get(int(number), position))
    return lowest


def _written_at(path: Path) -> Micros:
    return Micros(path.stat().st_mtime_ns // 1000)
