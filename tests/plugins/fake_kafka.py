"""Brokers on 127.0.0.1 that speak Kafka's protocol: what each of them says is set by the test; one thread runs all."""

from __future__ import annotations

import asyncio
import struct
import threading
import uuid
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

from streaming.sources.protocol.identity import CHECKING_API_VERSIONS
from streaming.sources.protocol.primitives import INT16, INT32, ByteReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
UNKNOWN_TOPIC, NOT_LEADER, TOPIC_AUTHORIZATION_FAILED, LISTENER_NOT_FOUND = 3, 6, 29, 72
LIST_OFFSETS, DESCRIBE_CONFIGS, METADATA = 2, 32, 3
_OWN, _STATIC = 1, 4  # where a value comes from, as Kafka numbers it
BROKER = 4  # a kind of resource
KRAFT = {"metadata.version": (30, 30)}
"""The features of a cluster without ZooKeeper."""
MIN_ISR = "min.insync.replicas"
LOOKS_AT_REPLICAS, LOG_START = -2, -2  # a replica id, and a time
DESCRIBE_TOPIC_PARTITIONS = DescribeTopicPartitionsRequest.API_KEY
TYPES: dict[int, tuple[Any, int]] = {
    request.API_KEY: (request, newest)
    for request, newest in (
        (ApiVersionsRequest, 4),
        (MetadataRequest, 12),
        (ListOffsetsRequest, 7),
        (DescribeConfigsRequest, 4),
        (DescribeLogDirsRequest, 5),
        (ListPartitionReassignmentsRequest, 0),
        (DescribeTopicPartitionsRequest, 0),
        (SaslHandshakeRequest, 1),
        (DescribeClusterRequest, 2),
        (OffsetForLeaderEpochRequest, 4),
        (DescribeQuorumRequest, 2),
    )
}
OF_KAFKA_1_0 = {ApiVersionsRequest.API_KEY: 1, METADATA: 5, LIST_OFFSETS: 2, DESCRIBE_CONFIGS: 0}
OF_KAFKA_2_3 = {ApiVersionsRequest.API_KEY: 2, METADATA: 8, LIST_OFFSETS: 5, DESCRIBE_CONFIGS: 2, 17: 1, 36: 1}


@dataclass
class Part:
    """One partition."""

    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    elr: list[int] | None = field(default_factory=list)
    last_known_elr: list[int] | None = field(default_factory=list)
    offline: list[int] = field(default_factory=list)
    unseen: set[int] = field(default_factory=set)  # brokers without the listener that is asked
    ends: dict[int, int] = field(default_factory=dict)  # of the log of each broker; 0 where none is set
    epoch_ends: dict[int, int] = field(default_factory=dict)  # of the leader's log

    def fields(self, number: int, *, has_errors: bool = True) -> dict[str, Any]:
        """Give the fields of every response that describes partitions; some have no errors (``KRaftMetadataCache``)."""
        is_unseen = self.leader in self.unseen
        offline = {*self.offline, *self.unseen.intersection(self.replicas)}
        return {
            "error_code": LISTENER_NOT_FOUND if is_unseen and has_errors else 0, "partition_index": number,
            "leader_id": -1 if is_unseen else self.leader, "leader_epoch": self.leader_epoch,
            "replica_nodes": self.replicas, "isr_nodes": self.isr, "offline_replicas": sorted(offline),
        }  # fmt: skip


@dataclass
class Topic:
    """A topic with its partitions, and the error that stands for it in answers by name."""

    id: uuid.UUID
    parts: list[Part]
    error: int = 0


@dataclass
class View:
    """What a broker knows. Brokers share one; a test may give a broker an older one."""

    topics: dict[str, Topic] = field(default_factory=dict)
    brokers: list[int] = field(default_factory=list)


class FakeKafka:
    """A cluster of brokers 1, 2, 3, ...

    Attributes:
        view: what every broker says that has none of its own in ``views``.
        requests: every request, with the broker that got it.
        newest: the newest version of each request that the brokers support; -1: none.
        old: the brokers of them that are of Kafka 2.3.
        advertised: addresses that are not those where the brokers listen.
        page: how many partitions a response to DescribeTopicPartitions has at most.
        listed: what responses to Metadata list, if that is older than ``view``.
        configs: the configuration of a topic, or of a broker by its number; another one has a minimum of 1 alone.
            Each value is the own one of what it is of: of the topic itself, or of the broker's file.
        features: by name the highest level that the brokers support, and the finalized one.
        ids: of brokers that are not those that their addresses stand for.
        cluster_ids: of brokers of other clusters.
        identities: every ApiVersions 5, with the broker that got it.
        fenced: brokers that are listed as fenced, beside those of the view.
        quorum: leader and epoch of the metadata quorum, which brokers say where ``newest`` has DescribeQuorum.
        held: requests by their keys that are answered when they are not in it any more.
        throttle_ms: the time for which responses to DescribeCluster say that a client is throttled.
        denies_broker_configs: whether the user lacks DescribeConfigs on the cluster.
        left_out: resources of which a proxy passes no configuration on, but who they are.
        types: of the requests that they understand, by their keys, with the newest version.
    """

    types = TYPES
    newest_describe_quorum = -1

    def __init__(self, brokers: int = 3) -> None:
        self.cluster_id = CLUSTER_ID
        self.ports: dict[int, int] = {}
        self.view = View()
        self.views: dict[int, View] = {}
        self.requests: list[tuple[int, Any]] = []
        self.newest = {key: newest for key, (_, newest) in self.types.items()}
        self.old: set[int] = set()
        self.advertised: dict[int, tuple[str, int]] = {}
        self.page = 2000
        self.listed: View | None = None
        self.configs: dict[str, dict[str, str]] = {}
        self.features: dict[str, tuple[int, int]] = {}
        self.ids: dict[int, int] = {}
        self.cluster_ids: dict[int, str] = {}
        self.identities: list[tuple[int, tuple[str | None, int]]] = []
        self.fenced: set[int] = set()
        self.held: set[int] = set()
        self.throttle_ms = 0
        self.quorum = (101, 1)
        self.newest[DescribeQuorumRequest.API_KEY] = self.newest_describe_quorum
        self.denies_broker_configs = False
        self.left_out: set[str] = set()
        self._refused: set[int] = set()
        self._secret: set[str] = set()
        self._delays: dict[int, float] = {}
        self._errors: defaultdict[int, deque[int]] = defaultdict(deque)
        self._servers: dict[int, asyncio.Server] = {}
        self._open: defaultdict[int, set[asyncio.Task[Any]]] = defaultdict(set)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        for broker in range(1, brokers + 1):
            self.bring_up(broker)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def create_topic(self, topic: str, *, partitions: int, replicas: int) -> None:
        ids = sorted(self.ports)
        placed = [[ids[(number + n) % len(ids)] for n in range(replicas)] for number in range(partitions)]
        self.view.topics[topic] = Topic(uuid.uuid4(), [Part(each, [*each], each[0]) for each in placed])

    def delete_topic(self, topic: str) -> None:
        del self.view.topics[topic]

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        part = self.view.topics[topic].parts[partition]
        part.leader, part.leader_epoch = broker, part.leader_epoch + 1

    def hang(self, broker: int, milliseconds: int) -> None:
        """Let a broker answer that late."""
        self._delays[broker] = milliseconds / 1000

    def fail(self, api_key: int, *errors: int) -> None:
        """Answer the next requests of one kind with these errors."""
        self._errors[api_key].extend(errors)

    def refuse(self, api_key: int) -> None:
        """Hang up on every request of one kind."""
        self._refused.add(api_key)

    def refuse_topic(self, topic: str) -> None:
        """Refuse the offsets of one topic, as if they were not authorised."""
        self._secret.add(topic)

    def take_down(self, broker: int) -> None:
        self.view.brokers.remove(broker)
        self.disconnect(broker)

    def disconnect(self, broker: int) -> None:
        """Let a broker go without anybody noticing but who is connected."""
        self._run(self._stop(broker))

    def take_listener_from(self, *brokers: int) -> None:
        """Let brokers run on without the listener that is asked; partitions that are created later do not know it."""
        self.view.brokers = [each for each in self.view.brokers if each not in brokers]
        for topic in self.view.topics.values():
            for part in topic.parts:
                part.unseen = set(brokers)

    def bring_up(self, broker: int) -> None:
        self._run(self._start(broker))
        self.view.brokers = sorted({*self.view.brokers, broker})

    def connections(self) -> int:
        """Return how many connections are open."""
        return sum(map(len, self._open.values()))

    def asked(self, kind: type[Any]) -> list[tuple[int, Any]]:
        """Return the requests of a kind, with the broker that got each."""
        return [(broker, request) for broker, request in self.requests if isinstance(request, kind)]

    def close(self) -> None:
        for broker in list(self._servers):
            self._run(self._stop(broker))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _start(self, broker: int) -> None:
        server = await asyncio.start_server(self._serving(broker), "127.0.0.1", self.ports.get(broker, 0))
        self._servers[broker] = server
        self.ports[broker] = server.sockets[0].getsockname()[1]

    async def _stop(self, broker: int) -> None:
        self._servers.pop(broker).close()
        tasks = list(self._open[broker])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _serving(self, broker: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._open[broker].add(task)
            try:
                while True:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    if not 0 < size < 1 << 24:  # as Kafka, which takes the beginning of a TLS handshake for a size
                        return
                    request = await reader.readexactly(size)
                    response = self._answered(broker, request)
                    while struct.unpack(">h", request[:2])[0] in self.held:  # noqa: ASYNC110 - a test changes it
                        await asyncio.sleep(0.01)
                    await asyncio.sleep(self._delays.get(broker, 0))
                    writer.write(response)
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                self._open[broker].discard(task)
                writer.close()

        return serve

    def _answered(self, broker: int, data: bytes) -> bytes:
        key, version, correlation = struct.unpack(">hhi", data[:8])
        kind, _ = self.types[key]
        if key in self._refused:
            raise ConnectionError
        if key == ApiVersionsRequest.API_KEY and version > self._newest_of(broker)[key]:
            response = ApiVersionsResponse(error_code=35, api_keys=[])
            version = 0
        elif key == ApiVersionsRequest.API_KEY and version >= CHECKING_API_VERSIONS:
            response, version = self._checked(broker, data), 4
        else:
            request = kind.decode(data, version=version, header=True)
            self.requests.append((broker, request))
            response = getattr(self, f"_{kind.__name__}")(broker, request)
        response.API_VERSION = version
        response.with_header(correlation_id=correlation)
        return bytes(response.encode(header=True, framed=True))

    def _newest_of(self, broker: int) -> dict[int, int]:
        return OF_KAFKA_2_3 if broker in self.old else self.newest

    def _error(self, api_key: int) -> int:
        return self._errors[api_key].popleft() if self._errors[api_key] else 0

    def _ApiVersionsRequest(self, broker: int, __: Any) -> Any:  # noqa: N802 - the name of the request
        of = ApiVersionsResponse
        newest = {key: version for key, version in self._newest_of(broker).items() if version >= 0}
        levels = self.features.items()
        supported = [of.SupportedFeatureKey(name=each, min_version=0, max_version=most) for each, (most, _) in levels]
        return ApiVersionsResponse(
            error_code=0, throttle_time_ms=0, supported_features=supported, finalized_features_epoch=1,
            api_keys=[of.ApiVersion(api_key=key, min_version=0, max_version=most) for key, most in newest.items()],
            finalized_features=[
                of.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, (_, level) in levels
                if level
            ],
        )  # fmt: skip

    def _checked(self, broker: int, data: bytes) -> Any:
        """Answer ApiVersions 5 (KIP-1242) as ``KafkaApis``: it is refused where it is meant for another broker."""
        reader = ByteReader(data[8:])
        reader.raw(*INT16.unpack(reader.raw(INT16.size)))  # the client's id
        reader.tags()
        reader.string(), reader.string()
        meant = reader.nullable_string(), reader.number(INT32)
        self.identities.append((broker, meant))
        own = (self.cluster_ids.get(broker, self.cluster_id), self.ids.get(broker, broker))
        response = self._ApiVersionsRequest(broker, None)
        response.error_code = 0 if meant[0] is None or meant == own else 129
        return response

    def _SaslHandshakeRequest(self, _: int, __: Any) -> Any:  # noqa: N802 - as above
        return SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"])

    def _MetadataRequest(self, broker: int, request: Any) -> Any:  # noqa: N802 - as above
        view = self.listed or self.views.get(broker, self.view)
        names = list(view.topics) if request.topics is None else [each.name for each in request.topics]
        addresses = {each: self.advertised.get(each, ("127.0.0.1", self.ports[each])) for each in view.brokers}
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=each, host=host, port=port, rack=None)
                for each, (host, port) in addresses.items()
            ],
            cluster_id=self.cluster_ids.get(broker, self.cluster_id),
            controller_id=view.brokers[0] if view.brokers else -1,
            topics=[
                self._listed(view, name) for name in names if request.topics is not None or not view.topics[name].error
            ],
        )

    @staticmethod
    def _listed(view: View, name: str) -> Any:
        of_topic = MetadataResponse.MetadataResponseTopic
        topic = view.topics.get(name) or Topic(uuid.UUID(int=0), [], UNKNOWN_TOPIC)
        told = enumerate(() if topic.error else topic.parts)
        parts = [of_topic.MetadataResponsePartition(**part.fields(number)) for number, part in told]
        return of_topic(error_code=topic.error, name=name, topic_id=topic.id, is_internal=False, partitions=parts)

    def _DescribeTopicPartitionsRequest(self, broker: int, request: Any) -> Any:  # noqa: N802 - as above
        """Answer as ``DescribeTopicPartitionsRequestHandler`` does: sorted, from the cursor on, so many at most."""
        view, cursor = self.views.get(broker, self.view), request.cursor
        names = sorted(each.name for each in request.topics)
        start = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
        assert cursor is None or start[0] in names, "Kafka refuses a cursor that is not within the topics"
        wanted: list[tuple[str, int, Part]] = [
            (name, number, part)
            for name in names
            for number, part in enumerate(view.topics[name].parts if name in view.topics else ())
            if (name, number) >= start
        ]
        page, rest = wanted[: self.page], wanted[self.page :]
        return DescribeTopicPartitionsResponse(
            throttle_time_ms=0,
            topics=[
                self._described(view, name, [(number, part) for other, number, part in page if other == name])
                for name in dict.fromkeys(name for name, *_ in page)
            ],
            next_cursor=DescribeTopicPartitionsResponse.Cursor(topic_name=rest[0][0], partition_index=rest[0][1])
            if rest
            else None,
        )

    @staticmethod
    def _described(view: View, name: str, parts: Sequence[tuple[int, Part]]) -> Any:
        of_topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
        of_part = of_topic.DescribeTopicPartitionsResponsePartition
        told = [
            of_part(
                **part.fields(number, has_errors=False),
                eligible_leader_replicas=part.elr,
                last_known_elr=part.last_known_elr,
            )
            for number, part in parts
        ]
        topic_id = view.topics[name].id
        return of_topic(error_code=0, name=name, topic_id=topic_id, is_internal=False, partitions=told)

    def _DescribeClusterRequest(self, broker: int, request: Any) -> Any:  # noqa: N802 - as above
        view, of_broker = self.views.get(broker, self.view), DescribeClusterResponse.DescribeClusterBroker
        return DescribeClusterResponse(
            throttle_time_ms=self.throttle_ms, error_code=self._error(DescribeClusterRequest.API_KEY),
            error_message=None, endpoint_type=1, cluster_id=self.cluster_ids.get(broker, self.cluster_id),
            controller_id=view.brokers[0] if view.brokers else -1, authorized_operations=set(),
            brokers=[
                of_broker(broker_id=each, host="127.0.0.1", port=self.ports[each], rack=None, is_fenced=is_fenced)
                for brokers, is_fenced in ((view.brokers, False), (sorted(self.fenced), True))
                for each in brokers
                if request.include_fenced_brokers or not is_fenced
            ],
        )  # fmt: skip

    def _DescribeQuorumRequest(self, _: int, __: Any) -> Any:  # noqa: N802 - as above
        of_topic = DescribeQuorumResponse.TopicData
        leader, epoch = self.quorum
        part = of_topic.PartitionData(
            partition_index=0, error_code=0, error_message=None, leader_id=leader, leader_epoch=epoch,
            high_watermark=1, current_voters=[], observers=[],
        )  # fmt: skip
        topics = [of_topic(topic_name="__cluster_metadata", partitions=[part])]
        return DescribeQuorumResponse(error_code=0, error_message=None, topics=topics, nodes=[])

    def _OffsetForLeaderEpochRequest(self, broker: int, request: Any) -> Any:  # noqa: N802 - as above
        of_topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult

        def ended(name: str, asked: Any) -> dict[str, int]:
            topic = self.view.topics.get(name)
            if name in self._secret or topic is None:
                error = TOPIC_AUTHORIZATION_FAILED if name in self._secret else UNKNOWN_TOPIC
                return {"error_code": error, "leader_epoch": -1, "end_offset": -1}
            part = topic.parts[asked.partition]
            if part.leader != broker:
                return {"error_code": NOT_LEADER, "leader_epoch": -1, "end_offset": -1}
            epoch = max((each for each in part.epoch_ends if each <= asked.leader_epoch), default=-1)
            return {"error_code": 0, "leader_epoch": epoch, "end_offset": part.epoch_ends.get(epoch, -1)}

        return OffsetForLeaderEpochResponse(
            throttle_time_ms=0,
            topics=[
                of_topic(
                    topic=topic.topic,
                    partitions=[
                        of_topic.EpochEndOffset(partition=each.partition, **ended(topic.topic, each))
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _ListPartitionReassignmentsRequest(self, _: int, __: Any) -> Any:  # noqa: N802 - as above
        return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=[])

    def _ListOffsetsRequest(self, broker: int, request: Any) -> Any:  # noqa: N802 - as above
        of_topic = ListOffsetsResponse.ListOffsetsTopicResponse
        error = self._error(LIST_OFFSETS)

        def error_of(name: str, number: int) -> int:
            topic = self.view.topics.get(name)
            if name in self._secret:
                return TOPIC_AUTHORIZATION_FAILED
            if error or topic is None or number >= len(topic.parts):
                return error or UNKNOWN_TOPIC
            is_asked_as_replica = request.replica_id == LOOKS_AT_REPLICAS
            return 0 if is_asked_as_replica or topic.parts[number].leader == broker else NOT_LEADER

        def offset_of(name: str, number: int, timestamp: int) -> int:
            return 0 if timestamp == LOG_START else self.view.topics[name].parts[number].ends.get(broker, 0)

        return ListOffsetsResponse(
            throttle_time_ms=0,
            topics=[
                of_topic(
                    name=topic.name,
                    partitions=[
                        of_topic.ListOffsetsPartitionResponse(
                            partition_index=part.partition_index, timestamp=-1, leader_epoch=0,
                            error_code=(failed := error_of(topic.name, part.partition_index)),
                            offset=-1 if failed else offset_of(topic.name, part.partition_index, part.timestamp),
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )  # fmt: skip

    def _DescribeLogDirsRequest(self, broker: int, _: Any) -> Any:  # noqa: N802 - as above
        """Answer with one directory, in which a record takes ten bytes."""
        of_result = DescribeLogDirsResponse.DescribeLogDirsResult
        of_topic = of_result.DescribeLogDirsTopic
        topics = [
            of_topic(
                name=name,
                partitions=[
                    of_topic.DescribeLogDirsPartition(
                        partition_index=number, partition_size=10 * part.ends.get(broker, 0), offset_lag=0,
                        is_future_key=False,
                    )
                    for number, part in enumerate(topic.parts)
                    if broker in part.replicas
                ],
            )
            for name, topic in self.view.topics.items()
        ]  # fmt: skip
        directory = of_result(error_code=0, log_dir="/data", topics=topics, total_bytes=1000, usable_bytes=600)
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[directory])

    def _DescribeConfigsRequest(self, broker: int, request: Any) -> Any:  # noqa: N802 - as above
        """Answer as ``ConfigHelper`` does: of a broker only its own, and to others it says its own id."""
        of_result = DescribeConfigsResponse.DescribeConfigsResult
        own, denied = self.ids.get(broker, broker), 31 if self.denies_broker_configs else 0
        error = 0 if denied else self._error(DESCRIBE_CONFIGS)

        def error_of(resource: Any) -> int:
            if resource.resource_type == BROKER and not error:
                return denied or 42 * (resource.resource_name != str(own))
            return error

        return DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                of_result(
                    error_code=(code := error_of(resource)),
                    error_message=f"Unexpected broker id, expected {own} or empty string, but received "
                    f"{resource.resource_name}" if code == 42 and not error else None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[
                        of_result.DescribeConfigsResourceResult(
                            name=name, value=value, read_only=False, is_sensitive=False, synonyms=[], config_type=0,
                            documentation=None, config_source=_STATIC if resource.resource_type == BROKER else _OWN,
                        )
                        for name, value in self.configs.get(resource.resource_name, {MIN_ISR: "1"}).items()
                        if not code
                    ],
                )
                for resource in request.resources
                if resource.resource_name not in self.left_out or "node.id" in resource.configuration_keys
            ],
        )  # fmt: skip
