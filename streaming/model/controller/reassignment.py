"""How replicas move (KIP-455, ``PartitionReassignmentReplicas``, ``PartitionReassignmentRevert``). Pure.

While they move, ``replicas`` holds the wanted ones followed by those to be removed; added ones count as replicas at
once, so that they fetch, but neither for under-replication nor for the way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId
    from streaming.model.registrations import PartitionRegistration


class Assignment(NamedTuple):
    """Where a partition's replicas are, and which of them come and go."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        """Return whether replicas are on the move."""
        return bool(self.adding or self.removing)


class Reversion(NamedTuple):
    """The way back: the ISR that remains; ``unclean`` if somebody outside of it had to be put in."""

    assignment: Assignment
    isr: tuple[BrokerId, ...]
    unclean: bool


def assignment_of(partition: PartitionRegistration) -> Assignment:
    """Read the assignment of a partition."""
    return Assignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)


def reassign(current: Assignment, target: tuple[BrokerId, ...]) -> Assignment:
    """Begin to move to ``target``; the same replicas in another order move at once.

    A reassignment that begins during another starts from the replicas as they stand, the added ones included (KRaft;
    the ZooKeeper controller went back to the original list); and what it does not add or remove stays on those lists.

    >>> reassign(Assignment((3, 2, 1, 0)), (7, 3, 1, 9))
    Assignment(replicas=(7, 3, 1, 9, 0, 2), adding=(7, 9), removing=(0, 2))
    """
    removing = tuple(sorted(set(current.replicas).difference(target)))
    adding = tuple(sorted(set(target).difference(current.replicas)))
    return Assignment((*target, *removing), adding or current.adding, removing or current.removing)


def complete(moving: Assignment, isr: tuple[BrokerId, ...]) -> tuple[Assignment, tuple[BrokerId, ...]]:
    """Finish a reassignment once the added replicas are in sync; else leave all as it is. Asked at every change.

    Where fewer come than go, every wanted replica has to be in sync. As 4.3.1 does; its successors may ask for all.
    """
    target = tuple(broker for broker in moving.replicas if broker not in moving.removing)
    remaining = tuple(broker for broker in isr if broker not in moving.removing)
    needed = target if len(moving.adding) < len(moving.removing) else moving.adding
    if moving.is_reassigning and remaining and set(needed) <= set(remaining):
        return Assignment(target), remaining
    return moving, isr


def revert(partition: PartitionRegistration) -> Reversion:
    """Take the added replicas out again. Enabled while replicas move.

    If only added ones are in sync, the first of the others is taken for in sync: an unclean election.
    """
    replicas = tuple(broker for broker in partition.replicas if broker not in partition.adding_replicas)
    isr = tuple(broker for broker in partition.isr if broker not in partition.adding_replicas)
    return Reversion(Assignment(replicas), isr or replicas[:1], unclean=not isr)
