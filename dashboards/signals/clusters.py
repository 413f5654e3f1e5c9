"""Clusters: partitions in each state of health, brokers, the age of the data."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, Unit
from dashboards.signals.labels import CLUSTER, REASON

_cluster = partial(Signal, labels=CLUSTER)

DATA_AGE: Final = _cluster(
    "Data age",
    "cluster_state_age_seconds",
    (
        "Seconds since the newest observation of the cluster. Above 60 s all state on this dashboard disappears, "
        "instead of looking healthy. Then open the board of the monitor itself: the source whose age grows has failed."
    ),
    unit=Unit.SECONDS,
    copies="min",
)
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
UNKNOWN_MIN_ISR: Final = _cluster(
    "Min ISR unknown",
    "cluster_unknown_min_isr_partitions",
    (
        "Partitions whose min.insync.replicas is unknown: they can be under min ISR without being counted. Should be "
        "0; if not, grant the collector DescribeConfigs on topics."
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
REASSIGNING: Final = _cluster(
    "Being reassigned",
    "cluster_reassigning_partitions",
    "Partitions with a reassignment that is not complete. If the number stands still for hours, it is stuck.",
)
LEFT_TO_COPY: Final = _cluster(
    "Left to copy",
    "cluster_reassignment_remaining_bytes",
    (
        "Bytes that the replicas which reassignments add have yet to copy. A line that does not fall: a throttle below "
        "the rate of new records, or a new replica whose broker is down. Nothing is shown while a size is unknown."
    ),
    unit=Unit.BYTES,
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
INFO: Final = Signal(
    name="Cluster",
    meaning="Kafka's cluster id and the kind of the primary source.",
    metric="cluster_info",
    labels=(*CLUSTER, "cluster_id", "authority"),
)
PARTITIONS: Final = _cluster("Partitions", "cluster_partitions", "Partitions of all topics.")
DISKLESS: Final = _cluster(
    "Diskless partitions",
    "cluster_diskless_partitions",
    "Partitions of diskless topics (KIP-1150): their ISR means nothing, and no count of unhealthy ones has them.",
)
UNHEALTHY: Final = Signal(
    name="Reasons",
    meaning=(
        "Why the cluster is not healthy, by reason, as isrwatch health says it: how many partitions, brokers or other "
        "things. Without a reason it is healthy."
    ),
    metric="cluster_unhealthy",
    labels=REASON,
)
FEATURE_LEVEL: Final = Signal(
    name="Level",
    meaning="The level of each feature that the cluster uses, such as metadata.version; 0 is off.",
    metric="cluster_feature_level",
    labels=("cluster", "feature"),
    unit=Unit.BARE,
)
