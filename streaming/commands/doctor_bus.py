"""Checks of ``isrwatch doctor`` about Kafka as the bus: its brokers, its topics, what this login may do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation

from streaming.bus.kafka.topics import administrator, described, error_of, topics_of, unreachable
from streaming.commands.doctor_machine import SECONDS, Status, numbered
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.metadata_log.opening import bootstrap_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka.admin import AdminClient

    from streaming.settings import KafkaBusSettings, Settings

Said = tuple[Status, str]
_NEEDED: Final = {AclOperation.WRITE: ("write", "collector"), AclOperation.READ: ("read", "job")}


def kafka_bus(every: Sequence[Settings]) -> Iterator[Said]:
    """Check the bus of a configuration of one or several clusters.

    Raises:
        ConnectionRefused: no broker of the bus answers.
        ConfigurationError: it refuses.
    """
    settings = every[0].bus.kafka
    admin = administrator(settings)
    existing = described(admin, settings, SECONDS)
    identity, brokers = _cluster(admin, settings)
    yield Status.OK, f"the bus at {settings.bootstrap_servers} answers; it has {numbered(brokers, 'broker')}"
    if brokers < settings.replication_factor:
        factor = f"bus.kafka.replication_factor is {settings.replication_factor}"
        yield Status.PROBLEM, f"{factor}, but the bus has {numbered(brokers, 'broker')}: start others, or lower it"
    for topic in topics_of(settings):
        present = existing.get(topic.topic)
        if present is None:
            yield Status.OK, f"the topic {topic.topic} does not exist yet: isrwatch collect creates it, if it may"
            continue
        if present.differences:
            yield Status.WARNING, f"{present.differences}; change the topic by kafka-configs, or the settings"
        else:
            partitions = numbered(present.partitions, "partition")
            yield Status.OK, f"the topic {topic.topic} of the bus is as configured, with {partitions}"
    yield from _permissions(admin, settings, [*existing])
    yield from _of_itself(every, identity)
    yield from _for_java(settings)


def _cluster(admin: AdminClient, settings: KafkaBusSettings) -> tuple[str, int]:
    """Return the id of the cluster that is the bus, and how many brokers it has."""
    try:
        asked: Any = admin.describe_cluster(request_timeout=SECONDS)  # its stubs are wrong
        cluster = asked.result()
    except KafkaException as refusal:
        raise unreachable(settings, error_of(refusal)) from None
    return str(cluster.cluster_id), len(cluster.nodes)


def _permissions(admin: AdminClient, settings: KafkaBusSettings, topics: Sequence[str]) -> Iterator[Said]:
    if not topics:
        return
    asked = admin.describe_topics(
        TopicCollection([*topics]), include_authorized_operations=True, request_timeout=SECONDS
    )
    for name, future in asked.items():
        try:
            description: Any = future.result()  # its stubs are wrong
        except KafkaException as refusal:
            raise unreachable(settings, error_of(refusal)) from None
        for operation, (word, who) in _NEEDED.items():
            allowed = description.authorized_operations
            if allowed is not None and operation not in allowed:
                grant = f"kafka-acls --add --allow-principal User:... --operation {word.capitalize()} --topic {name}"
                yield Status.WARNING, f"this login may not {word} the topic {name}, which the {who} does: {grant}"


def _of_itself(every: Sequence[Settings], identity: str) -> Iterator[Said]:
    """Warn where a cluster carries what is observed of it."""
    for settings in every:
        if not settings.cluster.bootstrap_servers:
            continue
        try:
            watched = str(bootstrap_of(settings).cluster_id())
        except (ConnectionRefused, ConfigurationError):  # another check says so
            continue
        if watched == identity:
            name = f"the cluster {settings.cluster.name} is watched and is its own bus"
            yield Status.WARNING, f"{name}: it is silent when it matters; take other brokers for bus.kafka"


def _for_java(settings: KafkaBusSettings) -> Iterator[Said]:
    """Check that the job can use the same properties, and has the connector."""
    from streaming.jobs.streams.kafka_source import java_properties
    from streaming.runtime import jars

    java_properties(settings)
    missing = jars.missing(jars.groups()[jars.SPARK_KAFKA].jars)
    if missing:
        yield (
            Status.WARNING,
            (
                f"{len(missing)} jars of Spark's connector are not here: pip install 'isrwatch[kafka-bus]', "
                "or isrwatch jars fetch spark-kafka"
            ),
        )
    else:
        yield Status.OK, "the jars of Spark's connector to Kafka are here"
