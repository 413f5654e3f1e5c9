"""A source whose time runs faster or slower than ours. Knows the interface of sources only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.identifiers import Micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.observations import Observation
    from streaming.sources.source import Source


class Paced:
    """Asks a source for a time that passes ``speed`` times as fast as ours, from ``start`` on."""

    def __init__(self, source: Source, *, start: Micros, speed: float) -> None:
        self.name = source.name
        self._source, self._start, self._speed = source, start, speed

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Ask for what was seen up to the paced time."""
        return self._source.poll(Micros(self._start + round((now - self._start) * self._speed)))

    def acknowledge(self) -> None:
        """Hand on."""
        self._source.acknowledge()

    def close(self) -> None:
        """Hand on."""
        self._source.close()
