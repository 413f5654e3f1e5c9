"""The interface for jobs. Depends on frames and contracts only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.bus.frames import BusFrame, Damaged
    from streaming.contracts.observations import Channel


class BusReader(Protocol):
    """Reads logs by position. Invariant: every read of ``[start, end)`` returns the same items."""

    def logs(self, channel: Channel) -> list[str]:
        """List the sources that have a log on this channel, sorted."""

    def start_positions(self, channel: Channel) -> dict[str, int]:
        """Return the oldest position of each log."""

    def end_positions(self, channel: Channel) -> dict[str, int]:
        """Return the position behind the last complete frame of each log; cheap enough for polling."""

    def read(self, channel: Channel, source: str, start: int, end: int) -> Iterator[BusFrame | Damaged]:
        """Read everything between two positions that this reader returned, in order.

        Raises:
            IsrwatchError: segments beyond ``start`` were deleted.
        """

    def delete_below(self, channel: Channel, source: str, position: int, log_id: int | None = None) -> None:
        """Delete segments that end at or below a position; the newest always stays.

        A job deletes only below what its tables had committed before the current batch began: after a crash Spark plans
        its last batch again and reads it, even when the tables already have it.
        """
