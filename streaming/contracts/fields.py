"""Every field of every observation, with its plain type: the codec and the Spark schema are projections of it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Final

from streaming.contracts.blocks import PartitionsChanged, PartitionsObserved
from streaming.contracts.group_blocks import BrokerGroupOffsetsObserved, BrokerGroupsObserved
from streaming.contracts.maintenance import MaintenanceObserved
from streaming.contracts.observations import (
    BrokerObserved,
    CauseRevised,
    ConfigObserved,
    ControllerObserved,
    Heartbeat,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    TopicRemoved,
)
from streaming.contracts.sample_blocks import (
    BrokerMetricsObserved,
    BrokerOffsetsObserved,
    BrokerSpeedsObserved,
    TransactionsReported,
)
from streaming.contracts.samples import (
    BrokerMetricObserved,
    BrokerSpeedObserved,
    GroupObserved,
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)
from streaming.contracts.settings import (
    BrokerFeatureObserved,
    BrokerSettingsObserved,
    TopicSettingsObserved,
    TopicsSettingsObserved,
)

KINDS: Final[dict[str, type[Observation]]] = {
    cls.kind: cls
    for cls in (
        PartitionObserved,
        PartitionsObserved,
        PartitionsChanged,
        CauseRevised,
        TopicRemoved,
        BrokerObserved,
        ControllerObserved,
        ConfigObserved,
        Heartbeat,
        SnapshotBegin,
        SnapshotEnd,
        ReplicaOffsetsObserved,
        GroupObserved,
        GroupOffsetsObserved,
        TransactionObserved,
        LogDirectoryObserved,
        QuorumMemberObserved,
        BrokerMetricObserved,
        BrokerOffsetsObserved,
        BrokerMetricsObserved,
        BrokerGroupsObserved,
        BrokerGroupOffsetsObserved,
        TopicSettingsObserved,
        TopicsSettingsObserved,
        BrokerSettingsObserved,
        BrokerFeatureObserved,
        TransactionsReported,
        BrokerSpeedObserved,
        BrokerSpeedsObserved,
        MaintenanceObserved,
    )
}

# Annotation -> plain type. "int" is 32 bits (Kafka's ids, epochs and indices), "long" 64 bits.
_PLAIN: Final = {
    "ClusterId": "string", "str": "string", "TopicId": "string", "SourceKind": "string", "ConfigOrigin": "string",
    "SnapshotReason": "string", "str | None": "string",
    "Cause": "string", "Cause | None": "string", "Evidence": "string", "Evidence | None": "string",
    "int": "int", "int | None": "int", "BrokerId": "int", "BrokerId | None": "int",
    "Micros": "long", "Micros | None": "long", "Offset": "long", "Offset | None": "long", "float": "double",
    "float | None": "double", "tuple[float, ...] | None": "double[]",
    "bool": "boolean", "bool | None": "boolean",
    "tuple[BrokerId, ...]": "int[]", "tuple[int, ...]": "int[]",
    "tuple[Cause, ...]": "string[]", "tuple[TopicId, ...]": "string[]",
    "tuple[int, ...] | None": "int[]", "tuple[bool, ...] | None": "boolean[]",
    "tuple[tuple[BrokerId, ...], ...]": "int[][]", "tuple[tuple[BrokerId, ...], ...] | None": "int[][]",
    "tuple[Offset, ...] | None": "long[]", "tuple[Micros, ...] | None": "long[]",
    "tuple[float, ...]": "double[]", "tuple[str, ...]": "string[]",
    "tuple[str, ...] | None": "string[]",
}  # fmt: skip
_LONGS: Final = frozenset({
    "sequence", "broker_epoch", "producer_id", "size_bytes", "replica_bytes", "total_bytes", "usable_bytes",
    "leader_throttled_rate", "follower_throttled_rate", "replica_lag_time_max_ms", "broker_session_timeout_ms",
})  # fmt: skip


def plain_types(cls: type[Observation]) -> dict[str, str]:
    """Return the plain type of each field of one kind, in the order of the class.

    Returns:
        field name to one of string, int, long, double, boolean, int[], long[], double[], int[][], string[], boolean[].
    """
    return {field.name: "long" if field.name in _LONGS else _PLAIN[str(field.type)] for field in fields(cls)}


# Every field of every kind, once: kinds that share a name share its type.
FIELDS: Final[dict[str, str]] = {name: plain for cls in KINDS.values() for name, plain in plain_types(cls).items()}
# The fields that an encoded observation must carry: those without a default that cannot be None.
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(field.name for field in fields(cls) if field.default is MISSING and "None" not in str(field.type))
    for kind, cls in KINDS.items()
}
