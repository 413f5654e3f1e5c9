"""What a reassignment has yet to do: the rule, from the state of a partition and the newest samples of its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.state import PartitionState


def is_reassigned(partition: PartitionState) -> bool:
    """Return whether a partition has a reassignment that is not complete."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def replicas_to_go(partition: PartitionState) -> list[int]:
    """Return the replicas that are being added and are not in the ISR yet."""
    return [broker for broker in partition.adding_replicas if broker not in partition.isr]


def bytes_to_go(partition: PartitionState, sizes: Mapping[int, int | None]) -> int | None:
    """Return how many bytes the replicas that are being added have yet to copy; None while a size is unknown.

    Compares the sizes of logs, so it counts what a follower need not copy because retention deletes it first.

    Args:
        partition: that is being reassigned.
        sizes: of the logs of its replicas, by broker.
    """
    waiting = replicas_to_go(partition)
    leader, copies = sizes.get(partition.leader), [sizes.get(broker) for broker in waiting]
    if not waiting:
        return 0
    if leader is None:
        return None
    missing = [None if copy is None else max(0, leader - copy) for copy in copies]
    return None if None in missing else sum(filter(None, missing))
