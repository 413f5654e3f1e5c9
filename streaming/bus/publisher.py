"""The interface that sources write to. Knows contracts only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.observations import Channel, Observation


class Publisher(Protocol):
    """Writes observations to the logs of their channel and source, in order, and numbers them."""

    def publish(self, observations: Sequence[Observation]) -> None:
        """Write observations; when this returns they survive a crash.

        Each gets the next ``sequence`` of its log, whatever it carried before.

        Raises:
            IsrwatchError: they could not be written, or not all of them. Publishing them all again is right:
                what comes twice is recognised downstream.
        """

    def publish_raw(self, channel: Channel, source: str, payload: bytes) -> None:
        """Write bytes as they are, for what was encoded before.

        Raises:
            IsrwatchError: as above.
        """

    def close(self) -> None:
        """Let go of the logs, so that another publisher may write them."""
