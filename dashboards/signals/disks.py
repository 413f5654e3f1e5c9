"""Log directories of brokers: whether the broker can use them, how full they are, when they will be full."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

ONLINE: Final = signal("kafka_replication_log_directory_online", "Online")
TOTAL: Final = signal("kafka_replication_log_directory_total_bytes", "Size")
USABLE: Final = signal("kafka_replication_log_directory_usable_bytes", "Free")
REPLICA_BYTES: Final = signal("kafka_replication_log_directory_replica_bytes", "Size of replicas")
UNTIL_FULL: Final = signal("kafka_replication_log_directory_until_full_seconds", "Full in")
