"""Kafka's numbers and names, as types that do not mix.

All times in this project are UTC microseconds since 1970-01-01 (``Micros``).
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import Final, NamedTuple, NewType

ClusterId = NewType("ClusterId", str)
TopicId = NewType("TopicId", str)  # Kafka's own spelling: 22 characters of URL-safe base64
BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionEpoch = NewType("PartitionEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
Micros = NewType("Micros", int)

MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
"""Spans, in microseconds."""

NO_LEADER: Final = BrokerId(-1)
UNSEEN_LEADER: Final = BrokerId(-2)
"""Stands for a leader that a source cannot name: it has no listener where the source asks (LISTENER_NOT_FOUND)."""
NO_BROKER: Final = BrokerId(-1)
"""Stands for a broker where a group has no coordinator."""


class TopicPartition(NamedTuple):
    """A partition, by the id of its topic: a topic deleted and created again is another topic."""

    topic_id: TopicId
    partition: int


def topic_id_from_uuid(value: uuid.UUID) -> TopicId:
    """Spell a topic id as Kafka's tools do.

    >>> topic_id_from_uuid(uuid.UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return TopicId(base64.urlsafe_b64encode(value.bytes).decode().rstrip("="))


def synthetic_topic_id(cluster_id: ClusterId, topic: str) -> TopicId:
    """Make a stable topic id for clusters that have none (before Kafka 2.8, KIP-516)."""
    digest = hashlib.sha256(f"{cluster_id}/{topic}".encode()).digest()
    return topic_id_from_uuid(uuid.UUID(bytes=digest[:16]))


# Partition of an internal topic that keeps the state of a group or a transactional id. Knows nothing else.


_WORD: Final = 1 << 32
_SIGN_BIT: Final = 1 << 31


def java_hash(text: str) -> int:
    """Compute ``String.hashCode`` of Java: signed, 32 bits.

    >>> java_hash("console-consumer-1"), java_hash("polygenelubricants")
    (35782224, -2147483648)
    """
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8) + low) % _WORD
    return value - _WORD if value >= _SIGN_BIT else value


def partition_for(key: str, partitions: int) -> int:
    """Give the partition of a group or transactional id (``Utils.abs`` makes 0 of the smallest integer).

    >>> [partition_for(key, 50) for key in ("orders-consumer", "console-consumer-1", "polygenelubricants")]
    [40, 24, 0]
    """
    value = java_hash(key)
    return 0 if value == -_SIGN_BIT else abs(value) % partitions


# Position of a record on the bus, and the identity of the part of the log that holds it.


class LogPosition(NamedTuple):
    """A position, and what distinguishes its log from every other one that this source has had.

    Each time that a log is opened to be written it gets a new random identity, which stands in the names of the
    segments written since. So a copy of a log that is written on is distinguished from the log it was copied from.

    Attributes:
        position: bytes before the record.
        log_id: the identity; None where nothing was read of a log.
    """

    position: int
    log_id: int | None


NOWHERE: Final = LogPosition(-1, None)
"""The position of a source of which nothing was applied."""


# Short id of an incident: a name of its cluster and a number. A name may have a "-", a number has none.


def short_id(name: str, number: int | str) -> str:
    """Return the short id of a number under a name."""
    return f"{name}-{number}"


def number_of(short: str) -> str:
    """Return the number of a short id, as text.

    >>> number_of("prod-eu-17")
    '17'
    """
    return short.rpartition("-")[2]
