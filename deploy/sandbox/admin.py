"""Administration of the cluster, and its state according to the brokers. Depends on clients, not on processes."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
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
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

_SECONDS: Final = 30
_RESPONSE_SECONDS: Final = 2
_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_UNANSWERED: Final = ("_TIMED_OUT", "_DESTROY_BROKER", "_TRANSPORT", "REQUEST_TIMED_OUT")
"""Errors after which the change may have been made, or not."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition in the metadata of a broker: ``leader`` is -1 without one, ``replicas`` keeps its order."""

    leader: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


Partitions = dict[tuple[str, int], PartitionDescription]


def _client(bootstrap_servers: str) -> AdminClient:
    # Without this timeout the client would wait a minute for a hanging broker before it asks another one.
    timeout = {"socket.timeout.ms": _RESPONSE_SECONDS * 1000}
    # A change goes to the controller that it knows, which in KRaft is any broker: a dead one, until it has asked again.
    asks = {"topic.metadata.refresh.interval.ms": _RESPONSE_SECONDS * 1000}
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2, **timeout, **asks})


def _partitions(metadata: ClusterMetadata) -> Partitions:
    return {
        (topic, number): PartitionDescription(partition.leader, tuple(partition.replicas), frozenset(partition.isrs))
        for topic, described in metadata.topics.items()
        if described.error is None
        for number, partition in described.partitions.items()
    }


def _leaders(shown: Partitions) -> int:
    """Return how many partitions have a leader."""
    return sum(partition.leader >= 0 for partition in shown.values())


class Admin:
    """The administrator of one cluster. Every change of a topic waits until all brokers show it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client = _client(bootstrap_servers)
        # A client that knows one server asks no other while that one answers.
        self._each = [_client(server) for server in bootstrap_servers.split(",")]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 3,
        assignment: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, placed by Kafka or with the given replicas of each partition."""
        count = len(assignment) if assignment else partitions
        placed = (
            {"replica_assignment": [list(replicas) for replicas in assignment]}
            if assignment
            else {"replication_factor": replication_factor}
        )
        topic = NewTopic(name, num_partitions=count, config=dict(configs or {}), **placed)
        self._change(
            lambda: self._client.create_topics([topic], request_timeout=_SECONDS)[name],
            KafkaError.TOPIC_ALREADY_EXISTS,
            f"{name} is created",
        )
        self._wait_everywhere(name, lambda shown: _leaders(shown) == count, f"leaders of {name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._change(
            lambda: self._client.delete_topics([name], request_timeout=_SECONDS)[name],
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            f"{name} is deleted",
        )
        self._wait_everywhere(name, lambda shown: not shown, f"the deletion of {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic to ``total``."""
        added = NewPartitions(name, total)
        self._change(
            lambda: self._client.create_partitions([added], request_timeout=_SECONDS)[name],
            KafkaError.INVALID_PARTITIONS,
            f"{name} has {total} partitions",
        )
        self._wait_everywhere(name, lambda shown: _leaders(shown) == total, f"{total} partitions of {name}")

    def _change(self, ask: Callable[[], Future[None]], is_done: int, what: str) -> None:
        """Ask for a change until it is answered: without a controller a broker keeps the request, the client gives up.

        What was asked for without an answer may have been carried out: then the error ``is_done`` is success.
        """
        is_first = True

        def is_answered() -> bool:
            nonlocal is_first
            asked_before, is_first = not is_first, False
            try:
                ask().result(_SECONDS)
            except KafkaException as failure:
                error = failure.args[0]
                if not isinstance(error, KafkaError):
                    raise
                if error.name() in _UNANSWERED:
                    return False
                if asked_before and error.code() == is_done:
                    return True
                raise
            return True

        wait_until(is_answered, what)

    def alter_topic_config(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Set configurations of a topic; None deletes one."""
        self._alter(ConfigResource.Type.TOPIC, name, configs)

    def elect_preferred(self, name: str, partition: int = 0) -> None:
        """Elect the preferred leader, the first replica; no change if it leads already."""
        self._elect(_PREFERRED, name, partition)

    def elect_unclean(self, name: str, partition: int = 0) -> None:
        """Elect any live replica of a leaderless partition, even one that lacks committed records."""
        self._elect(_UNCLEAN, name, partition)

    def reassign(self, name: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Start a reassignment of a partition to other replicas; None cancels it."""
        target = TopicPartition(name, partition)
        with self._python_client() as client:
            error = client.alter_partition_reassignments({target: replicas})[target]
        if error is not None:
            raise error(f"cannot reassign {name}-{partition} to {replicas}")

    def describe(self, name: str | None = None) -> Partitions:
        """Describe all partitions, or those of one topic, according to a broker; empty when there is no such topic."""
        return _partitions(self._metadata(name))

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return str(self._metadata().cluster_id)

    def live_brokers(self) -> frozenset[int]:
        """Return the brokers that are registered and not fenced."""
        return frozenset(self._metadata().brokers)

    def wait_isr(
        self, name: str, partition: int, isr: set[int], *, seconds: float = PATIENCE_SECONDS
    ) -> PartitionDescription:
        """Wait until the ISR of a partition is exactly this set."""

        def reached() -> PartitionDescription | None:
            description = self.describe(name).get((name, partition))
            return description if description and description.isr == isr else None

        description = wait_until(reached, f"the ISR of {name}-{partition} to be {sorted(isr)}", seconds=seconds)
        assert description is not None  # noqa: S101 - wait_until returns a true value
        return description

    def _metadata(self, name: str | None = None) -> ClusterMetadata:
        """Read the metadata from any broker; after a timeout the client tries another one."""
        responses: list[ClusterMetadata] = []

        def has_responded() -> bool:
            with suppress(KafkaException):
                responses.append(self._client.list_topics(name, timeout=_RESPONSE_SECONDS))
            return bool(responses)

        wait_until(has_responded, f"a response of a broker of {self._bootstrap_servers}")
        return responses[0]

    def _wait_everywhere(self, name: str, is_shown: Callable[[Partitions], bool], what: str) -> None:
        """Wait until each broker shows a change: the next question may go to any of them, and one may be behind.

        A broker that does not answer (dead, paused) is passed over.
        """

        def shows(client: AdminClient) -> bool:
            try:
                return is_shown(_partitions(client.list_topics(name, timeout=_RESPONSE_SECONDS)))
            except KafkaException:
                return True

        wait_until(lambda: is_shown(self.describe(name)), what)
        for client in self._each:
            wait_until(partial(shows, client), what)

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
        """Open a client for elections and reassignments, which confluent-kafka or its type information lacks."""
        client = KafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
        try:
            yield client
        finally:
            client.close()
