"""The follower's half of a fetch session with one leader (``AbstractFetcherThread``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.storage.replica import LocalReplica


class PartitionFetchState(NamedTuple):
    """One partition that is fetched, with the leader epoch that the follower knows (``PartitionFetchState``)."""

    topic_partition: TopicPartition
    leader_epoch: int
    replica: LocalReplica


class Fetcher:
    """What a follower fetches from one leader.

    Attributes:
        partitions: those it fetches.
        changed: those whose position the leader does not know yet; ordered.
        truncating: those whose log has to be brought together with the leader's before they are fetched; ordered.
        forgotten: those to be taken out of the session; an ordered set.
        in_flight: id of the request that is not answered yet.
        is_new: the next fetch begins a new session and states everything.
        is_backing_off: the connection broke and the wait is not over.
    """

    __slots__ = ("changed", "forgotten", "in_flight", "is_backing_off", "is_new", "partitions", "truncating")

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionFetchState] = {}
        self.changed: dict[TopicPartition, PartitionFetchState] = {}
        self.truncating: dict[TopicPartition, PartitionFetchState] = {}
        self.forgotten: dict[TopicPartition, None] = {}
        self.in_flight: int | None = None
        self.is_new = True
        self.is_backing_off = False

    def add(self, state: PartitionFetchState, *, truncating: bool) -> None:
        """Fetch this partition from now on; ``truncating``: ask first where to."""
        key = state.topic_partition
        self.partitions[key] = state
        self.forgotten.pop(key, None)
        if truncating:
            self.truncating[key] = state
        else:
            self.changed[key] = state

    def remove(self, key: TopicPartition) -> None:
        """Stop fetching this partition."""
        if self.partitions.pop(key, None) is not None:
            self.changed.pop(key, None)
            self.truncating.pop(key, None)
            self.forgotten[key] = None

    def stated(self) -> list[PartitionFetchState]:
        """Give the partitions that the next fetch states."""
        if not self.is_new:
            return list(self.changed.values())
        return [state for key, state in self.partitions.items() if key not in self.truncating]
