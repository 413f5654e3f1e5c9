"""Records that a log may forget (``UnifiedLog.deleteOldSegments``). Pure: a log in, its new start out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.model.storage.batch import Batch
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


# Compaction of a log: the newest value of each key stays (``LogCleaner``). Changes batches, never offsets.
#
# Departs from Kafka: a batch without records stays as a gap, so that its offsets are not taken for records; segments
# are not joined; markers, and records of aborted transactions, stay.


def compact(log: Log, stable_end: int, now: int) -> None:
    """Cleaner works through a log, if enough of it is new.

    Never beyond ``stable_end`` (high watermark, first open transaction) and never in the active segment. Records
    without a key are not touched.
    """
    until = min(log.segments[-1].base_offset, stable_end)
    dirty, clean = until - log.cleaned, log.cleaned - log.start
    if dirty <= 0 or dirty < log.config.min_cleanable_dirty_ratio * (dirty + clean):
        return
    newest = _newest_offsets(log.batches_between(log.cleaned, until))
    horizon = now + log.config.delete_retention_ms
    for index, batch in enumerate(log.batches):
        if batch.end_offset <= until and batch.keys:
            kept = _cleaned(batch, newest, now, horizon)
            log.segment_of(batch.base_offset).removed += len(batch.keys) - len(kept.keys)
            log.batches[index] = kept
    log.cleaned = until


def _newest_offsets(batches: tuple[Batch, ...]) -> dict[str, int]:
    return {key: offset for batch in batches for key, offset in zip(batch.keys, batch.offsets, strict=True)}


def _cleaned(batch: Batch, newest: dict[str, int], now: int, horizon: int) -> Batch:
    """Keep what is the newest of its key; a tombstone until its time, counted from its first compaction, is over."""
    is_over = batch.delete_horizon_ms is not None and now > batch.delete_horizon_ms
    records = zip(batch.keys, batch.values or batch.keys, batch.offsets, strict=True)
    kept = [
        (key, value, offset)
        for key, value, offset in records
        if newest.get(key, offset) <= offset and not (value is None and is_over)
    ]
    has_tombstone = any(value is None for _, value, _ in kept)
    return batch._replace(
        keys=tuple(key for key, _, _ in kept),
        values=tuple(value for _, value, _ in kept) if batch.values else (),
        deltas=tuple(offset - batch.base_offset for _, _, offset in kept),
        delete_horizon_ms=(batch.delete_horizon_ms or horizon) if has_tombstone else None,
    )
