"""Which followers a leader wants out of its ISRs (``ReplicaManager.maybeShrinkIsr``). Pure: what is known in, ISRs out.

Costs as much as there are unsettled partitions: who has everything does not lag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.model.broker.leader import IsrProposal
from streaming.model.broker.remote_replica import behind_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.fetch_session import FetchSession
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.constants import Constants


def shrinks(
    now: int, sessions: Iterable[FetchSession], constants: Constants, stalled: tuple[int, int]
) -> list[tuple[LeaderPartition, IsrProposal]]:
    """Give the ISRs without those that lag, where nothing is proposed yet; ``stalled``: see ``Leadership``."""
    window, messages = constants.replica_lag_time_max_ms, constants.replica_lag_max_messages
    lagging: dict[TopicPartition, tuple[LeaderPartition, list[BrokerId]]] = {}
    for session in sessions:
        for key, cached in session.unsettled.items():
            partition = cached.partition
            if partition.pending is None and partition.is_lagging(session.follower, now, window, messages):
                lagging.setdefault(key, (partition, []))[1].append(session.follower)
    return [
        (partition, _without(partition, followers, now, window, stalled)) for partition, followers in lagging.values()
    ]


def _without(
    partition: LeaderPartition, followers: list[BrokerId], now: int, window: int, stalled: tuple[int, int]
) -> IsrProposal:
    isr = tuple(member for member in partition.committed.isr if member not in followers)
    # Ghost: would they be in sync, were the time in which this leader itself stood still not counted?
    remotes = [partition.remotes[follower] for follower in followers]
    is_stall = all(behind_ms(remote, now, stalled) <= window < behind_ms(remote, now, (0, 0)) for remote in remotes)
    return IsrProposal(isr, Cause.LEADER_STALL if is_stall else Cause.LAG)
