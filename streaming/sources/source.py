"""The interface of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.identifiers import Micros
    from streaming.contracts.observations import Observation


class Source(Protocol):
    """Something that can be polled for observations.

    ``name`` identifies the source on the bus, for example ``metadata_log:collector-1``.
    """

    name: str

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the observations since the last call, oldest first; block for at most a second.

        Raises:
            ConnectionRefused: the cluster cannot be read; the caller backs off and polls again.
        """

    def acknowledge(self) -> None:
        """Note that everything returned so far is durable on the bus, so that a position may be checkpointed."""

    def close(self) -> None:
        """Close all connections."""
