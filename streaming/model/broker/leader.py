"""One partition as its leader sees it: followers, proposals, high watermark (``Partition.java``).

Knows its own log, what followers fetched, and the ISR it was told; never the controller's current truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming.contracts.health import effective_min_isr, is_under_min_isr, is_under_replicated
from streaming.model.constants import NO_ERROR, Error
from streaming.model.messages.replication import ANY_BROKER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.events import Cause
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.constants import Switches
    from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration
    from streaming.model.storage.producer_state import AbortedTransaction
    from streaming.model.storage.replica import LocalReplica

_LATE_TRANSACTION_BUFFER_MS: Final = 300_000


class IsrProposal(NamedTuple):
    """An ISR sent to the controller and not answered yet."""

    isr: tuple[BrokerId, ...]
    cause: Cause


def is_eligible(remote: RemoteReplica, registration: BrokerRegistration | None, switches: Switches) -> bool:
    """Return whether a follower may join an ISR: active, and the same process that fetched (KIP-841, KIP-903)."""
    if switches.eligibility_check and (registration is None or not registration.is_active):
        return False
    if remote.broker_epoch is None:
        return not switches.expand_needs_fetch_in_epoch
    is_same = registration is None or remote.broker_epoch in {ANY_BROKER_EPOCH, registration.epoch}
    return is_same or not switches.broker_epoch_check


class FollowerFetches(Protocol):
    """This partition in the fetch session of one follower (see ``fetch_session``)."""

    def unsettle(self) -> bool:
        """Look at this follower again from now on; tell whether a fetch of its own is parked that waits for data."""

    def resend_watermark(self) -> None:
        """Forget the high watermark and the log start that the follower has received."""


class LeaderPartition:
    """A led partition.

    Attributes:
        committed: the newest registration this broker knows; the controller may be ahead. Invariant: its leader is this
            broker, and its partition epoch never falls.
        pending: the one proposal that the controller has not answered, or None. Invariant: its ISR contains the
            committed one, or is contained in it. Any newer partition epoch voids it.
        remotes: what is known of each other replica. Invariant: one for each of the committed replicas but this one.
        cached: the same in the fetch session of each follower.
        start_offset: the log's end when this leader epoch began: what the former leader committed lies below.
            Invariant: ≤ log end. The high watermark may be lower for a while.
    """

    __slots__ = (
        "_configured_min_isr",
        "_min_isr",
        "_switches",
        "broker",
        "cached",
        "committed",
        "key",
        "pending",
        "remotes",
        "replica",
        "start_offset",
    )

    def __init__(
        self,
        broker: BrokerId,
        key: TopicPartition,
        replica: LocalReplica,
        registration: PartitionRegistration,
        switches: Switches,
    ) -> None:
        self.broker = broker
        self.key = key
        self.replica = replica
        self.committed = registration
        self.pending: IsrProposal | None = None
        self.remotes: dict[BrokerId, RemoteReplica] = {}
        self.cached: dict[BrokerId, FollowerFetches] = {}
        self.start_offset = 0
        self.set_min_isr(1)
        self._switches = switches

    def begin_leader_epoch(self, now: int, registration: PartitionRegistration, min_isr: int, *, again: bool) -> None:
        """Become leader in a new epoch; ``again``: this broker led in the epoch before, too."""
        self.committed, self.pending = registration, None
        self.set_min_isr(min_isr)
        self.start_offset = self.replica.log.end
        self.replica.log.begin_epoch(registration.leader_epoch, self.start_offset)
        for gone in set(self.remotes).difference(registration.replicas):
            del self.remotes[gone]
        for follower in registration.replicas:
            remote = self.remotes.get(follower)
            in_isr = follower in registration.isr
            if follower == self.broker or (remote is not None and not self._switches.reset_followers_at_new_epoch):
                continue
            self.remotes[follower] = (
                for_reelected_leader(remote, in_isr=in_isr, start_offset=self.start_offset, now=now)
                if again and remote is not None
                else for_new_leader(in_isr=in_isr, now=now)
            )

    def set_min_isr(self, configured: int) -> None:
        """Learn the topic's ``min.insync.replicas``; more than there are replicas cannot be asked for."""
        self._configured_min_isr = configured
        self._min_isr = effective_min_isr(configured, self.committed.replicas) or 1

    def accept(self, registration: PartitionRegistration) -> None:
        """Take the controller's word within the same leader epoch; whatever was proposed is settled by it.

        A reassignment may have added followers; that one was removed always begins a new leader epoch.
        """
        added = [broker for broker in registration.replicas if broker not in self.committed.replicas]
        self.committed, self.pending = registration, None
        if added:
            self.remotes |= {broker: for_new_leader(in_isr=False, now=0) for broker in added}
            self.set_min_isr(self._configured_min_isr)

    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Give everyone that may be in the ISR: during a shrink still the old one, during an expand already the new.

        The controller may have accepted the proposal without our knowing, so the high watermark waits for both.
        Invariant: ⊇ the committed ISR, and ⊇ the controller's as long as this leader epoch is the newest. Counting the
        smaller one would commit records that a member of the true ISR lacks, and it may be elected next.
        """
        if self.pending is not None and len(self.pending.isr) > len(self.committed.isr):
            return self.pending.isr
        return self.committed.isr

    def is_lagging(self, follower: BrokerId, now: int, window_ms: int, max_messages: int) -> bool:
        """Return whether an ISR member must leave: by the one rule since 0.9, or (``max_messages``) the two before."""
        if follower not in self.committed.isr:
            return False
        remote, end = self.remotes[follower], self.replica.log.end
        if max_messages:
            return is_stuck(remote, end, now, window_ms) or is_slow(remote, end, max_messages)
        return not is_caught_up(remote, end, now, window_ms)

    def can_join(self, follower: BrokerId, registration: BrokerRegistration | None) -> bool:
        """Return whether to propose ``follower`` for the ISR: its position is enough, and it is eligible."""
        return (
            self.pending is None
            and follower not in self.committed.isr
            and self._has_enough(self.remotes[follower].log_end_offset)
            and is_eligible(self.remotes[follower], registration, self._switches)
        )

    def _has_enough(self, end: int) -> bool:
        """Compare a follower's position with what an ISR member must have.

        Reaching the high watermark is not enough after an election, when it may still be below what the previous
        leader committed: the follower must also have the start of this leader epoch (KAFKA-7128).
        """
        if end == UNKNOWN_OFFSET:
            return not self._switches.expand_needs_fetch_in_epoch
        reaches_high_watermark = end >= self.replica.high_watermark or not self._switches.expand_needs_high_watermark
        return reaches_high_watermark and (end >= self.start_offset or not self._switches.expand_needs_epoch_start)

    def advance_high_watermark(self, now: int, window_ms: int, brokers: Mapping[BrokerId, BrokerRegistration]) -> bool:
        """Move the high watermark to what all of the maximal ISR has; tell whether it moved.

        Frozen while the ISR is below the minimum (KAFKA-15583). Waits also for a follower that is about to join, so
        that it is not chased for ever.
        """
        isr, replica = self.committed.isr, self.replica
        # Nothing may be committed below the minimum: who left then is eligible because it misses nothing (KIP-966).
        if len(isr) < self._min_isr and self._switches.freeze_high_watermark_under_min_isr:
            return False
        maximal = isr if self.pending is None else self.maximal_isr()
        high_watermark, end = replica.high_watermark, replica.log.end
        candidate = end
        for follower, remote in self.remotes.items():
            reached = remote.log_end_offset
            if reached < candidate and (
                follower in maximal or (is_caught_up(remote, end, now, window_ms) and self._may_join(follower, brokers))
            ):
                if reached <= high_watermark:
                    return False
                candidate = reached
        if candidate <= high_watermark:
            return False
        replica.move_high_watermark(candidate)
        return True

    def _may_join(self, follower: BrokerId, brokers: Mapping[BrokerId, BrokerRegistration]) -> bool:
        return is_eligible(self.remotes[follower], brokers.get(follower), self._switches)

    def epoch_error(self, leader_epoch: int) -> Error:
        """Compare the leader epoch that a request states with the own (KIP-320)."""
        if leader_epoch == self.committed.leader_epoch or not self._switches.epoch_fencing:
            return NO_ERROR
        newer = leader_epoch > self.committed.leader_epoch
        return Error.UNKNOWN_LEADER_EPOCH if newer else Error.FENCED_LEADER_EPOCH

    @property
    def latest_offset(self) -> int | None:
        """The answer to "what is your latest offset?" (ListOffsets); None: OFFSET_NOT_AVAILABLE, ask again.

        A new leader may know a lower high watermark than its predecessor told; it keeps silent until it has caught up
        with the start of its leader epoch (KIP-207), so that no consumer sees the end of a partition move backwards.
        """
        if self._switches.monotonic_latest_offset and self.replica.high_watermark < self.start_offset:
            return None
        return self.replica.high_watermark

    @property
    def accepts_acks_all(self) -> bool:
        """True if a write with ``acks=all`` is appended; else NOT_ENOUGH_REPLICAS and nothing is."""
        return len(self.committed.isr) >= self._min_isr

    @property
    def has_min_isr(self) -> bool:
        """True if a committed write with ``acks=all`` is a success; else NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
        return len(self.maximal_isr()) >= self._min_isr

    @property
    def last_stable_offset(self) -> int:
        """End for readers of committed transactions: high watermark, or the oldest undecided transaction's start."""
        return self.replica.log.producers.last_stable_offset(self.replica.high_watermark)

    @property
    def last_stable_offset_lag(self) -> int:
        """Committed records that wait for a decision (``LastStableOffsetLag``)."""
        return self.replica.high_watermark - self.last_stable_offset

    def aborted_between(self, offset: int, end: int) -> tuple[AbortedTransaction, ...]:
        """Give the aborted transactions that readers of ``[offset, end)`` must skip."""
        return self.replica.log.producers.aborted_between(offset, end)

    def has_late_transaction(self, now: int, longest_ms: int) -> bool:
        """Return whether its oldest open transaction was last written to long ago: it hangs.

        The broker counts these (``PartitionsWithLateTransactionsCount``); ``longest_ms`` is the longest timeout that a
        producer may ask for, and five minutes are added.
        """
        oldest = self.replica.log.producers.oldest_open()
        return oldest is not None and now - oldest.last_ms > longest_ms + _LATE_TRANSACTION_BUFFER_MS

    @property
    def is_under_replicated(self) -> bool:
        """As the broker's own metric counts it."""
        return is_under_replicated(self.committed.replicas, self.committed.isr, self.committed.adding_replicas)

    @property
    def is_under_min_isr(self) -> bool:
        """As the broker's own metric counts it."""
        return bool(is_under_min_isr(self._min_isr, self.committed.isr))


# One follower as its leader sees it, and when it counts as caught up (KIP-16, ``Replica.java``).


UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True)
class RemoteReplica:
    """Fetches of one follower, as its leader remembers them.

    Attributes:
        log_end_offset: offset of its newest fetch: it has everything below. -1 before the first one in this epoch.
            Invariant: ≤ the leader's log end. Only its own fetches move it: an answer that was sent proves nothing.
        last_fetch_leader_end: the leader's own log end when that fetch was read. Invariant: never falls in an epoch.
        last_fetch_ms: when that fetch arrived.
        last_caught_up_ms: the newest moment at which it provably had everything the leader had. Invariant: never falls
            in an epoch; ≤ ``last_fetch_ms`` once it has fetched.
        broker_epoch: of the process that fetched; None before, -1 from a process not yet registered (KIP-903).
    """

    log_end_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_end: int = UNKNOWN_OFFSET
    last_fetch_ms: int = 0
    last_caught_up_ms: int = 0
    broker_epoch: int | None = None


def fetched(remote: RemoteReplica, offset: int, leader_end: int, now: int, broker_epoch: int) -> None:
    """Note a fetch at ``offset`` that the leader read when its own log ended at ``leader_end``.

    The second branch is what keeps a follower in sync that is always one batch behind: it has now what the leader
    had at the *previous* fetch, so it was caught up at the time of that one.
    """
    if offset >= leader_end:
        caught_up_ms = now
    elif offset >= remote.last_fetch_leader_end:
        caught_up_ms = remote.last_fetch_ms
    else:
        caught_up_ms = remote.last_caught_up_ms
    if caught_up_ms > remote.last_caught_up_ms:  # noqa: PLR1730 - max() takes longer than all the rest
        remote.last_caught_up_ms = caught_up_ms
    if leader_end > remote.last_fetch_leader_end:  # noqa: PLR1730 - max() takes longer than all the rest
        remote.last_fetch_leader_end = leader_end
    remote.log_end_offset = offset
    remote.last_fetch_ms = now
    remote.broker_epoch = broker_epoch


def is_caught_up(remote: RemoteReplica, leader_end: int, now: int, window_ms: int) -> bool:
    """Return whether it may stay in the ISR; the window is inclusive.

    A follower at the leader's log end is caught up however old its last fetch is: a hung follower of an idle
    partition stays in the ISR.
    """
    return remote.log_end_offset == leader_end or now - remote.last_caught_up_ms <= window_ms


def behind_ms(remote: RemoteReplica, now: int, stalled: tuple[int, int]) -> int:
    """Give how long it has not been caught up, without the time in which the leader itself did not run."""
    begin, end = stalled
    return now - remote.last_caught_up_ms - max(0, end - max(begin, remote.last_caught_up_ms))


def is_stuck(remote: RemoteReplica, leader_end: int, now: int, window_ms: int) -> bool:
    """Until 0.8: tell whether a follower that is behind has not fetched for longer than the window."""
    return remote.log_end_offset < leader_end and now - max(remote.last_fetch_ms, remote.last_caught_up_ms) > window_ms


def is_slow(remote: RemoteReplica, leader_end: int, max_messages: int) -> bool:
    """Until 0.8: tell whether a follower is more messages behind than allowed (``replica.lag.max.messages``).

    A burst larger than the limit throws out followers that keep up perfectly well (KAFKA-1546 removed the rule).
    """
    return remote.log_end_offset != UNKNOWN_OFFSET and leader_end - remote.log_end_offset > max_messages


def for_new_leader(*, in_isr: bool, now: int) -> RemoteReplica:
    """Begin a leader epoch: nothing is known; members of the ISR get the benefit of one window."""
    return RemoteReplica(last_caught_up_ms=now if in_isr else 0)


def for_reelected_leader(remote: RemoteReplica, *, in_isr: bool, start_offset: int, now: int) -> RemoteReplica:
    """Begin another leader epoch under the same leader: positions are kept, the window of ISR members starts again."""
    if not in_isr:
        return replace(remote, last_fetch_ms=0, last_caught_up_ms=0)
    return replace(remote, last_fetch_leader_end=start_offset, last_fetch_ms=now, last_caught_up_ms=now)
