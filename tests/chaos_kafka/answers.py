"""What Kafka itself says of a cluster at rest: its own Admin client, in one JVM that answers for a whole run.

Kafka's command line tools are thin wrappers around the same client. Each run of one costs two seconds of a core; a
whole set of answers here costs a tenth of a second. Depends on py4j, which comes with Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pyspark
from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from streaming.runtime.jars import SANDBOX, jar_paths
from streaming.runtime.java import find_java

TopicPartition = tuple[str, int]
UNDECIDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_OPTIONS: Final = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_OPENED: Final = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "util.concurrent"))
_TIMEOUTS: Final = {"request.timeout.ms": "4000", "default.api.timeout.ms": "8000"}


class Unanswered(Exception):
    """Kafka does not answer now; another time it may."""


class Placed(NamedTuple):
    """A partition: its leader (-1 without one), replicas and ISR."""

    leader: int
    replicas: tuple[int, ...]
    isr: frozenset[int]

    @property
    def is_whole(self) -> bool:
        """Whether all its replicas are in sync, so that at rest their logs are equally long."""
        return self.isr == frozenset(self.replicas)


class Offsets(NamedTuple):
    """Of a partition, as consumers see them."""

    log_start: int
    high_watermark: int
    last_stable: int


class Directory(NamedTuple):
    """A log directory: by topic and partition the size of each replica that is in use, and what all take together."""

    is_online: bool
    sizes: dict[TopicPartition, int]
    replica_bytes: int


class Group(NamedTuple):
    """A group, as its coordinator describes it."""

    protocol: str
    state: str
    members: int
    coordinator: int
    assignor: str | None


class Transaction(NamedTuple):
    """A transaction that is not over."""

    transactional_id: str
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: frozenset[str]
    coordinator: int


class Quorum(NamedTuple):
    """The metadata quorum."""

    leader: int
    epoch: int
    voters: frozenset[int]
    observers: frozenset[int]


class Settings(NamedTuple):
    """What a topic is configured to, and how many partitions and replicas it has."""

    min_isr: int
    allows_unclean_election: bool
    cleanup_policy: str
    partition_count: int
    replication_factor: int


class Answers(NamedTuple):
    """Everything that there are samples of."""

    brokers: frozenset[int]
    topic_ids: dict[str, str]
    partitions: dict[TopicPartition, Placed]
    offsets: dict[TopicPartition, Offsets]
    directories: dict[tuple[int, str], Directory]
    groups: dict[str, Group]
    committed: dict[tuple[str, str, int], int]
    quorum: Quorum
    transactions: dict[tuple[int, int], Transaction]
    settings: dict[str, Settings]


class KafkasAdmin:
    """Kafka's own Admin client. A context manager."""

    def __init__(self, servers: str) -> None:
        jars = ":".join(map(str, jar_paths(SANDBOX)))  # the newest client speaks to every version
        (py4j,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
        port, self._process = launch_gateway(
            classpath=jars,
            jarpath=str(py4j),
            java_path=str(find_java().executable),
            javaopts=[*_OPTIONS, *_OPENED],
            die_on_exit=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        self._of_admin = self._gateway.jvm.org.apache.kafka.clients.admin
        self._common = self._gateway.jvm.org.apache.kafka.common
        self._admin = self._of_admin.Admin.create({"bootstrap.servers": servers, **_TIMEOUTS})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._gateway.close()
        self._process.kill()
        self._process.wait()

    def answers(self) -> Answers:
        """Ask for everything.

        Raises:
            Unanswered: a part of it is not answered.
        """
        try:
            with _results_of_py4j():
                return self._answers()
        except Py4JError as error:
            raise Unanswered(str(getattr(error, "java_exception", error))) from error

    def move(self, topic: str, partition: int, broker: int, path: str) -> None:
        """Move a replica to another directory of its broker; it is on its way when this returns."""
        with _results_of_py4j():
            replica = self._common.TopicPartitionReplica(topic, partition, broker)
            self._admin.alterReplicaLogDirs({replica: path}).all().get()

    def _answers(self) -> Answers:
        brokers = frozenset(node.id() for node in _each(self._admin.describeCluster().nodes().get()))
        described = self._topics()
        partitions = {
            (topic, part.partition()): Placed(
                -1 if part.leader() is None else part.leader().id(),
                tuple(node.id() for node in part.replicas()),
                frozenset(node.id() for node in part.isr()),
            )
            for topic, one in described.items()
            for part in one.partitions()
        }
        groups = self._groups()
        return Answers(
            brokers=brokers,
            topic_ids={topic: one.topicId().toString() for topic, one in described.items()},
            partitions=partitions,
            offsets=self._offsets(key for key, placed in partitions.items() if placed.leader in brokers),
            directories=self._directories(brokers),
            groups=groups,
            committed=self._committed(groups),
            quorum=self._quorum(),
            transactions=self._transactions(),
            settings=self._settings(partitions),
        )

    def _topics(self) -> dict[str, Any]:
        names = self._admin.listTopics(self._of_admin.ListTopicsOptions().listInternal(True)).names().get()
        return dict(self._admin.describeTopics(names).allTopicNames().get().items())

    def _offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offsets]:
        spec, isolation = self._of_admin.OffsetSpec, self._common.IsolationLevel
        keys = {key: self._common.TopicPartition(*key) for key in partitions}
        by_kind = [
            self._admin.listOffsets(dict.fromkeys(keys.values(), kind()), self._of_admin.ListOffsetsOptions(level))
            for kind, level in (
                (spec.earliest, isolation.READ_UNCOMMITTED),
                (spec.latest, isolation.READ_UNCOMMITTED),
                (spec.latest, isolation.READ_COMMITTED),
            )
        ]
        return {
            key: Offsets(*(listed.partitionResult(partition).get().offset() for listed in by_kind))
            for key, partition in keys.items()
        }

    def _directories(self, brokers: Iterable[int]) -> dict[tuple[int, str], Directory]:
        described = self._admin.describeLogDirs([*brokers]).allDescriptions().get()
        directories: dict[tuple[int, str], Directory] = {}
        for broker, by_path in described.items():
            for path, one in by_path.items():
                replicas = [(key.topic(), key.partition(), info) for key, info in one.replicaInfos().items()]
                sizes = {(topic, number): info.size() for topic, number, info in replicas if not info.isFuture()}
                total = sum(info.size() for _, _, info in replicas)
                directories[broker, path] = Directory(one.error() is None, sizes, total)
        return directories

    def _groups(self) -> dict[str, Group]:
        listed = {one.groupId(): one for one in _each(self._admin.listGroups().all().get())}
        described = self._admin.describeConsumerGroups([*listed]).all().get()
        return {
            name: Group(
                one.type().toString().lower(),
                one.groupState().toString(),
                one.members().size(),
                one.coordinator().id(),
                one.partitionAssignor() or None,
            )
            for name, one in described.items()
        }

    def _committed(self, groups: Iterable[str]) -> dict[tuple[str, str, int], int]:
        asked = {group: self._of_admin.ListConsumerGroupOffsetsSpec() for group in groups}
        if not asked:
            return {}
        answer = self._admin.listConsumerGroupOffsets(asked)
        return {
            (group, key.topic(), key.partition()): committed.offset()
            for group in asked
            for key, committed in answer.partitionsToOffsetAndMetadata(group).get().items()
            if committed is not None
        }

    def _quorum(self) -> Quorum:
        info = self._admin.describeMetadataQuorum().quorumInfo().get()
        voters, observers = (
            frozenset(one.replicaId() for one in members) for members in (info.voters(), info.observers())
        )
        return Quorum(info.leaderId(), info.leaderEpoch(), voters, observers)

    def _transactions(self) -> dict[tuple[int, int], Transaction]:
        listed = [
            one.transactionalId()
            for one in _each(self._admin.listTransactions().all().get())
            if one.state().toString() in UNDECIDED
        ]
        described = self._admin.describeTransactions(listed).all().get() if listed else {}
        return {
            (one.producerId(), one.producerEpoch()): Transaction(
                name,
                one.state().toString(),
                one.transactionTimeoutMs(),
                one.transactionStartTimeMs().getAsLong() if one.transactionStartTimeMs().isPresent() else None,
                frozenset(f"{key.topic()}-{key.partition()}" for key in one.topicPartitions()),
                one.coordinatorId(),
            )
            for name, one in described.items()
            if one.state().toString() in UNDECIDED
        }

    def _settings(self, partitions: dict[TopicPartition, Placed]) -> dict[str, Settings]:
        resource, topic_type = self._common.config.ConfigResource, self._common.config.ConfigResource.Type.TOPIC
        replicas: dict[str, list[int]] = {}
        for (topic, _), placed in partitions.items():
            replicas.setdefault(topic, []).append(len(placed.replicas))
        described = self._admin.describeConfigs([resource(topic_type, topic) for topic in replicas]).all().get()
        settings: dict[str, Settings] = {}
        for asked, config in described.items():
            topic = asked.name()
            settings[topic] = Settings(
                int(config.get("min.insync.replicas").value()),
                config.get("unclean.leader.election.enable").value() == "true",
                config.get("cleanup.policy").value(),
                len(replicas[topic]),
                min(replicas[topic]),
            )
        return settings


@contextmanager
def _results_of_py4j() -> Iterator[None]:
    """Let py4j read results: with a session of Spark in this process errors are converted, and iterators need them."""
    converting, java_gateway.get_return_value = java_gateway.get_return_value, protocol.get_return_value
    try:
        yield
    finally:
        java_gateway.get_return_value = converting


def _each(collection: Any) -> list[Any]:
    """Return the elements of a collection that is neither a list nor a set."""
    return [*collection.toArray()]
