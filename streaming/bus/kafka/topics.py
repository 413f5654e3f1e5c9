"""The topics of the bus: created where they are missing, compared with the settings where they exist."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from streaming.bus.frames import MAX_PAYLOAD
from streaming.errors import ConfigurationError, ConnectionRefused, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from streaming.settings import KafkaBusSettings

SECONDS: Final = 10.0
"""Longest wait for one answer."""
JAVA: Final = "spark."
"""Prefix of properties of Kafka's Java clients, which only the job's Spark uses."""
LARGEST_RECORD: Final = MAX_PAYLOAD + (1 << 20)
"""``max.message.bytes``: whatever the directory takes."""
_UNKNOWN_LIMIT: Final = 1_048_588  # Kafka's own default
_CONTROLLER_MILLISECONDS: Final = 3_000
"""Time between two requests for the brokers and the controller. librdkafka waits for the controller that it knows, even
a dead one, until it has asked again: by default after five minutes."""
_ABSENT: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001 - the client's own name
_REFUSED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - the client's own name
}


@dataclass(frozen=True, slots=True)
class BusTopic:
    """A topic as it exists.

    Attributes:
        name: of the topic.
        identity: its id; a topic that was created again has another one. "" before Kafka 2.8, which has none.
        partitions: number of partitions.
        largest_record: largest record that the topic accepts, in bytes.
        differences: configuration values that differ from the settings, in one sentence; "" for none.
    """

    name: str
    identity: str
    partitions: int
    largest_record: int
    differences: str


def client_properties(settings: KafkaBusSettings, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - values of librdkafka
    """Return the properties of a client of the bus; those in ``more``, with "_" for ".", take precedence."""
    own = {name: value for name, value in settings.client.items() if not name.startswith(JAVA)}
    fixed = {name.replace("_", "."): value for name, value in more.items()}
    return {
        "client.id": "isrwatch-bus",
        "socket.connection.setup.timeout.ms": 5000,
        "reconnect.backoff.max.ms": 2000,
        **own,
        "bootstrap.servers": settings.bootstrap_servers,
        "allow.auto.create.topics": "false",  # they would get the broker's settings instead of ours
        **fixed,
    }


def administrator(settings: KafkaBusSettings) -> AdminClient:
    """Return a client of the bus, not connected yet; ``ConfigurationError`` if a property is wrong."""
    try:
        return AdminClient({
            "topic.metadata.refresh.interval.ms": _CONTROLLER_MILLISECONDS,
            **client_properties(settings),
            "logger": quiet_logger(),
        })  # fmt: skip
    except KafkaException as refusal:
        raise ConfigurationError(f"bus.kafka.client: {error_of(refusal).str()}") from None


def error_of(refusal: KafkaException) -> KafkaError:
    """Return the error within an exception of the client."""
    return cast("KafkaError", refusal.args[0])


def quiet_logger() -> logging.Logger:
    """Return a logger that hides librdkafka's lines, which repeat each second while a broker is away."""
    logger = logging.getLogger("isrwatch.bus.librdkafka")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def topics_of(settings: KafkaBusSettings) -> Iterator[NewTopic]:
    """Yield both topics as the settings define them."""
    for name, partitions, seconds, size in (
        (
            settings.replication_topic,
            settings.replication_partitions,
            settings.replication_retention,
            settings.replication_retention_bytes,
        ),
        (
            settings.samples_topic,
            settings.samples_partitions,
            settings.samples_retention,
            settings.samples_retention_bytes,
        ),
    ):
        configuration = {
            "cleanup.policy": "delete",
            "min.insync.replicas": str(settings.min_insync_replicas),
            "retention.ms": str(round(seconds * 1_000)),
            "retention.bytes": str(size),
            "segment.bytes": str(max(min(size // 8, 1 << 30), 1 << 20)),  # Kafka deletes whole segments only
            "max.message.bytes": str(LARGEST_RECORD),
        }
        yield NewTopic(name, partitions, settings.replication_factor, config=configuration)


def ensure(admin: AdminClient, settings: KafkaBusSettings, seconds: float = SECONDS) -> dict[str, BusTopic]:
    """Create the topics that are missing, and describe both, by name.

    Raises:
        ConnectionRefused: no broker of the bus answers.
        ConfigurationError: a topic is missing and may not be created.
    """
    existing = described(admin, settings, seconds)
    missing = [topic for topic in topics_of(settings) if topic.topic not in existing]
    if not missing:
        return existing
    for name, future in admin.create_topics(missing, operation_timeout=seconds, request_timeout=seconds).items():
        try:
            future.result()
        except KafkaException as refusal:
            error = error_of(refusal)
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _not_created(settings, name, error) from None
    deadline = time.monotonic() + SECONDS
    while len(existing := described(admin, settings)) < len([*topics_of(settings)]) and time.monotonic() < deadline:
        time.sleep(0.1)  # the broker that we ask has not heard of it yet
    if absent := [topic.topic for topic in missing if topic.topic not in existing]:
        raise ConnectionRefused(
            f"the bus at {settings.bootstrap_servers} has created {absent[0]}, but does not show it"
        )
    return existing


def _not_created(settings: KafkaBusSettings, name: str, error: KafkaError) -> IsrwatchError:
    if error.retriable() or error.code() in {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}:  # noqa: SLF001 - as above
        return unreachable(settings, error)
    return ConfigurationError(
        f"the topic {name} of the bus is missing and cannot be created: {error.str()}; grant Create on it, create it "
        "yourself, or change bus.kafka.replication_factor"
    )


def unreachable(settings: KafkaBusSettings, error: KafkaError) -> IsrwatchError:
    """Return the error for a bus that refuses or does not answer."""
    if error.code() in _REFUSED:
        return ConfigurationError(
            f"the bus at {settings.bootstrap_servers} refuses: {error.str()}; see bus.kafka.client"
        )
    return ConnectionRefused(f"the bus at {settings.bootstrap_servers} does not answer: {error.str()}")


def described(admin: AdminClient, settings: KafkaBusSettings, seconds: float = SECONDS) -> dict[str, BusTopic]:
    """Describe the topics that exist, by name.

    Raises:
        ConnectionRefused: no broker of the bus answers.
        ConfigurationError: it refuses.
    """
    expected = {topic.topic: topic for topic in topics_of(settings)}
    topics: dict[str, BusTopic] = {}
    for name, future in admin.describe_topics(TopicCollection([*expected]), request_timeout=seconds).items():
        try:
            description = future.result()
        except KafkaException as refusal:
            if error_of(refusal).code() in _ABSENT:
                continue
            raise unreachable(settings, error_of(refusal)) from None
        configured = _configuration(admin, name)
        partitions = description.partitions
        replicas = min((len(each.replicas) for each in partitions), default=0)
        topics[name] = BusTopic(
            name,
            str(description.topic_id or ""),
            len(partitions),
            int(configured.get("max.message.bytes", _UNKNOWN_LIMIT)),
            _differences(expected[name], len(partitions), replicas, configured),
        )
    return topics


def offsets_of(
    admin: Any,  # noqa: ANN401 - not as its stubs have it
    settings: KafkaBusSettings,
    places: Collection[tuple[str, int]],
    spec: OffsetSpec,
) -> dict[tuple[str, int], int]:
    """Return an offset of each partition, by topic and number.

    Raises:
        ConnectionRefused: the bus does not answer, or a leader does not know it yet.
    """
    asked_for = {TopicPartition(*place): spec for place in sorted(places)}
    asked = admin.list_offsets(asked_for, request_timeout=SECONDS) if asked_for else {}
    try:
        return {(at.topic, at.partition): future.result().offset for at, future in asked.items()}
    except KafkaException as refusal:
        raise unreachable(settings, error_of(refusal)) from None


def _configuration(admin: AdminClient, name: str) -> dict[str, str]:
    """Return the configuration of a topic; empty if we may not read it."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    try:
        entries = admin.describe_configs([resource], request_timeout=SECONDS)[resource].result()
    except KafkaException:
        return {}
    return {key: str(entry.value) for key, entry in entries.items()}


def _differences(expected: NewTopic, partitions: int, replicas: int, configured: Mapping[str, str]) -> str:
    expected_values = {
        "partitions": str(expected.num_partitions),
        "replication factor": str(expected.replication_factor),
        **(expected.config or {}),
    }
    present = {"partitions": str(partitions), "replication factor": str(replicas), **configured}
    other = [
        f"{key} is {present[key]}, not {value}"
        for key, value in expected_values.items()
        if key in present and key != "segment.bytes" and present[key] != value
    ]
    return f"the topic {expected.topic} of the bus differs from the settings: {', '.join(other)}" if other else ""
