"""The follower's half of a fetch session with one leader (``AbstractFetcherThread``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition


class Fetcher:
    """What a follower fetches from one leader.

    Attributes:
        epochs: the partitions it fetches, with the leader epoch it knows.
        changed: those whose position the leader does not know yet; an ordered set.
        truncating: those whose log has to be brought together with the leader's before they are fetched.
        forgotten: those to be taken out of the session.
        in_flight: id of the request that is not answered yet.
        is_new: the next fetch begins a new session and states everything.
        is_backing_off: the connection broke and the wait is not over.
    """

    __slots__ = ("changed", "epochs", "forgotten", "in_flight", "is_backing_off", "is_new", "truncating")

    def __init__(self) -> None:
        self.epochs: dict[TopicPartition, int] = {}
        self.changed: dict[TopicPartition, None] = {}
        self.truncating: dict[TopicPartition, None] = {}
        self.forgotten: dict[TopicPartition, None] = {}
        self.in_flight: int | None = None
        self.is_new = True
        self.is_backing_off = False

    def add(self, key: TopicPartition, leader_epoch: int, *, truncating: bool) -> None:
        """Fetch this partition from now on, in this leader epoch; ``truncating``: ask first where to."""
        self.epochs[key] = leader_epoch
        self.forgotten.pop(key, None)
        if truncating:
            self.truncating[key] = None
        else:
            self.changed[key] = None

    def remove(self, key: TopicPartition) -> None:
        """Stop fetching this partition."""
        if self.epochs.pop(key, None) is not None:
            self.changed.pop(key, None)
            self.truncating.pop(key, None)
            self.forgotten[key] = None

    def stated(self) -> list[TopicPartition]:
        """Give the partitions that the next fetch states."""
        return [key for key in self.epochs if key not in self.truncating] if self.is_new else list(self.changed)
