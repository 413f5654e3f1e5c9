"""Kafka's timing, by the names of its configuration keys. Knows its switches and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from streaming.errors import ConfigurationError
from streaming.model.switches import Switches


class MetadataMode(StrEnum):
    """Who keeps leaders and ISRs."""

    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The configuration of every node; defaults are those of Kafka 4.x. Milliseconds where the name says so.

    Kafka counts bytes where the model, which has none, counts records of 1 KiB: a fetch of 1 MiB is 1,024 records, a
    segment of 1 GiB 1,048,576. ``start_up_ms`` is the time a process needs before it asks for its registration,
    ``log_dirs`` how many directories, each on a disk of its own, a broker has. ``replica_lag_max_messages`` is 0 where
    the version has no such limit (0.9 and newer).
    """

    metadata_mode: MetadataMode = MetadataMode.KRAFT
    switches: Switches = field(default_factory=Switches)
    # followers
    replica_lag_time_max_ms: int = 30_000
    replica_lag_max_messages: int = 0
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_max_records: int = 1_024
    replica_fetch_backoff_ms: int = 1_000
    # topics
    default_replication_factor: int = 1
    num_partitions: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    unclean_leader_election_interval_ms: int = 300_000
    # logs
    log_segment_records: int = 1_048_576
    log_roll_ms: int = 604_800_000
    log_retention_ms: int = 604_800_000
    log_retention_records: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_initial_task_delay_ms: int = 30_000
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_flush_interval_records: int = 9_223_372_036_854_775_807
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    # brokers and their controller
    start_up_ms: int = 500
    log_dirs: int = 1
    broker_heartbeat_interval_ms: int = 2_000
    broker_session_timeout_ms: int = 9_000
    controlled_shutdown_enable: bool = True
    alter_partition_retry_ms: int = 50
    registration_retry_ms: int = 100
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_per_broker_percentage: int = 0
    eligible_leader_replicas: bool = True
    # ZooKeeper
    zookeeper_tick_ms: int = 2_000
    isr_change_check_interval_ms: int = 2_500
    isr_change_quiet_ms: int = 5_000
    isr_change_max_delay_ms: int = 60_000
    # the quorum of controllers
    controllers: int = 1
    controller_quorum_election_timeout_ms: int = 1_000
    controller_quorum_fetch_timeout_ms: int = 2_000
    controller_quorum_election_backoff_max_ms: int = 1_000
    controller_quorum_append_linger_ms: int = 0
    metadata_max_idle_interval_ms: int = 500
    # clients and coordinators
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    max_in_flight_requests_per_connection: int = 5
    producer_id_expiration_ms: int = 86_400_000
    transaction_timeout_ms: int = 60_000
    transaction_max_timeout_ms: int = 900_000
    transaction_abort_check_interval_ms: int = 10_000
    transaction_version: int = 2
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    group_initial_rebalance_delay_ms: int = 3_000
    group_session_timeout_ms: int = 45_000
    group_heartbeat_interval_ms: int = 3_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    max_poll_interval_ms: int = 300_000
    fetch_max_wait_ms: int = 500
    metadata_max_age_ms: int = 300_000
    kip_392_follower_fetching: bool = False

    def __post_init__(self) -> None:
        """Refuse times that would stop or spin the model."""
        for item in fields(self):
            value = getattr(self, item.name)
            least = _LEAST.get(item.name, 2)
            if type(value) is int and value < least:
                raise ConfigurationError(f"{item.name} is {value}; it must be a whole number of at least {least}")

    @property
    def isr_expiration_ms(self) -> int:
        """Period in which a leader looks for lagging followers: half the window (ReplicaManager)."""
        return self.replica_lag_time_max_ms // 2

    @property
    def elr_enabled(self) -> bool:
        """Whether partitions have eligible leader replicas; ZooKeeper never kept them."""
        return self.eligible_leader_replicas and self.metadata_mode is MetadataMode.KRAFT

    @property
    def leaders_add_partitions(self) -> bool:
        """Whether leaders add partitions to a transaction, and every decision raises the epoch (KIP-890)."""
        return self.transaction_version >= _LEADERS_ADD_PARTITIONS_SINCE

    @property
    def session_check_ms(self) -> int:
        """Period in which the controller looks for expired sessions: an eighth of the session (4.x)."""
        return max(1, self.broker_session_timeout_ms // 8)


_LEADERS_ADD_PARTITIONS_SINCE: Final = 2
_LEAST: Final = {
    "start_up_ms": 0,
    "log_dirs": 1,
    "replica_lag_max_messages": 0,
    "default_replication_factor": 1,
    "num_partitions": 1,
    "min_insync_replicas": 1,
    "log_segment_records": 1,
    "log_retention_ms": -1,
    "log_retention_records": -1,
    "log_cleaner_delete_retention_ms": 0,
    "log_flush_interval_records": 1,
    "leader_imbalance_per_broker_percentage": 0,
    "controllers": 1,
    "controller_quorum_append_linger_ms": 0,
    "max_in_flight_requests_per_connection": 1,
    "transaction_version": 0,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "group_initial_rebalance_delay_ms": 0,
}
