"""The topics of the bus as Spark's own Kafka source reads them, and its client properties.

The properties of ``[bus.kafka.client]`` are librdkafka's, because the collector has no Java. This module translates
those of encryption and login; it refuses others by name, and the user then adds the properties of the Java client.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from streaming.bus.kafka.records import DAMAGE, END, LOG_ID, POSITION, RUNS, SOURCE, topic_of
from streaming.bus.kafka.topics import JAVA
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.observations import Channel
    from streaming.settings import KafkaBusSettings

POLLING_DELAY: Final = {"spark.sql.streaming.pollingDelay": "20ms"}
"""Spark asks the brokers for new offsets at each poll: every 10 ms by default, which wastes a sixth of a core."""
PACKAGES: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_FETCH_WAIT: Final = "10"
_RECORD_BYTES: Final = 4096
"""Estimate of the mean size of large records: Spark limits a batch by the number of records."""
_SAME: Final = frozenset({"security.protocol", "ssl.endpoint.identification.algorithm", "ssl.key.password"})
_LOGIN: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OF_LIBRDKAFKA: Final = (
    "socket.",
    "broker.",
    "reconnect.",
    "retry.",
    "queue.",
    "statistics.",
    "log",
    "topic.metadata.",
)
_OF_PRODUCER: Final = frozenset({"compression.type", "compression.codec", "linger.ms", "client.id", "client.rack"})


def kafka_stream(
    spark: SparkSession, settings: KafkaBusSettings, channel: Channel, starts: Mapping[int, int], max_bytes: int
) -> DataFrame:
    """Return the records of a channel with their headers, partition and offset.

    ``starts`` has the first offset of each partition; ``max_bytes`` is the approximate limit of one batch.

    Raises:
        ConfigurationError: a property has no counterpart, or the connector is missing.
    """
    options = _options(settings, topic_of(settings, channel), starts, max_bytes)
    try:
        rows = spark.readStream.format("kafka").options(**options).load()
    except AnalysisException as refusal:
        if "kafka" not in str(refusal):
            raise
        raise ConfigurationError(
            f"Spark has no connector to Kafka, which bus.kafka needs: add --packages {PACKAGES}:{spark.version} to "
            "spark-submit, or --jars with those of isrwatch jars fetch spark-kafka"
        ) from None
    return rows.selectExpr(
        f"{_header(SOURCE)} as source",
        f"try_cast({_header(POSITION)} as bigint) as position",
        f"try_cast({_header(END)} as bigint) as end",
        f"try_cast({_header(LOG_ID)} as bigint) as log_id",
        f"{_header(RUNS)} as runs",
        f"{_header(DAMAGE)} as damage",
        "coalesce(value, x'') as payload",
        "partition",
        "offset",
    )


def _options(settings: KafkaBusSettings, topic: str, starts: Mapping[int, int], max_bytes: int) -> dict[str, str]:
    return {
        **{f"kafka.{name}": value for name, value in java_properties(settings).items()},
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        # Else each batch waits for the open fetch of its consumer, by default half a second.
        "kafka.fetch.max.wait.ms": _FETCH_WAIT,
        "kafka.allow.auto.create.topics": "false",
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {str(partition): offset for partition, offset in starts.items()}}),
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(max(max_bytes // _RECORD_BYTES, 1)),
    }


def _header(name: str) -> str:
    return f"decode(get(filter(headers, h -> h.key = '{name}'), 0).value, 'utf-8')"


def java_properties(settings: KafkaBusSettings) -> dict[str, str]:
    """Return the properties of the Java client for those of librdkafka.

    Raises:
        ConfigurationError: one has no counterpart, or a file cannot be read; names it.
    """
    given = {name: value for name, value in settings.client.items() if not name.startswith(JAVA)}
    own = {name.removeprefix(JAVA): value for name, value in settings.client.items() if name.startswith(JAVA)}
    mechanism = given.pop("sasl.mechanism", given.pop("sasl.mechanisms", ""))
    user, password = given.pop("sasl.username", ""), given.pop("sasl.password", "")
    java: dict[str, str] = {"sasl.mechanism": mechanism} if mechanism else {}
    if mechanism in _LOGIN:
        java["sasl.jaas.config"] = (
            f"{_LOGIN[mechanism]} required username={_quoted(user)} password={_quoted(password)};"
        )
    elif mechanism and "sasl.jaas.config" not in own:
        raise ConfigurationError(
            f"bus.kafka.client: the job cannot log in by {mechanism} without the properties of Kafka's Java clients: "
            'write "spark.sasl.jaas.config" = ..., and what else that mechanism needs'
        )
    for name, value in given.items():
        java |= _translated(name, value, has_own=bool(own))
    if "ssl.keystore.certificate.chain" in java:
        java["ssl.keystore.type"] = "PEM"
    if "ssl.truststore.certificates" in java:
        java["ssl.truststore.type"] = "PEM"
    return {**java, **own}


def _translated(name: str, value: str, *, has_own: bool) -> dict[str, str]:
    if name in _SAME:
        return {name: "" if value == "none" else value}
    if name in _OF_PRODUCER or name.startswith(_OF_LIBRDKAFKA):
        return {}
    counterpart, is_file = _PEM.get(name, ("", False))
    if not counterpart and has_own:  # the user has added its counterpart
        return {}
    if not counterpart:
        raise ConfigurationError(
            f"bus.kafka.client: {name} of librdkafka has no counterpart in Kafka's Java clients, which the job uses; "
            f'add an equivalent as "{JAVA}NAME" = "VALUE", or leave it out'
        )
    return {counterpart: _content(name, value) if is_file else value}


_PEM: Final = {
    "ssl.ca.location": ("ssl.truststore.certificates", True),
    "ssl.ca.pem": ("ssl.truststore.certificates", False),
    "ssl.certificate.location": ("ssl.keystore.certificate.chain", True),
    "ssl.certificate.pem": ("ssl.keystore.certificate.chain", False),
    "ssl.key.location": ("ssl.keystore.key", True),
    "ssl.key.pem": ("ssl.keystore.key", False),
}


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"bus.kafka.client {name}: cannot read {path}: {error}; correct the path") from None


def _quoted(value: str) -> str:
    """Quote a value for a JAAS configuration."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
