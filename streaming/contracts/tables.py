"""Every Delta table: columns, key, partitioning.

The change log is ``partition_changes``: append only, one row per accepted change. A batch of observations is one commit
to it, and that commit carries the last bus position of every source. ``version`` and ``ordinal`` are the order of
everything that follows. Every other table of partitions, brokers and clusters derives from it: *state = the state table
+ the changes after its ``as_of_version``*.
"""

from __future__ import annotations

from typing import Final

from streaming.contracts.columns import (
    BROKER_ADVICE,
    BROKER_COUNTS,
    CLUSTER,
    CLUSTER_COUNTS,
    CLUSTER_TOTALS,
    COMMIT_ORDER,
    EVENT,
    INCIDENT,
    OCCURRENCE,
    PARTITION_IDENTITY,
    WHY,
    Column,
    Table,
    required,
)
from streaming.contracts.conditions import CONDITION
from streaming.contracts.sample_tables import SAMPLE_TABLES
from streaming.contracts.sampled_conditions import SAMPLED_SPELL
from streaming.contracts.state import BROKER_STATE, CLUSTER_STATE, PARTITION_STATE, SOURCE_LAG, SOURCE_STATE

PARTITION_CHANGES: Final = Table(
    name="partition_changes",
    comment="The change log: one row per accepted change; version and ordinal are its order",
    columns=(
        required("date", "date", "UTC day of occurred_not_after"),
        *COMMIT_ORDER,
        required("committed_at", "timestamp", "when the row was committed: from then on readers can see it"),
        *CLUSTER,
        required("subject", "string", "partition, broker, cluster or source: which columns are set"),
        required("is_baseline", "boolean", "first full report of a cluster: a state without events"),
        *PARTITION_IDENTITY,
        Column("broker", "int", "broker id, if the subject is a broker"),
        *OCCURRENCE,
        Column("source_kind", "string", "kind of the source: metadata_log, poll or none"),
        Column("sequence", "long", "number of the observation in its source"),
        Column("offset", "long", "metadata log offset of the observation"),
        *WHY,
        Column("missed", "long", "changes between before and after that were not observed"),
        Column("left_isr", "int[]", "brokers that left the ISR"),
        Column("joined_isr", "int[]", "brokers that joined the ISR"),
        Column("events", [EVENT], "the events of the change"),
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
    comment="One row per event, for people and SQL",
    columns=(
        required("date", "date", "UTC day of occurred_not_after"),
        *COMMIT_ORDER,
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

ISR_DEPARTURES: Final = Column("isr_departures", [(
    Column("cause", "string", "cause of these removals"),
    Column("departures", "long", "number of removals"),
)], "how often it left an ISR, by cause as first recorded; revisions do not change the counts")  # fmt: skip

BROKER_STATE_TABLE: Final = Table(
    name="broker_state",
    comment="The current state of every broker",
    columns=(
        *CLUSTER,
        required("broker", "int", "broker id"),
        *BROKER_STATE,
        *BROKER_COUNTS,
        *BROKER_ADVICE,
        ISR_DEPARTURES,
        *AS_OF,
    ),
    key=("cluster_id", "broker"),
)

CLUSTER_STATE_TABLE: Final = Table(
    name="cluster_state",
    comment="The current state of every cluster; totals here outlive deleted topics",
    columns=(*CLUSTER, *CLUSTER_STATE, *CLUSTER_COUNTS, *CLUSTER_TOTALS, *AS_OF),
    key=("cluster_id",),
)

PAST_STATES: Final = Table(
    name="past_states",
    comment="The whole state as of a version, about once a day: the changes after it give any later moment",
    columns=(
        required("date", "date", "UTC day of occurred_not_after"),
        required("version", "long", "version of partition_changes up to which the state is computed"),
        required("occurred_not_after", "timestamp", "every change up to that version had occurred by then"),
        *CLUSTER,
        required("subject", "string", "partition, broker or cluster: which columns are set"),
        *PARTITION_IDENTITY,
        Column("broker", "int", "broker id, if the subject is a broker"),
        Column("after", PARTITION_STATE, "the partition"),
        Column("broker_after", BROKER_STATE, "the broker"),
        Column("cluster_after", CLUSTER_STATE, "the cluster"),
        ISR_DEPARTURES,
    ),
    key=("version", "cluster_id", "topic_id", "partition", "broker"),
    partitioned_by=("date",),
)

INCIDENTS: Final = Table(
    name="incidents",
    comment="One row per incident, however many partitions it affected",
    columns=(*CLUSTER, *INCIDENT, *AS_OF),
    key=("incident_id",),
)

CONDITIONS: Final = Table(
    name="conditions",
    comment="One row per spell: from when until when something was wrong with a cluster without a break",
    columns=(*CONDITION, *AS_OF),
    key=("condition_id",),
)

SAMPLED_CONDITIONS: Final = Table(
    name="sampled_conditions",
    comment="One row per spell of what samples show: a disk, a voter, a transaction or a group in trouble",
    columns=SAMPLED_SPELL,
    key=("spell_id",),
)

QUARANTINE: Final = Table(
    name="quarantine",
    comment="Unparseable records: the first ones of each source and kind of reason verbatim, the others counted",
    columns=(
        required("channel", "string", "channel of the bus"),
        required("source", "string", "name of the source, and its folder on the bus"),
        required("position", "long", "position in the log of the source; of several records the last one's"),
        required("reason_kind", "string", "json, schema_version, unknown_kind, undecodable, channel, field or damaged"),
        required("reason", "string", "why it was refused; of several records why the last one was"),
        required("records", "long", "how many records the row is of; their sum is exact"),
        Column("raw", "binary", "bytes of the record; null in a row that only counts"),
        Column("raw_bytes", "long", "size of raw; null in a row that only counts"),
        required("quarantined_at", "timestamp", "when it was refused; of several records when the last one was"),
    ),
    key=("channel", "source", "position", "reason_kind"),
)

SOURCE_PROGRESS: Final = Table(
    name="source_progress",
    comment="How far each source has been applied; each channel is written by the query that applies it",
    columns=(
        *CLUSTER,
        required("channel", "string", "channel of the bus"),
        required("source", "string", "name of the source, and its folder on the bus"),
        Column("source_kind", "string", "kind of the source: metadata_log, poll or none"),
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
        PAST_STATES,
        SAMPLED_CONDITIONS,  # before the rows that it follows from: streaming.jobs.shards.samples
        *SAMPLE_TABLES,
        CONDITIONS,  # before those of the commit that names its own: streaming.delta.incidents.conditions
        INCIDENTS,
        QUARANTINE,
        SOURCE_PROGRESS,
    )
}
