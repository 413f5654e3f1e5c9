"""The Delta tables of what is sampled: the newest sample of each key, and brokers' ISR counts compared with ours.

Projections of ``samples``, with what follows from them; ``tables`` names them with all the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.columns import CLUSTER, PARTITION_IDENTITY, Column, Table, columns_of, required
from streaming.contracts.group_positions import MOVING, GroupPosition
from streaming.contracts.identifiers import SECOND
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
from streaming.contracts.settings import BrokerFeatureObserved, BrokerSettingsObserved, TopicSettingsObserved

if TYPE_CHECKING:
    from streaming.contracts.observations import Observation

SAMPLED: Final = (
    required("collected_at", "timestamp", "when the source read it"),
    required("source", "string", "name of the source, <kind>:<collector>"),
)
ROUNDS_OF_SETTINGS: Final = 180
"""Three rounds of ``collect.config_interval``, by default, in seconds."""
ROUNDS_OF_GROUPS: Final = 180
"""Two rounds of a coordinator that takes as long as it may, and what they wait for, in seconds."""
KEPT_AT: Final = "kept_at"
_KEPT: Final = Column(
    KEPT_AT, "timestamp", "newest answer of its coordinator, if that says neither this nor that it is gone; else null"
)

REPLICA_OFFSETS: Final = Table(
    name="replica_offsets",
    comment="The newest log positions of every replica",
    columns=(
        *CLUSTER,
        *PARTITION_IDENTITY,
        *columns_of(
            ReplicaOffsetsObserved,
            after={
                "leader_log_end_offset": (
                    Column(
                        "lag", "long", "records that its leader has and it has not, never negative; null while unknown"
                    ),
                    Column(
                        "behind_since",
                        "timestamp",
                        "first sample since which it has not caught up; null while it is not behind",
                    ),
                ),
                "log_dir": (
                    Column(
                        "lag_per_second",
                        "double",
                        "by how much the lag grows, over about a minute; negative while it shrinks",
                    ),
                    Column("seconds_until_caught_up", "double", "time left at this pace; null unless the lag shrinks"),
                    Column("lag_measured_since", "timestamp", "sample that the next lag_per_second is measured from"),
                    Column("lag_measured_from", "long", "the lag in it"),
                ),
            },
        ),
        *SAMPLED,
    ),
    key=("cluster_id", "topic_id", "partition", "broker"),
)

GROUPS: Final = Table(
    name="groups",
    comment="Every group, as its coordinator describes it, and every query of Spark whose checkpoint is read",
    columns=(*CLUSTER, *columns_of(GroupObserved), _KEPT, *SAMPLED),
    key=("cluster_id", "group"),
    reporter="coordinator",
    forgotten_after=ROUNDS_OF_GROUPS,
    sampled_by="group_protocol",
    kept_by="group",
)

GROUP_OFFSETS: Final = Table(
    name="group_offsets",
    comment="The position of every group in every partition that it has committed or that its members own",
    columns=(
        *CLUSTER,
        required("group", "string", "consumer group"),
        *PARTITION_IDENTITY,
        *columns_of(
            GroupOffsetsObserved,
            first=(
                *("group_protocol", "group_state", "members", "member", "committed_offset", "start_offset"),
                *("log_start_offset", "last_stable_offset", "high_watermark"),
            ),
        ),
        *columns_of(GroupPosition),
        _KEPT,
        *SAMPLED,
    ),
    key=("cluster_id", "group", "topic_id", "partition"),
    reporter="coordinator",
    forgotten_after=MOVING // SECOND,
    kept_by="group",
)

TRANSACTIONS: Final = Table(
    name="transactions",
    comment="The transactions of producers: open ones, and those that hang",
    columns=(
        *CLUSTER,
        *columns_of(TransactionObserved, first=("producer_id", "producer_epoch"), nullable=("transaction_partitions",)),
        *SAMPLED,
    ),
    key=("cluster_id", "producer_id", "producer_epoch"),
    reporter="reporter",
)

LOG_DIRECTORIES: Final = Table(
    name="log_directories",
    comment="The log directories of every broker",
    columns=(
        *CLUSTER,
        *columns_of(LogDirectoryObserved),
        Column("used_bytes", "long", "bytes of its volume that are not free"),
        Column("bytes_per_second", "double", "by how much used_bytes grow, over about 20 minutes; negative: shrink"),
        Column("seconds_until_full", "double", "time left at this pace; null unless the volume fills"),
        Column("bytes_measured_since", "timestamp", "sample that the next bytes_per_second is measured from"),
        Column("bytes_measured_from", "long", "used_bytes in it"),
        *SAMPLED,
    ),
    key=("cluster_id", "broker", "log_dir"),
    reporter="broker",
)

QUORUM_MEMBERS: Final = Table(
    name="quorum_members",
    comment="The voters and observers of the metadata quorum, as its leader sees them",
    columns=(*CLUSTER, *columns_of(QuorumMemberObserved, nullable=("controller", "controller_epoch")), *SAMPLED),
    key=("cluster_id", "node", "directory_id"),
    reporter="source",
    sampled_by="node",
)

TOPIC_SETTINGS: Final = Table(
    name="topic_settings",
    comment="The settings of every topic that durability and throttles depend on, and what is wrong with them",
    columns=(
        *CLUSTER,
        *columns_of(TopicSettingsObserved),
        Column("role", "string", "what an internal topic is for, such as consumer_offsets; null of any other"),
        Column("consequence", "string", "what fails while one of its partitions is offline or under min ISR, by role"),
        Column("weaknesses", "string[]", "what its settings risk, worst first, racks left out; empty: durable"),
        *SAMPLED,
    ),
    key=("cluster_id", "topic_id"),
    reporter="source",
    forgotten_after=ROUNDS_OF_SETTINGS,
)

BROKER_SETTINGS: Final = Table(
    name="broker_settings",
    comment="The settings of every broker that matter to replication",
    columns=(*CLUSTER, *columns_of(BrokerSettingsObserved), *SAMPLED),
    key=("cluster_id", "broker"),
    forgotten_after=ROUNDS_OF_SETTINGS,
)

BROKER_FEATURES: Final = Table(
    name="broker_features",
    comment="The features that every broker supports (KIP-584): different levels are different versions of Kafka",
    columns=(*CLUSTER, *columns_of(BrokerFeatureObserved), *SAMPLED),
    key=("cluster_id", "broker", "feature"),
    forgotten_after=ROUNDS_OF_SETTINGS,
)

BROKER_SPEED: Final = Table(
    name="broker_speed",
    comment="How fast every broker responds and replicates, and whether it is slow compared with itself and its peers",
    columns=(
        *CLUSTER,
        *columns_of(
            BrokerSpeedObserved,
            after={
                "broker": (
                    Column(
                        "is_slow",
                        "boolean",
                        "slower than it was and than its peers; null: too few peers, or too new to say",
                    ),
                    Column(
                        "is_overloaded",
                        "boolean",
                        "so many brokers are slower than before that none is to blame; or null",
                    ),
                    required("slow_score", "int", "largest of signal_scores; slow from 5 until 0"),
                    Column("slow_since", "timestamp", "round in which the score last rose from 0; null at 0"),
                    Column("slow_reasons", "string[]", "what was slow last, in words; empty: nothing"),
                ),
                "replicas_out_of_isr": (
                    Column(
                        "response_history",
                        "int[]",
                        "response_micros of earlier rounds, oldest first, without slow ones",
                    ),
                    Column(
                        "behind_history", "int[]", "per cent of the pairs with it that were behind, in the same way"
                    ),
                ),
                "append_micros": (
                    Column("append_history", "int[]", "append_micros of earlier rounds, in the same way"),
                    Column(
                        "signal_scores",
                        "int[]",
                        "response, append, pairs: each rises by 1 in a slow round, else it falls",
                    ),
                ),
            },
        ),
        required("collected_at", "timestamp", "end of the round; the same for all brokers of the cluster"),
        required("source", "string", "name of the source, <kind>:<collector>"),
    ),
    key=("cluster_id", "broker"),
)

BROKER_METRICS: Final = Table(
    name="broker_metrics",
    comment="The newest sample of every broker metric",
    columns=(*CLUSTER, *columns_of(BrokerMetricObserved), *SAMPLED),
    key=("cluster_id", "broker", "metric"),
)

ISR_RECONCILIATION: Final = Table(
    name="isr_reconciliation",
    comment="ISR changes that a broker counted as leader, compared with those recorded",
    columns=(
        *CLUSTER,
        required("broker", "int", "broker that counted"),
        required("meter", "string", "isr_shrinks or isr_expands"),
        required("counted", "long", "changes that the broker counted, over restarts"),
        required("recorded", "long", "recorded changes that it may have counted"),
        required("missed", "long", "counted changes that were not recorded, at least"),
        required("since", "timestamp", "first sample of the window"),
        required("until", "timestamp", "newest sample of the window"),
        required("resets", "int", "how often the meter was reset to 0"),
        required("meter_value", "long", "newest sample"),
        Column("ahead", [(
            Column("occurred_not_before", "timestamp", "earliest moment"),
        )], "recorded changes that the newest sample cannot have counted"),
        required("as_of_version", "long", "version of partition_changes up to which this row is true"),
    ),
    key=("cluster_id", "broker", "meter"),
)  # fmt: skip

TABLE_OF: Final[dict[type[Observation], Table]] = {
    ReplicaOffsetsObserved: REPLICA_OFFSETS,
    GroupObserved: GROUPS,
    GroupOffsetsObserved: GROUP_OFFSETS,
    TransactionObserved: TRANSACTIONS,
    LogDirectoryObserved: LOG_DIRECTORIES,
    QuorumMemberObserved: QUORUM_MEMBERS,
    TopicSettingsObserved: TOPIC_SETTINGS,
    BrokerSettingsObserved: BROKER_SETTINGS,
    BrokerFeatureObserved: BROKER_FEATURES,
    BrokerSpeedObserved: BROKER_SPEED,
    BrokerMetricObserved: BROKER_METRICS,
}
"""The table of each kind of sample."""
SAMPLE_TABLES: Final = (*TABLE_OF.values(), ISR_RECONCILIATION)
