"""A broker asked by librdkafka, for logins and properties of TLS that only librdkafka has.

It costs a client per broker that is asked, each with threads and descriptors for every broker of the cluster, and gives
no leader epochs. DescribeTopics, which has the topic ids, goes to what a broker says is the controller; in KRaft that
is any live broker.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition, libversion
from confluent_kafka.admin import AdminClient, OffsetSpec

from streaming.contracts.identifiers import (
    BrokerId,
    ClusterId,
    Micros,
    Offset,
    TopicId,
    synthetic_topic_id,
    topic_id_from_uuid,
)
from streaming.contracts.sample_blocks import offsets_in_blocks
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.permissions import DESCRIBE_TOPICS, PermissionDenied, error_of
from streaming.sources.polling.broker import Answer, responder
from streaming.sources.polling.view import ClusterView, PartitionView, in_order
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.protocol.tokens import COMMAND, tokens_of
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from confluent_kafka.admin import ClusterMetadata, TopicDescription, TopicMetadata

    from streaming.contracts.observations import Observation

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
        """Create a client; see :class:`broker.BrokerOpener`."""
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
        """Ask for the view; see :meth:`broker.Broker.answer`."""
        try:
            metadata = self._client.list_topics(timeout=_left(deadline))
            vanished = set(listed_before) - metadata.topics.keys()
            descriptions = self._described([*metadata.topics, *vanished], deadline)
        except KafkaException as failure:
            self._client.poll(0)  # runs error_cb with the errors that explain the failure
            raise ServiceRefused(str(self._explain(failure))) from None  # one sentence already
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


# The offsets of leaders, for logins that only librdkafka has: each is asked separately, so a hung one delays no other.
#
# Depends on the contracts. ListOffsets: earliest = log start, latest with isolation ``read_uncommitted`` = high
# watermark, with ``read_committed`` = last stable offset (KIP-98). Clients cannot read a leader's log end offset.


if TYPE_CHECKING:
    Partition = tuple[str, int]

REQUESTS: Final = {  # timestamp and isolation level, as Kafka numbers them
    "log_start_offset": (-2, 0),
    "high_watermark": (-1, 0),
    "last_stable_offset": (-1, 1),
}
_NEWEST: Final = 7
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_AT_ONCE: Final = 32  # leaders; more than that only wait where so many hang


class LeaderOffsets(NamedTuple):
    """Response of a leader.

    Attributes:
        by_partition: the offsets by field of a sample, without those of partitions that failed.
        denied: a topic that may not be described.
    """

    by_partition: dict[Partition, dict[str, Offset]]
    denied: str | None = None


class PartitionLeader(Protocol):
    """A broker that can be asked for the offsets of partitions that it leads."""

    address: Address

    def offsets(self, partitions: Sequence[Partition]) -> LeaderOffsets:
        """Ask.

        Raises:
            ConnectionRefused: it does not respond.
        """

    def close(self) -> None:
        """Hang up."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to a leader, and the view that names its partitions."""

    view: ClusterView
    at: Micros
    response: Future[tuple[PartitionLeader, LeaderOffsets]]


class OffsetsRound:
    """The requests in flight, one per leader, and a connection to each.

    Invariant: a leader gets no new request while its response is outstanding.

    Args:
        connect: reaches a leader; None: no leader is asked.
        name: prefix of the threads' names.
    """

    def __init__(self, connect: Callable[[Address], PartitionLeader] | None, *, name: str) -> None:
        self.refusal: ConnectionRefused | None = None
        self._connect = connect
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix=f"{name} offsets")
        self._leaders: dict[BrokerId, PartitionLeader] = {}
        self._in_flight: dict[BrokerId, _Request] = {}

    def ask(self, view: ClusterView, now: Micros) -> None:
        """Request the offsets of its partitions from every leader without an outstanding response."""
        connect = self._connect
        if connect is None:
            return
        led = view.led_by()
        for broker in self._leaders.keys() - led.keys():
            self._leaders.pop(broker).close()
        for broker, partitions in led.items():
            if broker in view.brokers and broker not in self._in_flight:
                leader, address = self._leaders.pop(broker, None), Address(*view.brokers[broker])
                response = self._threads.submit(_respond, connect, leader, address, partitions)
                self._in_flight[broker] = _Request(view, now, response)

    def pending(self) -> list[Future[Any]]:
        """Return the futures to wait for."""
        return [request.response for request in self._in_flight.values() if not request.response.done()]

    def take(self, view: ClusterView, envelope: dict[str, Any], now: Micros) -> list[Observation]:
        """Return the offsets of leaders that responded since the last call, without partitions that failed.

        Partitions whose leader or topic id has changed since the request are left out, too: it is not certain for which
        topic of that name who responded.
        """
        ready = {broker: request for broker, request in self._in_flight.items() if request.response.done()}
        for broker in ready:
            del self._in_flight[broker]
        return [
            block
            for broker, request in ready.items()
            for block in offsets_in_blocks(
                sample for sample in self._samples(broker, request, envelope, now) if _is_current(sample, view)
            )
        ]

    def close(self) -> None:
        """Hang up; a request in flight ends by its own timeout."""
        for request in self._in_flight.values():
            request.response.add_done_callback(_hang_up)
        for leader in self._leaders.values():
            leader.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _samples(
        self, broker: BrokerId, request: _Request, envelope: dict[str, Any], now: Micros
    ) -> Iterator[ReplicaOffsetsObserved]:
        failure = request.response.exception()
        if failure is not None:
            self.refusal = failure if isinstance(failure, ServiceRefused) else self.refusal
            if not isinstance(failure, ConnectionRefused):
                raise failure
            return
        self._leaders[broker], answer = request.response.result()
        if answer.denied is not None:
            self.refusal = PermissionDenied(DESCRIBE_TOPICS, on=f"topic {answer.denied}")
        for (topic, number), offsets in answer.by_partition.items():
            if topic not in request.view.topic_ids:
                continue
            window = {"occurred_not_before": request.at, "occurred_not_after": max(request.at, now)}
            yield ReplicaOffsetsObserved(
                **{**envelope, **window, **offsets},
                topic_id=request.view.topic_ids[topic],
                topic=topic,
                partition=number,
                broker=broker,
            )


def _respond(
    connect: Callable[[Address], PartitionLeader],
    leader: PartitionLeader | None,
    address: Address,
    partitions: Sequence[Partition],
) -> tuple[PartitionLeader, LeaderOffsets]:
    if leader is not None:
        with suppress(ConnectionRefused):  # a broker may end a connection, for instance with its login (KIP-368)
            if leader.address == address:
                return leader, leader.offsets(partitions)
        leader.close()
    leader = connect(address)
    try:
        return leader, leader.offsets(partitions)
    except BaseException:
        leader.close()
        raise


def _hang_up(response: Future[tuple[PartitionLeader, LeaderOffsets]]) -> None:
    if not response.cancelled() and response.exception() is None:
        response.result()[0].close()


def _is_current(sample: ReplicaOffsetsObserved, view: ClusterView) -> bool:
    """Return whether the partition of a sample is still the one that its broker leads."""
    partition = view.topics.get(sample.topic, {}).get(sample.partition)
    return (
        partition is not None
        and partition.leader == sample.broker
        and view.topic_ids.get(sample.topic) == sample.topic_id
    )


# Closes librdkafka clients on our own thread, even while references remain.
#
# librdkafka aborts the process if a client is destroyed on one of its own threads. Python frees an unused client
# wherever its collector of cycles happens to run, and results of requests are made on a thread of the client. One that
# was replaced while a request of it was in flight can end there, and the process with it; one that was closed is
# harmless.


_LACKS_GSSAPI: Final = "No provider for SASL mechanism GSSAPI"


def new_client(properties: Mapping[str, Any]) -> AdminClient:
    """Create a client.

    Raises:
        ConfigurationError: librdkafka refuses a property.
    """
    command = properties.get(COMMAND)
    passed = {key: value for key, value in properties.items() if key != COMMAND}
    if command is not None:  # librdkafka asks for a token when it needs one, on a thread of its own
        tokens = tokens_of(properties, "cluster.client")
        passed["oauth_cb"] = lambda _: tuple(tokens.current())
    try:
        return AdminClient(passed)
    except (KafkaException, TypeError, ValueError) as failure:
        reason = error_of(failure).str() if isinstance(failure, KafkaException) else str(failure)
        if _LACKS_GSSAPI in reason:
            raise ConfigurationError(_no_gssapi()) from None
        raise ConfigurationError(f"[cluster.client] is refused by librdkafka: {reason}") from None


def _no_gssapi() -> str:
    """Say how to get it (confluent-kafka-python, INSTALL.md)."""
    version, _ = libversion()
    return (
        f"cluster.client sasl.mechanism is GSSAPI (Kerberos), which this librdkafka {version} was built without, as in "
        f"every wheel of confluent-kafka: install librdkafka {version} or newer with its headers, built with libsasl2, "
        "then: pip install --force-reinstall --no-binary confluent-kafka confluent-kafka"
    )


def close(client: AdminClient) -> None:
    """End a client, on the thread that calls."""
    client.__exit__(None, None, None)  # type: ignore[attr-defined] # not in the stubs yet
