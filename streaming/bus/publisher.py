"""The interface for sources. Depends on contracts only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.observations import Channel, Observation


class Publisher(Protocol):
    """Writes observations to the log of their channel and source, in order, with sequence numbers."""

    def publish(self, observations: Sequence[Observation]) -> None:
        """Write observations durably.

        Each gets the next ``sequence`` of its log, whatever value it had before.

        Raises:
            IsrwatchError: none or only some of them could be written. Publish all of them again: the job recognises
                duplicates.
        """

    def publish_raw(self, channel: Channel, source: str, payload: bytes) -> None:
        """Write bytes verbatim.

        Raises:
            IsrwatchError: as above.
        """

    def close(self) -> None:
        """Close and unlock the logs, so that another publisher can write them."""
