"""What a leader reads from its log for those who fetch. Pure: a led partition and a position in, answers out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.errors import NO_ERROR, Error
from streaming.model.messages.fetch import FetchedPartition

if TYPE_CHECKING:
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.storage.log import EpochEntry


def absence(*, is_led: bool) -> Error:
    """Tell why a partition is not in a follower's session: another leads, or this leader has not read of the follower.

    The latter was added by a reassignment, then.
    """
    return Error.UNKNOWN_LEADER_EPOCH if is_led else Error.NOT_LEADER_OR_FOLLOWER


def parting(partition: LeaderPartition, leader_epoch: int, verdict: Error | EpochEntry) -> FetchedPartition:
    """Tell a follower that its position is not in this log, or where the logs part (``check_fetch`` says which)."""
    if isinstance(verdict, Error):
        return _out_of_range(partition, leader_epoch)
    return FetchedPartition(partition.key, leader_epoch, diverging=verdict)


def read(partition: LeaderPartition, offset: int, max_records: int) -> FetchedPartition:
    """Give records from ``offset`` on, whole batches, at least one; OFFSET_OUT_OF_RANGE below the log start."""
    replica, leader_epoch = partition.replica, partition.committed.leader_epoch
    log = replica.log
    if offset < log.start:
        return _out_of_range(partition, leader_epoch)
    end = log.read_end(offset, max_records)
    epochs, timestamp_ms = log.epochs_between(offset, end), log.segment_of(end - 1).largest_timestamp_ms
    batches = log.batches_between(offset, end) if log.batches else ()
    # By position: names take as long again.
    return FetchedPartition(
        partition.key,
        leader_epoch,
        NO_ERROR,
        offset,
        end,
        epochs,
        replica.high_watermark,
        log.start,
        None,
        batches,
        timestamp_ms,
    )


def nothing_new(partition: LeaderPartition) -> FetchedPartition:
    """Tell a follower that has everything how far the high watermark and the log start are."""
    log = partition.replica.log
    return FetchedPartition(
        partition.key,
        partition.committed.leader_epoch,
        fetch_offset=log.end,
        end_offset=log.end,
        high_watermark=partition.replica.high_watermark,
        log_start_offset=log.start,
    )


def _out_of_range(partition: LeaderPartition, leader_epoch: int) -> FetchedPartition:
    """Tell a follower that its position is not in this log, and where the log starts and ends."""
    log = partition.replica.log
    return FetchedPartition(
        partition.key,
        leader_epoch,
        Error.OFFSET_OUT_OF_RANGE,
        end_offset=log.end,
        log_start_offset=log.start,
    )
