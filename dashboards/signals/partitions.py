"""Single partitions and replicas; only those that are not healthy, or changed, have series."""

from __future__ import annotations

from typing import Final

from dashboards.promql import Unit
from dashboards.signals.derived import signal

OFFLINE: Final = signal("kafka_replication_partition_offline")
UNDER_MIN_ISR: Final = signal("kafka_replication_partition_under_min_isr")
UNDER_REPLICATED: Final = signal("kafka_replication_partition_under_replicated")
LEADER: Final = signal("kafka_replication_partition_leader", "Leader", unit=Unit.BARE)
IN_SYNC: Final = signal("kafka_replication_partition_in_sync_replicas", "In sync")
REPLICAS: Final = signal("kafka_replication_partition_replicas", "Replicas")
MIN_ISR: Final = signal("kafka_replication_partition_min_in_sync_replicas", "Min ISR")
UNDER_REPLICATED_SINCE: Final = signal(
    "kafka_replication_partition_under_replicated_since_timestamp_seconds", "Incomplete for"
)
UNDER_MIN_ISR_SECONDS: Final = signal("kafka_replication_partition_under_min_isr_seconds_total")
OFFLINE_SECONDS: Final = signal("kafka_replication_partition_offline_seconds_total")
REPLICA_IN_SYNC: Final = signal("kafka_replication_replica_isr_member")
REPLICA_IN_ELR: Final = signal("kafka_replication_replica_elr_member", "May lead")
OFFLINE_SINCE: Final = signal("kafka_replication_partition_offline_since_timestamp_seconds", "Offline for")
UNDER_MIN_ISR_SINCE: Final = signal(
    "kafka_replication_partition_under_min_isr_since_timestamp_seconds", "Refuses writes for"
)
REPLICA_LAG: Final = signal("kafka_replication_replica_lag_records", "Lag, records")
REPLICA_BEHIND: Final = signal("kafka_replication_replica_behind_seconds", "Behind for")
REPLICA_UNTIL_CAUGHT_UP: Final = signal("kafka_replication_replica_until_caught_up_seconds", "Caught up in")
