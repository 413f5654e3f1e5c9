"""Kafka's error codes, those that can occur here."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Error(Enum):
    """Kafka's error codes, those that can occur here."""

    NONE = auto()
    OFFSET_OUT_OF_RANGE = auto()
    OFFSET_NOT_AVAILABLE = auto()
    POLICY_VIOLATION = auto()
    NOT_LEADER_OR_FOLLOWER = auto()
    UNKNOWN_LEADER_EPOCH = auto()
    FENCED_LEADER_EPOCH = auto()
    STALE_BROKER_EPOCH = auto()
    UNKNOWN_TOPIC_ID = auto()
    NOT_CONTROLLER = auto()
    INVALID_REQUEST = auto()
    INVALID_UPDATE_VERSION = auto()
    INELIGIBLE_REPLICA = auto()
    OPERATION_NOT_ATTEMPTED = auto()
    DUPLICATE_BROKER_REGISTRATION = auto()
    NEW_LEADER_ELECTED = auto()
    INVALID_REPLICA_ASSIGNMENT = auto()
    NO_REASSIGNMENT_IN_PROGRESS = auto()
    ELECTION_NOT_NEEDED = auto()
    PREFERRED_LEADER_NOT_AVAILABLE = auto()
    ELIGIBLE_LEADERS_NOT_AVAILABLE = auto()
    TOPIC_ALREADY_EXISTS = auto()
    INVALID_REPLICATION_FACTOR = auto()
    INVALID_PARTITIONS = auto()
    INVALID_CONFIG = auto()
    BROKER_ID_NOT_REGISTERED = auto()
    UNKNOWN_TOPIC_OR_PARTITION = auto()
    LEADER_NOT_AVAILABLE = auto()
    COORDINATOR_NOT_AVAILABLE = auto()
    UNSUPPORTED_VERSION = auto()
    COORDINATOR_LOAD_IN_PROGRESS = auto()
    NOT_COORDINATOR = auto()
    UNKNOWN_MEMBER_ID = auto()
    MEMBER_ID_REQUIRED = auto()
    ILLEGAL_GENERATION = auto()
    REBALANCE_IN_PROGRESS = auto()
    INCONSISTENT_GROUP_PROTOCOL = auto()
    FENCED_MEMBER_EPOCH = auto()
    STALE_MEMBER_EPOCH = auto()
    NOT_ENOUGH_REPLICAS = auto()
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = auto()
    REQUEST_TIMED_OUT = auto()
    OUT_OF_ORDER_SEQUENCE_NUMBER = auto()
    INVALID_PRODUCER_EPOCH = auto()
    INVALID_PRODUCER_ID_MAPPING = auto()
    INVALID_TXN_STATE = auto()
    INVALID_TRANSACTION_TIMEOUT = auto()
    CONCURRENT_TRANSACTIONS = auto()
    PRODUCER_FENCED = auto()
    TRANSACTION_COORDINATOR_FENCED = auto()


# Python 3.11 takes 200 ns to look up a member of an Enum, longer than all else that most fetched partitions need.
NO_ERROR: Final = Error.NONE


class Refused(Exception):
    """An administrator's request was refused, and nothing was written; ``error`` is what Kafka answers."""

    def __init__(self, error: Error, reason: str) -> None:
        super().__init__(f"{error.name}: {reason}")
        self.error = error
