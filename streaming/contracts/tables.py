"""Every Delta table: columns, key, partitioning.

The truth is ``partition_changes``: append only, one row an accepted change. A batch of observations is one commit to
it, and that commit carries the last bus position of every source. Every other table of partitions, brokers and
clusters derives from it: *state = the state table + the changes after its ``as_of_version``*.
"""

from __future__ import annotations

from typing import Final

from streaming.contracts.columns import (
    BROKER_ADVICE,
    BROKER_COUNTS,
    BROKER_STATE,
    CLUSTER,
    CLUSTER_COUNTS,
    CLUSTER_STATE,
    CLUSTER_TOTALS,
    EVENT,
    OCCURRENCE,
    PARTITION_IDENTITY,
    PARTITION_STATE,
    SOURCE_LAG,
    SOURCE_STATE,
    WHY,
    Column,
    Table,
    required,
)

PARTITION_CHANGES: Final = Table(
    name="partition_changes",
    comment="The truth: one row an accepted change, in the order they were applied",
    columns=(
        required("date", "date", "UTC day of occurred_not_after"),
        *CLUSTER,
        required("subject", "string", "partition, broker, cluster or source: which columns are set"),
        required("is_baseline", "boolean", "first sight of a cluster: a state without events"),
        *PARTITION_IDENTITY,
        Column("broker", "int", "the broker a broker row is about"),
        *OCCURRENCE,
        Column("authority", "string", "rank of the source"),
        Column("sequence", "long", "number of the observation in its source"),
        Column("offset", "long", "metadata log offset of the observation"),
        *WHY,
        Column("missed", "long", "changes between before and after that nobody saw"),
        Column("left_isr", "int[]", "brokers that left the ISR"),
        Column("joined_isr", "int[]", "brokers that joined the ISR"),
        Column("events", [EVENT], "what happened"),
        Column("before", PARTITION_STATE, "the partition before"),
        Column("after", PARTITION_STATE, "the partition after"),
        Column("broker_after", BROKER_STATE, "the broker after"),
        Column("cluster_after", CLUSTER_STATE, "the cluster after"),
        Column("source_after", SOURCE_STATE, "the source after"),
    ),
    key=("cluster_id", "topic_id", "partition"),
    partitioned_by=("date",),
    append_only=True,
)

REPLICATION_EVENTS: Final = Table(
    name="replication_events",
    comment="One row an event, for people and SQL",
    columns=(
        required("date", "date", "UTC day of occurred_not_after"),
        *EVENT,
        *CLUSTER,
        required("subject", "string", "partition, broker, cluster or source"),
        *PARTITION_IDENTITY,
        *OCCURRENCE,
        *WHY,
        Column("offset", "long", "metadata log offset"),
        Column("left_isr", "int[]", "brokers that left the ISR"),
        Column("joined_isr", "int[]", "brokers that joined the ISR"),
        Column("leader_before", "int", "leader before, -1 for none"),
        Column("leader_after", "int", "leader after, -1 for none"),
        Column("isr_before", "int[]", "in-sync replicas before"),
        Column("isr_after", "int[]", "in-sync replicas after"),
        Column("leader_epoch", "int", "leader epoch after"),
        Column("partition_epoch", "int", "partition epoch after"),
    ),
    key=("event_id",),
    partitioned_by=("date",),
    append_only=True,
)

AS_OF: Final = (required("as_of_version", "long", "version of partition_changes up to which this row is true"),)

PARTITION_STATE_TABLE: Final = Table(
    name="partition_state",
    comment="The current state of every partition",
    columns=(*CLUSTER, *PARTITION_IDENTITY, *PARTITION_STATE, *AS_OF),
    key=("cluster_id", "topic_id", "partition"),
)

BROKER_STATE_TABLE: Final = Table(
    name="broker_state",
    comment="The current state of every broker",
    columns=(
        *CLUSTER,
        required("broker", "int", "broker id"),
        *BROKER_STATE,
        *BROKER_COUNTS,
        *BROKER_ADVICE,
        Column("isr_departures", [(
            Column("cause", "string", "why it left"),
            Column("departures", "long", "how often"),
        )], "how often it left an ISR, by cause"),
        *AS_OF,
    ),
    key=("cluster_id", "broker"),
)  # fmt: skip

CLUSTER_STATE_TABLE: Final = Table(
    name="cluster_state",
    comment="The current state of every cluster; totals here outlive deleted topics",
    columns=(
        *CLUSTER,
        *CLUSTER_STATE,
        *CLUSTER_COUNTS,
        *CLUSTER_TOTALS,
        *AS_OF,
    ),
    key=("cluster_id",),
)

REPLICA_OFFSETS: Final = Table(
    name="replica_offsets",
    comment="The newest log positions of every replica",
    columns=(
        *CLUSTER,
        *PARTITION_IDENTITY,
        required("broker", "int", "broker that holds the replica"),
        Column("log_start_offset", "long", "oldest kept"),
        Column("last_stable_offset", "long", "end of what read_committed consumers see"),
        Column("high_watermark", "long", "end of what is committed"),
        Column("log_end_offset", "long", "next to write"),
        Column("leader_log_end_offset", "long", "the leader's, at the same moment"),
        Column("lag", "long", "records that its leader has and it has not, never negative; null while unknown"),
        Column("behind_since", "timestamp", "first sample that found it behind, without its catching up since"),
        Column("size_bytes", "long", "size of its log"),
        Column("log_dir", "string", "where it lies on its broker"),
        required("collected_at", "timestamp", "when it was asked"),
        required("source", "string", "who asked"),
    ),
    key=("cluster_id", "topic_id", "partition", "broker"),
)

GROUP_OFFSETS: Final = Table(
    name="group_offsets",
    comment="How far every consumer group has come",
    columns=(
        *CLUSTER,
        required("group", "string", "consumer group"),
        *PARTITION_IDENTITY,
        Column("group_protocol", "string", "classic, consumer or share"),
        Column("group_state", "string", "as the coordinator tells it"),
        Column("members", "int", "members of the group"),
        Column("member", "string", "client id of the partition's owner"),
        Column("committed_offset", "long", "next record the group will read; null while it has committed nothing"),
        Column("log_start_offset", "long", "oldest kept, at that moment"),
        Column("last_stable_offset", "long", "end of what read_committed consumers see, at that moment"),
        Column("high_watermark", "long", "end of what is committed, at that moment"),
        Column("lag", "long", "records up to the high watermark that it has yet to read, never negative"),
        Column("stable_lag", "long", "the same up to the last stable offset: what read_committed can get"),
        Column("records_lost", "long", "records that were deleted before it read them"),
        required("collected_at", "timestamp", "when it was asked"),
        required("source", "string", "who asked"),
    ),
    key=("cluster_id", "group", "topic_id", "partition"),
)

TRANSACTIONS: Final = Table(
    name="transactions",
    comment="The transactions of producers: open ones, and those that hang",
    columns=(
        *CLUSTER,
        required("producer_id", "long", "producer id"),
        required("producer_epoch", "int", "producer epoch"),
        Column("transactional_id", "string", "transactional id, where a coordinator knows it"),
        Column("coordinator", "int", "broker that coordinates it"),
        required("transaction_state", "string", "as the coordinator tells it"),
        Column("timeout_ms", "int", "how long it may stay open"),
        Column("started_at", "timestamp", "when its first partition was added"),
        Column("transaction_partitions", "string[]", "what it has written to, as orders-0"),
        required("is_hanging", "boolean", "a partition has it open and no coordinator will end it"),
        required("collected_at", "timestamp", "when it was asked"),
        required("source", "string", "who asked"),
    ),
    key=("cluster_id", "producer_id", "producer_epoch"),
)

LOG_DIRECTORIES: Final = Table(
    name="log_directories",
    comment="The log directories of every broker",
    columns=(
        *CLUSTER,
        required("broker", "int", "broker id"),
        required("log_dir", "string", "path on the broker"),
        required("is_online", "boolean", "whether the broker can use it"),
        Column("hosted_replicas", "int", "replicas in it"),
        Column("replica_bytes", "long", "their size"),
        Column("total_bytes", "long", "size of its volume (KIP-827)"),
        Column("usable_bytes", "long", "what is free there (KIP-827)"),
        required("collected_at", "timestamp", "when it was asked"),
        required("source", "string", "who asked"),
    ),
    key=("cluster_id", "broker", "log_dir"),
)

QUORUM_MEMBERS: Final = Table(
    name="quorum_members",
    comment="The voters and observers of the metadata quorum, as its leader sees them",
    columns=(
        *CLUSTER,
        required("node", "int", "controller or broker id"),
        required("is_voter", "boolean", "a voter, or an observer"),
        Column("controller", "int", "who leads the quorum"),
        Column("controller_epoch", "int", "its raft epoch"),
        Column("high_watermark", "long", "end of what is committed to the metadata log"),
        Column("log_end_offset", "long", "how far this member has come"),
        Column("last_fetch_at", "timestamp", "its last fetch"),
        Column("last_caught_up_at", "timestamp", "when it last had everything"),
        required("collected_at", "timestamp", "when it was asked"),
        required("source", "string", "who asked"),
    ),
    key=("cluster_id", "node"),
)

BROKER_METRICS: Final = Table(
    name="broker_metrics",
    comment="The newest sample of every broker metric",
    columns=(
        *CLUSTER,
        required("broker", "int", "broker it is about"),
        required("metric", "string", "JMX-exporter name, lower case (dialect A)"),
        required("metric_value", "double", "the sample"),
        required("collected_at", "timestamp", "when it was scraped"),
        required("source", "string", "who scraped"),
    ),
    key=("cluster_id", "broker", "metric"),
)

QUARANTINE: Final = Table(
    name="quarantine",
    comment="What could not be understood, whole, with the reason",
    columns=(
        required("channel", "string", "channel of the bus"),
        required("source", "string", "folder of the bus"),
        required("position", "long", "where it stands there"),
        required("reason", "string", "why it was refused"),
        Column("raw", "binary", "the bytes"),
        required("quarantined_at", "timestamp", "when"),
    ),
    key=("channel", "source", "position"),
    append_only=True,
)

SOURCE_PROGRESS: Final = Table(
    name="source_progress",
    comment="How far each source has been applied; each channel is written by the query that applies it",
    columns=(
        *CLUSTER,
        required("channel", "string", "channel of the bus"),
        required("source", "string", "folder of the bus"),
        Column("authority", "string", "rank of the source"),
        *SOURCE_STATE,
        *SOURCE_LAG,
        Column("as_of_version", "long", "version of partition_changes up to which this is true; null for samples"),
    ),
    key=("cluster_id", "channel", "source"),
    partitioned_by=("channel",),
)

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        PARTITION_CHANGES,
        REPLICATION_EVENTS,
        PARTITION_STATE_TABLE,
        BROKER_STATE_TABLE,
        CLUSTER_STATE_TABLE,
        REPLICA_OFFSETS,
        GROUP_OFFSETS,
        TRANSACTIONS,
        LOG_DIRECTORIES,
        QUORUM_MEMBERS,
        BROKER_METRICS,
        QUARANTINE,
        SOURCE_PROGRESS,
    )
}
