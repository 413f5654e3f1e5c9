"""The leader's half of a fetch session (KIP-227), and why idle partitions cost nothing.

A partition is *settled* with a follower when the follower has everything: it is at the log end, knows the high
watermark, and is in the ISR. Every later fetch of the session proves again that it is caught up, so for settled
partitions one time for the whole session is enough (``last_fetch_ms``); it is written into the partition's own
:class:`RemoteReplica` at the moment the partition becomes unsettled. Work is done for unsettled partitions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.model.broker.leader import IsrProposal, behind_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.constants import Constants, Switches


class CachedPartition:
    """One led partition in the fetch session of one follower (``CachedPartition`` in ``FetchSession.java``).

    Attributes:
        session: of the follower.
        partition: what is led.
        remote: the follower, as the partition knows it.
        stated_epoch: the leader epoch in which the follower fetches it; None while it does not.
        is_stated: that is the current leader epoch (or fetches are not fenced).
        newest_request: id of the newest request that stated a position.
        sent_high_watermark: what the follower was told last; None before.
        is_settled: the follower has everything.
    """

    __slots__ = (
        "is_settled",
        "is_stated",
        "newest_request",
        "partition",
        "remote",
        "sent_high_watermark",
        "session",
        "stated_epoch",
    )

    def __init__(self, session: FetchSession, partition: LeaderPartition) -> None:
        self.session = session
        self.partition = partition
        self.remote = partition.remotes[session.follower]
        self.stated_epoch: int | None = None
        self.is_stated = False
        self.newest_request = 0
        self.sent_high_watermark: int | None = None
        self.is_settled = False

    def forget(self) -> None:
        """The follower does not fetch it any more."""
        self.stated_epoch = None
        self.is_stated = False

    def unsettle(self) -> bool:
        """Look at this partition again from now on; tell whether a request is parked that waits for news of it.

        Also one that stated the partition in an earlier leader epoch: it has to learn that.
        """
        session = self.session
        if self.is_settled:
            self.is_settled = False
            session.unsettled[self.partition.key] = self
            remote, last_fetch_ms = self.remote, session.last_fetch_ms
            remote.last_fetch_leader_end = remote.log_end_offset
            remote.last_fetch_ms = last_fetch_ms
            remote.last_caught_up_ms = max(remote.last_caught_up_ms, last_fetch_ms)
        return session.parked is not None and self.stated_epoch is not None

    def resend_watermark(self) -> None:
        """Let the next answer carry high watermark and log start, whatever the follower was told before."""
        self.sent_high_watermark = None
        self.unsettle()

    def mark_sent(self) -> None:
        """Note that an answer carries the high watermark; if nothing else is open, the partition is settled."""
        partition = self.partition
        self.sent_high_watermark = partition.replica.high_watermark
        at_log_end = self.remote.log_end_offset == partition.replica.log.end
        if at_log_end and self.session.follower in partition.committed.isr:
            self.is_settled = True
            del self.session.unsettled[partition.key]


class FetchSession:
    """Session in which one follower fetches from one leader.

    Attributes:
        partitions: all led partitions with a replica on the follower.
        unsettled: those that are not settled; ordered. Invariant: exactly those whose ``is_settled`` is False.
        parked: id of the request that waits for data, None without one.
    """

    __slots__ = ("_is_fenced", "broker_epoch", "follower", "last_fetch_ms", "parked", "partitions", "unsettled")

    def __init__(self, follower: BrokerId, switches: Switches) -> None:
        self.follower = follower
        self._is_fenced = switches.epoch_fencing
        self.broker_epoch = -1
        self.last_fetch_ms = 0
        self.parked: int | None = None
        self.partitions: dict[TopicPartition, CachedPartition] = {}
        self.unsettled: dict[TopicPartition, CachedPartition] = {}

    def open(self, partition: LeaderPartition) -> None:
        """A leader epoch begins, or a reassignment added this follower: nothing is proven yet."""
        cached = self.partitions.get(partition.key)
        if cached is None:
            cached = CachedPartition(self, partition)
            self.partitions[partition.key] = partition.cached[self.follower] = cached
        cached.remote = partition.remotes[self.follower]
        cached.is_stated = cached.stated_epoch is not None and not self._is_fenced
        cached.is_settled = False
        self.unsettled[partition.key] = cached

    def drop(self, key: TopicPartition) -> None:
        """Forget a partition that is not led any more, or has no replica on the follower any more."""
        cached = self.partitions.pop(key, None)
        if cached is not None:
            self.unsettled.pop(key, None)
            del cached.partition.cached[self.follower]

    def restart(self) -> None:
        """The follower begins a new session: nothing is stated any more."""
        for cached in self.partitions.values():
            if cached.stated_epoch is not None:
                cached.forget()
                cached.unsettle()
            cached.sent_high_watermark = None
        self.parked = None


# Followers that a leader wants out of its ISRs (``ReplicaManager.maybeShrinkIsr``). Pure: what is known in, ISRs out.
#
# Costs as much as there are unsettled partitions: who has everything does not lag.


def shrinks(
    now: int, sessions: Iterable[FetchSession], constants: Constants, stalled: tuple[int, int]
) -> list[tuple[LeaderPartition, IsrProposal]]:
    """Give the ISRs without those that lag, where nothing is proposed yet; ``stalled``: see ``Leadership``."""
    window, messages = constants.replica_lag_time_max_ms, constants.replica_lag_max_messages
    lagging: dict[TopicPartition, tuple[LeaderPartition, list[BrokerId]]] = {}
    for session in sessions:
        for key, cached in session.unsettled.items():
            partition = cached.partition
            if partition.pending is None and partition.is_lagging(session.follower, now, window, messages):
                lagging.setdefault(key, (partition, []))[1].append(session.follower)
    return [
        (partition, _without(partition, followers, now, window, stalled)) for partition, followers in lagging.values()
    ]


def _without(
    partition: LeaderPartition, followers: list[BrokerId], now: int, window: int, stalled: tuple[int, int]
) -> IsrProposal:
    isr = tuple(member for member in partition.committed.isr if member not in followers)
    # Ghost: would they be in sync, were the time in which this leader itself stood still not counted?
    remotes = [partition.remotes[follower] for follower in followers]
    is_stall = all(behind_ms(remote, now, stalled) <= window < behind_ms(remote, now, (0, 0)) for remote in remotes)
    return IsrProposal(isr, Cause.LEADER_STALL if is_stall else Cause.LAG)
