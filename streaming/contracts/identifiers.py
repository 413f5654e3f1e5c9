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

NO_LEADER: Final = BrokerId(-1)
NO_BROKER: Final = BrokerId(-1)
"""Where a broker is expected: nobody coordinates the group."""


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
