"""Single partitions and replicas; only those that are not healthy, or changed, have series."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import PARTITION, REPLICA

_partition = partial(Signal, labels=PARTITION)

OFFLINE: Final = _partition("Offline", "partition_offline", "1 while the partition has no leader.")
UNDER_MIN_ISR: Final = _partition(
    "Under min ISR", "partition_under_min_isr", "1 while producers with acks=all are refused."
)
UNDER_REPLICATED: Final = _partition(
    "Under-replicated", "partition_under_replicated", "1 while fewer replicas are in sync than assigned."
)
LEADER: Final = _partition(
    "Leader", "partition_leader", "Broker id of the leader; -1 if there is none.", unit=Unit.BARE
)
IN_SYNC: Final = _partition("In sync", "partition_in_sync_replicas", "Size of the ISR.")
REPLICAS: Final = _partition("Replicas", "partition_replicas", "Assigned replicas.")
MIN_ISR: Final = _partition("Min ISR", "partition_min_in_sync_replicas", "Effective min.insync.replicas.")
UNDER_REPLICATED_SINCE: Final = _partition(
    "Incomplete for",
    "partition_under_replicated_since_timestamp_seconds",
    "Since when replicas of the partition are missing, in seconds since 1970.",
    unit=Unit.SECONDS,
)
UNDER_MIN_ISR_SECONDS: Final = _partition(
    "Time under min ISR",
    "partition_under_min_isr_seconds_total",
    "Seconds in which producers with acks=all were refused; exact, independent of the scrape interval.",
    kind=SignalType.COUNTER,
    unit=Unit.SECONDS,
)
OFFLINE_SECONDS: Final = _partition(
    "Offline time", "partition_offline_seconds_total", "Seconds without a leader.", kind=SignalType.COUNTER
)
REPLICA_IN_SYNC: Final = Signal(
    name="Replica in sync",
    meaning="1 while the broker is in the ISR of the partition.",
    metric="replica_isr_member",
    labels=REPLICA,
)
REPLICA_IN_ELR: Final = Signal(
    name="May lead",
    meaning="1 while the replica is in the ELR: it has every committed record, and may lead once its broker is back.",
    metric="replica_elr_member",
    labels=REPLICA,
)
OFFLINE_SINCE: Final = _partition(
    "Offline for",
    "partition_offline_since_timestamp_seconds",
    "When the partition lost its leader, in seconds since 1970.",
    unit=Unit.SECONDS,
)
UNDER_MIN_ISR_SINCE: Final = _partition(
    "Refuses writes for",
    "partition_under_min_isr_since_timestamp_seconds",
    "Since when writes with acks=all are refused, in seconds since 1970.",
    unit=Unit.SECONDS,
)
REPLICA_LAG: Final = Signal(
    name="Lag, records",
    meaning="Records that the leader has and the replica has not; only of replicas that have not caught up.",
    metric="replica_lag_records",
    labels=REPLICA,
)
REPLICA_BEHIND: Final = Signal(
    name="Behind for",
    meaning="Time since the replica had caught up.",
    metric="replica_behind_seconds",
    labels=REPLICA,
    unit=Unit.SECONDS,
)
REPLICA_UNTIL_CAUGHT_UP: Final = Signal(
    name="Caught up in",
    meaning="Time until the replica has caught up, at its pace; absent unless its lag shrinks.",
    metric="replica_until_caught_up_seconds",
    labels=REPLICA,
    unit=Unit.SECONDS,
)
