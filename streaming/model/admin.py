"""What administrators ask of a cluster: topics, configuration, elections, reassignments, brokers that are gone.

Departs from Kafka: a request reaches the active controller at once, and so does its answer; with ZooKeeper topics can
only be created and deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from streaming.model.controller.controller import Controller
from streaming.model.controller.topics import CLUSTER, NewTopic
from streaming.model.errors import Error, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
    from streaming.model.control_plane import ControlPlane
    from streaming.model.controller.election import Mode
    from streaming.model.controller.java_random import JavaRandom
    from streaming.model.controller.placement import Assignments
    from streaming.model.controller.reassignment import Assignment

T = TypeVar("T")


class Ask(Protocol):
    """The way to the active controller."""

    def __call__(self, request: Callable[[ControlPlane, int], T]) -> T:
        """Answer a request at this moment; ``Refused`` if nobody can."""


class Admin:
    """The requests, by the names that Kafka's ``Admin`` gives them.

    One that concerns one thing raises ``Refused`` with Kafka's error; one that concerns partitions gives an error for
    each, ``Error.NONE`` is success.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask_anybody = ask

    def _ask(self, request: Callable[[Controller, int], T]) -> T:
        """Ask what only a KRaft controller does here."""

        def ask(plane: ControlPlane, now: int) -> T:
            if not isinstance(plane, Controller):
                raise Refused(Error.UNSUPPORTED_VERSION, "with ZooKeeper, topics are only created and deleted here")
            return request(plane, now)

        return self._ask_anybody(ask)

    def place(
        self, random: JavaRandom, partitions: int | None = None, replication_factor: int | None = None
    ) -> Assignments:
        """Let the controller say where new partitions go, by default as many and as often as the brokers' files say.

        Raises:
            Refused: INVALID_PARTITIONS, or INVALID_REPLICATION_FACTOR: more replicas than brokers.
        """
        return self._ask(lambda controller, _: controller.topics.place(random, partitions, replication_factor))

    def create_topic(self, new: NewTopic, config: Mapping[str, str]) -> None:
        """Create a topic.

        Raises:
            Refused: TOPIC_ALREADY_EXISTS, or INVALID_REPLICA_ASSIGNMENT: replicas that cannot be, or cannot be led.
        """
        self._ask_anybody(lambda controller, now: controller.topics.create(now, new, config))

    def delete_topic(self, topic_id: TopicId) -> None:
        """Delete a topic.

        Raises:
            Refused: UNKNOWN_TOPIC_ID.
        """
        self._ask_anybody(lambda controller, now: controller.topics.delete(now, topic_id))

    def create_partitions(self, topic: str, assignments: Assignments) -> None:
        """Add partitions to a topic.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS or INVALID_REPLICA_ASSIGNMENT.
        """
        self._ask(lambda controller, now: controller.topics.create_partitions(now, topic, assignments))

    def alter_config(self, key: str, value: str | None, topic: str = CLUSTER) -> None:
        """Set a topic's configuration or the cluster's default; None takes it back.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION or INVALID_CONFIG.
        """
        self._ask(lambda controller, now: controller.topics.alter_config(now, topic, key, value))

    def elect_leaders(self, mode: Mode, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Error]:
        """Elect preferred leaders, or (UNCLEAN) any live replica where nobody leads; KIP-460.

        Gives ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE by partition.
        """
        return self._ask(lambda controller, now: controller.replication.elect_leaders(now, mode, partitions))

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, Error]:
        """Move replicas, or (None) take a running move back; KIP-455.

        Gives INVALID_REPLICA_ASSIGNMENT or NO_REASSIGNMENT_IN_PROGRESS by partition.
        """
        return self._ask(lambda controller, now: controller.replication.alter_partition_reassignments(now, targets))

    def list_partition_reassignments(self) -> dict[TopicPartition, Assignment]:
        """Tell which replicas are on the move."""
        return self._ask(lambda controller, _: controller.replication.list_partition_reassignments())

    def unregister_broker(self, broker: BrokerId) -> None:
        """Remove a broker that will not come back.

        Raises:
            Refused: BROKER_ID_NOT_REGISTERED.
        """
        self._ask(lambda controller, now: controller.membership.unregister(now, broker))
