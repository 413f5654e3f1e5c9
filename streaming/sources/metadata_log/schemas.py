"""Every metadata record as a table (KIP-631 and later, Apache Kafka 4.3): key, newest supported version, fields, tags.

Names are Kafka's, in snake case. A field is (name, type) or (name, type, first version that has it). Types: int8,
int16, uint16, int32, int64, bool, uuid, string, ``string?`` (nullable), ``int32[]``, ``uuid[]``, or a tuple of fields
(an array of structures).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

FieldType: TypeAlias = "str | tuple[Any, ...]"
FieldRow: TypeAlias = "tuple[str, FieldType] | tuple[str, FieldType, int]"


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """One record type: fields in wire order, and tagged fields by tag."""

    name: str
    newest: int
    fields: tuple[FieldRow, ...] = ()
    tags: dict[int, tuple[str, FieldType]] = field(default_factory=dict)


REGISTER_BROKER: Final = 0
UNREGISTER_BROKER: Final = 1
TOPIC: Final = 2
PARTITION: Final = 3
CONFIG: Final = 4
PARTITION_CHANGE: Final = 5
FENCE_BROKER: Final = 7
UNFENCE_BROKER: Final = 8
REMOVE_TOPIC: Final = 9
FEATURE_LEVEL: Final = 12
BROKER_REGISTRATION_CHANGE: Final = 17
NO_OP: Final = 20
BEGIN_TRANSACTION: Final = 23
END_TRANSACTION: Final = 24
ABORT_TRANSACTION: Final = 25
REGISTER_CONTROLLER: Final = 27
CLEAR_ELR: Final = 28

_END_POINTS: Final = (("name", "string"), ("host", "string"), ("port", "uint16"), ("security_protocol", "int16"))
_FEATURES: Final = (
    ("name", "string"),
    ("min_supported_version", "int16"),
    ("max_supported_version", "int16"),
)

SCHEMAS: Final[dict[int, RecordSchema]] = {
    REGISTER_BROKER: RecordSchema(
        "RegisterBroker",
        4,
        (
            ("broker_id", "int32"),
            ("is_migrating_zk_broker", "bool", 2),
            ("incarnation_id", "uuid"),
            ("broker_epoch", "int64"),
            ("end_points", _END_POINTS),
            ("features", _FEATURES),
            ("rack", "string?"),
            ("fenced", "bool"),
            ("in_controlled_shutdown", "bool", 1),
        ),
        {0: ("log_dirs", "uuid[]"), 1: ("cordoned_log_dirs", "uuid[]")},
    ),
    UNREGISTER_BROKER: RecordSchema("UnregisterBroker", 0, (("broker_id", "int32"), ("broker_epoch", "int64"))),
    TOPIC: RecordSchema("Topic", 0, (("name", "string"), ("topic_id", "uuid"))),
    PARTITION: RecordSchema(
        "Partition",
        2,
        (
            ("partition_id", "int32"),
            ("topic_id", "uuid"),
            ("replicas", "int32[]"),
            ("isr", "int32[]"),
            ("removing_replicas", "int32[]"),
            ("adding_replicas", "int32[]"),
            ("leader", "int32"),
            ("leader_epoch", "int32"),
            ("partition_epoch", "int32"),
            ("directories", "uuid[]", 1),
        ),
        {
            0: ("leader_recovery_state", "int8"),
            1: ("eligible_leader_replicas", "int32[]"),
            2: ("last_known_elr", "int32[]"),
        },
    ),
    CONFIG: RecordSchema(
        "Config",
        0,
        (("resource_type", "int8"), ("resource_name", "string"), ("name", "string"), ("value", "string?")),
    ),
    PARTITION_CHANGE: RecordSchema(
        "PartitionChange",
        2,
        (("partition_id", "int32"), ("topic_id", "uuid")),
        {
            0: ("isr", "int32[]"),
            1: ("leader", "int32"),
            2: ("replicas", "int32[]"),
            3: ("removing_replicas", "int32[]"),
            4: ("adding_replicas", "int32[]"),
            5: ("leader_recovery_state", "int8"),
            6: ("eligible_leader_replicas", "int32[]"),
            7: ("last_known_elr", "int32[]"),
            8: ("directories", "uuid[]"),
        },
    ),
    FENCE_BROKER: RecordSchema("FenceBroker", 0, (("id", "int32"), ("epoch", "int64"))),
    UNFENCE_BROKER: RecordSchema("UnfenceBroker", 0, (("id", "int32"), ("epoch", "int64"))),
    REMOVE_TOPIC: RecordSchema("RemoveTopic", 0, (("topic_id", "uuid"),)),
    FEATURE_LEVEL: RecordSchema("FeatureLevel", 0, (("name", "string"), ("feature_level", "int16"))),
    BROKER_REGISTRATION_CHANGE: RecordSchema(
        "BrokerRegistrationChange",
        3,
        (("broker_id", "int32"), ("broker_epoch", "int64")),
        {
            0: ("fenced", "int8"),
            1: ("in_controlled_shutdown", "int8"),
            2: ("log_dirs", "uuid[]"),
            3: ("cordoned_log_dirs", "uuid[]"),
        },
    ),
    NO_OP: RecordSchema("NoOp", 0),
    BEGIN_TRANSACTION: RecordSchema("BeginTransaction", 0, tags={0: ("name", "string?")}),
    END_TRANSACTION: RecordSchema("EndTransaction", 0),
    ABORT_TRANSACTION: RecordSchema("AbortTransaction", 0, tags={0: ("reason", "string?")}),
    REGISTER_CONTROLLER: RecordSchema(
        "RegisterController",
        0,
        (
            ("controller_id", "int32"),
            ("incarnation_id", "uuid"),
            ("zk_migration_ready", "bool"),
            ("end_points", _END_POINTS),
            ("features", _FEATURES),
        ),
    ),
    CLEAR_ELR: RecordSchema("ClearElr", 0, (("topic_name", "string"),)),
}

# Secrets, or unrelated to replication: their body is never decoded, in any version.
SKIPPED: Final[dict[int, str]] = {
    10: "DelegationToken",
    11: "UserScramCredential",
    14: "ClientQuota",
    15: "ProducerIds",
    18: "AccessControlEntry",
    19: "RemoveAccessControlEntry",
    21: "ZkMigrationState",
    22: "RemoveUserScramCredential",
    26: "RemoveDelegationToken",
    29: "UnregisterController",
}

# An unreadable record of these types leaves the state of topics, partitions, brokers or configurations unknown; so does
# an unreadable marker, because the records of its transaction may or may not take effect. A type that does not exist
# here is not one of them: Kafka adds types for matters of their own.
OF_STATE: Final = frozenset(SCHEMAS) - {FEATURE_LEVEL, NO_OP, REGISTER_CONTROLLER}
# The highest level of the feature metadata.version whose records are those above: 4.3-IV0.
NEWEST_METADATA_VERSION: Final = 30
# The levels whose records a test compares with Kafka's own dump of them, and the release that has each.
TESTED: Final = {NEWEST_METADATA_VERSION: "4.3.1", 21: "3.9.1", 14: "3.6.2"}
