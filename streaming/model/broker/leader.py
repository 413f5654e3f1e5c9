"""One partition as its leader sees it: followers, proposals, high watermark (``Partition.java``).

Knows its own log, what followers fetched, and the ISR it was told; never the controller's current truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.health import effective_min_isr, is_under_min_isr, is_under_replicated
from streaming.model.broker.remote_replica import (
    ANY_BROKER_EPOCH,
    RemoteReplica,
    for_new_leader,
    for_reelected_leader,
    is_caught_up,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.events import Cause
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.controller.partition import BrokerRegistration, PartitionRegistration
    from streaming.model.storage.replica import LocalReplica


class IsrProposal(NamedTuple):
    """An ISR sent to the controller and not answered yet."""

    isr: tuple[BrokerId, ...]
    cause: Cause


def is_eligible(remote: RemoteReplica, registration: BrokerRegistration | None) -> bool:
    """Tell whether a follower may join an ISR: active, and the same process that fetched (KIP-841, KIP-903)."""
    if registration is None or not registration.is_active or remote.broker_epoch is None:
        return False
    return remote.broker_epoch in {ANY_BROKER_EPOCH, registration.epoch}


class LeaderPartition:
    """A led partition.

    Attributes:
        committed: the newest registration this broker knows.
        pending: the one proposal in flight, or None.
        remotes: what is known of each other replica.
        start_offset: the log's end when this term of leadership began.
    """

    __slots__ = ("_broker", "_min_isr", "committed", "key", "pending", "remotes", "replica", "start_offset")

    def __init__(
        self, broker: BrokerId, key: TopicPartition, replica: LocalReplica, registration: PartitionRegistration
    ) -> None:
        self.key = key
        self.replica = replica
        self.committed = registration
        self.pending: IsrProposal | None = None
        self.remotes: dict[BrokerId, RemoteReplica] = {}
        self.start_offset = 0
        self._broker = broker
        self._min_isr = 1

    def begin_term(self, now: int, registration: PartitionRegistration, min_isr: int, *, again: bool) -> None:
        """Become leader in a new epoch; ``again``: this broker led in the epoch before, too."""
        self.committed, self.pending = registration, None
        self._min_isr = effective_min_isr(min_isr, registration.replicas) or 1
        self.start_offset = self.replica.log.end
        self.replica.log.begin_epoch(registration.leader_epoch, self.start_offset)
        for follower in registration.replicas:
            if follower != self._broker:
                in_isr = follower in registration.isr
                self.remotes[follower] = (
                    for_reelected_leader(self.remotes[follower], in_isr=in_isr, start_offset=self.start_offset, now=now)
                    if again
                    else for_new_leader(in_isr=in_isr, now=now)
                )

    def accept(self, registration: PartitionRegistration) -> None:
        """Take the controller's word within the same leader epoch; whatever was proposed is settled by it."""
        self.committed, self.pending = registration, None

    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Give everyone that may be in the ISR: during a shrink still the old one, during an expand already the new."""
        if self.pending is not None and len(self.pending.isr) > len(self.committed.isr):
            return self.pending.isr
        return self.committed.isr

    def is_lagging(self, follower: BrokerId, now: int, window_ms: int) -> bool:
        """Tell whether an ISR member has not been caught up for longer than the window."""
        return follower in self.committed.isr and not is_caught_up(
            self.remotes[follower], self.replica.log.end, now, window_ms
        )

    def can_join(self, follower: BrokerId, registration: BrokerRegistration | None) -> bool:
        """Tell whether to propose ``follower`` for the ISR.

        Reaching the high watermark is not enough after an election, when it may still be below what the previous
        leader committed: the follower must also have the start of this term (KAFKA-7128).
        """
        remote = self.remotes[follower]
        return (
            self.pending is None
            and follower not in self.committed.isr
            and remote.log_end_offset >= self.replica.high_watermark
            and remote.log_end_offset >= self.start_offset
            and is_eligible(remote, registration)
        )

    def advance_high_watermark(self, now: int, window_ms: int, brokers: Mapping[BrokerId, BrokerRegistration]) -> bool:
        """Move the high watermark to what all of the maximal ISR has; tell whether it moved.

        Frozen while the ISR is below the minimum (KAFKA-15583). Waits also for a follower that is about to join, so
        that it is not chased for ever.
        """
        if len(self.committed.isr) < self._min_isr:
            return False
        maximal = self.maximal_isr()
        end = candidate = self.replica.log.end
        for follower, remote in self.remotes.items():
            if remote.log_end_offset < candidate and (
                follower in maximal
                or (is_caught_up(remote, end, now, window_ms) and is_eligible(remote, brokers.get(follower)))
            ):
                candidate = remote.log_end_offset
        if candidate <= self.replica.high_watermark:
            return False
        self.replica.high_watermark = candidate
        return True

    @property
    def accepts_acks_all(self) -> bool:
        """Whether a write with ``acks=all`` is appended; else NOT_ENOUGH_REPLICAS and nothing is."""
        return len(self.committed.isr) >= self._min_isr

    @property
    def is_under_replicated(self) -> bool:
        """As the broker's own metric counts it."""
        return is_under_replicated(self.committed.replicas, self.committed.isr, ())

    @property
    def is_under_min_isr(self) -> bool:
        """As the broker's own metric counts it."""
        return bool(is_under_min_isr(self._min_isr, self.committed.isr))
