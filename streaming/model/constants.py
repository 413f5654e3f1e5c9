"""Kafka's timing and switches, by the names of their configuration keys. Knows nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from streaming.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The configuration of every node; defaults are those of Kafka 4.x. Milliseconds where the name says so.

    Kafka limits a fetch by bytes (``replica.fetch.max.bytes``, 1 MiB); the model has no bytes and counts records of
    1 KiB. ``start_up_ms`` is the time a process needs before it asks for its registration.
    """

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_max_records: int = 1_024
    replica_fetch_backoff_ms: int = 1_000
    broker_heartbeat_interval_ms: int = 2_000
    broker_session_timeout_ms: int = 9_000
    alter_partition_retry_ms: int = 50
    registration_retry_ms: int = 100
    leader_imbalance_check_interval_ms: int = 300_000
    auto_leader_rebalance_enable: bool = True
    metadata_max_idle_interval_ms: int = 500
    eligible_leader_replicas: bool = True
    start_up_ms: int = 500

    def __post_init__(self) -> None:
        """Refuse times that would stop or spin the model."""
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, bool) and value < (0 if item.name == "start_up_ms" else 2):
                raise ConfigurationError(f"{item.name} is {value}; it must be a whole number above 1")

    @property
    def isr_expiration_ms(self) -> int:
        """Period in which a leader looks for lagging followers: half the window (ReplicaManager)."""
        return self.replica_lag_time_max_ms // 2

    @property
    def session_check_ms(self) -> int:
        """Period in which the controller looks for expired sessions: an eighth of the session (4.x)."""
        return max(1, self.broker_session_timeout_ms // 8)


# KIP-537 (2.5) raised the windows; KRaft has a session timeout of its own.
PRESETS: Final[dict[str, Constants]] = {
    "kraft": Constants(),
    "zk-3.x": Constants(broker_session_timeout_ms=18_000, eligible_leader_replicas=False),
    "legacy-2.4": Constants(
        replica_lag_time_max_ms=10_000, broker_session_timeout_ms=6_000, eligible_leader_replicas=False
    ),
}
