"""What an observer outside the protocol may be shown, at the moment it happens. Nothing in the protocol depends on it.

A cluster without an observer pays one comparison with None for each of these moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streaming.model.broker.probe import ReplicationProbe
from streaming.model.controller.commit import CommitProbe

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId


class Probe(ReplicationProbe, CommitProbe, Protocol):
    """An observer of a whole cluster; see ``invariants.ghost``."""

    def stepped(self) -> None:
        """The cluster took one event, and is at rest until the next."""

    def process_changed(self, broker: BrokerId) -> None:
        """A broker's process began or ended."""

    def losing(self, broker: BrokerId, *, everything: bool) -> None:
        """A broker is about to lose its disk, or (not ``everything``) what is not flushed; it does not run."""
