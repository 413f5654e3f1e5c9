"""What an administrator does to the cluster, and what its brokers say of it. Knows clients, no processes."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from deploy.sandbox.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SECONDS: Final = 30
_ANSWER_SECONDS: Final = 2
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the brokers describe it: ``leader`` is -1 without one, ``replicas`` keeps its order."""

    leader: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


class Admin:
    """The administrator of one cluster. Every change waits until the brokers that answer have seen it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        # Without the timeout the client would wait a minute for a broker that hangs, before it asks another.
        patience = {"socket.timeout.ms": _ANSWER_SECONDS * 1000}
        self._client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2, **patience})

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 3,
        assignment: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, spread by Kafka or with the given replicas of each partition."""
        count = len(assignment) if assignment else partitions
        placed = (
            {"replica_assignment": [list(replicas) for replicas in assignment]}
            if assignment
            else {"replication_factor": replication_factor}
        )
        topic = NewTopic(name, num_partitions=count, config=dict(configs or {}), **placed)
        self._client.create_topics([topic], request_timeout=_SECONDS)[name].result(_SECONDS)
        wait_until(lambda: len(self._with_leaders(name)) == count, f"leaders of {name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._client.delete_topics([name], request_timeout=_SECONDS)[name].result(_SECONDS)
        wait_until(lambda: not self.describe(name), f"{name} to go")

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, up to ``total``."""
        self._client.create_partitions([NewPartitions(name, total)], request_timeout=_SECONDS)[name].result(_SECONDS)
        wait_until(lambda: len(self._with_leaders(name)) == total, f"{total} partitions of {name}")

    def alter_topic_config(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Set a topic's configurations; None takes one away."""
        self._alter(ConfigResource.Type.TOPIC, name, configs)

    def alter_broker_config(self, broker: int, configs: Mapping[str, str | None]) -> None:
        """Set a broker's dynamic configurations. librdkafka knows no default of all brokers."""
        self._alter(ConfigResource.Type.BROKER, str(broker), configs)

    def elect_preferred(self, name: str, partition: int = 0) -> None:
        """Make the first replica the leader; nothing happens if it is."""
        self._elect(_PREFERRED, name, partition)

    def elect_unclean(self, name: str, partition: int = 0) -> None:
        """Make any live replica the leader of a leaderless partition: records may be lost."""
        self._elect(_UNCLEAN, name, partition)

    def reassign(self, name: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Begin to move a partition to other replicas; None cancels."""
        moved = TopicPartition(name, partition)
        with self._python_client() as client:
            refused = client.alter_partition_reassignments({moved: replicas})[moved]
        if refused is not None:
            raise refused(f"cannot reassign {name}-{partition} to {replicas}")

    def describe(self, name: str | None = None) -> dict[tuple[str, int], Partition]:
        """Describe all partitions, or one topic's, as a broker sees them now; empty when there is no such topic."""
        return {
            (topic, number): Partition(partition.leader, tuple(partition.replicas), frozenset(partition.isrs))
            for topic, metadata in self._metadata(name).topics.items()
            if metadata.error is None
            for number, partition in metadata.partitions.items()
        }

    def live_brokers(self) -> frozenset[int]:
        """Give the brokers that are registered and not fenced."""
        return frozenset(self._metadata().brokers)

    def wait_isr(self, name: str, partition: int, isr: set[int], *, seconds: float = PATIENCE_SECONDS) -> Partition:
        """Wait until a partition's in-sync replicas are exactly these."""

        def there() -> Partition | None:
            found = self.describe(name).get((name, partition))
            return found if found and found.isr == isr else None

        wanted = wait_until(there, f"the ISR of {name}-{partition} to be {sorted(isr)}", seconds=seconds)
        assert wanted is not None  # noqa: S101 - wait_until gives what is true
        return wanted

    def _metadata(self, name: str | None = None) -> ClusterMetadata:
        """Ask any broker; one that hangs does not answer, and the client asks another the next time."""
        found: list[ClusterMetadata] = []

        def answered() -> bool:
            with suppress(KafkaException):
                found.append(self._client.list_topics(name, timeout=_ANSWER_SECONDS))
            return bool(found)

        wait_until(answered, f"a broker of {self._bootstrap_servers} to answer")
        return found[0]

    def _with_leaders(self, name: str) -> list[Partition]:
        return [partition for partition in self.describe(name).values() if partition.leader >= 0]

    def _alter(self, kind: Any, name: str, configs: Mapping[str, str | None]) -> None:  # noqa: ANN401 - an untyped enum
        entries = [
            ConfigEntry(
                key,
                value or "",
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in configs.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self._client.incremental_alter_configs([resource], request_timeout=_SECONDS)[resource].result(_SECONDS)

    def _elect(self, kind: int, name: str, partition: int) -> None:
        with self._python_client() as client:
            client.elect_leaders(kind, {name: [partition]})

    @contextmanager
    def _python_client(self) -> Iterator[Any]:
        """Give a client for what confluent-kafka or its type information lacks: elections and reassignments."""
        client = KafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
        try:
            yield client
        finally:
            client.close()
