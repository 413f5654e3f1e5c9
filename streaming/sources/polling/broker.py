"""One broker, asked for its view of the cluster by Metadata, and DescribeTopicPartitions (KIP-966) where it has it.

One socket per broker that is asked. The list of all topics leaves out what is forbidden, and that is not deleted: a
topic that is not in it any more is requested by its name.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafka.protocol.admin import DescribeTopicPartitionsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER, BrokerId, ClusterId, TopicId, synthetic_topic_id
from streaming.errors import ConnectionRefused, InvalidObservation
from streaming.sources.polling.view import ClusterView, PartitionView, in_order, with_leaders, without_listener
from streaming.sources.protocol import identity
from streaming.sources.protocol.connection import NodeTooOld, ServiceRefused
from streaming.sources.protocol.identity import NodeIdentity, Role
from streaming.sources.protocol.primitives import INT8, INT16, INT32, ByteReader
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import Micros
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.connection import Connection, Dial

UNKNOWN_TOPIC: Final = 3
TOPIC_AUTHORIZATION_FAILED: Final = 29
LISTENER_NOT_FOUND: Final = 72  # of a partition: its leader has no listener of the name of the one that is asked
_PARTITIONS_PER_RESPONSE: Final = 2000  # brokers send no more (max.request.partition.size.limit)


class BrokerReply(NamedTuple):
    """The view of a broker.

    Attributes:
        view: what it lists.
        hidden: the topics that it does not list any more although it does not say that they are deleted.
        denied: those of them that may not be described.
    """

    view: ClusterView
    hidden: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()


class BrokerOpener(Protocol):
    """Opens a way to one broker."""

    def __call__(self, address: Address) -> Broker:
        """Connect.

        Raises:
            ConnectionRefused: the broker cannot be reached, or refuses.
        """


class Broker(Protocol):
    """A broker that can be asked for its view."""

    address: Address

    def answer(self, listed_before: Collection[str], deadline: Micros) -> BrokerReply:
        """Ask for the view.

        Args:
            listed_before: the topics of the view before; those that are missing now are requested by their names.
            deadline: no request is sent after it, by the monotonic clock.

        Raises:
            ConnectionRefused: the broker does not respond, or refuses.
        """

    def close(self) -> None:
        """Hang up."""


class ConnectedBrokers:
    """Opens connections to brokers.

    Args:
        dial: opens a connection.
        cluster: replaces the cluster id where the Kafka version has none.
        seconds: timeout of each request.
    """

    def __init__(self, dial: Dial, *, cluster: str, seconds: float) -> None:
        self._dial, self._cluster, self._seconds = dial, cluster, seconds
        self._decoder = MetadataDecoder()
        self._strangers = count(-2, -1)

    def __call__(self, address: Address) -> Broker:
        """Connect; see :class:`BrokerOpener`."""
        return self._broker(self._dial(address, response_seconds=self._seconds))

    def view(self, connection: Connection) -> ClusterView:
        """Ask a broker that is connected for what its metadata shows, and nothing else."""
        return self._broker(connection).view()

    def _broker(self, connection: Connection) -> ConnectedBroker:
        return ConnectedBroker(connection, self._decoder, cluster=self._cluster, stranger=next(self._strangers))


class ConnectedBroker:
    """A broker on one direct connection.

    Args:
        connection: to the broker.
        decoder: remembers topics; shared, because most brokers send the same bytes.
        cluster: replaces the cluster id where the Kafka version has none.
        stranger: who responds, where the address is not one that a broker advertises.
    """

    def __init__(self, connection: Connection, decoder: MetadataDecoder, *, cluster: str, stranger: int) -> None:
        self.address = connection.address
        self._connection, self._decoder = connection, decoder
        self._cluster, self._stranger = cluster, stranger
        self._answered_by: int | None = None
        connection.after_reopening = self._forget_who_answers

    def _forget_who_answers(self) -> None:
        self._answered_by = None

    def view(self) -> ClusterView:
        """Ask for what the metadata shows: without eligible leader replicas, and without what is not listed."""
        answer = self._metadata(None)
        return self._view(answer, [topic for topic in answer.topics if topic.partitions])

    def answer(self, listed_before: Collection[str], deadline: Micros) -> BrokerReply:
        """Ask for the view; see :meth:`Broker.answer`."""
        answer = self._metadata(None)
        topics = [topic for topic in answer.topics if topic.partitions]
        vanished = set(listed_before).difference(topic.name for topic in topics)
        errors: dict[str, int] = {}
        if vanished:
            self._require_time(deadline)
            by_name = self._metadata(sorted(vanished), MetadataDecoder()).topics
            topics += [topic for topic in by_name if topic.partitions]
            errors = {topic.name: topic.error for topic in by_name if not topic.partitions}
        view = self._view(answer, topics)
        if self._answered_by is None and monotonic() <= deadline:
            self._answered_by = self._who_answers(view)
        if self._answered_by is not None:
            view = replace(view, answered_by=self._answered_by)
        return BrokerReply(
            self._with_elr(view, deadline),
            hidden=frozenset(name for name, error in errors.items() if error != UNKNOWN_TOPIC),
            denied=frozenset(name for name, error in errors.items() if error == TOPIC_AUTHORIZATION_FAILED),
        )

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()

    def _metadata(self, names: Collection[str] | None, decoder: MetadataDecoder | None = None) -> MetadataAnswer:
        version = self._connection.newest(MetadataRequest.API_KEY, METADATA_NEWEST, "Metadata")
        if version < 0:
            raise ServiceRefused(
                f"{self.address} is no broker, but a controller: name brokers in cluster.bootstrap_servers"
            )
        if version < METADATA_OLDEST:
            raise NodeTooOld(
                f"{self.address} is older than Kafka 1.0, and cannot be polled: it does not support Metadata "
                f"{METADATA_OLDEST}; name brokers of Kafka 1.0 or newer in cluster.bootstrap_servers"
            )
        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request: Any = MetadataRequest(version=version, topics=topics, allow_auto_topic_creation=False)
        answer: MetadataAnswer = self._connection.call(request, decoder or self._decoder, lambda answer: answer)
        return answer

    def _view(self, answer: MetadataAnswer, topics: Collection[AnsweredTopic]) -> ClusterView:
        cluster_id = ClusterId(answer.cluster_id or self._cluster)
        holders = frozenset[BrokerId]().union(*(topic.holders for topic in topics))
        unlisted = holders.difference(answer.brokers)
        theirs = {topic.name: topic.partitions for topic in topics if not unlisted.isdisjoint(topic.holders)}
        view = ClusterView(
            cluster_id=cluster_id,
            answered_by=responder(self.address, answer.brokers, self._stranger),
            brokers=answer.brokers,
            racks=answer.racks,
            topics={topic.name: topic.partitions for topic in topics},
            topic_ids={topic.name: topic.topic_id or synthetic_topic_id(cluster_id, topic.name) for topic in topics},
            partition_counts={topic.name: topic.partition_count for topic in topics},
            # With ZooKeeper a controller takes dead brokers out of ISRs in a later step.
            unseen=without_listener(theirs, answer.brokers) if self._connection.is_kraft else frozenset(),
        )
        return with_leaders(view, None) if view.unseen else view

    def _who_answers(self, view: ClusterView) -> int:
        """Return the broker that answers; its address may lead to another one, so two may be the same."""
        if view.answered_by < 0:
            return view.answered_by
        meant = NodeIdentity(Role.BROKER, view.answered_by, view.cluster_id)
        by = identity.responder(self._connection, meant, known_cluster=view.cluster_id)
        return view.answered_by if by.is_meant is not False else self._stranger if by.node_id is None else by.node_id

    def _with_elr(self, view: ClusterView, deadline: Micros) -> ClusterView:
        """Add the eligible leader replicas of the partitions that may have any, or leave it unknown which they are.

        What this broker says of these partitions is newer than the view, and replaces it.
        """
        if self._connection.newest(DescribeTopicPartitionsRequest.API_KEY, 0) < 0:
            return view
        degraded = {
            name: missing
            for name, parts in view.topics.items()
            if (missing := {number for number, part in parts.items() if part.is_degraded})
        }
        topics = {**view.topics}
        try:
            for topic in self._described(sorted(degraded), deadline):
                if topic.name in degraded and topic.topic_id == view.topic_ids[topic.name]:
                    newer = dict(_newer(topic.partitions, view.topics[topic.name], has_unseen=bool(view.unseen)))
                    topics[topic.name] = {**topics[topic.name], **newer}
                    degraded[topic.name] -= newer.keys()
        except ConnectionRefused:
            self.close()  # its next answer would be unknown
            return view
        return replace(view, topics=topics, has_elr=not any(degraded.values()))

    def _described(self, names: list[str], deadline: Micros) -> Iterator[AnsweredTopic]:
        """Describe topics, ordered by name, response by response."""
        cursor: tuple[str, int] | None = None
        of_request = DescribeTopicPartitionsRequest
        while names:
            self._require_time(deadline)
            request: Any = of_request(
                version=0,
                topics=[of_request.TopicRequest(name=name) for name in names],
                response_partition_limit=_PARTITIONS_PER_RESPONSE,
                cursor=None if cursor is None else of_request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
            )
            answer: DescriptionAnswer = self._connection.call(request, DescriptionDecoder, lambda answer: answer)
            yield from answer.topics
            if answer.cursor is None or (cursor is not None and answer.cursor <= cursor):
                return
            cursor = answer.cursor
            names = [name for name in names if name >= cursor[0]]

    def _require_time(self, deadline: Micros) -> None:
        if monotonic() > deadline:
            raise ConnectionRefused(f"{self.address} did not respond in time")


def _newer(
    described: Mapping[int, PartitionView], before: Mapping[int, PartitionView], *, has_unseen: bool
) -> Iterator[tuple[int, PartitionView]]:
    """Yield the partitions of a description that are in a view.

    It has no errors, so it does not say whether a leader is missing or cannot be seen: that is known of the same epoch.
    """
    for number, part in described.items():
        seen = before.get(number)
        if seen is None:
            continue
        if part.leader != NO_LEADER or seen.leader == NO_LEADER or not has_unseen:
            yield number, part
        elif part.leader_epoch is not None and part.leader_epoch == seen.leader_epoch:
            yield number, part._replace(leader=seen.leader)


def responder(address: Address, brokers: Mapping[BrokerId, tuple[str, int]], stranger: int) -> int:
    """Return the broker that advertises an address, else the number of a stranger."""
    return next((broker for broker, at in brokers.items() if at == (address.host, address.port)), stranger)


# Responses to Metadata 5 to 12 and DescribeTopicPartitions 0 (KIP-966), as what a view of the cluster shows.
#
# Decoded here because a large cluster is asked every few seconds: a topic whose bytes are those of the response before
# is taken from it. Responses of brokers from before Kafka 2.4 are not flexible, and kafka-python decodes them.


if TYPE_CHECKING:
    Numbered = tuple[int, PartitionView | None]

METADATA_OLDEST: Final = 5  # the first one with offline replicas (KIP-112), Kafka 1.0
METADATA_NEWEST: Final = 12
_FLEXIBLE_SINCE: Final = 9  # KIP-482, Kafka 2.4
_TOPIC_IDS_SINCE: Final = 10
_OPERATIONS_OF_CLUSTER_UNTIL: Final = 10
_LARGEST_INT: Final = 2**31 - 1
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
        holders: the brokers with replicas of them.
    """

    error: int
    name: str
    topic_id: TopicId | None
    partitions: dict[int, PartitionView]
    partition_count: int
    holders: frozenset[BrokerId] = frozenset()


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """A response to Metadata; ``cluster_id`` is None where the cluster has none."""

    header: Any
    cluster_id: str | None
    brokers: dict[BrokerId, tuple[str, int]]
    topics: Sequence[AnsweredTopic]
    racks: dict[BrokerId, str] = field(default_factory=dict)


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
        if version < _FLEXIBLE_SINCE:
            return _of_old_broker(MetadataResponse.decode(data, version=version, header=True))
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
            racks: dict[BrokerId, str] = {}
            brokers = dict(reader.array(lambda: _broker(reader, racks)) or ())
            cluster_id = reader.nullable_string()
            reader.number(INT32)  # of KRaft, any broker stands for the controller
            topics = reader.array(topic) or ()
            if version <= _OPERATIONS_OF_CLUSTER_UNTIL:
                reader.number(INT32)
            reader.tags()
        except InvalidObservation as error:
            raise ValueError(str(error)) from None
        self._last = version, now  # at once: several threads decode
        return MetadataAnswer(head, cluster_id, dict(sorted(brokers.items())), topics, racks)


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
        except InvalidObservation as error:
            raise ValueError(str(error)) from None
        return DescriptionAnswer(head, topics, cursor)


def _of_old_broker(response: Any) -> MetadataAnswer:  # noqa: ANN401 - kafka-python's messages ship no types
    """Return what a broker from before Kafka 2.4 answers: it has no topic ids, and so no epochs either."""
    brokers = {BrokerId(each.node_id): (each.host, each.port) for each in response.brokers}
    topics = [
        _answered(topic.error_code, topic.name, _NO_ID, list(map(_of_old_partition, topic.partitions)))
        for topic in response.topics
    ]
    racks = {BrokerId(each.node_id): each.rack for each in response.brokers if each.rack}
    return MetadataAnswer(response.header, response.cluster_id, dict(sorted(brokers.items())), topics, racks)


def _of_old_partition(part: Any) -> Numbered:  # noqa: ANN401 - as above
    view = _viewed(part.replica_nodes, part.isr_nodes, part.leader_id, part.error_code)
    return part.partition_index, view and view._replace(offline=in_order(part.offline_replicas, view.replicas))


def _header(reader: ByteReader) -> Any:  # noqa: ANN401 - as kafka-python's
    head = SimpleNamespace(correlation_id=reader.number(INT32))
    reader.tags()
    head.throttle_time_ms = reader.number(INT32)
    return head


def _broker(reader: ByteReader, racks: dict[BrokerId, str]) -> tuple[BrokerId, tuple[str, int]]:
    """Read a broker and its address, and put its rack into ``racks`` if it has one."""
    broker = BrokerId(reader.number(INT32))
    at = reader.string(), reader.number(INT32)
    if rack := reader.nullable_string():
        racks[broker] = rack
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
    return _answered(error, name, topic_id, answered)


def _answered(error: int, name: str, topic_id: str, answered: Sequence[Numbered]) -> AnsweredTopic:
    if not name or not all(0 <= number < _LARGEST_INT for number, _ in answered):  # there is a count of partitions, too
        raise ValueError(f"a topic without a name, or a partition without a number: {name!r}")
    partitions = dict(sorted((number, view) for number, view in answered if view is not None))
    if topic_id == _NO_ID:  # the epochs may be of a topic of this name that was deleted
        partitions = {number: view._replace(leader_epoch=None) for number, view in partitions.items()}
    count = max((number for number, _ in answered), default=-1) + 1
    holders = frozenset(broker for view in partitions.values() for broker in view.replicas)
    return AnsweredTopic(error, name, None if topic_id == _NO_ID else TopicId(topic_id), partitions, count, holders)


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
    error, number, leader, epoch = reader.structure(_PARTITION)
    view = _viewed(reader.numbers("i") or (), reader.numbers("i") or (), leader, error)
    return number, view and view._replace(leader_epoch=epoch if epoch >= 0 else None)


def _viewed(replicas: Sequence[int], isr: Sequence[int], leader: int, error: int) -> PartitionView | None:
    if len(set(replicas)) != len(replicas):
        raise ValueError(f"replicas name a broker twice: {replicas}")
    if leader < 0 and error == LISTENER_NOT_FOUND:
        leader = UNSEEN_LEADER
    return (
        PartitionView(tuple(map(BrokerId, replicas)), in_order(isr, replicas), BrokerId(leader)) if replicas else None
    )
