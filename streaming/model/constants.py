"""Kafka's timing, by the names of its configuration keys. Knows its switches and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum, auto
from typing import Any, Final

from streaming.errors import ConfigurationError

# The checks that make replication safe, each one a switch. Knows nothing else.
#
# Every default is what Kafka 4.x does. Turn one around and the model loses data, diverges or flaps just the way that
# made Kafka's developers add the check; presets of old versions do, and so do the tests that prove our invariants see
# it.


class Truncation(StrEnum):
    """Method by which a follower finds out where its log parts from the leader's."""

    HIGH_WATERMARK = "high_watermark"
    """Cut at the own high watermark (before 0.11; loses and diverges, KAFKA-1211)."""
    LEADER_EPOCH_V0 = "leader_epoch_v0"
    """Ask where the own last epoch ended, but without being told which epoch that was (0.11, KIP-101)."""
    LEADER_EPOCH = "leader_epoch"
    """Ask until the epochs agree (2.0, KIP-279)."""
    FETCH = "fetch"
    """State the last epoch with every fetch; the leader answers where the logs part (2.7, KIP-595)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """One field a check.

    Attributes:
        truncation: how logs are brought together after a change of leaders.
        epoch_fencing: fetches and appends carry a leader epoch that must match (2.1, KIP-320).
        broker_epoch_check: a proposed ISR names the broker epoch of each member (3.5, KIP-903).
        eligibility_check: leaders and the controller keep fenced and leaving brokers out of an ISR (3.3, KIP-841).
        partition_epoch_check: a proposed ISR must build on the newest partition state.
        incarnation_check: a registration is answered to the process that asked, not to one before it.
        expand_needs_fetch_in_epoch: a follower joins the ISR only after a fetch in the current leader epoch.
        expand_needs_high_watermark: it must have everything below the high watermark.
        expand_needs_epoch_start: and everything before the start of this leader epoch (KAFKA-7128).
        reset_followers_at_new_epoch: a new leader epoch forgets where followers were.
        discard_stale_fetches: an answer to an older request or epoch is void (a position is checked by the log itself).
        restart_fetchers_on_higher_epoch_only: metadata of an equal or lower leader epoch disturbs no fetch.
        exclude_unclean_shutdown: who crashed leaves ISR and ELR when it registers again (4.0, KIP-966).
        freeze_high_watermark_under_min_isr: below the minimum nothing is committed (3.7, KAFKA-15583).
        recheck_high_watermark_after_isr: a smaller ISR may commit at once (KAFKA-13091).
        last_known_leader_check: the last known leader is elected only while it is active (KAFKA-19522).
        bump_leader_epoch_on_shrink: KRaft: a shrink begins a new leader epoch (before 3.6; KAFKA-15021).
        monotonic_latest_offset: no latest offset before the high watermark reached this leader epoch (KIP-207).
        transaction_verification: a leader asks the coordinator before it opens a transaction (3.6, KIP-890).
        coordinator_waits_for_commit: an offset commit is acknowledged once it is committed (KAFKA-20634).
        epoch_cache_keeps_progress: a truncation always lowers the last epoch or ends (KAFKA-10706).
        isr_changes_through_controller: leaders ask the controller, where they once wrote ZooKeeper (2.7, KIP-497).
        pre_vote: a controller asks whether it would be elected before it begins an election (4.0, KIP-996).
        elr_forgets_dropped_replicas: who is no replica any more is not eligible either. No version of Kafka does this:
            a replica that a reassignment drops below the minimum and a later one brings back, empty, may be elected.
        first_registered_leads: ZooKeeper: the first to register among the ISR leads next (texts of the age of 0.8).
    """

    truncation: Truncation = Truncation.FETCH
    epoch_fencing: bool = True
    broker_epoch_check: bool = True
    eligibility_check: bool = True
    partition_epoch_check: bool = True
    incarnation_check: bool = True
    expand_needs_fetch_in_epoch: bool = True
    expand_needs_high_watermark: bool = True
    expand_needs_epoch_start: bool = True
    reset_followers_at_new_epoch: bool = True
    discard_stale_fetches: bool = True
    restart_fetchers_on_higher_epoch_only: bool = True
    exclude_unclean_shutdown: bool = True
    freeze_high_watermark_under_min_isr: bool = True
    recheck_high_watermark_after_isr: bool = True
    last_known_leader_check: bool = True
    bump_leader_epoch_on_shrink: bool = False
    monotonic_latest_offset: bool = True
    transaction_verification: bool = True
    coordinator_waits_for_commit: bool = True
    epoch_cache_keeps_progress: bool = True
    isr_changes_through_controller: bool = True
    pre_vote: bool = True
    elr_forgets_dropped_replicas: bool = False
    first_registered_leads: bool = False


class MetadataMode(StrEnum):
    """Keeper of leaders and ISRs."""

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
    min_insync_replicas_of: tuple[tuple[int, int], ...] = ()
    """Brokers whose own files have another ``min.insync.replicas``, with it."""
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
        """True if partitions have eligible leader replicas; ZooKeeper never kept them."""
        return self.eligible_leader_replicas and self.metadata_mode is MetadataMode.KRAFT

    @property
    def leaders_add_partitions(self) -> bool:
        """True if leaders add partitions to a transaction, and every decision raises the epoch (KIP-890)."""
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


# Versions of Kafka as values: what their defaults were, and which checks they did not have yet.


NEWEST: Final = "kraft-4.x"

# 3.x on ZooKeeper: the windows of 2.5 (KIP-537), the ISR changes of 2.7 (KIP-497). What came with KRaft alone is
# missing: broker epochs in proposals (KIP-903) and eligibility (KIP-841), ELR and what belongs to it (KIP-966).
_ZOOKEEPER_3: Final = Constants(
    metadata_mode=MetadataMode.ZOOKEEPER,
    broker_session_timeout_ms=18_000,
    eligible_leader_replicas=False,
    leader_imbalance_per_broker_percentage=10,
    transaction_version=0,
    switches=Switches(
        broker_epoch_check=False,
        eligibility_check=False,
        exclude_unclean_shutdown=False,
        freeze_high_watermark_under_min_isr=False,
        transaction_verification=False,
    ),
)
# Before KIP-537: short windows; leaders write their ISRs into ZooKeeper; epochs are asked for before each fetch.
_LEGACY_2_4: Final = replace(
    _ZOOKEEPER_3,
    replica_lag_time_max_ms=10_000,
    broker_session_timeout_ms=6_000,
    producer_id_expiration_ms=604_800_000,  # until KIP-854 (3.4)
    group_session_timeout_ms=10_000,  # until KIP-735 (3.0)
    switches=replace(
        _ZOOKEEPER_3.switches,
        truncation=Truncation.LEADER_EPOCH,
        epoch_cache_keeps_progress=False,
        isr_changes_through_controller=False,
    ),
)
# Kafka of most popular texts: lag in messages, truncation to the high watermark, no fencing, no idempotence.
_LEGACY_0_8: Final = replace(
    _LEGACY_2_4,
    replica_lag_max_messages=4_000,
    unclean_leader_election_enable=True,  # until 0.11 (KIP-106)
    offsets_retention_ms=86_400_000,  # until KIP-186 (2.0)
    switches=replace(
        _LEGACY_2_4.switches,
        truncation=Truncation.HIGH_WATERMARK,
        epoch_cache_keeps_progress=True,  # it has no epochs to keep
        epoch_fencing=False,
        expand_needs_epoch_start=False,
        monotonic_latest_offset=False,
        first_registered_leads=True,
    ),
)

PRESETS: Final[dict[str, Constants]] = {
    NEWEST: Constants(),
    "kraft-3.9": Constants(
        eligible_leader_replicas=False,
        transaction_version=1,
        switches=Switches(exclude_unclean_shutdown=False, last_known_leader_check=False, pre_vote=False),
    ),
    "zk-3.x": _ZOOKEEPER_3,
    "legacy-2.4": _LEGACY_2_4,
    "legacy-0.8": _LEGACY_0_8,
}


def table() -> tuple[tuple[str, ...], ...]:
    """Compare the presets: a heading, then a row for each constant and switch in which any two differ.

    A cell is empty where a preset does as Kafka 4.x does.
    """
    columns = {name: _values(constants) for name, constants in PRESETS.items()}
    newest = columns.pop(NEWEST)
    rows = [("", NEWEST, *columns)]
    for name, usual in newest.items():
        others = [column[name] for column in columns.values()]
        if any(value != usual for value in others):
            rows.append((name, str(usual), *("" if value == usual else str(value) for value in others)))
    return tuple(rows)


def _values(constants: Constants) -> dict[str, Any]:
    """Everything by its name, switches and constants."""
    given = {item.name: getattr(constants, item.name) for item in fields(constants) if item.name != "switches"}
    return given | {item.name: getattr(constants.switches, item.name) for item in fields(constants.switches)}


# Kafka's error codes, those that can occur here.


class Error(Enum):
    """Kafka's error codes, those that can occur here."""

    NONE = auto()
    OFFSET_OUT_OF_RANGE = auto()
    OFFSET_NOT_AVAILABLE = auto()
    POLICY_VIOLATION = auto()
    NOT_LEADER_OR_FOLLOWER = auto()
    UNKNOWN_LEADER_EPOCH = auto()
    FENCED_LEADER_EPOCH = auto()
    STALE_BROKER_EPOCH = auto()
    UNKNOWN_TOPIC_ID = auto()
    NOT_CONTROLLER = auto()
    INVALID_REQUEST = auto()
    INVALID_UPDATE_VERSION = auto()
    INELIGIBLE_REPLICA = auto()
    OPERATION_NOT_ATTEMPTED = auto()
    DUPLICATE_BROKER_REGISTRATION = auto()
    NEW_LEADER_ELECTED = auto()
    INVALID_REPLICA_ASSIGNMENT = auto()
    NO_REASSIGNMENT_IN_PROGRESS = auto()
    ELECTION_NOT_NEEDED = auto()
    PREFERRED_LEADER_NOT_AVAILABLE = auto()
    ELIGIBLE_LEADERS_NOT_AVAILABLE = auto()
    TOPIC_ALREADY_EXISTS = auto()
    INVALID_REPLICATION_FACTOR = auto()
    INVALID_PARTITIONS = auto()
    INVALID_CONFIG = auto()
    BROKER_ID_NOT_REGISTERED = auto()
    UNKNOWN_TOPIC_OR_PARTITION = auto()
    LEADER_NOT_AVAILABLE = auto()
    COORDINATOR_NOT_AVAILABLE = auto()
    UNSUPPORTED_VERSION = auto()
    COORDINATOR_LOAD_IN_PROGRESS = auto()
    NOT_COORDINATOR = auto()
    UNKNOWN_MEMBER_ID = auto()
    MEMBER_ID_REQUIRED = auto()
    ILLEGAL_GENERATION = auto()
    REBALANCE_IN_PROGRESS = auto()
    INCONSISTENT_GROUP_PROTOCOL = auto()
    FENCED_MEMBER_EPOCH = auto()
    STALE_MEMBER_EPOCH = auto()
    NOT_ENOUGH_REPLICAS = auto()
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = auto()
    REQUEST_TIMED_OUT = auto()
    OUT_OF_ORDER_SEQUENCE_NUMBER = auto()
    INVALID_PRODUCER_EPOCH = auto()
    INVALID_PRODUCER_ID_MAPPING = auto()
    INVALID_TXN_STATE = auto()
    INVALID_TRANSACTION_TIMEOUT = auto()
    CONCURRENT_TRANSACTIONS = auto()
    PRODUCER_FENCED = auto()
    TRANSACTION_COORDINATOR_FENCED = auto()


# Python 3.11 takes 200 ns to look up a member of an Enum, longer than all else that most fetched partitions need.
NO_ERROR: Final = Error.NONE


class RefusedRequest(Exception):
    """An administrator's request was refused, and nothing was written; ``error`` is what Kafka answers."""

    def __init__(self, error: Error, reason: str) -> None:
        super().__init__(f"{error.name}: {reason}")
        self.error = error
