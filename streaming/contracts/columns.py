"""The columns of the Delta tables, in groups that several tables share. Here and in ``tables`` a name is spelled once.

A column type is one of: string, int, long, double, boolean, timestamp, date, ``int[]``, ``string[]``, or a tuple of
columns (a struct), or a list of one such tuple (an array of structs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its plain type, and what it means."""

    name: str
    type: str | tuple[Column, ...] | list[tuple[Column, ...]]
    comment: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns in order, the key that identifies a row, and how its files are laid out."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    partitioned_by: tuple[str, ...] = ()
    append_only: bool = False

    def column_names(self) -> tuple[str, ...]:
        """Name the columns, in order."""
        return tuple(column.name for column in self.columns)


def required(name: str, plain: str, comment: str) -> Column:
    """Make a column that every row has."""
    return Column(name, plain, comment, nullable=False)


CLUSTER: Final = (
    required("cluster_id", "string", "Kafka's cluster id"),
    required("cluster", "string", "the name people gave the cluster"),
)

PARTITION_IDENTITY: Final = (
    Column("topic_id", "string", "topic id, as Kafka's tools print it"),
    Column("topic", "string", "topic name"),
    Column("partition", "int", "partition number"),
)

# What is true of a partition at one moment. Also the fields of ``changes.PartitionState``, in this order.
PARTITION_STATE: Final = (
    Column("replicas", "int[]", "assigned brokers; the first is the preferred leader"),
    Column("isr", "int[]", "in-sync replicas"),
    Column("elr", "int[]", "eligible leader replicas (KIP-966)"),
    Column("last_known_elr", "int[]", "last known leader, while nobody is eligible"),
    Column("adding_replicas", "int[]", "replicas that a reassignment adds"),
    Column("removing_replicas", "int[]", "replicas that a reassignment removes"),
    Column("leader", "int", "leading broker, -1 for none"),
    Column("leader_epoch", "int", "term of leadership; null where the source cannot see it"),
    Column("partition_epoch", "int", "version of the partition's metadata; null where unseen"),
    Column("leader_recovering", "boolean", "the leader was elected uncleanly and has not recovered"),
    Column("min_isr_configured", "int", "min.insync.replicas; null while unknown"),
    Column("min_isr_effective", "int", "the same, capped at the replica count"),
    Column("is_offline", "boolean", "nobody leads"),
    Column("is_under_replicated", "boolean", "fewer in sync than assigned"),
    Column("is_under_min_isr", "boolean", "acks=all writes are refused; null while unknown"),
    Column("is_at_min_isr", "boolean", "one more loss stops writes; null while unknown"),
    Column("is_off_preferred_leader", "boolean", "somebody other than the first replica leads"),
    Column("offline_since", "timestamp", "begin of the open episode"),
    Column("under_replicated_since", "timestamp", "begin of the open episode"),
    Column("under_min_isr_since", "timestamp", "begin of the open episode"),
    Column("offline_seconds", "double", "closed episodes, in all"),
    Column("under_replicated_seconds", "double", "closed episodes, in all"),
    Column("under_min_isr_seconds", "double", "closed episodes, in all"),
    Column("unknown_seconds", "double", "time without sight of this partition"),
    Column("isr_shrinks", "long", "changes in which a broker left the ISR"),
    Column("isr_expands", "long", "changes in which a broker joined the ISR"),
    Column("leader_changes", "long", "changes of the leader"),
    Column("unclean_elections", "long", "leaders elected from outside ISR and ELR"),
    Column("missed_changes", "long", "changes known from epochs that nobody saw"),
    Column("is_deleted", "boolean", "the topic is gone; the row stays as a tombstone for a while"),
    Column("last_cause", "string", "cause of the last ISR or leader change"),
    Column("last_evidence", "string", "proven, ambiguous or inferred"),
    Column("last_cause_offset", "long", "metadata log offset of that change"),
    Column("changed_at", "timestamp", "when the last change happened, at the latest"),
    Column("change_number", "long", "accepted changes of this partition, the baseline is 0"),
    Column("metadata_offset", "long", "metadata log offset of the last change"),
    Column("metadata_index", "int", "order within that offset"),
)

BROKER_STATE: Final = (
    Column("broker_epoch", "long", "one uptime of the broker"),
    Column("is_registered", "boolean", "known to the controller"),
    Column("is_fenced", "boolean", "may not lead; null while unknown"),
    Column("is_shutting_down", "boolean", "in controlled shutdown; null while unknown"),
    Column("rack", "string", "rack, if it has one"),
    Column("host", "string", "host of its first listener"),
    Column("port", "int", "port of its first listener"),
    Column("log_dirs", "string[]", "online log directories"),
    Column("broker_metadata_offset", "long", "metadata log offset of its last change"),
)

# What the partitions of one broker add up to.
BROKER_COUNTS: Final = (
    Column("led_partitions", "long", "partitions it leads"),
    Column("hosted_partitions", "long", "partitions it has a replica of"),
    Column("in_sync_partitions", "long", "partitions whose ISR has it"),
    Column("under_min_isr_partitions", "long", "partitions it has a replica of that are under min ISR"),
    Column("offline_partitions", "long", "partitions it has a replica of that nobody leads"),
    Column("would_go_under_min_isr", "long", "partitions that would go under min ISR if it stopped now"),
    Column("would_go_offline", "long", "partitions that would lose their last in-sync replica if it stopped now"),
    Column("unknown_min_isr_partitions", "long", "partitions whose ISR has it and whose minimum nobody has told"),
)

# Why and in which order brokers may be stopped: advice for one broker at a time.
BROKER_ADVICE: Final = (
    Column("is_safe_to_stop", "boolean", "no partition would go offline or under min ISR; null while unknown"),
    Column("restart_order", "int", "place in the recommended order, from 1; null where it is not safe or not up"),
    Column("suspect_score", "double", "how much it explains of every ISR that is shrunk now, 0 to 1"),
)

# What the partitions of one cluster add up to now.
CLUSTER_COUNTS: Final = (
    Column("topics", "long", "topics"),
    Column("partitions", "long", "partitions of all topics"),
    Column("under_replicated_partitions", "long", "partitions with fewer replicas in sync than assigned"),
    Column("under_min_isr_partitions", "long", "partitions that refuse acks=all; null while no minimum is known"),
    Column("at_min_isr_partitions", "long", "partitions at their minimum; null while no minimum is known"),
    Column("unknown_min_isr_partitions", "long", "partitions whose minimum nobody has told"),
    Column("offline_partitions", "long", "partitions that nobody leads"),
    Column("off_preferred_leader_partitions", "long", "partitions that their first replica does not lead"),
    Column("reassigning_partitions", "long", "partitions whose replicas are being moved"),
)

# What all partitions of a cluster ever counted, deleted topics included. Seconds are told up to the watermark of the
# authority, open episodes included.
CLUSTER_TOTALS: Final = (
    Column("isr_shrinks", "long", "changes in which a broker left an ISR, in all"),
    Column("isr_expands", "long", "changes in which a broker joined an ISR, in all"),
    Column("leader_changes", "long", "changes of a leader, in all"),
    Column("unclean_elections", "long", "leaders elected from outside ISR and ELR, in all"),
    Column("missed_changes", "long", "changes known from epochs that nobody saw, in all"),
    Column("offline_seconds", "double", "offline time of all partitions, up to authority_watermark"),
    Column("under_replicated_seconds", "double", "under-replicated time of all partitions, up to authority_watermark"),
    Column("under_min_isr_seconds", "double", "time under min ISR of all partitions, up to authority_watermark"),
    Column("unknown_seconds", "double", "time without sight of all partitions"),
)

CLUSTER_STATE: Final = (
    Column("authority", "string", "who orders the partitions: metadata_log or poll"),
    Column("controller", "int", "active controller"),
    Column("controller_epoch", "int", "its raft epoch"),
    Column("controller_changes", "long", "controller fail-overs seen"),
    Column("has_baseline", "boolean", "a first snapshot is complete"),
    Column("watermark", "timestamp", "newest applied moment; durations are told up to here"),
    Column("authority_watermark", "timestamp", "the same, of the authority's own observations"),
    Column("sight_until", "timestamp", "while a snapshot is under way: where sight ended before it"),
    Column("tombstones_until", "timestamp", "what was deleted up to here is forgotten, its totals stand here"),
    Column("expired_isr_shrinks", "long", "total of what is forgotten"),
    Column("expired_isr_expands", "long", "total of what is forgotten"),
    Column("expired_leader_changes", "long", "total of what is forgotten"),
    Column("expired_unclean_elections", "long", "total of what is forgotten"),
    Column("expired_missed_changes", "long", "total of what is forgotten"),
    Column("expired_offline_seconds", "double", "total of what is forgotten"),
    Column("expired_under_replicated_seconds", "double", "total of what is forgotten"),
    Column("expired_under_min_isr_seconds", "double", "total of what is forgotten"),
    Column("expired_unknown_seconds", "double", "total of what is forgotten"),
    Column("topic_min_isr", [(
        Column("topic", "string", "topic name"),
        Column("origin", "string", "log or describe"),
        Column("min_isr", "int", "min.insync.replicas"),
        Column("offset", "long", "metadata log offset that set it"),
    )], 'what is known per topic; the topic "" is the default of the cluster'),
)  # fmt: skip

# How far one source has been applied.
SOURCE_STATE: Final = (
    Column("position", "long", "bus position up to which it is applied"),
    Column("sequence", "long", "number of its last observation"),
    Column("offset", "long", "metadata log offset of its last observation"),
    Column("observed_until", "timestamp", "newest occurred_not_after: its watermark"),
    Column("collected_at", "timestamp", "newest collected_at"),
    Column("duplicates", "long", "observations dropped as equal, older or not of the authority, outside of snapshots"),
    Column("quarantined", "long", "observations refused"),
)

# How far the job is behind that source, and how the query is that applies it.
SOURCE_LAG: Final = (
    Column("bus_end", "long", "position behind its newest record on the bus"),
    Column("behind_bytes", "long", "bytes of its log that are not applied yet"),
    Column("is_query_up", "boolean", "whether the query that applies it runs"),
    Column("restarts", "long", "how often that query was started again, since its job started"),
    Column("last_error", "string", "what that query failed with the last time; null if it did not"),
    Column("reported_at", "timestamp", "when this row was written; older than a minute: the job does not run"),
)

EVENT: Final = (
    Column("event_id", "string", "deterministic: the same change gives the same id"),
    Column("event", "string", "kind of the event"),
    Column("event_broker", "int", "broker it is about"),
    Column("detail", "string", "one short sentence, where the kind does not say all"),
)

OCCURRENCE: Final = (
    required("occurred_not_before", "timestamp", "earliest moment"),
    required(
        "occurred_not_after",
        "timestamp",
        "latest moment; equal to the former where a log gives the time",
    ),
    required("collected_at", "timestamp", "when the source saw it"),
    required("source", "string", "who saw it"),
)

WHY: Final = (
    Column("cause", "string", "why"),
    Column("evidence", "string", "proven, ambiguous or inferred"),
    Column("candidates", "string[]", "what else it can have been"),
)

INCIDENT: Final = (
    required("incident_id", "string", "kind of its first evidence, and that event's id"),
    required("incident_class", "string", "kind of trouble; it may become graver while the incident is open"),
    required("opened_at", "timestamp", "when the first change happened, at the earliest"),
    required("updated_at", "timestamp", "newest change of it; counts and seconds are told up to here"),
    Column("closed_at", "timestamp", "its last change; null while it is open"),
    Column("merged_into", "string", "the incident that this one turned out to be part of"),
    required("summary", "string", "what happened, to whom and how bad, in one sentence"),
    Column("suspects", [(
        Column("broker", "int", "broker to blame"),
        Column("score", "double", "how much it explains alone, 0 to 1"),
    )], "who is to blame"),
    Column("brokers", "int[]", "brokers that left an ISR or went away in it"),
    Column("partitions", "long", "partitions it touched"),
    Column("topic_count", "long", "topics it touched"),
    Column("topics", "string[]", "their names, the first twenty in order"),
    Column("causes", [(
        Column("cause", "string", "cause of changes"),
        Column("changes", "long", "how many"),
    )], "why partitions changed"),
    Column("under_replicated_now", "long", "partitions that are so because of it, as of updated_at"),
    Column("under_min_isr_now", "long", "partitions that are so because of it, as of updated_at"),
    Column("offline_now", "long", "partitions that are so because of it, as of updated_at"),
    Column("under_replicated_peak", "long", "most partitions at once"),
    Column("under_min_isr_peak", "long", "most partitions at once"),
    Column("offline_peak", "long", "most partitions at once"),
    Column("under_replicated_seconds", "double", "while at least one partition was"),
    Column("under_min_isr_seconds", "double", "while at least one partition was"),
    Column("offline_seconds", "double", "while at least one partition was"),
    Column("under_replicated_partition_seconds", "double", "sum over the partitions"),
    Column("under_min_isr_partition_seconds", "double", "sum over the partitions"),
    Column("offline_partition_seconds", "double", "sum over the partitions"),
    Column("isr_shrinks", "long", "changes in which a broker left the ISR"),
    Column("isr_expands", "long", "changes in which a broker joined the ISR"),
    Column("leader_changes", "long", "changes of the leader"),
    Column("unclean_elections", "long", "leaders elected from outside ISR and ELR"),
    Column("evidence_events", "long", "events that say so"),
    Column("event_ids", "string[]", "the first twenty of them; rows of replication_events"),
    Column("carried", "string", "what the job needs to go on with it; null once it is over for good"),
)  # fmt: skip
