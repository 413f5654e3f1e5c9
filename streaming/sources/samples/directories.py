"""DescribeLogDirs 2 to 5: where each replica of a broker lies, how large it is, and how full the volumes are.

The broker reports its directories itself (KIP-113), with the size and the free bytes of their volumes since version 4
(KIP-827), and since version 5 whether it puts new replicas into them (KIP-1066). Requires Describe on the cluster.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.samples import LogDirectoryObserved
from streaming.sources.permissions import DESCRIBE_CLUSTER, PermissionDenied
from streaming.sources.protocol.connection import CLUSTER_AUTHORIZATION_FAILED, RawRequest, RawResponse, ServiceRefused
from streaming.sources.protocol.primitives import INT16, INT64
from streaming.sources.samples.kind import AnswerContent
from streaming.sources.source import Timer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId, Micros, TopicId
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.primitives import ByteReader
    from streaming.sources.samples.kind import Ask, BrokerAnswer

KIND: Final = "directories"
API_KEY: Final = 35
OLDEST: Final = 2  # the first flexible version, Kafka 2.6
NEWEST: Final = 5
_ERROR_OF_ALL_SINCE: Final = 3
_VOLUMES_SINCE: Final = 4
_CORDONED_SINCE: Final = 5
_KAFKA_STORAGE_ERROR: Final = 56
_EVERY_TOPIC: Final = b"\0\0"  # null, and no tagged fields
_REPLICA: Final = struct.Struct(">iqq?")  # number, size, lag of its offset, is it to replace the present one


class Directory(NamedTuple):
    """One log directory.

    Attributes:
        path: on the broker.
        error: Kafka's code, 0 for none; with one, nothing else is known of it. Only that of storage says that it is
            offline: others are of the request.
        replica_bytes: what its logs take, those of replicas that move into it included.
        sizes: bytes of each log that is in use, by topic and partition.
        total_bytes, usable_bytes: of its volume; None before version 4, or where the broker cannot say.
        is_cordoned: it gets no new replicas; None before version 5.
    """

    path: str
    error: int
    replica_bytes: int
    sizes: dict[str, dict[int, int]]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool | None = None

    @property
    def hosted_replicas(self) -> int:
        """Number of replicas that lie in it."""
        return sum(map(len, self.sizes.values()))


def describe_directories(connection: Connection) -> tuple[Directory, ...]:
    """Ask one broker for its directories; one that is older than the flexible versions gives none.

    Raises:
        ConnectionRefused: it does not respond.
        PermissionDenied: it may not be asked.
    """
    version = connection.newest(API_KEY, NEWEST, "DescribeLogDirs")
    if version < OLDEST:
        return ()
    request = RawRequest(API_KEY, version, _EVERY_TOPIC)
    response: RawResponse[tuple[int, tuple[Directory, ...]]] = RawResponse(lambda reader: _read(reader, version))
    error, directories = response.value_of(connection, request)
    if error == CLUSTER_AUTHORIZATION_FAILED:
        raise PermissionDenied(DESCRIBE_CLUSTER)
    return directories


class DirectoriesKind:
    """Asks every broker for its directories; see :class:`kind.Kind`."""

    names: Sequence[str] = (KIND,)

    def __init__(self, period: Micros) -> None:
        self._due = Timer(period)
        self._placed: dict[BrokerId, tuple[Mapping[str, TopicId], dict[str, dict[str, dict[int, Any]]]]] = {}

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock."""
        return self._due.next_at

    def placed_at(
        self, broker: BrokerId, topic_ids: Mapping[str, TopicId]
    ) -> Mapping[str, Mapping[str, Mapping[int, Any]]]:
        """Return what the last answer of a broker says of its replicas: by field of a sample, topic and partition.

        Nothing of a topic that had another id then.
        """
        ids_then, placed = self._placed.get(broker, ({}, {}))
        other = {topic for topic, topic_id in topic_ids.items() if ids_then.get(topic) != topic_id}
        return {
            name: {topic: values for topic, values in by_topic.items() if topic not in other} if other else by_topic
            for name, by_topic in placed.items()
        }

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask every broker when the time has come."""
        if self._due.take_due(moment):
            for broker in view.brokers:
                ask(KIND, broker, describe_directories)

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:
        """Return the directories of a broker; while it does not answer, nothing is known of their sizes."""
        self._placed.pop(answer.broker, None)
        if answer.refusal is not None:
            return AnswerContent([], answer.refusal)
        directories: tuple[Directory, ...] = answer.value
        placed: dict[str, dict[str, dict[int, Any]]] = {"size_bytes": {}, "log_dir": {}}
        for directory in directories:
            for topic, sizes in directory.sizes.items():
                placed["size_bytes"].setdefault(topic, {}).update(sizes)
                placed["log_dir"].setdefault(topic, {}).update(dict.fromkeys(sizes, directory.path))
        self._placed[answer.broker] = (view.topic_ids, placed)
        unknown = [each for each in directories if each.error not in {0, _KAFKA_STORAGE_ERROR}]
        return AnswerContent([
            LogDirectoryObserved(
                **envelope,
                broker=answer.broker,
                log_dir=each.path,
                is_online=not each.error,
                hosted_replicas=None if each.error else each.hosted_replicas,
                replica_bytes=None if each.error else each.replica_bytes,
                total_bytes=each.total_bytes,
                usable_bytes=each.usable_bytes,
                is_cordoned=each.is_cordoned,
            )
            for each in directories
            if each not in unknown
        ], next((_undescribed(answer.broker, each) for each in unknown), None))  # fmt: skip


def _undescribed(broker: BrokerId, directory: Directory) -> ServiceRefused:
    return ServiceRefused(
        f"broker {broker} cannot describe its log directory {directory.path} (error {directory.error}), so nothing is "
        "known of it now: its log says why"
    )


def _read(reader: ByteReader, version: int) -> tuple[int, tuple[Directory, ...]]:
    error = reader.number(INT16) if version >= _ERROR_OF_ALL_SINCE else 0
    return error, reader.array(lambda: _directory(reader, version)) or ()


def _directory(reader: ByteReader, version: int) -> Directory:
    error, path = reader.number(INT16), reader.string()
    topics = reader.array(lambda: _topic(reader)) or ()
    volume = (reader.number(INT64), reader.number(INT64)) if version >= _VOLUMES_SINCE else (-1, -1)
    is_cordoned = reader.boolean() if version >= _CORDONED_SINCE else None
    reader.tags()
    total, usable = (each if each >= 0 else None for each in volume)
    return Directory(
        path=path,
        error=error,
        replica_bytes=sum(size for _, replicas in topics for _, size, _, _ in replicas),
        sizes={
            topic: {number: size for number, size, _, is_future in replicas if not is_future and size >= 0}
            for topic, replicas in topics
        },
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=is_cordoned,
    )


def _topic(reader: ByteReader) -> tuple[str, list[tuple[int, ...]]]:
    topic, replicas = reader.string(), reader.records(_REPLICA)
    reader.tags()
    return topic, replicas
