"""ListOffsets and OffsetForLeaderEpoch: offsets of many partitions of one broker, in one request.

ListOffsets has a request for each kind of offset. From a leader: the log start, the high watermark and the last stable
offset, as consumers see them (KIP-98). From every replica: the end of its log, with the replica id that Kafka has for
looking at replicas (-2); consumers are refused by followers.

OffsetForLeaderEpoch says where the records of a leader epoch end in the log of the present leader (KIP-279). It needs
Describe on the topic, as a consumer does (KIP-320).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from streaming.sources.protocol.connection import VALUE, RawRequest, RawResponse, compact_array, compact_string
from streaming.sources.protocol.primitives import INT8, INT32
from streaming.sources.protocol.unwaited import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.primitives import ByteReader

    PartitionsByTopic = Mapping[str, Sequence[int]]
    EpochsByTopic = Mapping[str, Sequence[tuple[int, int]]]
    """Numbers of partitions, each with a leader epoch."""
    Records = Mapping[str, Sequence[tuple[int, ...]]]
    """By topic: number, error, a field of the request, offset."""

API_KEY: Final = 2
OLDEST: Final = 6  # the first flexible version (KIP-482), and the first one that is decoded quickly
NEWEST: Final = 7
_EPOCHS_OLDEST: Final = 2  # with the permission of consumers, Kafka 2.1
EPOCHS_NEWEST: Final = 4
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_ASKED: Final = struct.Struct(">iiqB")  # number, leader epoch, timestamp, no tagged fields
_ANSWERED: Final = struct.Struct(">ihqqi")  # number, error, timestamp, offset, leader epoch
_ASKED_EPOCH: Final = struct.Struct(">iiiB")  # number, current leader epoch, leader epoch, no tagged fields
_ANSWERED_EPOCH: Final = struct.Struct(">hiiq")  # error, number, leader epoch, end offset
_ANY_EPOCH: Final = -1


class OffsetSpec(NamedTuple):
    """A kind of offset: timestamp, replica id and isolation level, as Kafka numbers them."""

    timestamp: int
    replica: int
    isolation: int


LOG_START: Final = OffsetSpec(-2, -1, 0)
HIGH_WATERMARK: Final = OffsetSpec(-1, -1, 0)
LAST_STABLE: Final = OffsetSpec(-1, -1, 1)
LOG_END: Final = OffsetSpec(-1, -2, 0)


class ListedOffsets(NamedTuple):
    """The answer: offsets by topic and partition, without those that failed; a topic that may not be described."""

    offsets: dict[str, dict[int, int]]
    denied: str | None = None


def list_offsets(connection: Connection, spec: OffsetSpec, partitions: PartitionsByTopic) -> ListedOffsets:
    """Ask one broker for one kind of offset of partitions, by topic.

    Raises:
        ConnectionRefused: it does not respond.
    """
    version = connection.required(API_KEY, NEWEST, "ListOffsets")
    request, response, read = offsets_call(version, spec, partitions)
    return connection.call(request, response, lambda answer: _listed(read(answer)))


def _listed(answers: Records) -> ListedOffsets:
    denied = next((topic for topic, records in answers.items() if _is_denied(records)), None)
    return ListedOffsets({topic: dict(_offsets(records)) for topic, records in answers.items()}, denied)


def offsets_in(answers: Records) -> tuple[dict[tuple[str, int], int], int]:
    """Return the offsets by topic and number, without those that failed, and the first error; 0 if none did."""
    offsets = {(topic, number): offset for topic, some in answers.items() for number, offset in _offsets(some)}
    return offsets, next((error for some in answers.values() for _, error, *_ in some if error), 0)


def offsets_call(version: int, spec: OffsetSpec, partitions: PartitionsByTopic) -> Call:
    """Return the request of a version for one kind of offset of partitions; its answer is ``Records``."""
    if version < OLDEST:
        return Call(_of_old_broker(spec, partitions, version), ListOffsetsResponse, _of_old_response)
    topics = (
        (topic, (_ASKED.pack(number, _ANY_EPOCH, spec.timestamp, 0) for number in numbers))
        for topic, numbers in partitions.items()
    )
    body = INT32.pack(spec.replica) + INT8.pack(spec.isolation) + _by_topic(topics)
    return Call(RawRequest(API_KEY, version, body), RawResponse(_read), VALUE)


def epoch_ends_call(connection: Connection, partitions: EpochsByTopic) -> Call | None:
    """Return the request for the ends of leader epochs; its answer is ``Records``. None if the broker has none."""
    version = connection.newest(OffsetForLeaderEpochRequest.API_KEY, EPOCHS_NEWEST)
    if version < _EPOCHS_OLDEST:
        return None
    if version < EPOCHS_NEWEST:
        return Call(_epochs_of_old_broker(partitions, version), OffsetForLeaderEpochResponse, _epochs_of_old_response)
    topics = (
        (topic, (_ASKED_EPOCH.pack(number, _ANY_EPOCH, epoch, 0) for number, epoch in epochs))
        for topic, epochs in partitions.items()
    )
    request = RawRequest(OffsetForLeaderEpochRequest.API_KEY, version, INT32.pack(-1) + _by_topic(topics))
    return Call(request, RawResponse(_read_epochs), VALUE)


def _by_topic(topics: Iterable[tuple[str, Iterable[bytes]]]) -> bytes:
    return compact_array(compact_string(topic) + compact_array(each) + b"\0" for topic, each in topics) + b"\0"


def _read(reader: ByteReader) -> Records:
    return dict(reader.array(lambda: _topic(reader)) or ())


def _topic(reader: ByteReader) -> tuple[str, list[tuple[int, ...]]]:
    topic, records = reader.string(), reader.records(_ANSWERED)
    reader.tags()
    return topic, records


def _read_epochs(reader: ByteReader) -> Records:
    return dict(reader.array(lambda: _epochs_of_topic(reader)) or ())


def _epochs_of_topic(reader: ByteReader) -> tuple[str, list[tuple[int, ...]]]:
    topic, records = reader.string(), reader.records(_ANSWERED_EPOCH)
    reader.tags()
    return topic, [(number, error, epoch, end) for error, number, epoch, end in records]


def _offsets(records: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    return ((number, offset) for number, error, _, offset, *_ in records if not error and offset >= 0)


def _is_denied(records: Sequence[tuple[int, ...]]) -> bool:
    return bool(records) and records[0][1] == _TOPIC_AUTHORIZATION_FAILED


def _of_old_broker(spec: OffsetSpec, partitions: PartitionsByTopic, version: int) -> Any:  # noqa: ANN401 - kafka-python's messages ship no types
    """Return the request to a broker from before the flexible versions, which takes more time than others."""
    of_request: Any = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        of_request(
            name=topic,
            partitions=[
                of_request.ListOffsetsPartition(
                    partition_index=number, current_leader_epoch=_ANY_EPOCH, timestamp=spec.timestamp
                )
                for number in numbers
            ],
        )
        for topic, numbers in partitions.items()
    ]
    return ListOffsetsRequest(version=version, replica_id=spec.replica, isolation_level=spec.isolation, topics=topics)


def _of_old_response(response: Any) -> Records:  # noqa: ANN401 - as above
    return {
        topic.name: [(part.partition_index, part.error_code, -1, part.offset) for part in topic.partitions]
        for topic in response.topics
    }


def _epochs_of_old_broker(partitions: EpochsByTopic, version: int) -> Any:  # noqa: ANN401 - as above
    of_request: Any = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics = [
        of_request(
            topic=topic,
            partitions=[
                of_request.OffsetForLeaderPartition(
                    partition=number, current_leader_epoch=_ANY_EPOCH, leader_epoch=epoch
                )
                for number, epoch in epochs
            ],
        )
        for topic, epochs in partitions.items()
    ]
    return OffsetForLeaderEpochRequest(version=version, replica_id=-1, topics=topics)


def _epochs_of_old_response(response: Any) -> Records:  # noqa: ANN401 - as above
    return {
        topic.topic: [
            (part.partition, part.error_code, part.leader_epoch, part.end_offset) for part in topic.partitions
        ]
        for topic in response.topics
    }
