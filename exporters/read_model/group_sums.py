"""Sums over the partitions of a group, and what is wrong in them; what is unknown of one is unknown of the group.

In seconds the lag of a group is the largest one of its partitions; while that of one is unknown, it is at least the
largest of the others.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.group_readers import PartitionReader, is_losing, is_read, is_stuck, reader_of
from streaming.contracts.identifiers import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streaming.contracts.group_readers import GroupOffsetsRow


def summed(rows: Sequence[GroupOffsetsRow]) -> dict[str, Any]:
    """Add up rows of one group."""
    with_lag = [row for row in rows if row.lag is not None]
    worst = max(with_lag, key=lambda row: row.lag or 0, default=None)
    seconds = [row.lag_seconds for row in rows]
    at_least = max((each for each in seconds if each is not None), default=None)
    readers = Counter(map(reader_of, rows))
    return {
        "partitions": len(rows),
        "lag": sum(row.lag or 0 for row in with_lag) if rows and len(with_lag) == len(rows) else None,
        "lag_seconds": None if None in seconds else at_least,
        "lag_seconds_at_least": at_least,
        "partitions_of_unknown_lag": len(rows) - len(with_lag),
        "beyond": _sum(row.beyond for row in rows),
        "records_lost": _sum(row.records_lost for row in rows),
        "lost_at": max((row.lost_at for row in rows if row.lost_at is not None), default=None),
        "committed_at": max((row.committed_at for row in rows if row.committed_at is not None), default=None),
        "stuck_partitions": sum(map(bool, map(is_stuck, rows))),
        "losing_partitions": sum(map(is_losing, rows)),
        "uncommitted_partitions": readers[PartitionReader.UNCOMMITTED],
        "unread_partitions": readers[PartitionReader.NONE],
        "worst_partition": None if worst is None else _name(worst),
        "worst_lag": None if worst is None else worst.lag,
    }


def _sum(values: Iterable[int | None]) -> int | None:
    """Add up what is known; None while nothing is."""
    numbers = [each for each in values if each is not None]
    return sum(numbers) if numbers else None


def is_unread(said: bool | None, kept_at: int | None) -> bool:  # noqa: FBT001 - two columns
    """Return whether the newest answer of the coordinator lacks what the group has committed, by its row of groups."""
    return bool(said) or kept_at is not None


class GroupTrouble(StrEnum):
    """Trouble of a group in some of its partitions, the worst first."""

    BEYOND = "beyond"
    LOSING = "losing"
    STUCK = "stuck"
    UNCOMMITTED = "uncommitted"
    HELD = "held"
    UNREAD = "unread"


class TroubledPartitions(NamedTuple):
    """Partitions with one trouble.

    Attributes:
        trouble: of all of them.
        partitions: their names, those with the most offsets first.
        offsets: how many it is about.
        at: when the first of them began; of what is over since, lost or left, when the last one was. None: unknown.
        owners: their client ids.
    """

    trouble: GroupTrouble
    partitions: tuple[str, ...]
    offsets: int
    at: int | None
    owners: tuple[str, ...]


def troubles(rows: Sequence[GroupOffsetsRow]) -> Iterator[TroubledPartitions]:
    """Yield what is wrong with a group, the worst first."""
    for trouble, (holds, offsets, moment) in _TROUBLES.items():
        troubled = sorted((row for row in rows if holds(row)), key=lambda row: (-(offsets(row) or 0), _name(row)))
        moments = [at for row in troubled if (at := moment(row)) is not None]
        if troubled:
            yield TroubledPartitions(
                trouble,
                tuple(map(_name, troubled)),
                sum(offsets(row) or 0 for row in troubled),
                (max if trouble in _OVER else min)(moments, default=None),
                tuple(sorted({row.member for row in troubled if row.member is not None})),
            )


def _name(row: GroupOffsetsRow) -> str:
    return f"{row.topic}-{row.partition}"


def _is_held(row: GroupOffsetsRow) -> bool:
    """Return whether an open transaction is all that keeps a reader from what is there, and not for a moment only."""
    came = max(row.committed_at or 0, row.watched_since or 0)
    seconds = (row.collected_at - came) / SECOND if row.lag_seconds is None else row.lag_seconds
    if seconds < _HELD_SECONDS:
        return False
    return row.stable_lag == 0 and bool(row.lag) and bool(row.is_transactional) and is_read(row)


_HELD_SECONDS: Final = 60
"""So long readers wait for an open transaction until that is said, or were seen to, where that is unknown."""
_OVER: Final = frozenset({GroupTrouble.LOSING, GroupTrouble.UNREAD})

if TYPE_CHECKING:
    Value = Callable[[GroupOffsetsRow], int | None]

_TROUBLES: dict[GroupTrouble, tuple[Callable[[GroupOffsetsRow], bool | None], Value, Value]] = {
    GroupTrouble.BEYOND: (lambda row: bool(row.beyond), lambda row: row.beyond, lambda _: None),
    GroupTrouble.LOSING: (is_losing, lambda row: row.records_lost, lambda row: row.lost_at),
    GroupTrouble.STUCK: (is_stuck, lambda row: row.lag, lambda row: row.standing_since),
    GroupTrouble.UNCOMMITTED: (
        lambda row: reader_of(row) is PartitionReader.UNCOMMITTED, lambda _: None, lambda _: None
    ),
    GroupTrouble.HELD: (_is_held, lambda row: row.lag, lambda _: None),
    GroupTrouble.UNREAD: (
        lambda row: bool(row.lag) and not is_read(row), lambda row: row.lag, lambda row: row.owned_at
    ),
}  # fmt: skip
