"""The checks that make replication safe, each one a switch. Knows nothing else.

Every default is what Kafka 4.x does. Turn one around and the model loses data, diverges or flaps just the way that
made Kafka's developers add the check; presets of old versions do, and so do the tests that prove our invariants see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Truncation(StrEnum):
    """How a follower finds out where its log parts from the leader's."""

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
        first_registered_leads: ZooKeeper: whoever registered first among the ISR leads next (texts of the age of 0.8).
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
