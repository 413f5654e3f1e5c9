"""The interface that jobs read from. Knows frames and contracts only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.bus.frames import Damaged, Frame
    from streaming.contracts.observations import Channel


class Reader(Protocol):
    """Reads logs by position. What lies in ``[start, end)`` is the same whenever it is asked."""

    def logs(self, channel: Channel) -> list[str]:
        """Name the sources that have a log on this channel, sorted."""

    def start_positions(self, channel: Channel) -> dict[str, int]:
        """Give the oldest position that is kept of each log."""

    def end_positions(self, channel: Channel) -> dict[str, int]:
        """Give the position behind the last whole frame of each log; cheap enough to be asked all the time."""

    def read(self, channel: Channel, source: str, start: int, end: int) -> Iterator[Frame | Damaged]:
        """Give everything between two positions that this reader gave out, in order.

        Raises:
            IsrwatchError: the log was deleted beyond ``start``.
        """

    def delete_below(self, channel: Channel, source: str, position: int) -> None:
        """Delete whole segments that end at or below a position; the newest always stays.

        A job deletes below what its tables had committed before the present batch began: after a crash Spark plans
        its last batch again, and reads it, even when the tables have it.
        """
