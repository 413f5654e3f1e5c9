"""Where the replicas of a new topic go: round robin with a growing shift (``AdminUtils``, ZooKeeper era). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.contracts.identifiers import BrokerId


def spread(brokers: Sequence[BrokerId], partitions: int, replication_factor: int) -> tuple[tuple[BrokerId, ...], ...]:
    """Assign replicas: leaders take turns, and the followers of one leader differ from round to round.

    >>> spread((1, 2, 3), 2, 3)
    ((1, 2, 3), (2, 3, 1))
    """
    count = len(brokers)

    def replica(partition: int, rank: int) -> BrokerId:
        if rank == 0:
            return brokers[partition % count]
        shift = (partition // count + rank - 1) % (count - 1)
        return brokers[(partition + 1 + shift) % count]

    return tuple(
        tuple(replica(partition, rank) for rank in range(replication_factor)) for partition in range(partitions)
    )
