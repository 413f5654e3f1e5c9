"""ListOffsets: the offsets of many partitions of one broker, in one request for each kind of offset.

From a leader: the log start, the high watermark and the last stable offset, as consumers see them (KIP-98). From every
replica: the end of its log, with the replica id that Kafka has for looking at replicas (-2); consumers are refused by
followers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from streaming.sources.protocol.primitives import INT8, INT32
from streaming.sources.protocol.raw import RawRequest, RawResponse, compact_array, compact_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.primitives import ByteReader

    ByTopic = Mapping[str, Sequence[int]]

API_KEY: Final = 2
OLDEST: Final = 6  # the first flexible version (KIP-482), and the first one that is decoded quickly
NEWEST: Final = 7
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_ASKED: Final = struct.Struct(">iiqB")  # number, leader epoch, timestamp, no tagged fields
_ANSWERED: Final = struct.Struct(">ihqqi")  # number, error, timestamp, offset, leader epoch
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


class Listed(NamedTuple):
    """The answer: offsets by topic and partition, without those that failed; a topic that may not be described."""

    offsets: dict[str, dict[int, int]]
    denied: str | None = None


def list_offsets(connection: Connection, spec: OffsetSpec, partitions: ByTopic) -> Listed:
    """Ask one broker for one kind of offset of partitions, by topic.

    Raises:
        ConnectionRefused: it does not respond.
    """
    version = connection.newest(API_KEY, NEWEST)
    if version < OLDEST:
        return _of_old_broker(connection, spec, partitions, version)
    return RawResponse(_read).value_of(connection, RawRequest(API_KEY, version, _body(spec, partitions)))


def _body(spec: OffsetSpec, partitions: ByTopic) -> bytes:
    topics = (
        compact_string(topic)
        + compact_array(_ASKED.pack(number, _ANY_EPOCH, spec.timestamp, 0) for number in numbers)
        + b"\0"
        for topic, numbers in partitions.items()
    )
    return INT32.pack(spec.replica) + INT8.pack(spec.isolation) + compact_array(topics) + b"\0"


def _read(reader: ByteReader) -> Listed:
    reader.number(INT32)  # the time for which the request was throttled
    return _listed(dict(reader.array(lambda: _topic(reader)) or ()))


def _topic(reader: ByteReader) -> tuple[str, list[tuple[int, ...]]]:
    topic, records = reader.string(), reader.records(_ANSWERED)
    reader.tags()
    return topic, records


def _listed(answers: Mapping[str, Sequence[tuple[int, ...]]]) -> Listed:
    denied = next((topic for topic, records in answers.items() if _is_denied(records)), None)
    return Listed({topic: _offsets(records) for topic, records in answers.items()}, denied)


def _offsets(records: Iterable[tuple[int, ...]]) -> dict[int, int]:
    return {number: offset for number, error, _, offset, *_ in records if not error and offset >= 0}


def _is_denied(records: Sequence[tuple[int, ...]]) -> bool:
    return bool(records) and records[0][1] == _TOPIC_AUTHORIZATION_FAILED


def _of_old_broker(connection: Connection, spec: OffsetSpec, partitions: ByTopic, version: int) -> Listed:
    """Ask a broker from before the flexible versions, in more time than others."""
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
    request = ListOffsetsRequest(
        version=version, replica_id=spec.replica, isolation_level=spec.isolation, topics=topics
    )
    return connection.call(request, ListOffsetsResponse, _of_old_response)


def _of_old_response(response: Any) -> Listed:  # noqa: ANN401 - kafka-python's messages ship no types
    answers = {
        topic.name: [(part.partition_index, part.error_code, -1, part.offset) for part in topic.partitions]
        for topic in response.topics
    }
    return _listed(answers)
