"""One broker, asked for its view of the cluster by Metadata, and DescribeTopicPartitions (KIP-966) where it has it.

One socket per broker that is asked. The list of all topics leaves out what is forbidden, and that is not deleted: a
topic that is not in it any more is requested by its name.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafka.protocol.admin import DescribeTopicPartitionsRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.contracts.identifiers import ClusterId, synthetic_topic_id
from streaming.errors import ConnectionRefused
from streaming.sources.admin_responses import METADATA_NEWEST, METADATA_OLDEST, DescriptionDecoder, MetadataDecoder
from streaming.sources.admin_view import ClusterView
from streaming.sources.protocol.connection import CannotServe, TooOld
from streaming.sources.timer import monotonic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from streaming.contracts.identifiers import BrokerId, Micros
    from streaming.sources.address import Address
    from streaming.sources.admin_responses import AnsweredTopic, DescriptionAnswer, MetadataAnswer
    from streaming.sources.protocol.connection import Connection, Dial

UNKNOWN_TOPIC: Final = 3
TOPIC_AUTHORIZATION_FAILED: Final = 29
_PARTITIONS_PER_RESPONSE: Final = 2000  # brokers send no more (max.request.partition.size.limit)


class Answer(NamedTuple):
    """The view of a broker.

    Attributes:
        view: what it lists.
        hidden: the topics that it does not list any more although it does not say that they are deleted.
        denied: those of them that may not be described.
    """

    view: ClusterView
    hidden: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()


class Open(Protocol):
    """Opens a way to one broker."""

    def __call__(self, address: Address) -> Broker:
        """Connect.

        Raises:
            ConnectionRefused: the broker cannot be reached, or refuses.
        """


class Broker(Protocol):
    """A broker that can be asked for its view.

    Attributes:
        address: where it was reached.
    """

    address: Address

    def answer(self, listed_before: Collection[str], deadline: Micros) -> Answer:
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
        """Connect; see :class:`Open`."""
        connection = self._dial(address, response_seconds=self._seconds)
        try:
            return self._broker(connection)
        except TooOld:
            connection.close()
            raise

    def view(self, connection: Connection) -> ClusterView:
        """Ask a broker that is connected for what its metadata shows, and nothing else."""
        return self._broker(connection).view()

    def _broker(self, connection: Connection) -> ConnectedBroker:
        if connection.is_old:
            old = f"{connection.address} is older than Kafka 2.4: it does not support Metadata {METADATA_OLDEST}"
            raise TooOld(old)
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

    def view(self) -> ClusterView:
        """Ask for what the metadata shows: without eligible leader replicas, and without what is not listed."""
        answer = self._metadata(None)
        return self._view(answer, [topic for topic in answer.topics if topic.partitions])

    def answer(self, listed_before: Collection[str], deadline: Micros) -> Answer:
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
        return Answer(
            self._with_elr(self._view(answer, topics), deadline),
            hidden=frozenset(name for name, error in errors.items() if error != UNKNOWN_TOPIC),
            denied=frozenset(name for name, error in errors.items() if error == TOPIC_AUTHORIZATION_FAILED),
        )

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()

    def _metadata(self, names: Collection[str] | None, decoder: MetadataDecoder | None = None) -> MetadataAnswer:
        version = self._connection.newest(MetadataRequest.API_KEY, METADATA_NEWEST)
        if version < METADATA_OLDEST:
            raise CannotServe(
                f"{self.address} is no broker, but a controller: name brokers in cluster.bootstrap_servers"
            )
        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request: Any = MetadataRequest(version=version, topics=topics, allow_auto_topic_creation=False)
        answer: MetadataAnswer = self._connection.call(request, decoder or self._decoder, lambda answer: answer)
        return answer

    def _view(self, answer: MetadataAnswer, topics: Collection[AnsweredTopic]) -> ClusterView:
        cluster_id = ClusterId(answer.cluster_id or self._cluster)
        return ClusterView(
            cluster_id=cluster_id,
            answered_by=responder(self.address, answer.brokers, self._stranger),
            brokers=answer.brokers,
            topics={topic.name: topic.partitions for topic in topics},
            topic_ids={topic.name: topic.topic_id or synthetic_topic_id(cluster_id, topic.name) for topic in topics},
            partition_counts={topic.name: topic.partition_count for topic in topics},
        )

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
                    newer = {n: part for n, part in topic.partitions.items() if n in view.topics[topic.name]}
                    topics[topic.name] = {**topics[topic.name], **newer}
                    degraded[topic.name] -= newer.keys()
        except ConnectionRefused:
            self.close()  # nobody knows what this connection would answer next
            return view
        return replace(view, topics=topics, has_elr=not any(degraded.values()))

    def _described(self, names: list[str], deadline: Micros) -> Iterator[AnsweredTopic]:
        """Describe topics, in the order of their names, response by response."""
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


def responder(address: Address, brokers: Mapping[BrokerId, tuple[str, int]], stranger: int) -> int:
    """Return the broker that advertises an address, else the number of a stranger."""
    return next((broker for broker, at in brokers.items() if at == (address.host, address.port)), stranger)
