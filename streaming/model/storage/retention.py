"""What a log may forget (``UnifiedLog.deleteOldSegments``). Pure: a log in, its new start out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.model.storage.log import Log


def first_retained(log: Log, high_watermark: int, now: int) -> int:
    """Give the offset at which the log should start: whole segments go, oldest first, none above the high watermark.

    A segment goes if its newest record is too old, or if the log would be large enough without it. The active segment
    goes as well once it is too old.
    """
    config = log.config
    if not config.deletes:
        return log.start
    sizes = log.sizes()
    excess = sum(sizes) - config.retention_records
    start = log.start
    for segment, size, end in zip(log.segments, sizes, log.segment_ends(), strict=True):
        too_old = config.retention_ms >= 0 and segment.largest_timestamp_ms + config.retention_ms < now
        too_much = config.retention_records >= 0 and excess >= size
        if not (too_old or too_much) or end == segment.base_offset or end > high_watermark:
            break
        excess -= size
        start = max(start, end)
    return start


def next_visit(log: Log, now: int) -> int | None:
    """Give the earliest time at which there may be something to clean; None for never.

    That is why looking after idle logs costs nothing.
    """
    config = log.config
    if config.compacts or config.retention_records >= 0:
        return now
    if not config.deletes or config.retention_ms < 0:
        return None
    oldest = log.segments[0]
    is_empty = log.end == oldest.base_offset
    return (now if is_empty else oldest.largest_timestamp_ms) + config.retention_ms + 1
