"""Signals: every metric that a panel or a rule uses, with its title, meaning, unit and type, written once.

Knows the names and labels of the exporter's catalogue (a test compares them), not Grafana.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards import monitor_signals
from dashboards.promql import Signal, SignalType, Unit

CLUSTER: Final = ("cluster",)
BROKER: Final = ("cluster", "broker")
TOPIC: Final = ("cluster", "topic")
PARTITION: Final = ("cluster", "topic", "partition")
INCIDENT: Final = ("cluster", "class")

_cluster = partial(Signal, labels=CLUSTER)
_broker = partial(Signal, labels=BROKER)
_partition = partial(Signal, labels=PARTITION)

OFFLINE: Final = _cluster(
    "Offline partitions",
    "cluster_offline_partitions",
    (
        "Partitions without a leader: neither reads nor writes. Data may be lost if the last in-sync replica does not "
        "return. Restore that broker first; an unclean election discards records that only it has."
    ),
)
UNDER_MIN_ISR: Final = _cluster(
    "Under min ISR",
    "cluster_under_min_isr_partitions",
    (
        "Partitions with fewer in-sync replicas than min.insync.replicas: producers with acks=all are refused. "
        "Restore the brokers that left the ISR (see below); do not lower min.insync.replicas to silence the alert."
    ),
)
AT_MIN_ISR: Final = _cluster(
    "At min ISR",
    "cluster_at_min_isr_partitions",
    (
        "Partitions with exactly min.insync.replicas in sync: the next broker to leave the ISR stops their writes. "
        "Normal during a rolling restart; do not restart another broker until the count is back at its usual value."
    ),
)
UNDER_REPLICATED: Final = _cluster(
    "Under-replicated",
    "cluster_under_replicated_partitions",
    (
        "Partitions with fewer replicas in sync than assigned, not counting replicas that a reassignment adds. Normal "
        "while a broker restarts. If it lasts, find the broker that is missing from the ISRs."
    ),
)
OFF_PREFERRED_LEADER: Final = _cluster(
    "Not led by the preferred leader",
    "cluster_off_preferred_leader_partitions",
    (
        "Partitions not led by the first of their replicas. No risk to data, but load is uneven. "
        "Kafka rebalances leaders every five minutes unless auto.leader.rebalance.enable is off."
    ),
)
DATA_AGE: Final = _cluster(
    "Data age",
    "cluster_state_age_seconds",
    (
        "Seconds since the newest observation of the cluster. Above 60 s all state on this dashboard disappears, "
        "instead of looking healthy. Then check the sources at the bottom: the one whose age grows has failed."
    ),
    unit=Unit.SECONDS,
    copies="min",
)
BROKERS: Final = _cluster(
    "Registered brokers",
    "cluster_brokers",
    "Brokers registered with the controller. A missing one was unregistered, or has never started.",
)
FENCED_BROKERS: Final = _cluster(
    "Fenced brokers",
    "cluster_fenced_brokers",
    (
        "Brokers whose session with the controller expired, or that are starting: they lead nothing and are in no ISR. "
        "One during a restart is normal. If it lasts, the process is down, hung or cut off from the controllers."
    ),
)
CONTROLLER: Final = _cluster(
    "Active controller",
    "cluster_controller",
    "Node id of the active controller. Its log has the reason of each election.",
    unit=Unit.BARE,
)
UNKNOWN_MIN_ISR: Final = _cluster(
    "Min ISR unknown",
    "cluster_unknown_min_isr_partitions",
    (
        "Partitions whose min.insync.replicas is unknown: they can be under min ISR without being counted. Should be "
        "0; if not, grant the collector DescribeConfigs on topics."
    ),
)

REASSIGNING: Final = _cluster(
    "Being reassigned",
    "cluster_reassigning_partitions",
    "Partitions with a reassignment that is not complete. If the number stands still for hours, it is stuck.",
)
CLUSTER_INFO: Final = Signal(
    name="Cluster",
    meaning="Kafka's cluster id and the kind of the primary source.",
    metric="cluster_info",
    labels=(*CLUSTER, "cluster_id", "authority"),
)

ISR_SHRINKS: Final = _cluster(
    "ISR shrinks",
    "cluster_isr_shrinks_total",
    (
        "Changes in which a broker left an ISR. A burst during a restart is normal; a steady rate means replicas that "
        "cannot keep up. The panels above show which broker and why."
    ),
    kind=SignalType.COUNTER,
)
ISR_EXPANDS: Final = _cluster(
    "ISR expands",
    "cluster_isr_expands_total",
    "Changes in which a broker joined an ISR. Each shrink should be followed by one; if not, a broker is missing.",
    kind=SignalType.COUNTER,
)
LEADER_CHANGES: Final = _cluster(
    "Leader changes",
    "cluster_leader_changes_total",
    (
        "Partitions that got another leader. Clients retry briefly at each. Outside restarts and preferred leader "
        "elections there should be none."
    ),
    kind=SignalType.COUNTER,
)
UNCLEAN_ELECTIONS: Final = _cluster(
    "Unclean elections",
    "cluster_unclean_elections_total",
    (
        "Leaders elected from outside the in-sync replicas: acknowledged records may be lost. Should always be 0. "
        "Find the topics, inform their owners of the time, and check unclean.leader.election.enable."
    ),
    kind=SignalType.COUNTER,
)
CONTROLLER_CHANGES: Final = _cluster(
    "Controller changes",
    "cluster_controller_changes_total",
    "Failovers of the active controller. Several in an hour indicate an unstable quorum.",
    kind=SignalType.COUNTER,
)
MISSED_CHANGES: Final = _cluster(
    "Missed changes",
    "cluster_missed_changes_total",
    (
        "Changes inferred from epoch gaps but never observed. With the metadata log there should be none; polling "
        "misses changes that are shorter than its interval."
    ),
    kind=SignalType.COUNTER,
)

OPEN_INCIDENTS: Final = Signal(
    name="Open now",
    meaning="Open incidents, by class.",
    metric="cluster_open_incidents",
    labels=INCIDENT,
)
CLOSED_INCIDENTS: Final = Signal(
    name="Closed in this time range",
    meaning="Closed incidents that are final, by class.",
    metric="cluster_closed_incidents_total",
    labels=INCIDENT,
    kind=SignalType.COUNTER,
)

ISR_REMOVALS: Final = Signal(
    name="ISR removals by broker and cause",
    meaning=(
        "How often each broker left an ISR, and why. controlled_shutdown, restart and reassignment are planned. "
        "lag: disk or network of that broker. leader_stall: the leader stalled, the followers are fine. "
        "fenced: process, host or connection to the controllers. dir_failure: a disk failed."
    ),
    metric="broker_isr_departures_total",
    labels=(*BROKER, "cause"),
    kind=SignalType.COUNTER,
)
LED: Final = _broker("Led partitions", "broker_led_partitions", "Partitions that the broker leads.")
HOSTED: Final = _broker(
    "Hosted partitions", "broker_hosted_partitions", "Partitions of which a replica is assigned to the broker."
)
IN_SYNC: Final = _broker("In-sync partitions", "broker_in_sync_partitions", "Partitions whose ISR contains the broker.")
BROKER_FENCED: Final = _broker("Fenced", "broker_fenced", "1 while the broker is fenced by the controller.")
BROKER_REGISTERED: Final = _broker(
    "Registered", "broker_registered", "1 while the broker is registered with the controller."
)
BROKER_SHUTTING_DOWN: Final = _broker(
    "Stopped on purpose", "broker_shutting_down", "1 from a controlled shutdown of the broker until it registers again."
)
BROKER_MAINTENANCE: Final = _broker("In maintenance", "broker_maintenance", "1 while planned work on it is announced.")
ONLINE_LOG_DIRS: Final = _broker(
    "Online log directories", "broker_online_log_dirs", "Log directories that the broker can use."
)
MISSING_FROM_ISR: Final = _broker(
    "Missing from ISRs",
    "broker_missing_from_isr_partitions",
    "Under-replicated partitions that the broker is assigned to, while it is not in their ISR.",
)
MISSING_AT_MIN_ISR: Final = _broker(
    "Missing at min ISR",
    "broker_missing_at_min_isr_partitions",
    "Of those, the partitions that are at or under min ISR, or offline.",
)
SUSPECT_SCORE: Final = _broker(
    "Suspect score", "broker_suspect_score", "Share of the current ISR shrinks that the broker explains, 0 to 1."
)
SAFE_TO_STOP: Final = _broker(
    "Safe to stop",
    "broker_safe_to_stop",
    "1 if no partition would go offline or under min ISR if this one broker stopped now.",
)
RESTART_ORDER: Final = _broker(
    "Restart order", "broker_restart_order", "Position in the recommended restart order, from 1.", unit=Unit.BARE
)
WOULD_GO_UNDER_MIN_ISR: Final = _broker(
    "Would go under min ISR",
    "broker_would_go_under_min_isr_partitions",
    "Partitions that would refuse writes if the broker stopped now.",
)
WOULD_GO_OFFLINE: Final = _broker(
    "Would go offline",
    "broker_would_go_offline_partitions",
    "Partitions that would have no leader if the broker stopped now.",
)
BROKER_INFO: Final = Signal(
    name="Broker",
    meaning="Rack and host of the broker.",
    metric="broker_info",
    labels=(*BROKER, "rack", "host"),
)

_topic = partial(Signal, labels=TOPIC)
TOPIC_OFFLINE: Final = _topic("Offline", "topic_offline_partitions", "Partitions of the topic without a leader.")
TOPIC_UNDER_MIN_ISR: Final = _topic(
    "Under min ISR", "topic_under_min_isr_partitions", "Partitions of the topic that refuse writes with acks=all."
)
TOPIC_AT_MIN_ISR: Final = _topic(
    "At min ISR", "topic_at_min_isr_partitions", "Partitions whose writes stop with the loss of one more replica."
)
TOPIC_UNDER_REPLICATED: Final = _topic(
    "Under-replicated", "topic_under_replicated_partitions", "Partitions of the topic whose ISR lacks replicas."
)

PARTITION_OFFLINE: Final = _partition("Offline", "partition_offline", "1 while the partition has no leader.")
PARTITION_UNDER_MIN_ISR: Final = _partition(
    "Under min ISR", "partition_under_min_isr", "1 while producers with acks=all are refused."
)
PARTITION_UNDER_REPLICATED: Final = _partition(
    "Under-replicated", "partition_under_replicated", "1 while fewer replicas are in sync than assigned."
)
PARTITION_LEADER: Final = _partition(
    "Leader", "partition_leader", "Broker id of the leader; -1 if there is none.", unit=Unit.BARE
)
PARTITION_IN_SYNC: Final = _partition("In sync", "partition_in_sync_replicas", "Size of the ISR.")
PARTITION_REPLICAS: Final = _partition("Replicas", "partition_replicas", "Assigned replicas.")
PARTITION_MIN_ISR: Final = _partition("Min ISR", "partition_min_in_sync_replicas", "Effective min.insync.replicas.")
PARTITION_UNDER_REPLICATED_SINCE: Final = _partition(
    "Under-replicated for",
    "partition_under_replicated_since_timestamp_seconds",
    "Since when replicas of the partition are missing, in seconds since 1970.",
    unit=Unit.SECONDS,
)
PARTITION_UNDER_MIN_ISR_SECONDS: Final = _partition(
    "Time under min ISR",
    "partition_under_min_isr_seconds_total",
    "Seconds in which producers with acks=all were refused; exact, independent of the scrape interval.",
    kind=SignalType.COUNTER,
    unit=Unit.SECONDS,
)
PARTITION_OFFLINE_SECONDS: Final = _partition(
    "Offline time", "partition_offline_seconds_total", "Seconds without a leader.", kind=SignalType.COUNTER
)
REPLICA_IN_SYNC: Final = Signal(
    name="Replica in sync",
    meaning="1 while the broker is in the ISR of the partition.",
    metric="replica_isr_member",
    labels=(*PARTITION, "broker"),
)

BEHIND: Final = monitor_signals.BEHIND
COLLECTOR_SOURCE_UP: Final = monitor_signals.COLLECTOR_SOURCE_UP
QUARANTINED: Final = monitor_signals.QUARANTINED
QUERY_UP: Final = monitor_signals.QUERY_UP
REPORT_AGE: Final = monitor_signals.REPORT_AGE
SOURCE: Final = monitor_signals.SOURCE
SOURCE_AGE: Final = monitor_signals.SOURCE_AGE
SOURCE_OBSERVED: Final = monitor_signals.SOURCE_OBSERVED
TABLE_READABLE: Final = monitor_signals.TABLE_READABLE

SIGNALS: Final = tuple(one for one in {**globals(), **vars(monitor_signals)}.values() if isinstance(one, Signal))
