"""A source whose clock runs faster or slower than the wall clock. Depends on the interface of sources only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.observations import Observation
    from streaming.sources.source import Source


MOST_AHEAD: Final = 1_800_000_000


class Paced:
    """Polls a source with a clock that runs ``speed`` times as fast as the wall clock, from ``start`` on.

    It runs ahead by ``MOST_AHEAD`` at most, and then only as fast as the wall clock: the job refuses later times.
    """

    def __init__(self, source: Source, *, start: Micros, speed: float) -> None:
        self.name = source.name
        self._source, self._start, self._speed = source, start, speed

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Poll the source at the paced time."""
        paced = self._start + round((now - self._start) * self._speed)
        return self._source.poll(Micros(min(paced, now + MOST_AHEAD)))

    def acknowledge(self) -> None:
        """Acknowledge to the source."""
        self._source.acknowledge()

    def close(self) -> None:
        """Close the source."""
        self._source.close()
