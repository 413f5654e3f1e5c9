"""Groups as their coordinator reports them, with the positions of the partitions, as blocks. Pure."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import Micros
from streaming.contracts.sample_blocks import (
    SAMPLES_PER_BLOCK,
    BrokerGroupOffsetsObserved,
    BrokerGroupsObserved,
    reported,
)
from streaming.errors import InvalidObservation
from streaming.sources.protocol.connection import RawRequest, RawResponse, compact_array, compact_string
from streaming.sources.protocol.primitives import INT16, INT64
from streaming.sources.source import AT_ONCE, monotonic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId, TopicId
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.primitives import ByteReader
    from streaming.sources.samples.groups.described import DescribedGroup
    from streaming.sources.samples.high_watermarks import HighWatermarks


@dataclass(frozen=True, slots=True)
class CoordinatorAnswer:
    """Response of one coordinator, and positions of partitions that were read before.

    Attributes:
        groups: by name.
        committed: their offsets, by name of the group.
        lags: of share groups, by name of the group.
        starts: of share groups, the offsets before which everything is done, by name of the group.
        unread_starts: of share groups, the partitions of topics of which it could not say that now.
        denied: groups that may not be described.
        left: groups of the round that have yet to be asked for.
        unread: groups of which it did not say what they have committed: whether anything, is unknown.
        gone: groups that were expected, and of which it has nothing.
        ended: those, and groups of which it has less than the time before.
        topic_ids: when it was asked.
        positions: of the partitions, by field of a sample, topic and partition.
        positions_asked_at: when the first leader was asked for them, by the monotonic clock; None without any.
        positions_at: the same as a time of the envelope.
        read_at: when it was asked for committed offsets, by the monotonic clock.
        lag_seconds: of the partitions where it is not unknown, by name of the group.
    """

    groups: Mapping[str, DescribedGroup]
    committed: Mapping[str, ByTopic] = field(default_factory=dict)
    lags: Mapping[str, ByTopic] = field(default_factory=dict)
    starts: Mapping[str, ByTopic] = field(default_factory=dict)
    unread_starts: Mapping[str, Mapping[str, Collection[int]]] = field(default_factory=dict)
    denied: tuple[str, ...] = ()
    left: Mapping[str, DescribedGroup] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    positions: Mapping[str, ByTopic] = field(default_factory=dict)
    positions_asked_at: Micros | None = None
    positions_at: Micros | None = None
    read_at: Micros = AT_ONCE
    lag_seconds: Mapping[str, Mapping[str, Mapping[int, float]]] = field(default_factory=dict)


def timed(
    answer: CoordinatorAnswer, topic_ids: Mapping[str, TopicId], high_watermarks: HighWatermarks, shown_at: Micros
) -> CoordinatorAnswer:
    """Return the answer of a coordinator with its times; ``shown_at`` is that of the envelope, which is the present.

    What is of a topic without id has no lag in seconds; ``high_watermarks`` say since when offsets could be read.
    """
    ends, log_starts = (answer.positions.get(name, {}) for name in ("high_watermark", "log_start_offset"))
    asked_at = answer.positions_asked_at
    return replace(
        answer,
        positions_at=None if asked_at is None else Micros(shown_at - (monotonic() - asked_at)),
        lag_seconds={
            group: {
                topic: high_watermarks.lag_seconds(
                    topic_ids[topic], _passed(offsets, log_starts.get(topic, {})), ends[topic], answer.read_at
                )
                for topic, offsets in by_topic.items()
                if topic in topic_ids and topic in ends
            }
            for group, by_topic in (*answer.committed.items(), *_counted(answer, ends))
        },
    )


def _counted(answer: CoordinatorAnswer, ends: Mapping[str, Mapping[int, int]]) -> Iterator[tuple[str, ByTopic]]:
    """Give the offsets of share groups that lie as far before the end as their coordinator counts as lag.

    What is behind a start offset may be done: that is stored with the next records that are done, however late.
    """
    for group, starts in answer.starts.items():
        lags = answer.lags.get(group, {})
        yield (
            group,
            {
                topic: {
                    number: max(starts[topic].get(number, 0), ends[topic][number] - lag)
                    for number, lag in of_topic.items()
                    if number in ends[topic]
                }
                for topic, of_topic in lags.items()
                if topic in ends and topic in starts
            },
        )


def _passed(offsets: Mapping[int, int], log_starts: Mapping[int, int]) -> dict[int, int]:
    return {number: max(offset, log_starts.get(number, offset)) for number, offset in offsets.items()}


class _Piece(NamedTuple):
    """Partitions of one topic of one group.

    Attributes:
        key: group, topic id and topic.
        columns: by field of a sample, one value per partition.
    """

    key: tuple[str, TopicId, str]
    columns: Mapping[str, Sequence[Any]]


def group_blocks(
    broker: BrokerId, groups: Mapping[str, DescribedGroup], unread: Collection[str], envelope: Mapping[str, Any]
) -> Iterator[BrokerGroupsObserved]:
    """Gather groups, of which some are unread, into blocks; without any, a block without samples."""
    described = sorted(groups.items(), key=itemgetter(0))
    for start in range(0, len(described) or 1, SAMPLES_PER_BLOCK):
        piece = described[start : start + SAMPLES_PER_BLOCK]
        arrays = {
            "group": tuple(name for name, _ in piece),
            "group_protocol": tuple(group.protocol for _, group in piece),
            "group_state": tuple(group.state for _, group in piece),
            "members": tuple(group.members for _, group in piece),
            "assignor": tuple(group.assignor for _, group in piece),
            "is_unread": tuple(name in unread or None for name, _ in piece),
        }
        yield BrokerGroupsObserved(**envelope, broker=broker, arrays=reported(arrays))


def kept_blocks(
    broker: BrokerId, names: Sequence[str], envelope: Mapping[str, Any]
) -> Iterator[BrokerGroupsObserved | BrokerGroupOffsetsObserved]:
    """Name groups whose samples stay, as far as an answer has none of them."""
    for start in range(0, len(names), SAMPLES_PER_BLOCK):
        kept = tuple(names[start : start + SAMPLES_PER_BLOCK])
        yield BrokerGroupsObserved(**envelope, broker=broker, kept=kept)
        yield BrokerGroupOffsetsObserved(**envelope, broker=broker, samples_by_topic=(), kept=kept)


def ended_blocks(
    broker: BrokerId, names: Sequence[str], envelope: Mapping[str, Any]
) -> Iterator[BrokerGroupOffsetsObserved]:
    """Name groups with fewer offsets than in the answer before, or none: the rest is gone."""
    for start in range(0, len(names), SAMPLES_PER_BLOCK):
        ended = tuple(names[start : start + SAMPLES_PER_BLOCK])
        yield BrokerGroupOffsetsObserved(**envelope, broker=broker, samples_by_topic=(), ended=ended)


def group_offset_blocks(
    broker: BrokerId, answer: CoordinatorAnswer, topic_ids: Mapping[str, TopicId], envelope: Mapping[str, Any]
) -> Iterator[BrokerGroupOffsetsObserved]:
    """Gather what groups of a coordinator have committed or been assigned into blocks; at least one, even empty.

    What is of a topic without id is left out.
    """
    pieces = [piece for name in answer.groups.keys() - answer.unread for piece in _pieces(name, answer, topic_ids)]
    for packed in _packed(sorted(pieces, key=itemgetter(0))):
        yield _block(broker, packed, answer, envelope)


def _pieces(name: str, answer: CoordinatorAnswer, topic_ids: Mapping[str, TopicId]) -> Iterator[_Piece]:
    """Give the partitions of a group, topic by topic, cut into pieces that fit into a block."""
    own: dict[str, Mapping[str, Mapping[int, Any]]] = {
        "member": answer.groups[name].owners,
        "committed_offset": answer.committed.get(name, {}),
        "start_offset": answer.starts.get(name, {}),
        "lag": answer.lags.get(name, {}),
        "lag_seconds": answer.lag_seconds.get(name, {}),
    }
    for topic in {topic for by_topic in own.values() for topic in by_topic} & topic_ids.keys():
        fields = {field: by_topic.get(topic, {}) for field, by_topic in {**own, **answer.positions}.items()}
        numbers = sorted({number for field in own for number in fields[field]})
        for start in range(0, len(numbers), SAMPLES_PER_BLOCK):
            some = numbers[start : start + SAMPLES_PER_BLOCK]
            columns = {field: [*map(values.get, some)] for field, values in fields.items()}
            yield _Piece((name, topic_ids[topic], topic), {"partition": some, **columns})


def _packed(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Pack pieces into blocks, one at least."""
    packed, count = list[_Piece](), 0
    for piece in pieces:
        size = len(piece.columns["partition"])
        if packed and count + size > SAMPLES_PER_BLOCK:
            yield packed
            packed, count = [], 0
        packed.append(piece)
        count += size
    yield packed


def _block(
    broker: BrokerId, pieces: list[_Piece], answer: CoordinatorAnswer, envelope: Mapping[str, Any]
) -> BrokerGroupOffsetsObserved:
    described = [answer.groups[piece.key[0]] for piece in pieces]
    arrays = {
        "group": tuple(piece.key[0] for piece in pieces),
        "group_protocol": tuple(group.protocol for group in described),
        "group_state": tuple(group.state for group in described),
        "members": tuple(group.members for group in described),
        "topic_id": tuple(piece.key[1] for piece in pieces),
        "topic": tuple(piece.key[2] for piece in pieces),
        "positions_at": (answer.positions_at,) * len(pieces),
        **{
            name: tuple(chain.from_iterable(piece.columns[name] for piece in pieces))
            for name in (pieces[0].columns if pieces else ())
        },
    }
    return BrokerGroupOffsetsObserved(
        **envelope,
        broker=broker,
        samples_by_topic=tuple(len(piece.columns["partition"]) for piece in pieces),
        arrays=reported(arrays),
    )


# The committed offsets of many groups of one coordinator: OffsetFetch 8 and 9 (KIP-709), all topics in one request.
#
# Of share groups the start offset of each partition, and their lag as the coordinator counts it, which does not follow
# from it, because what is behind it is processed in any order: DescribeShareGroupOffsets 1 (KIP-1226).


if TYPE_CHECKING:
    ByTopic = dict[str, dict[int, int]]
    """Offset or lag, by topic and partition."""

OFFSET_FETCH: Final = 9
SHARE_OFFSETS: Final = 90
LAGS_SINCE: Final = 1
_NO_PARTITION: Final = frozenset({3, 100})  # unknown topic or partition, unknown id of a topic
OLDEST: Final = 8  # the first with many groups in a request, Kafka 3.0
NEWEST: Final = 9
_EVERY_TOPIC: Final = b"\0\0"  # null, and no tagged fields
_OF_GROUP: Final = {8: _EVERY_TOPIC, 9: b"\0\xff\xff\xff\xff" + _EVERY_TOPIC}  # of no member, with no epoch
_PLAIN: Final = struct.Struct(">iqiBh")  # number, offset, leader epoch, length of the metadata plus one, error
_HEAD: Final = struct.Struct(">iqi")
_EMPTY: Final = 1


class GroupValues(NamedTuple):
    """The offsets of one group; with an error of Kafka there are none."""

    error: int
    group: str
    values: ByTopic


def committed_offsets(
    connection: Connection, groups: Iterable[str], *, are_settled: bool = False
) -> tuple[GroupValues, ...]:
    """Ask a coordinator for all that groups have committed, in one request; topics that are hidden are left out.

    If ``are_settled``, what an open transaction is to replace is left out; else it is given as it was before.

    Raises:
        ConnectionRefused: it does not respond.
    """
    version = connection.newest(OFFSET_FETCH, NEWEST)
    require_stable = bytes((are_settled, 0))  # and no tagged fields
    body = compact_array(compact_string(group) + _OF_GROUP[version] for group in groups) + require_stable
    return RawResponse(_read).value_of(connection, RawRequest(OFFSET_FETCH, version, body))


class ShareValues(NamedTuple):
    """The start offsets of one share group, and its lags; with an error of Kafka there are none.

    ``unread`` are the partitions of topics of which the coordinator could not say them, as of those without a leader.
    """

    error: int
    group: str
    starts: ByTopic
    lags: ByTopic
    unread: Mapping[str, Collection[int]] = MappingProxyType({})


def share_offsets(connection: Connection, groups: Iterable[str]) -> tuple[ShareValues, ...]:
    """Ask a coordinator for the offsets and the lag of share groups; none before Kafka 4.2.

    Raises:
        ConnectionRefused: it does not respond.
    """
    if connection.newest(SHARE_OFFSETS, LAGS_SINCE) < LAGS_SINCE:
        return ()
    body = compact_array(compact_string(group) + _EVERY_TOPIC for group in groups) + b"\0"
    return RawResponse(_read_shares).value_of(connection, RawRequest(SHARE_OFFSETS, LAGS_SINCE, body))


def _read(reader: ByteReader) -> tuple[GroupValues, ...]:
    return reader.array(lambda: _group(reader)) or ()


def _group(reader: ByteReader) -> GroupValues:
    group, topics = reader.string(), reader.array(lambda: _topic(reader)) or ()
    error = reader.number(INT16)
    reader.tags()
    return GroupValues(error, group, dict(topics))


def _topic(reader: ByteReader) -> tuple[str, dict[int, int]]:
    topic, records = reader.string(), _partitions(reader)
    reader.tags()
    return topic, {number: offset for number, offset, _, _, error in records if not error and offset >= 0}


def _partitions(reader: ByteReader) -> Sequence[tuple[int, ...]]:
    """Read the partitions of a topic; those without metadata, as most are, at once.

    A record with metadata is recognised by their length, because all records before it are of the width of ``_PLAIN``.
    """
    start = reader.position
    if reader.unsigned_varint() > 1 and _partition(reader)[3] == _EMPTY:
        reader.position = start
        with suppress(InvalidObservation):
            records = reader.records(_PLAIN)
            if all(length == _EMPTY for _, _, _, length, _ in records):
                return records
    reader.position = start
    return reader.array(lambda: _partition(reader)) or ()


def _partition(reader: ByteReader) -> tuple[int, ...]:
    (number, offset, epoch), length = reader.structure(_HEAD), reader.unsigned_varint()
    reader.raw(max(0, length - 1))  # metadata
    error = reader.number(INT16)
    reader.tags()
    return number, offset, epoch, length, error


def _read_shares(reader: ByteReader) -> tuple[ShareValues, ...]:
    return reader.array(lambda: _share_group(reader)) or ()


def _share_group(reader: ByteReader) -> ShareValues:
    group, topics = reader.string(), reader.array(lambda: _share_topic(reader)) or ()
    error, _ = reader.number(INT16), reader.nullable_string()
    reader.tags()
    said = {topic: [record for record in records if not record[3]] for topic, records in topics}
    starts = {topic: {number: start for number, start, *_ in records if start >= 0} for topic, records in said.items()}
    lags = {topic: {number: lag for number, _, lag, _ in records if lag >= 0} for topic, records in said.items()}
    refused = {
        topic: [number for number, *_, error in records if error not in {0, *_NO_PARTITION}]
        for topic, records in topics
    }
    unread = {topic: numbers for topic, numbers in refused.items() if numbers}
    return ShareValues(error, group, starts, lags, unread)


def _share_topic(reader: ByteReader) -> tuple[str, Sequence[tuple[int, int, int, int]]]:
    topic, _ = reader.string(), reader.raw(16)  # its id
    records = reader.array(lambda: _share_partition(reader)) or ()
    reader.tags()
    return topic, records


def _share_partition(reader: ByteReader) -> tuple[int, int, int, int]:
    (number, start, _), lag = reader.structure(_HEAD), reader.number(INT64)
    error, _ = reader.number(INT16), reader.nullable_string()
    reader.tags()
    return number, start, lag, error
