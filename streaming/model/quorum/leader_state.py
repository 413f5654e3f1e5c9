"""What the leader of an epoch knows of the other voters (``LeaderState``): high watermark, and whether they live.

The arithmetic of a majority is :func:`committed_by`, a pure function; progress of one voter is counted as that of any
follower (``broker.remote_replica``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.broker.remote_replica import RemoteReplica, fetched

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.messages.quorum import QuorumFetchRequest


def committed_by(ends: Iterable[int]) -> int:
    """Give the offset up to which a majority of logs reaches.

    >>> committed_by([7, 5, 3])
    5
    """
    ordered = sorted(ends, reverse=True)
    return ordered[len(ordered) // 2]


class LeaderState:
    """One epoch of a leader.

    Attributes:
        start_offset: where the epoch begins: the offset of its LeaderChange. The high watermark moves only beyond it.
        remotes: progress of the other voters. Invariant: every voter but this one, and none beyond the log end.
        parked: their fetches that wait for data, with the time at which each is answered at the latest.
    """

    def __init__(self, others: Sequence[BrokerId], start_offset: int, now: int) -> None:
        self.start_offset = start_offset
        self.remotes = {voter: RemoteReplica(last_fetch_ms=now) for voter in others}
        self.parked: dict[BrokerId, tuple[QuorumFetchRequest, int]] = {}

    def fetched(self, now: int, request: QuorumFetchRequest, end: int) -> None:
        """A voter fetches: it has everything below."""
        fetched(self.remotes[request.replica], request.fetch_offset, end, now, 0)

    def high_watermark(self, end: int) -> int | None:
        """Give what a majority has; None until that covers a batch of this epoch.

        What earlier epochs left behind is committed by the first batch of this one, never by counting copies
        (figure 8 of the Raft paper).
        """
        reached = committed_by([end, *(remote.log_end_offset for remote in self.remotes.values())])
        return reached if reached > self.start_offset else None

    def everybody_has(self, end: int) -> int:
        """Give the offset up to which every voter has the log, as far as this leader heard."""
        return min([end, *(remote.log_end_offset for remote in self.remotes.values())])

    def silent(self, now: int, period_ms: int) -> list[BrokerId]:
        """Give the voters that have not fetched within a period."""
        return [voter for voter, remote in self.remotes.items() if now - remote.last_fetch_ms >= period_ms]

    def successors(self) -> tuple[BrokerId, ...]:
        """Give the other voters, the most advanced first."""
        return tuple(sorted(self.remotes, key=lambda voter: -self.remotes[voter].log_end_offset))
