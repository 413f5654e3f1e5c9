"""Since when a record has been readable: when the high watermark of its partition passed its offset.

Of each partition the high watermarks that were read are remembered: the newest ones all, older ones farther apart, for
a week. Between two of them records are taken to have been written at a steady pace. So a moment is wrong by less than
the time between two readings, however they were written; that is one interval, or for what is older than
``SHARE_OF_AGE`` intervals one part in so many of its age. Measured at an interval of ten seconds: of five records per
second 0.1 s, of bursts each seven seconds up to 6 s and on average 3 s (``tests/sources/test_high_watermarks.py``).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import MILLISECOND, SECOND, Micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.identifiers import TopicId

SHARE_OF_AGE: Final = 6
MOST_ROWS: Final = 112
"""Rows of a topic, of 8 bytes per partition: 45 MB at most for 50,000 partitions."""
_ROWS_LEFT: Final = 96  # after the others were thinned; a week at an interval of ten seconds needs 93
_LONGEST: Final = 7 * 24 * 3_600_000_000
_DELAY_BITS: Final = 16  # milliseconds, up to 65 s
_MAX_DELAY: Final = (1 << _DELAY_BITS) - 1
_MAX_OFFSET: Final = (1 << 63 - _DELAY_BITS) - 1
_UNREAD: Final = -1


class HighWatermarks:
    """The high watermarks that were read.

    Args:
        apart: microseconds; a moment between two readings that are farther apart is unknown, until it is so long ago
            that their distance matters no more. Then the readings failed, or the process did not run.
    """

    def __init__(self, apart: Micros) -> None:
        self._apart = apart
        self._topics: dict[TopicId, _TopicRows] = {}

    def retain(self, topic_ids: Iterable[TopicId]) -> None:
        """Forget every other topic."""
        for gone in self._topics.keys() - set(topic_ids):
            del self._topics[gone]

    def put(
        self,
        topic_ids: Mapping[str, TopicId],
        high_watermarks: Mapping[str, Mapping[int, int]],
        round_at: Micros,
        read_at: Micros,
    ) -> None:
        """Remember what one leader answered, by topic and partition; a topic without id is left out.

        ``round_at``, when leaders were asked, is the same of all answers of a round. ``read_at``, when this one
        answered, is at most a minute later by the same clock.
        """
        delay = min(max(0, read_at - round_at) // MILLISECOND, _MAX_DELAY)
        for topic, offsets in high_watermarks.items():
            if offsets and (topic_id := topic_ids.get(topic)) is not None:
                self._topics.setdefault(topic_id, _TopicRows()).put(offsets, round_at, delay)

    def lag_seconds(
        self, topic_id: TopicId, committed: Mapping[int, int], ends: Mapping[int, int], at: Micros
    ) -> dict[int, float]:
        """Return for how long a group could have read what it has not, by partition; nothing where that is unknown.

        It is 0 where the group has read everything. It is unknown if the record was readable before the first reading,
        as after a restart, or before the high watermark fell, and where readings are missing.

        ``committed`` has the first offset that the group has not read; ``at`` is when that was committed at the latest,
        by the clock of the readings.
        """
        topic = self._topics.get(topic_id)
        seconds: dict[int, float] = {}
        for number, offset in committed.items():
            end = ends.get(number)
            if end is None:
                continue
            if offset >= end:
                seconds[number] = 0.0
            elif topic is not None and (since := topic.passed_at(number, offset, self._apart)) is not None:
                seconds[number] = round(max(0, at - since) / SECOND, 3)
        return seconds


class _TopicRows:
    """The partitions of a topic: a row per round, the oldest first.

    A value is an offset and, in its lower bits, how many milliseconds after the moment of its row it was read, because
    each leader answers in its own time.
    """

    __slots__ = ("_moments", "_values", "_width")

    def __init__(self) -> None:
        self._moments, self._values, self._width = array("q"), array("q"), 0

    def put(self, offsets: Mapping[int, int], round_at: Micros, delay: int) -> None:
        """Put values into the row of a round."""
        if (width := max(offsets) + 1) > self._width:
            self._widen(width)
        if not self._moments or self._moments[-1] != round_at:
            if len(self._moments) == MOST_ROWS:
                self._thin()
            self._moments.append(round_at)
            self._values.extend([_UNREAD] * self._width)
        values, begin = self._values, len(self._values) - self._width
        for number, offset in offsets.items():
            if offset <= _MAX_OFFSET:
                values[begin + number] = offset << _DELAY_BITS | delay

    def passed_at(self, number: int, offset: int, apart: Micros) -> Micros | None:
        """Return when the high watermark of a partition passed an offset; None if unknown.

        From the newest reading back, for as long as each is at most the one after it: what is before a fall is of
        records that may not be there any more.
        """
        if number >= self._width:
            return None
        column = self._values[number :: self._width]
        first_beyond = (offset + 1) << _DELAY_BITS
        after = after_row = _UNREAD
        for row in range(len(column) - 1, -1, -1):
            value = column[row]
            if value == _UNREAD:
                continue
            if value < first_beyond:
                return None if after == _UNREAD else self._between((row, value), (after_row, after), offset, apart)
            if after != _UNREAD and value >> _DELAY_BITS > after >> _DELAY_BITS:
                return None
            after, after_row = value, row
        return None

    def _between(self, before: tuple[int, int], after: tuple[int, int], offset: int, apart: Micros) -> Micros | None:
        """Return when an offset was passed between two readings, each a row and a value."""
        begin, end = self._read_at(*before), self._read_at(*after)
        if end - begin > max(apart, (self._moments[-1] - end) / SHARE_OF_AGE):
            return None
        low, high = before[1] >> _DELAY_BITS, after[1] >> _DELAY_BITS
        return Micros(begin + round((end - begin) * (offset + 0.5 - low) / (high - low)))

    def _read_at(self, row: int, value: int) -> int:
        return self._moments[row] + (value & _MAX_DELAY) * MILLISECOND

    def _widen(self, width: int) -> None:
        """Make room for partitions that were added."""
        added, values = array("q", [_UNREAD] * (width - self._width)), array("q")
        for row in range(len(self._moments)):
            values += self._values[row * self._width : (row + 1) * self._width] + added
        self._values, self._width = values, width

    def _thin(self) -> None:
        """Leave out rows whose neighbours are near enough for their age, and what is older than a week."""
        newest, kept = self._moments[-1], [len(self._moments) - 1]
        for row in range(len(self._moments) - 2, -1, -1):
            after = self._moments[kept[-1]]
            is_needed = row == 0 or after - self._moments[row - 1] > (newest - after) / SHARE_OF_AGE
            if is_needed and newest - self._moments[row] <= _LONGEST:
                kept.append(row)
        moments, values = array("q"), array("q")
        for row in reversed(kept[:_ROWS_LEFT]):
            moments.append(self._moments[row])
            values += self._values[row * self._width : (row + 1) * self._width]
        self._moments, self._values = moments, values
