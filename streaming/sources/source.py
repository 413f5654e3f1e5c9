"""The interface of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.identifiers import Micros
    from streaming.contracts.observations import Observation


class Source(Protocol):
    """Something that can be asked what it has seen.

    ``name`` identifies the source on the bus, for example ``metadata_log:collector-1``.
    """

    name: str

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return what was seen since the last call, oldest first; may block for at most a second.

        Raises:
            ConnectionRefused: the cluster cannot be read; the caller backs off and asks again.
        """

    def acknowledge(self) -> None:
        """Everything returned so far is safe on the bus: a position may be checkpointed."""

    def close(self) -> None:
        """Let go of connections."""
