"""The leader's half of a fetch session (KIP-227), and why idle partitions cost nothing.

A partition is *settled* with a follower when the follower has everything: it is at the log end, knows the high
watermark, and is in the ISR. Every later fetch of the session proves again that it is caught up, so for settled
partitions one time for the whole session is enough (``last_fetch_ms``); it is written into the partition's own
:class:`RemoteReplica` at the moment the partition becomes unsettled. Work is done for unsettled partitions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.switches import Switches


class FetchSession:
    """What one follower fetches from one leader.

    Attributes:
        stated: the partitions in the session, with the leader epoch the follower stated.
        unsettled: led partitions with a replica on the follower that are not settled; an ordered set.
        parked: id of the request that waits for data, None without one.
    """

    __slots__ = ("_is_fenced", "_told", "broker_epoch", "follower", "last_fetch_ms", "parked", "stated", "unsettled")

    def __init__(self, follower: BrokerId, switches: Switches) -> None:
        self.follower = follower
        self._is_fenced = switches.epoch_fencing
        self.broker_epoch = -1
        self.last_fetch_ms = 0
        self.parked: int | None = None
        self.stated: dict[TopicPartition, int] = {}
        self.unsettled: dict[TopicPartition, None] = {}
        self._told: dict[TopicPartition, int] = {}

    def open(self, partition: LeaderPartition) -> None:
        """A term of leadership begins: nothing is proven yet."""
        self.unsettled[partition.key] = None

    def unsettle(self, partition: LeaderPartition) -> None:
        """Look at this partition again from now on."""
        if partition.key in self.unsettled:
            return
        self.unsettled[partition.key] = None
        remote = partition.remotes[self.follower]
        partition.remotes[self.follower] = remote._replace(
            last_fetch_leader_end=remote.log_end_offset,
            last_fetch_ms=self.last_fetch_ms,
            last_caught_up_ms=max(remote.last_caught_up_ms, self.last_fetch_ms),
        )

    def is_stated(self, partition: LeaderPartition) -> bool:
        """Tell whether the follower fetches this partition in the current term."""
        epoch = self.stated.get(partition.key)
        return epoch == partition.committed.leader_epoch or (epoch is not None and not self._is_fenced)

    def is_parked_on(self, partition: LeaderPartition) -> bool:
        """Tell whether a request waits for data of this partition, be it in an earlier term."""
        return self.parked is not None and partition.key in self.stated

    def has_data(self, partition: LeaderPartition) -> bool:
        """Tell whether there is something to send."""
        return self.is_stated(partition) and partition.remotes[self.follower].log_end_offset < partition.replica.log.end

    def knows_high_watermark(self, partition: LeaderPartition) -> bool:
        """Tell whether the follower was told the current high watermark."""
        return self._told.get(partition.key) == partition.replica.high_watermark

    def told_high_watermark(self, partition: LeaderPartition) -> None:
        """Note that an answer carries the high watermark; if nothing else is open, the partition is settled."""
        self._told[partition.key] = partition.replica.high_watermark
        remote = partition.remotes[self.follower]
        if remote.log_end_offset == partition.replica.log.end and self.follower in partition.committed.isr:
            del self.unsettled[partition.key]

    def forget_told(self, partition: LeaderPartition) -> None:
        """The log start moved: the next answer tells it."""
        self._told.pop(partition.key, None)
        self.unsettle(partition)

    def drop(self, key: TopicPartition) -> None:
        """Forget a partition that is not led any more."""
        self.stated.pop(key, None)
        self.unsettled.pop(key, None)
        self._told.pop(key, None)

    def restart(self) -> None:
        """The follower begins a new session: nothing is stated any more."""
        self.stated.clear()
        self._told.clear()
        self.parked = None
