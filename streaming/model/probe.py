"""What an observer outside the protocol may be told, at the moment it happens. Nothing in the protocol depends on it.

A cluster without an observer pays one comparison with None for each of these moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.controller.metadata_writer import Commit


class Probe(Protocol):
    """An observer; see ``invariants.ghost``."""

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

    def committed(self, commit: Commit) -> None:
        """The controller wrote a batch to the metadata log."""

    def stepped(self) -> None:
        """The cluster took one event, and is at rest until the next."""

    def process_changed(self, broker: BrokerId) -> None:
        """A broker's process began or ended."""

    def losing(self, broker: BrokerId, *, everything: bool) -> None:
        """A broker is about to lose its disk, or (not ``everything``) what is not flushed; it does not run."""
