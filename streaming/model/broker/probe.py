"""What an observer outside the protocol may be shown of replication. Nothing in the protocol depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.leader import LeaderPartition


class ReplicationProbe(Protocol):
    """An observer of leaders and followers (see ``streaming.model.probe``)."""

    def appended(self, leader: LeaderPartition, offset: int, *, acks_all: bool) -> None:
        """A leader wrote the records from ``offset`` to its log end."""

    def advanced(self, leader: LeaderPartition) -> None:
        """A leader moved its high watermark."""

    def resigned(self, leader: LeaderPartition) -> None:
        """A broker leads this partition no more; who waits for an acknowledgement gets none."""

    def replicated(self, key: TopicPartition) -> None:
        """A follower took in what its leader answered: records, a truncation or a high watermark."""

    def informed(self, key: TopicPartition) -> None:
        """A broker took in new metadata of this partition, or the answer to its proposal."""
