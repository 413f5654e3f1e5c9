"""The position of a group in a partition: behind or beyond the end, what it lost, since when it stands still.

The rule, as a fold over samples. Who reads, and what is wrong, follows from its newest row: ``group_readers``. Pure.
"""

# Theory of operation
#
# - One signed position. A group has passed what lies before max(committed, log start). ``lag`` is what lies between
#   that and the end, never negative; ``beyond`` is by how much the committed offset exceeds the end, never negative.
#   Kafka's own tool shows end - committed: it counts what is deleted as lag, and what is beyond as a negative one.
# - A sample reads the log start, then the high watermark, then the last stable offset at the leader, and after these
#   the committed offset at the coordinator. So lag is never too large, and too small by what was written in between.
#   What the log start exceeds in a committed offset that was read later is lost unread, as of this commit.
# - *Beyond* needs the other order: an end that was read after the committed offset. That is the end of a sample and the
#   committed offset of the one before, by ``positions_at`` and the time of the earlier sample, of one source, so that
#   one clock compares them. Of both committed offsets the smaller one counts: a group that reads on passes the end that
#   was read before, however fast, and is never beyond.
# - *Lost* is a rise: what the log start has passed since the sample before and neither commit had reached. It is added
#   up, with its time; it does not shrink when the group moves on, and a drained topic adds nothing. What was lost
#   before the first sample counts, without a time. A group that is set back to what was deleted loses nothing.
# - *Reading* is a property of a partition. A member owns it; or, of a consumer without membership (``assign``), its
#   committed offset was seen to move twice, since an operator who sets it does so once, and no member owned it for a
#   day. In a rebalance no member owns it, so the last owner counts for as long as that lasts, which may be hours: it is
#   ``max.poll.interval.ms``. In a stable group a partition without an owner was left, ``left_at``.
# - *Standing still*: the same committed offset, and below the last stable offset something that it has not passed and
#   could read, since the first such sample. What cannot be read is no reason. An open transaction is beyond the last
#   stable offset. A single offset may be the marker that ends a transaction: behind the last record a consumer stands
#   that commits record by record. It is a record if it came after a sample in which everything was passed and nothing
#   open, or after one with that marker. More offsets may be markers, too, or all that came is aborted, also where no
#   sample saw a transaction open. That something can be read is proven by the source, ``readable_at``, or because the
#   group was seen at the last stable offset again and again, ``rests``: then it commits its position, which passes
#   markers and aborted records, or these are records. What it did before the first transaction shows neither, nor does
#   anything where plain records come among transactions, ``MIXED``: it may rest behind these alone. A plain record is a
#   single offset that came while nothing was open, before and after. Where the source proves nothing, and no
#   transaction was ever seen, it is as good as proven if more came again and again, ``standing_rises``.
# - Some commit seldom by design: with a checkpoint, or a batch, of half an hour. How long that is shows in how long
#   something had been readable at a commit, and at the one before, ``usual_wait``: of a partition that is seldom
#   written to it is short, and where a group was stuck once, too.
# - Offsets are not records: markers, aborted records and what compaction removed have offsets, too.
# - A share group commits nothing. It has a start offset, before which everything is done, and a lag that its
#   coordinator counts; what it lost is unknown. All else follows in the same way.
# - What a reader passed between two samples it may have read, though it was deleted meanwhile: that is no loss.
# - What is unknown is None, and carries over: a leader that does not answer neither begins nor ends anything.
# - A position is in the row of its newest sample, so it survives restarts, and no cut of a log into batches changes it.
#   It is remembered for ``MOVING``: after a longer time without a sample it begins again. Only the time of the last
#   loss, and commits where no member was seen, which may be all that shows a reader, are remembered for ``REMEMBERED``,
#   as long as the job runs.
#
# Invariant: whatever is read, committed, appended and deleted between two readings, ``beyond`` and ``records_lost``
# never exceed the truth at some moment between them. tests/contracts/test_group_positions.py; the twin on Arrow columns
# is ``delta.samples.group_positions``.

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from streaming.contracts.columns import Long
from streaming.contracts.identifiers import Micros, Offset

RESTS: Final = 3
"""A group that was so often seen at the last stable offset, one time after the other, passes all there is."""

MIXED: Final = -1
"""In place of that: plain records were written among transactions, and it may have been seen behind these."""


class GroupReadings(NamedTuple):
    """Readings of one sample: of a partition by its leader, then of a group in it by the coordinator.

    Attributes:
        at: when the sample was complete, UTC microseconds.
        positions_at: when the leader was asked, at the earliest.
        source: whose clock that is.
        committed_offset, start_offset: the latter of a share group.
        member: the owner of the partition; None for none.
        group_state, members: of the group; members are None while it is not described.
        share_lag: of a share group, as its coordinator counts.
        readable_at: what consumers can read came then, or was there then, as far as that was asked.
        is_transactional: transactions were written in the partition lately, as far as that was asked.
    """

    at: Micros
    source: str
    positions_at: Micros | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    committed_offset: int | None = None
    start_offset: int | None = None
    member: str | None = None
    group_state: str | None = None
    members: int | None = None
    share_lag: int | None = None
    readable_at: Micros | None = None
    is_transactional: bool | None = None

    @property
    def offset(self) -> int | None:
        """The first offset that the group has not passed."""
        return self.start_offset if self.committed_offset is None else self.committed_offset


class GroupPosition(NamedTuple):
    """Conclusions from the samples of a group in a partition; these are columns of ``group_offsets``."""

    lag: Annotated[
        Offset | None,
        "offsets up to the high watermark that it has not passed, those that are deleted left out, never negative",
    ] = None
    stable_lag: Annotated[Offset | None, "the same up to the last stable offset: what read_committed can get"] = None
    beyond: Annotated[
        Offset | None, "offsets by which it stands beyond the high watermark, by an end that was read later; else 0"
    ] = None
    records_lost: Annotated[
        Long | None, "offsets that were deleted before it committed them, added up; null of a share group"
    ] = None
    lost_at: Annotated[Micros | None, "sample that showed the last of them; null if that was before the first"] = None
    deleted_to: Annotated[Offset | None, "largest log start offset of its samples"] = None
    committed_at: Annotated[Micros | None, "sample in which its committed offset was last seen to move forward"] = None
    owned_at: Annotated[Micros | None, "newest sample in which a member owned the partition"] = None
    standing_since: Annotated[
        Micros | None,
        "first sample since which its committed offset has stood still before something that can be read; null if not",
    ] = None
    standing_end: Annotated[
        Offset | None, "last stable offset up to which there need not be a record that it has not passed"
    ] = None
    is_transactional: Annotated[bool | None, "a transaction was seen in the partition, open or ended"] = None
    standing_rises: Annotated[
        Long | None, "samples since standing_end that had a higher last stable offset than the one before"
    ] = None
    rests: Annotated[
        Long | None,
        f"times that it moved to the last stable offset, {RESTS} at most, since it moved to the offset before that, or "
        f"the first transaction was seen; {MIXED} where plain records come among transactions",
    ] = None
    watched_since: Annotated[Micros | None, "sample that its position begins with"] = None
    committed_before: Annotated[
        Micros | None, "sample before committed_at in which its committed offset was seen to move forward"
    ] = None
    waited: Annotated[
        Long | None, "microseconds for which something had been readable when its committed offset last moved forward"
    ] = None
    usual_wait: Annotated[Long | None, "the shorter one of that and the same of the commit before"] = None
    left_at: Annotated[
        Micros | None, "newest sample in which no member owned the partition, and no rebalance explains that"
    ] = None
    readable_at: Annotated[
        Micros | None, "first sample since it came there with a proof that there is something that consumers can read"
    ] = None


NOTHING: Final = GroupPosition()
A_MARKER: Final = 1
MOVING: Final = 300_000_000
"""So long, microseconds, no coordinator may list a group that moves: the new one reads its offsets first."""
REMEMBERED: Final = 3_600_000_000
"""So long, microseconds without a sample, the last loss is remembered, and commits of a partition without an owner."""
CLOCKS_DIFFER: Final = 5_000_000
"""By so much, microseconds, the clocks of a broker and of a collector may differ."""
RESTARTING: Final = 300_000_000
"""So long, microseconds, all members may be away, or not be described, until what they owned was left."""
STABLE: Final = "Stable"
DEAD: Final = "Dead"
"""The state of a group of which its coordinator has nothing, as Kafka names it."""


def position_after(before: tuple[GroupReadings, GroupPosition] | None, now: GroupReadings) -> GroupPosition:
    """Return the position after one more sample; one before it that is too old says nothing any more."""
    last, position = _remembered(before, now)
    lag, stable_lag = (_lag(now, end) for end in (now.high_watermark, now.last_stable_offset))
    records_lost, lost_at = _lost(last, position, now)
    moved = last is not None and now.offset is not None and (last.offset is None or now.offset > last.offset)
    waited = _waited(position, now) if moved else position.waited
    since, end, rises = _standing(last, position, now, stable_lag)
    owned_at = position.owned_at if now.member is None else now.at
    committed_at = now.at if moved else position.committed_at
    watched_since = now.at if last is None or position.watched_since is None else position.watched_since
    starts = [each for each in (position.deleted_to, now.log_start_offset) if each is not None]
    is_transactional = _is_held(now) or now.is_transactional or position.is_transactional or False
    is_first = is_transactional and not position.is_transactional
    is_mixed = position.rests == MIXED or (is_transactional and _is_plain(last, now))
    rests = 0 if is_first else _rests(position, now) if moved else position.rests or 0
    return GroupPosition(
        lag=lag,
        stable_lag=stable_lag,
        beyond=_beyond(last, position, now),
        records_lost=records_lost,
        lost_at=lost_at,
        deleted_to=Offset(max(starts)) if starts else None,
        committed_at=committed_at,
        owned_at=owned_at,
        standing_since=since,
        standing_end=end,
        is_transactional=is_transactional,
        standing_rises=rises,
        rests=MIXED if is_mixed else rests,
        watched_since=watched_since,
        committed_before=position.committed_at if moved else position.committed_before,
        waited=waited,
        usual_wait=_shorter(position.waited, waited) if moved else position.usual_wait,
        left_at=now.at if _is_left(now, owned_at) else position.left_at,
        readable_at=_readable_at(None if moved else position.readable_at, now, max(committed_at or 0, watched_since)),
    )


def _remembered(
    before: tuple[GroupReadings, GroupPosition] | None, now: GroupReadings
) -> tuple[GroupReadings | None, GroupPosition]:
    """Return the sample before and its position; after a silence the last loss, and commits without a member."""
    gap = None if before is None else now.at - before[0].at
    if before is None or gap is None or gap > REMEMBERED:
        return None, NOTHING
    position = before[1]
    if gap <= MOVING:
        return before
    unowned = NOTHING if position.owned_at is not None else position
    return None, GroupPosition(
        lost_at=position.lost_at, committed_at=unowned.committed_at, committed_before=unowned.committed_before
    )


def _rests(position: GroupPosition, now: GroupReadings) -> int:
    """Count that it moved to the last stable offset; right before it there may be a marker that it does not pass."""
    distance = None if now.offset is None or now.last_stable_offset is None else now.last_stable_offset - now.offset
    return 0 if distance == A_MARKER else min(RESTS, (position.rests or 0) + (distance == 0))


def _is_plain(last: GroupReadings | None, now: GroupReadings) -> bool:
    """Return whether a single offset came, and nothing was open before and after: a transaction has a marker, too."""
    before, stable = None if last is None else last.last_stable_offset, now.last_stable_offset
    if last is None or before is None or stable is None or now.high_watermark is None or last.high_watermark is None:
        return False
    return stable - before == A_MARKER and not _is_held(last) and not _is_held(now)


def _readable_at(before: Micros | None, now: GroupReadings, came: int) -> Micros | None:
    """Return the first sample with a proof that is not older than the offset, by another clock.

    The proof is the begin of a transaction, which may have been open for long: it can be read since it was committed.
    """
    is_proven = now.readable_at is not None and now.readable_at >= came + CLOCKS_DIFFER
    return now.at if before is None and is_proven else before


def _shorter(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else min(before, now)


def _waited(position: GroupPosition, now: GroupReadings) -> int:
    return 0 if position.standing_since is None else now.at - position.standing_since


def _is_left(now: GroupReadings, owned_at: Micros | None) -> bool:
    """Return whether no member owns the partition, and none is about to: the group is stable, or away for long."""
    if now.member is not None or now.members is None:
        return False
    is_away = owned_at is None or now.at - owned_at > RESTARTING
    return now.group_state == STABLE if now.members else is_away


def _passed(now: GroupReadings) -> int | None:
    """Return up to where the group has passed everything: what was deleted counts; None while that is unknown."""
    return None if now.offset is None or now.log_start_offset is None else max(now.offset, now.log_start_offset)


def _lag(now: GroupReadings, end: int | None) -> Offset | None:
    """Return the offsets up to an end; of a share group no more than its coordinator counts, and than there are."""
    passed, counted = _passed(now), now.share_lag
    distance = None if passed is None or end is None else Offset(max(0, end - passed))
    if now.committed_offset is not None:
        return distance
    if counted is None or end is None:
        return None
    return Offset(counted if distance is None else min(counted, distance))


def _beyond(last: GroupReadings | None, position: GroupPosition, now: GroupReadings) -> Offset | None:
    committed, end = now.committed_offset, now.high_watermark
    if committed is None or end is None:
        return None
    if committed <= end:
        return Offset(0)
    if last is None or last.committed_offset is None:
        return None
    if last.source == now.source and now.positions_at is not None and now.positions_at >= last.at:
        return Offset(max(0, min(committed, last.committed_offset) - end))
    return position.beyond if committed == last.committed_offset else None


def _lost(last: GroupReadings | None, position: GroupPosition, now: GroupReadings) -> tuple[int | None, Micros | None]:
    committed, log_start = now.committed_offset, now.log_start_offset
    if committed is None or log_start is None:
        return position.records_lost, position.lost_at
    if position.records_lost is None or position.deleted_to is None:
        return max(0, log_start - committed), position.lost_at
    before = last.committed_offset if last is not None else None
    unread_from = max(committed, position.deleted_to, committed if before is None else before)
    rise = max(0, log_start - unread_from)
    return position.records_lost + rise, now.at if rise else position.lost_at


def _standing(
    last: GroupReadings | None, position: GroupPosition, now: GroupReadings, stable_lag: int | None
) -> tuple[Micros | None, Offset | None, int | None]:
    """Return since when it stands still, up to where that shows nothing, and how often more has come since."""
    since, end, rises = position.standing_since, position.standing_end, position.standing_rises
    if last is None or now.offset is None or last.offset != now.offset:
        since, end, rises = None, None, None
    stable, before = now.last_stable_offset, None if last is None else last.last_stable_offset
    if stable_lag is None or stable is None:
        return since, end, rises
    if not stable_lag:
        return None, None if _is_held(now) else Offset(stable), 0
    if end is None:
        end, rises = Offset(stable), 0
    else:
        rises = (rises or 0) + (before is not None and stable > before)
    can_be_read = stable_lag > A_MARKER or stable > end
    return (since or now.at) if can_be_read else None, end, rises


def _is_held(now: GroupReadings) -> bool:
    """Return whether a transaction is open; the last stable offset was read after the high watermark."""
    stable, end = now.last_stable_offset, now.high_watermark
    return stable is not None and end is not None and stable < end
