"""Signals: every metric that a panel or a rule uses, with its meaning, unit and type, written once.

Knows the names and labels that the exporter's catalogue publishes (a test compares them), nothing of Grafana.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Kind, Signal, Unit

CLUSTER: Final = ("cluster",)
BROKER: Final = ("cluster", "broker")
TOPIC: Final = ("cluster", "topic")
PARTITION: Final = ("cluster", "topic", "partition")
INCIDENT: Final = ("cluster", "class")
SOURCE: Final = ("cluster", "channel", "source")

_cluster = partial(Signal, labels=CLUSTER)
_broker = partial(Signal, labels=BROKER)
_partition = partial(Signal, labels=PARTITION)
_source = partial(Signal, labels=SOURCE)

OFFLINE: Final = _cluster(
    "Offline partitions",
    "cluster_offline_partitions",
    (
        "Partitions that nobody leads: neither reads nor writes. Data may be lost if the last in-sync replica does not "
        "come back. Bring that broker back first; an unclean election gives up what only it holds."
    ),
)
UNDER_MIN_ISR: Final = _cluster(
    "Under min ISR",
    "cluster_under_min_isr_partitions",
    (
        "Partitions with fewer in-sync replicas than min.insync.replicas: producers with acks=all are refused. "
        "Restore the brokers that left (see below); do not lower min.insync.replicas to silence it."
    ),
)
AT_MIN_ISR: Final = _cluster(
    "At min ISR",
    "cluster_at_min_isr_partitions",
    (
        "Partitions with exactly min.insync.replicas in sync: the next broker that leaves stops their writes. Normal "
        "during a rolling restart; do not restart another broker until it is back to its usual value."
    ),
)
UNDER_REPLICATED: Final = _cluster(
    "Under-replicated",
    "cluster_under_replicated_partitions",
    (
        "Partitions with fewer replicas in sync than assigned; replicas that a reassignment adds do not count. Normal "
        "while a broker restarts. If it lasts, look for the broker that is missing from ISRs."
    ),
)
OFF_PREFERRED_LEADER: Final = _cluster(
    "Not led by the preferred leader",
    "cluster_off_preferred_leader_partitions",
    (
        "Partitions led by another broker than the first of their replicas. No risk to data, but load is uneven. "
        "Kafka rebalances by itself every five minutes unless auto.leader.rebalance.enable is off."
    ),
)
SIGHT_AGE: Final = _cluster(
    "Age of our sight",
    "cluster_state_age_seconds",
    (
        "Seconds since the newest thing we know of the cluster. Above 60 s all state on this page disappears instead "
        "of looking healthy. Then look at the sources at the bottom: the one that ages is the one that broke."
    ),
    unit=Unit.SECONDS,
    copies="min",
)
BROKERS: Final = _cluster(
    "Registered brokers",
    "cluster_brokers",
    "Brokers that are registered with the controller. A missing one was unregistered, or never came up.",
)
FENCED_BROKERS: Final = _cluster(
    "Fenced brokers",
    "cluster_fenced_brokers",
    (
        "Brokers that lost their session with the controller, or are starting: they lead nothing and are in no ISR. "
        "One during a restart is normal. If it stays, the process is down, hung or cut off from the controllers."
    ),
)
CONTROLLER: Final = _cluster(
    "Active controller",
    "cluster_controller",
    "Node id of the active controller. Its log tells why it made an election.",
    unit=Unit.BARE,
)
UNKNOWN_MIN_ISR: Final = _cluster(
    "Min ISR unknown",
    "cluster_unknown_min_isr_partitions",
    (
        "Partitions whose min.insync.replicas nobody has told yet: they can be under it without being counted. Should "
        "be 0; if not, let the collector describe topic configurations (DescribeConfigs)."
    ),
)

ISR_SHRINKS: Final = _cluster(
    "ISR shrinks",
    "cluster_isr_shrinks_total",
    (
        "Changes in which a broker left an ISR. A burst with a restart is normal; a steady rate means replicas that "
        "cannot keep up. See which broker and why beside it."
    ),
    kind=Kind.COUNTER,
)
ISR_EXPANDS: Final = _cluster(
    "ISR expands",
    "cluster_isr_expands_total",
    "Changes in which a broker joined an ISR. Each shrink should be followed by one; if not, somebody is gone.",
    kind=Kind.COUNTER,
)
LEADER_CHANGES: Final = _cluster(
    "Leader changes",
    "cluster_leader_changes_total",
    (
        "Partitions that got another leader. Clients retry for a moment at each. Outside restarts and preferred "
        "elections there should be none."
    ),
    kind=Kind.COUNTER,
)
UNCLEAN_ELECTIONS: Final = _cluster(
    "Unclean elections",
    "cluster_unclean_elections_total",
    (
        "Leaders elected from outside the in-sync replicas: acknowledged records may be lost. Should be 0 for ever. "
        "Find the topics, tell their owners the time, and check unclean.leader.election.enable."
    ),
    kind=Kind.COUNTER,
)
CONTROLLER_CHANGES: Final = _cluster(
    "Controller changes",
    "cluster_controller_changes_total",
    "Fail-overs of the active controller. Several in an hour mean an unstable quorum.",
    kind=Kind.COUNTER,
)
MISSED_CHANGES: Final = _cluster(
    "Missed changes",
    "cluster_missed_changes_total",
    (
        "Changes that happened, known from the epochs, which no source saw. With the metadata log there should be "
        "none; a poller misses what is shorter than its interval."
    ),
    kind=Kind.COUNTER,
)

OPEN_INCIDENTS: Final = Signal(
    name="Open now",
    meaning="Incidents that are going on, by class: each is one thing that happened.",
    metric="cluster_open_incidents",
    labels=INCIDENT,
)
CLOSED_INCIDENTS: Final = Signal(
    name="Over in this time range",
    meaning="Incidents that are over for good, by class.",
    metric="cluster_closed_incidents_total",
    labels=INCIDENT,
    kind=Kind.COUNTER,
)

DEPARTURES: Final = Signal(
    name="ISR departures by broker and cause",
    meaning=(
        "How often each broker left an ISR, and why. controlled_shutdown, restart and reassignment are somebody's "
        "intention. lag: disk or network of that broker. leader_stall: the leader stalled, the followers are fine. "
        "fenced: process, host or its link to the controllers. dir_failure: a disk is gone."
    ),
    metric="broker_isr_departures_total",
    labels=(*BROKER, "cause"),
    kind=Kind.COUNTER,
)
LED: Final = _broker("Led partitions", "broker_led_partitions", "Partitions that the broker leads.")
HOSTED: Final = _broker(
    "Hosted partitions", "broker_hosted_partitions", "Partitions of which the broker holds a replica."
)
IN_SYNC: Final = _broker("In-sync partitions", "broker_in_sync_partitions", "Partitions in whose ISR the broker is.")
BROKER_FENCED: Final = _broker("Fenced", "broker_fenced", "1 while the controller bars the broker from leading.")
BROKER_REGISTERED: Final = _broker("Registered", "broker_registered", "1 while the controller knows the broker.")
SUSPECT_SCORE: Final = _broker(
    "Suspect score", "broker_suspect_score", "How much the broker explains of every ISR that is shrunk now, 0 to 1."
)
SAFE_TO_STOP: Final = _broker(
    "Safe to stop",
    "broker_safe_to_stop",
    "1 if stopping this one broker now takes no partition offline or under min ISR.",
)
RESTART_ORDER: Final = _broker(
    "Restart order", "broker_restart_order", "Place in the recommended order of restarts, from 1.", unit=Unit.BARE
)
WOULD_GO_UNDER_MIN_ISR: Final = _broker(
    "Would go under min ISR",
    "broker_would_go_under_min_isr_partitions",
    "Partitions that would refuse writes if the broker stopped now.",
)
WOULD_GO_OFFLINE: Final = _broker(
    "Would go offline",
    "broker_would_go_offline_partitions",
    "Partitions that nobody would lead if the broker stopped now.",
)
BROKER_INFO: Final = Signal(
    name="Broker",
    meaning="Where the broker lives.",
    metric="broker_info",
    labels=(*BROKER, "rack", "host"),
)

PARTITION_OFFLINE: Final = _partition("Offline", "partition_offline", "1 while nobody leads the partition.")
PARTITION_UNDER_MIN_ISR: Final = _partition(
    "Under min ISR", "partition_under_min_isr", "1 while producers with acks=all are refused."
)
PARTITION_AT_MIN_ISR: Final = _partition(
    "At min ISR", "partition_at_min_isr", "1 while the loss of one more replica stops writes."
)
PARTITION_UNDER_REPLICATED: Final = _partition(
    "Under-replicated", "partition_under_replicated", "1 while fewer replicas are in sync than assigned."
)
PARTITION_LEADER: Final = _partition("Leader", "partition_leader", "Broker that leads; -1 for none.", unit=Unit.BARE)
PARTITION_IN_SYNC: Final = _partition("In sync", "partition_in_sync_replicas", "Size of the ISR.")
PARTITION_REPLICAS: Final = _partition("Replicas", "partition_replicas", "Assigned replicas.")
PARTITION_MIN_ISR: Final = _partition("Min ISR", "partition_min_in_sync_replicas", "Effective min.insync.replicas.")
PARTITION_UNDER_REPLICATED_SECONDS: Final = _partition(
    "Under-replicated time",
    "partition_under_replicated_seconds_total",
    "Seconds in which fewer replicas were in sync than assigned; exact, whatever the scrape interval.",
    kind=Kind.COUNTER,
    unit=Unit.SECONDS,
)
REPLICA_IN_SYNC: Final = Signal(
    name="Replica in sync",
    meaning="1 while the broker is in the ISR of the partition.",
    metric="replica_isr_member",
    labels=(*PARTITION, "broker"),
)

SOURCE_AGE: Final = _source(
    "Age of each source",
    "source_age_seconds",
    (
        "Seconds since the newest observation of each source. A source that sends heartbeats stays near 5 s. The one "
        "that ages has stopped: see its collector's log. If all age together, the Spark job stopped."
    ),
    unit=Unit.SECONDS,
    copies="min",
)
SOURCE_OBSERVED: Final = _source(
    "Newest observation",
    "source_observed_timestamp_seconds",
    "When the newest thing that a source said was true, in seconds since 1970.",
    unit=Unit.SECONDS,
)
BEHIND: Final = _source(
    "Not applied yet",
    "source_behind_bytes",
    (
        "Bytes of each source's log on the bus that the job has not applied. Near 0 all the time; a line that climbs "
        "is a query that is down or cannot keep up. Nothing is lost: the bus keeps it until the tables have it."
    ),
    unit=Unit.BYTES,
    copies="min",
)
REPORT_AGE: Final = _source(
    "Age of the job's report",
    "source_report_age_seconds",
    "Seconds since the job told how far each source is. It does so every 5 s; above a minute the job does not run.",
    unit=Unit.SECONDS,
    copies="min",
)
QUERY_UP: Final = _source(
    "Queries of the job",
    "source_query_up",
    (
        "Whether the query runs that applies each source, as the job last told: green it does, red it failed and is "
        "started again. A band that changes its colour again and again is a query that fails soon after each start."
    ),
    copies="min",
)
QUARANTINED: Final = _source(
    "Quarantined observations",
    "quarantined_total",
    (
        "Observations that could not be understood and are kept whole in the quarantine table, with the reason. "
        "Should be 0; after an upgrade of one side only, upgrade the other."
    ),
    kind=Kind.COUNTER,
)

SIGNALS: Final = tuple(value for value in dict(globals()).values() if isinstance(value, Signal))
