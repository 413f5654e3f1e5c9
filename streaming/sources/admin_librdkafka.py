"""A broker asked by librdkafka, for logins and properties of TLS that only librdkafka has.

It costs a client per broker that is asked, each with threads and descriptors for every broker of the cluster, and gives
no leader epochs. DescribeTopics, which has the topic ids, goes to what a broker says is the controller; in KRaft that
is any live broker.
"""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.contracts.identifiers import BrokerId, ClusterId, Offset, TopicId, synthetic_topic_id, topic_id_from_uuid
from streaming.errors import ConnectionRefused
from streaming.sources.admin_broker import Answer, responder
from streaming.sources.admin_clients import close
from streaming.sources.admin_offsets import REQUESTS, LeaderOffsets
from streaming.sources.admin_refusals import error_of
from streaming.sources.admin_view import ClusterView, PartitionView, in_order
from streaming.sources.protocol.connection import CannotServe
from streaming.sources.timer import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicDescription, TopicMetadata

    from streaming.contracts.identifiers import Micros
    from streaming.sources.address import Address

_BATCH: Final = 500  # topics per request
_NO_ID: Final = topic_id_from_uuid(UUID(int=0))
_LEAST_SECONDS: Final = 0.1


class ClientBrokers:
    """Creates a client for each broker that is asked.

    Args:
        connect: creates a client for an address.
        explain: gives the reason of a failure, by what librdkafka reported meanwhile.
        cluster: replaces the cluster id where the Kafka version has none.
    """

    def __init__(
        self,
        connect: Callable[[str], AdminClient],
        explain: Callable[[KafkaException], ConnectionRefused],
        *,
        cluster: str,
    ) -> None:
        self._connect, self._explain, self._cluster = connect, explain, cluster
        self._strangers = count(-2, -1)

    def __call__(self, address: Address) -> ClientBroker:
        """Create a client; see :class:`admin_broker.Open`."""
        client = self._connect(str(address))
        return ClientBroker(address, client, self._explain, cluster=self._cluster, stranger=next(self._strangers))


class ClientBroker:
    """A broker on a client of librdkafka; it must be closed, on a thread of ours."""

    def __init__(
        self,
        address: Address,
        client: AdminClient,
        explain: Callable[[KafkaException], ConnectionRefused],
        *,
        cluster: str,
        stranger: int,
    ) -> None:
        self.address = address
        self._client, self._explain, self._cluster, self._stranger = client, explain, cluster, stranger

    def answer(self, listed_before: Collection[str], deadline: Micros) -> Answer:
        """Ask for the view; see :meth:`admin_broker.Broker.answer`."""
        try:
            metadata = self._client.list_topics(timeout=_left(deadline))
            vanished = set(listed_before) - metadata.topics.keys()
            descriptions = self._described([*metadata.topics, *vanished], deadline)
        except KafkaException as failure:
            self._client.poll(0)  # runs error_cb with the errors that explain the failure
            raise CannotServe(str(self._explain(failure))) from None  # one sentence already
        hidden = frozenset(name for name in vanished if not _says_deleted(descriptions[name]))
        denied = frozenset(name for name in hidden if _is_denied(descriptions[name]))
        view = _view(metadata, descriptions, self._cluster)
        if view.answered_by < 0:  # the first response of a client
            view = replace(view, answered_by=responder(self.address, view.brokers, self._stranger))
        return Answer(view, hidden, denied)

    def close(self) -> None:
        """Close the client."""
        close(self._client)

    def _described(self, names: Collection[str], deadline: Micros) -> dict[str, TopicDescription | KafkaException]:
        """Describe topics: each of them, or why it is not to be described.

        Raises:
            KafkaException: no broker responded in time.
        """
        listed, described = list(names), dict[str, "TopicDescription | KafkaException"]()
        for start in range(0, len(listed), _BATCH):
            batch = TopicCollection(listed[start : start + _BATCH])
            futures = self._client.describe_topics(batch, request_timeout=_left(deadline))
            wait(futures.values())
            for name, future in futures.items():
                failure = future.exception()
                if failure is None:
                    described[name] = future.result()
                elif isinstance(failure, KafkaException) and error_of(failure).code() > 0:  # Kafka's, of the topic
                    described[name] = failure
                else:
                    raise failure
        return described


class ClientLeader:
    """A leader, asked by a client that others ask with, too: it is not closed here."""

    def __init__(self, address: Address, client: AdminClient, seconds: float) -> None:
        self.address = address
        self._client, self._seconds = client, seconds

    def offsets(self, partitions: Sequence[tuple[str, int]]) -> LeaderOffsets:
        """Ask the leader that librdkafka knows at that moment; see :meth:`admin_offsets.PartitionLeader.offsets`."""
        by_partition: dict[tuple[str, int], dict[str, Offset]] = {}
        denied: str | None = None
        for name, (timestamp, isolation) in REQUESTS.items():
            spec = OffsetSpec.earliest() if timestamp == REQUESTS["log_start_offset"][0] else OffsetSpec.latest()
            futures = self._client.list_offsets(
                {TopicPartition(topic, number): spec for topic, number in partitions},
                isolation_level=IsolationLevel.READ_COMMITTED if isolation else IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._seconds,
            )
            wait(futures.values())
            for partition, future in futures.items():
                failure = future.exception()
                if failure is not None:
                    denied = partition.topic if _is_denied(failure) else denied
                elif (offset := future.result().offset) >= 0:  # type: ignore[attr-defined]
                    by_partition.setdefault((partition.topic, partition.partition), {})[name] = Offset(offset)
        return LeaderOffsets(by_partition, denied)

    def close(self) -> None:
        """Leave the client open."""


def _is_denied(answer: object) -> bool:
    return isinstance(answer, KafkaException) and error_of(answer).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _says_deleted(described: TopicDescription | KafkaException) -> bool:
    return isinstance(described, KafkaException) and error_of(described).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def _view(
    metadata: ClusterMetadata, described: Mapping[str, TopicDescription | KafkaException], cluster: str
) -> ClusterView:
    """Return the listed topics of which the id is known: the others were deleted since."""
    cluster_id = ClusterId(metadata.cluster_id or cluster)
    ids = {
        name: topic_id(str(description.topic_id), cluster_id, name)
        for name, description in described.items()
        if name in metadata.topics and not isinstance(description, KafkaException)
    }
    topics = {name: parts for name in ids if (parts := _partitions(metadata.topics[name]))}
    return ClusterView(
        cluster_id=cluster_id,
        answered_by=metadata.orig_broker_id,
        brokers={BrokerId(each.id): (each.host or "", each.port) for _, each in sorted(metadata.brokers.items())},
        topics=topics,
        topic_ids={name: ids[name] for name in topics},
        partition_counts={name: max(metadata.topics[name].partitions, default=-1) + 1 for name in topics},
    )


def _partitions(topic: TopicMetadata) -> dict[int, PartitionView]:
    return {
        number: PartitionView(
            tuple(map(BrokerId, part.replicas)), in_order(part.isrs, part.replicas), BrokerId(part.leader)
        )
        for number, part in sorted(topic.partitions.items())
        if part.replicas
    }


def topic_id(librdkafka_id: str, cluster_id: ClusterId, topic: str) -> TopicId:
    """Return a topic id in Kafka's URL-safe base64 (librdkafka uses the other alphabet), a synthetic one for none."""
    spelled = TopicId(librdkafka_id.replace("+", "-").replace("/", "_"))
    return synthetic_topic_id(cluster_id, topic) if spelled == _NO_ID else spelled


def _left(deadline: Micros) -> float:
    return max(_LEAST_SECONDS, (deadline - monotonic()) / 1_000_000)
