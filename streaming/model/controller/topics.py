"""Changes of topics by administrators (``ReplicationControlManager``, ``ConfigurationControlManager``)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import TopicId, TopicPartition
from streaming.contracts.records import RESOURCE_BROKER, RESOURCE_TOPIC, ClearElr, Config, RemoveTopic, Topic
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.placement import check_assignments, place, usable_brokers
from streaming.model.messages.registrations import PartitionRegistration, TopicRegistration
from streaming.model.storage.segments import log_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.model.constants import Constants
    from streaming.model.controller.metadata_writer import MetadataWriter
    from streaming.model.controller.placement import Assignments, JavaRandom

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
CLUSTER: Final = ""


class NewTopic(NamedTuple):
    """A topic to be created, with the replicas of each partition."""

    topic: str
    topic_id: TopicId
    assignments: Assignments


class Topics:
    """Topics, their configuration and their partitions. What is wrong is ``RefusedRequest``."""

    def __init__(self, constants: Constants, writer: MetadataWriter) -> None:
        self._constants = constants
        self._writer = writer
        self._registry = writer.registry

    # -------------------------------------------------------------- topics

    def create(self, now: int, new: NewTopic, config: Mapping[str, str]) -> None:
        """Administrator creates a topic; its factor stays until a reassignment says otherwise."""
        if self._registry.topic_named(new.topic) is not None:
            raise RefusedRequest(Error.TOPIC_ALREADY_EXISTS, f"there is a topic {new.topic}")
        check_assignments(new.assignments, self._registry.brokers)
        for key, value in config.items():
            self._registry.configs[new.topic, key] = value
        count = len(new.assignments)
        topic = self._configured(TopicRegistration(topic=new.topic, topic_id=new.topic_id, partitions=count))
        self._registry.add_topic(topic)
        self._writer.write(Topic(topic=topic.topic, topic_id=topic.topic_id))
        for key, value in config.items():
            self._write_config(topic.topic, key, value)
        self._create_partitions(topic, 0, new.assignments)
        self._writer.commit(now)

    def delete(self, now: int, topic_id: TopicId) -> None:
        """Administrator deletes a topic: one record, however many partitions."""
        topic = self._registry.topics.get(topic_id)
        if topic is None:
            raise RefusedRequest(Error.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
        for number in range(topic.partitions):
            self._registry.replace(topic, TopicPartition(topic_id, number), None, Cause.DELETED)
        self._registry.remove_topic(topic)
        self._writer.write(RemoveTopic(topic_id=topic_id))
        self._writer.commit(now)

    def create_partitions(self, now: int, name: str, assignments: Assignments) -> None:
        """Administrator adds partitions to a topic; the records it has stay where they are."""
        topic = self._topic_or_refuse(name)
        factor = len(self._registry.partitions[TopicPartition(topic.topic_id, 0)].replicas)
        if not assignments:
            raise RefusedRequest(Error.INVALID_PARTITIONS, f"{name} has {topic.partitions} partitions already")
        check_assignments(assignments, self._registry.brokers)
        if len(assignments[0]) != factor:
            raise RefusedRequest(
                Error.INVALID_REPLICA_ASSIGNMENT, f"the partitions of {name} have {factor} replicas each"
            )
        first, topic = topic.partitions, replace(topic, partitions=topic.partitions + len(assignments))
        self._writer.set_topic(topic)
        self._create_partitions(topic, first, assignments)
        self._writer.commit(now)

    def _topic_or_refuse(self, name: str) -> TopicRegistration:
        topic = self._registry.topic_named(name)
        if topic is None:
            raise RefusedRequest(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return topic

    def _create_partitions(self, topic: TopicRegistration, first: int, assignments: Assignments) -> None:
        """In sync is who is active; the first of them leads."""
        for number, replicas in enumerate(assignments, start=first):
            isr = tuple(broker for broker in replicas if self._registry.is_active(broker))
            partition = PartitionRegistration(replicas, isr, isr[0])
            self._writer.create(topic, TopicPartition(topic.topic_id, number), partition)

    def place(self, random: JavaRandom, partitions: int | None, replication_factor: int | None) -> Assignments:
        """Place the replicas of new partitions on the brokers there are; without a number the default counts."""
        count = self._constants.num_partitions if partitions is None else partitions
        factor = self._constants.default_replication_factor if replication_factor is None else replication_factor
        if count < 1:
            raise RefusedRequest(Error.INVALID_PARTITIONS, f"{count} is not positive")
        return place(usable_brokers(self._registry.brokers), count, factor, random)

    # -------------------------------------------------------------- configuration

    def alter_config(self, now: int, topic_name: str, key: str, value: str | None) -> None:
        """Administrator sets a topic's configuration, or (``CLUSTER``) the default of all; None takes it back.

        Another minimum voids what "eligible" was promised under: the eligible leader replicas are cleared. Without them
        the eligible replicas would be unknown, so with that feature the default minimum cannot be taken back (KIP-966).
        """
        topics = list(self._registry.topics.values()) if topic_name == CLUSTER else [self._topic_or_refuse(topic_name)]
        if topic_name == CLUSTER and value is None and key == MIN_ISR and self._writer.elr_enabled:
            raise RefusedRequest(Error.INVALID_CONFIG, "the default minimum cannot be removed while ELR is enabled")
        configs = self._registry.configs
        if value is not None:
            configs[topic_name, key] = value
        elif (topic_name, key) in configs:
            del configs[topic_name, key]
        self._write_config(topic_name, key, value)
        for topic in topics:
            self._reconfigure(topic, clear_elr=key == MIN_ISR and self._writer.elr_enabled)
        self._writer.commit(now)

    def _configured(self, topic: TopicRegistration) -> TopicRegistration:
        return configured(topic, self._registry.configs, self._constants)

    def _write_config(self, topic_name: str, key: str, value: str | None) -> None:
        resource = RESOURCE_BROKER if topic_name == CLUSTER else RESOURCE_TOPIC
        self._writer.write(Config(resource_type=resource, resource_name=topic_name, key=key, value=value))
        if key == MIN_ISR and self._writer.elr_enabled:
            self._writer.write(ClearElr(topic=topic_name))

    def _reconfigure(self, topic: TopicRegistration, *, clear_elr: bool) -> None:
        after = self._configured(topic)
        if after != topic:
            self._writer.set_topic(after)
        if clear_elr:
            self._writer.clear_elr(after)


def configured(
    topic: TopicRegistration, configs: Mapping[tuple[str, str], str], constants: Constants
) -> TopicRegistration:
    """Look a topic's settings up: its own, else the cluster's, else those of the brokers' files.

    Departs from Kafka: what concerns logs has no default of the cluster's.
    """

    def setting(key: str, default: object) -> str:
        return configs.get((topic.topic, key), configs.get((CLUSTER, key), str(default).lower()))

    min_isr = int(setting(MIN_ISR, constants.min_insync_replicas))
    unclean = setting(UNCLEAN_ELECTION, constants.unclean_leader_election_enable)
    own = {key: value for (name, key), value in configs.items() if name == topic.topic}
    is_of_brokers = configs.keys().isdisjoint({(topic.topic, MIN_ISR), (CLUSTER, MIN_ISR)})
    topic = replace(topic, is_min_isr_of_brokers=is_of_brokers)
    return replace(topic, min_isr=min_isr, unclean=unclean == "true", log=log_config(own, constants))
