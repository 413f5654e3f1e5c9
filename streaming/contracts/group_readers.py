"""Readers of a partition, and what is wrong with a group there: predicates of a row of ``group_offsets``.

Theory: ``group_positions``. All of a row is as of its ``collected_at``. None is unknown: a row may not say.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.group_positions import RESTARTING, RESTS, STABLE
from streaming.contracts.identifiers import SECOND
from streaming.contracts.topic_roles import TopicRole, role_of

if TYPE_CHECKING:
    from collections.abc import Mapping

STANDING: Final = 900 * SECOND
"""So long a committed offset must stand still until the group is stuck there."""
LONGEST_STANDING: Final = 2 * 3600 * SECOND
"""So long at most, if the offset stood still for half as long before its last two commits: it is committed seldom."""
LOSING: Final = 900 * SECOND
"""So long after a loss the next may follow: brokers delete each five minutes (``log.retention.check.interval.ms``)."""
COMMITTING: Final = 3600 * SECOND
"""So long after its last commit a consumer without membership counts as a reader; the one before is not older than
twice that: some commit every hour."""
_STOPPED: Final = 24 * 3600 * SECOND
"""A commit so long after the last owner was seen is its own, when it closed, or of an operator who sets the offsets."""
_RISES: Final = 8
"""So often more must have come where nothing is proven: it may be aborted, but then a transaction would be seen."""


class PartitionReader(StrEnum):
    """Readers of a partition for a group."""

    OWNER = "owner"
    """A member."""
    COMMITS = "commits"
    """A consumer without membership: no member, but its committed offset moves."""
    UNCOMMITTED = "uncommitted"
    """A member that has never committed there."""
    NONE = "none"
    """Something was committed there, and it is not read any more."""
    NEVER = "never"
    """Nothing was committed there, and no member owns it: it has no row."""


class GroupOffsetsRow(NamedTuple):
    """Row of ``group_offsets``; times are UTC microseconds."""

    group: str
    topic: str
    partition: int
    group_state: str | None
    members: int | None
    member: str | None
    committed_offset: int | None
    start_offset: int | None
    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    lag: int | None
    stable_lag: int | None
    lag_seconds: float | None
    beyond: int | None
    records_lost: int | None
    lost_at: int | None
    committed_at: int | None
    owned_at: int | None
    standing_since: int | None
    is_transactional: bool | None
    standing_rises: int | None
    rests: int | None
    watched_since: int | None
    committed_before: int | None
    usual_wait: int | None
    left_at: int | None
    readable_at: int | None
    collected_at: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> GroupOffsetsRow:
        """Take the columns out of a row, whose times are microseconds."""
        return cls(*(row[name] for name in cls._fields))


def has_offset(row: GroupOffsetsRow) -> bool:
    """Return whether it has committed something, or is a share group that has begun."""
    return row.committed_offset is not None or row.start_offset is not None


def reader_of(row: GroupOffsetsRow) -> PartitionReader:
    """Return who reads the partition."""
    if _is_owned(row):
        return PartitionReader.OWNER if has_offset(row) else PartitionReader.UNCOMMITTED
    return PartitionReader.COMMITS if _commits(row) else PartitionReader.NONE


def _commits(row: GroupOffsetsRow) -> bool:
    """Return whether the committed offset moves without an owner: it did lately, and once more not long before.

    A single move is that of an operator who sets the offsets of a stopped group; a share group has no other readers
    than members.
    """
    since, before, owned = row.committed_at, row.committed_before, row.owned_at
    if row.committed_offset is None or since is None or before is None:
        return False
    is_recent = row.collected_at - since <= COMMITTING and since - before <= 2 * COMMITTING
    return is_recent and (owned is None or since - owned > _STOPPED)


def is_read(row: GroupOffsetsRow) -> bool:
    """Return whether the partition is read for the group."""
    return reader_of(row) is not PartitionReader.NONE


def _is_owned(row: GroupOffsetsRow) -> bool:
    """Return whether a member owns the partition, or did before a rebalance; in a stable group it was left.

    While all members are away, or the coordinator does not describe the group, its last owner counts for a while.
    """
    if row.member is not None:
        return True
    if row.owned_at is None:
        return False
    if not row.members:
        return row.collected_at - row.owned_at <= RESTARTING
    return row.group_state != STABLE and (row.left_at is None or row.left_at < row.owned_at)


def is_stuck(row: GroupOffsetsRow) -> bool | None:
    """Return whether a partition is read, and its committed offset stands still below what can be read.

    None while it is unknown what can be read.
    """
    since, longest = row.standing_since, _longest_standing(row)
    if since is None or row.collected_at - since < longest or not is_read(row) or _shares_on(row):
        return False
    if row.stable_lag is None or (came := _readable_since(row, since)) is None:
        return None
    return row.collected_at - came >= longest


def _shares_on(row: GroupOffsetsRow) -> bool:
    """Return whether a share group gets on behind its start offset, where one record that is not done keeps it.

    It has done some there; and if it had done none for long, what is not done, counted from the end, were as old.
    """
    start, log_start, end, seconds = row.start_offset, row.log_start_offset, row.high_watermark, row.lag_seconds
    if None in {start, log_start, end, row.lag, seconds} or row.committed_offset is not None:
        return False
    has_done_some = (row.lag or 0) < (end or 0) - max(start or 0, log_start or 0)
    return has_done_some and (seconds or 0.0) * SECOND < _longest_standing(row)


def _longest_standing(row: GroupOffsetsRow) -> int:
    return max(STANDING, min(LONGEST_STANDING, 2 * (row.usual_wait or 0)))


def _readable_since(row: GroupOffsetsRow, since: int) -> int | None:
    """Return since when something that is no marker or aborted record can be read before which the group stands.

    Among transactions that is the first sample with a proof of the source; None without one.
    """
    if (row.rests or 0) >= RESTS or (not row.is_transactional and (row.standing_rises or 0) >= _RISES):
        return since
    if row.readable_at is None:
        return None
    return max(since, row.readable_at) if row.is_transactional else since


def is_stuck_still(row: GroupOffsetsRow) -> bool | None:
    """Return the same of a partition where the group was stuck: None, too, unless the row shows that this is over.

    A position that began again after a time without samples has seen no commit yet: it does not show that the group
    moved on. Nor does a rebalance, however long it lasts. A group without members may be one that never has any.
    """
    is_wrong = is_stuck(row)
    if is_wrong is not False or not has_offset(row) or _shares_on(row):
        return is_wrong
    if not row.stable_lag:
        return None if row.stable_lag is None else False
    if is_read(row):
        return None if row.committed_at is None or row.committed_at < (row.watched_since or 0) else False
    if row.members == 0 and row.owned_at is None and row.committed_at is None:
        is_new = row.watched_since is not None and row.collected_at - row.watched_since <= COMMITTING
        return None if is_new else False
    is_settled = row.members == 0 or (row.members is not None and row.group_state == STABLE)
    return False if is_settled else None


def is_losing(row: GroupOffsetsRow) -> bool:
    """Return whether a partition is read, and what its reader had not committed was deleted lately."""
    return _lost_lately(row) and is_read(row)


def is_losing_still(row: GroupOffsetsRow) -> bool | None:
    """Return the same of a partition where the group lost something: None, too, unless the row shows that this is over.

    A position that began again after a time without samples does not show when the last loss was. That the partition
    has no reader for a while does not end it either, nor does time while its leader does not say what was deleted.
    """
    if _lost_lately(row):
        return True if is_read(row) else None
    if row.log_start_offset is None:
        return None
    is_new = row.watched_since is not None and row.collected_at - row.watched_since <= LOSING
    return None if row.lost_at is None and is_new else False


def _lost_lately(row: GroupOffsetsRow) -> bool:
    return row.lost_at is not None and row.collected_at - row.lost_at <= LOSING and row.committed_offset is not None


def is_beyond(row: GroupOffsetsRow) -> bool | None:
    """Return whether the group stands beyond the end of the log; None while that is unknown."""
    return None if row.beyond is None else row.beyond > 0


def retention_used(row: GroupOffsetsRow) -> float | None:
    """Return which share of what is kept of a partition its reader has yet to read, 0 to 1.

    None where nothing was deleted yet, it is not read, or something is unknown. None, too, where what was committed is
    deleted by design (DeleteRecords): in repartition topics of Kafka Streams, and where the log starts at the commit.
    """
    start, end = row.log_start_offset, row.high_watermark
    if row.lag is None or not start or end is None or end <= start or not is_read(row):
        return None
    if start == row.committed_offset or _role_of(row.topic) is TopicRole.STREAMS_REPARTITION:
        return None
    return min(1.0, row.lag / (end - start))


@lru_cache(maxsize=10_000)
def _role_of(topic: str) -> TopicRole | None:
    return role_of(topic)
