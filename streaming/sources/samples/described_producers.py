"""DescribeProducers 0 (KIP-664, Kafka 2.8): which producers have a transaction open in a partition, as its leader sees.

Requires Read on the topic.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.sources.protocol.primitives import INT16, INT32
from streaming.sources.protocol.raw import RawRequest, RawResponse, compact_array, compact_string

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.primitives import ByteReader

    TopicPartition = tuple[str, int]

API_KEY: Final = 61
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_PRODUCER: Final = struct.Struct(">qiiqiq")  # id, epoch, sequence, timestamp, epoch of the coordinator, start offset


class Writing(NamedTuple):
    """A producer in a partition where it has a transaction open, and the first offset of that."""

    producer_id: int
    producer_epoch: int
    start_offset: int


class DescribedProducers(NamedTuple):
    """The answer: who writes in each partition that did not fail; a topic that may not be read."""

    writing: dict[TopicPartition, tuple[Writing, ...]]
    denied: str | None = None


def describe_producers(connection: Connection, partitions: Mapping[str, Sequence[int]]) -> DescribedProducers:
    """Ask the leader of partitions, by topic, who has a transaction open in them; older than Kafka 2.8 it returns none.

    Raises:
        ConnectionRefused: it does not respond.
    """
    if connection.newest(API_KEY, 0) < 0:
        return DescribedProducers({})
    topics = (
        compact_string(topic) + compact_array(map(INT32.pack, numbers)) + b"\0" for topic, numbers in partitions.items()
    )
    answers = RawResponse(_read).value_of(connection, RawRequest(API_KEY, 0, compact_array(topics) + b"\0"))
    writing = {
        (topic, number): producers
        for topic, parts in answers
        for number, error, producers in parts
        if not error and number in partitions.get(topic, ())
    }
    denied = (topic for topic, parts in answers if any(error == _TOPIC_AUTHORIZATION_FAILED for _, error, _ in parts))
    return DescribedProducers(writing, next(denied, None))


Partition = tuple[int, int, tuple[Writing, ...]]


def _read(reader: ByteReader) -> tuple[tuple[str, tuple[Partition, ...]], ...]:
    reader.number(INT32)  # the time for which the request was throttled
    return reader.array(lambda: _topic(reader)) or ()


def _topic(reader: ByteReader) -> tuple[str, tuple[Partition, ...]]:
    topic, parts = reader.string(), reader.array(lambda: _partition(reader)) or ()
    reader.tags()
    return topic, parts


def _partition(reader: ByteReader) -> Partition:
    number, error = reader.number(INT32), reader.number(INT16)
    reader.nullable_string()
    producers = reader.records(_PRODUCER)
    reader.tags()
    return number, error, tuple(Writing(one[0], one[1], one[5]) for one in producers if one[5] >= 0)
