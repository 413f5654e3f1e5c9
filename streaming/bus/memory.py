"""The bus in memory, as a test double: the same frames and positions as the directory, without a disk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streaming.bus.frames import BusFrame, DamagedRange, encode_frame, parse
from streaming.contracts.codec import encode
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming.contracts.observations import Channel, Observation


@dataclass(slots=True)
class _Log:
    """Segments by base position, oldest first."""

    sequence: int = 0
    segments: dict[int, bytearray] = field(default_factory=lambda: {0: bytearray()})

    def newest(self) -> int:
        return next(reversed(self.segments))

    def end(self) -> int:
        return self.newest() + len(self.segments[self.newest()])


class MemoryBus:
    """A publisher and a reader in one. Its content cannot be damaged."""

    def __init__(self, *, segment_bytes: int = 1 << 20) -> None:
        self._segment_bytes = segment_bytes
        self._logs: dict[tuple[str, str], _Log] = {}

    def publish(self, observations: Sequence[Observation]) -> None:
        """Append observations, each to the log of its channel and source."""
        for observation in observations:
            log = self._logs.setdefault((observation.channel, observation.source), _Log())
            log.sequence += 1
            self._append(log, encode(replace(observation, sequence=log.sequence)))

    def publish_raw(self, channel: Channel, source: str, payload: bytes) -> None:
        """Append bytes verbatim."""
        self._append(self._logs.setdefault((channel, source), _Log()), payload)

    def close(self) -> None:
        """Do nothing: published observations stay readable."""

    def logs(self, channel: Channel) -> list[str]:
        """List the sources that have a log on this channel, sorted."""
        return sorted(source for its_channel, source in self._logs if its_channel == channel)

    def start_positions(self, channel: Channel) -> dict[str, int]:
        """Return the oldest position of each log."""
        return {source: next(iter(self._logs[channel, source].segments)) for source in self.logs(channel)}

    def end_positions(self, channel: Channel) -> dict[str, int]:
        """Return the position behind the last frame of each log."""
        return {source: self._logs[channel, source].end() for source in self.logs(channel)}

    def read(self, channel: Channel, source: str, start: int, end: int) -> Iterator[BusFrame | DamagedRange]:
        """Read everything between two positions, in order.

        Raises:
            IsrwatchError: segments beyond ``start`` were deleted.
        """
        segments = self._logs[channel, source].segments
        oldest = next(iter(segments))
        if start < min(oldest, end):
            raise IsrwatchError(f"segments up to position {oldest} of {channel}/{source} were deleted")
        for base, data in segments.items():
            items, _ = parse(bytes(data), base, closed=True)
            yield from (item for item in items if start <= item.position < end)

    def delete_below(self, channel: Channel, source: str, position: int, log_id: int | None = None) -> None:  # noqa: ARG002 - no log is replaced here
        """Delete segments that end at or below a position; the newest stays."""
        segments = self._logs[channel, source].segments
        for base, following in list(zip(segments, list(segments)[1:], strict=False)):
            if following <= position:
                del segments[base]

    def _append(self, log: _Log, payload: bytes) -> None:
        if len(log.segments[log.newest()]) >= self._segment_bytes:
            log.segments[log.end()] = bytearray()
        log.segments[log.newest()] += encode_frame(payload)
