"""Responses to Metadata 9 to 12 and DescribeTopicPartitions 0 (KIP-966), as what a view of the cluster shows.

Decoded here because a large cluster is asked every few seconds: a topic whose bytes are those of the response before is
taken from it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId, TopicId
from streaming.errors import Quarantined
from streaming.sources.admin_view import PartitionView, in_order
from streaming.sources.protocol.primitives import INT8, INT16, INT32, ByteReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Numbered = tuple[int, PartitionView | None]

METADATA_OLDEST: Final = 9  # the first flexible version (KIP-482), Kafka 2.4
METADATA_NEWEST: Final = 12
_TOPIC_IDS_SINCE: Final = 10
_OPERATIONS_OF_CLUSTER_UNTIL: Final = 10
_NO_ID: Final = "A" * 22
_PARTITION: Final = struct.Struct(">hiii")  # error, number, leader, leader epoch


class AnsweredTopic(NamedTuple):
    """One topic of a response.

    Attributes:
        error: Kafka's error code, 0 for none.
        topic_id: None where the version, or the cluster, has none.
        partitions: without those that are answered without replicas; in a description without those whose eligible
            leader replicas are null.
        partition_count: of all partitions.
    """

    error: int
    name: str
    topic_id: TopicId | None
    partitions: dict[int, PartitionView]
    partition_count: int


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """A response to Metadata; ``cluster_id`` is None where the cluster has none."""

    header: Any
    cluster_id: str | None
    brokers: dict[BrokerId, tuple[str, int]]
    topics: Sequence[AnsweredTopic]


@dataclass(frozen=True, slots=True)
class DescriptionAnswer:
    """One part of a response to DescribeTopicPartitions; ``cursor`` is where the next one begins, if there is one."""

    header: Any
    topics: Sequence[AnsweredTopic]
    cursor: tuple[str, int] | None


class MetadataDecoder:
    """Decodes responses to Metadata, and remembers the topics of the last one with their bytes."""

    def __init__(self) -> None:
        self._last: tuple[int, dict[str, tuple[bytes, AnsweredTopic]]] = 0, {}

    def decode(self, data: bytes, *, version: int, header: bool = True) -> MetadataAnswer:  # noqa: ARG002 - the signature of kafka-python's classes
        """Decode a response with its header.

        Raises:
            ValueError: the bytes are no such response.
        """
        of_version, topics_seen = self._last
        seen = topics_seen if version == of_version else {}
        now: dict[str, tuple[bytes, AnsweredTopic]] = {}

        def topic() -> AnsweredTopic:
            start = reader.position
            before = seen.get(_peeked_name(reader))
            if before is not None and data.startswith(before[0], start):
                reader.raw(len(before[0]))
            else:
                reader.position = start
                answered = _topic(reader, _partition, has_id=version >= _TOPIC_IDS_SINCE)
                before = data[start : reader.position], answered
            now[before[1].name] = before
            return before[1]

        try:
            reader = ByteReader(data)
            head = _header(reader)
            brokers = dict(reader.array(lambda: _broker(reader)) or ())
            cluster_id = reader.nullable_string()
            reader.number(INT32)  # of KRaft, any broker stands for the controller
            topics = reader.array(topic) or ()
            if version <= _OPERATIONS_OF_CLUSTER_UNTIL:
                reader.number(INT32)
            reader.tags()
        except Quarantined as error:
            raise ValueError(str(error)) from None
        self._last = version, now  # at once: several threads decode
        return MetadataAnswer(head, cluster_id, dict(sorted(brokers.items())), topics)


class DescriptionDecoder:
    """Decodes responses to DescribeTopicPartitions."""

    @staticmethod
    def decode(data: bytes, *, version: int, header: bool = True) -> DescriptionAnswer:  # noqa: ARG004 - as above
        """Decode a response with its header.

        Raises:
            ValueError: the bytes are no such response.
        """
        try:
            reader = ByteReader(data)
            head = _header(reader)
            topics = reader.array(lambda: _topic(reader, _described, has_id=True)) or ()
            cursor = None
            if reader.number(INT8) > 0:
                cursor = reader.string(), reader.number(INT32)
                reader.tags()
            reader.tags()
        except Quarantined as error:
            raise ValueError(str(error)) from None
        return DescriptionAnswer(head, topics, cursor)


def _header(reader: ByteReader) -> Any:  # noqa: ANN401 - as kafka-python's
    head = SimpleNamespace(correlation_id=reader.number(INT32))
    reader.tags()
    reader.number(INT32)  # the time for which the request was throttled
    return head


def _broker(reader: ByteReader) -> tuple[BrokerId, tuple[str, int]]:
    broker = BrokerId(reader.number(INT32))
    at = reader.string(), reader.number(INT32)
    reader.nullable_string()  # its rack
    reader.tags()
    return broker, at


def _peeked_name(reader: ByteReader) -> str:
    start = reader.position
    reader.number(INT16)
    name = reader.nullable_string() or ""
    reader.position = start
    return name


def _topic(reader: ByteReader, partition: Callable[[ByteReader], Numbered], *, has_id: bool) -> AnsweredTopic:
    error = reader.number(INT16)
    name = reader.string()
    topic_id = reader.uuid() if has_id else _NO_ID
    reader.boolean()  # whether it is internal
    answered = reader.array(lambda: partition(reader)) or ()
    reader.number(INT32)  # operations that are allowed
    reader.tags()
    if not name or any(number < 0 for number, _ in answered):
        raise ValueError(f"a topic without a name, or a partition without a number: {name!r}")
    partitions = dict(sorted((number, view) for number, view in answered if view is not None))
    if topic_id == _NO_ID:  # the epochs may be of a topic of this name that was deleted
        partitions = {number: view._replace(leader_epoch=None) for number, view in partitions.items()}
    count = max((number for number, _ in answered), default=-1) + 1
    return AnsweredTopic(error, name, None if topic_id == _NO_ID else TopicId(topic_id), partitions, count)


def _partition(reader: ByteReader) -> Numbered:
    number, view = _state(reader)
    offline = reader.numbers("i")
    reader.tags()
    return number, view._replace(offline=in_order(offline, view.replicas)) if view and offline else view


def _described(reader: ByteReader) -> Numbered:
    number, view = _state(reader)
    elr, last_known, offline = (reader.numbers("i") for _ in range(3))
    reader.tags()
    if view is None or elr is None or last_known is None:
        return number, None
    return number, view._replace(
        elr=in_order(elr, view.replicas),
        last_known_elr=in_order(last_known, view.replicas),
        offline=in_order(offline or (), view.replicas),
    )


def _state(reader: ByteReader) -> Numbered:
    """Read what is common to both responses."""
    _, number, leader, epoch = reader.structure(_PARTITION)
    replicas, isr = reader.numbers("i") or (), reader.numbers("i") or ()
    if len(set(replicas)) != len(replicas):
        raise ValueError(f"replicas name a broker twice: {replicas}")
    if not replicas:
        return number, None
    in_sync = in_order(isr, replicas)
    return number, PartitionView(
        tuple(map(BrokerId, replicas)), in_sync, BrokerId(leader), leader_epoch=epoch if epoch >= 0 else None
    )
