"""Kafka's error codes, those that can occur here."""

from __future__ import annotations

from enum import Enum, auto


class Error(Enum):
    """Kafka's error codes, those that can occur here."""

    NONE = auto()
    NOT_LEADER_OR_FOLLOWER = auto()
    UNKNOWN_LEADER_EPOCH = auto()
    FENCED_LEADER_EPOCH = auto()
    STALE_BROKER_EPOCH = auto()
    UNKNOWN_TOPIC_ID = auto()
    NOT_CONTROLLER = auto()
    INVALID_REQUEST = auto()
    INVALID_UPDATE_VERSION = auto()
    INELIGIBLE_REPLICA = auto()
    DUPLICATE_BROKER_REGISTRATION = auto()
    UNKNOWN_TOPIC_OR_PARTITION = auto()
    LEADER_NOT_AVAILABLE = auto()
    COORDINATOR_NOT_AVAILABLE = auto()
