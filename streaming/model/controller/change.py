"""One step of a partition, and the record that tells of it (``PartitionChangeBuilder``). Pure.

The order of the parts is Kafka's: reassignment, eligible leader replicas, election, leader epoch, ISR, last known
leader. A step that changes nothing is no step.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, BrokerId
from streaming.contracts.records import RECOVERED, RECOVERING, Partition, PartitionChange
from streaming.model.constants import Switches

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.messages.registrations import PartitionRegistration

# Elections (``PartitionChangeBuilder``, KIP-966). Pure: a partition and a question in, a winner out.


class Mode(Enum):
    """Effort in the search for a leader."""

    PREFERRED = auto()
    ONLINE = auto()
    UNCLEAN = auto()


class Outcome(Enum):
    """Origin of the winner. The last two may lose committed records."""

    KEPT = auto()
    FROM_ISR = auto()
    FROM_ELR = auto()
    LEADERLESS = auto()
    LAST_KNOWN = auto()
    OUT_OF_SYNC = auto()

    @property
    def is_unclean(self) -> bool:
        """Kafka counts it as an unclean election."""
        return self in {Outcome.LAST_KNOWN, Outcome.OUT_OF_SYNC}


class Election(NamedTuple):
    """The leader after an election, and where it came from."""

    leader: BrokerId
    outcome: Outcome


class Candidates(NamedTuple):
    """Candidates of an election: the ISR and ELR the change aims for, and the replicas that may lead at all.

    Without ``last_known_leader_check`` the last known leader is elected even if it may not lead (KAFKA-19522).
    """

    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    acceptable: Callable[[BrokerId], bool]
    last_known_leader_check: bool = True

    def is_valid(self, broker: BrokerId) -> bool:
        """Live, and certain to hold every committed record.

        The ELR counts only while the ISR is empty: while a replica is in sync, records may have been committed that
        those who left do not have.
        """
        return self.acceptable(broker) and (broker in self.isr or (not self.isr and broker in self.elr))

    def may_return(self, last_known: tuple[BrokerId, ...]) -> bool:
        """Return whether the last known leader may lead again: no replica is in sync or eligible."""
        if self.isr or self.elr or len(last_known) != 1:
            return False
        return self.acceptable(last_known[0]) or not self.last_known_leader_check


def elect(partition: PartitionRegistration, candidates: Candidates, mode: Mode) -> Election:
    """Find the leader, in Kafka's order of preference.

    PREFERRED asks for the first replica before the current leader; both keep the current leader before they look
    along the replica list. Only then may the last known leader return (ISR and ELR are empty), or, in mode UNCLEAN,
    any live replica.
    """
    preferred, current = partition.replicas[0], partition.leader
    order = [preferred, current] if mode is Mode.PREFERRED else [current]
    for broker in (*order, *partition.replicas):
        if candidates.is_valid(broker):
            return Election(broker, _clean_outcome(partition, candidates, broker))
    if candidates.may_return(partition.last_known_elr):
        return Election(partition.last_known_elr[0], Outcome.LAST_KNOWN)
    if mode is Mode.UNCLEAN:
        for broker in partition.replicas:
            if candidates.acceptable(broker):
                return Election(broker, Outcome.OUT_OF_SYNC)
    return Election(NO_LEADER, Outcome.LEADERLESS)


def _clean_outcome(partition: PartitionRegistration, candidates: Candidates, winner: BrokerId) -> Outcome:
    if winner not in candidates.isr:
        return Outcome.FROM_ELR
    return Outcome.KEPT if winner == partition.leader else Outcome.FROM_ISR


_ALL_CHECKS: Final = Switches()


class Target(NamedTuple):
    """State that a change aims for.

    Attributes:
        isr: the wanted ISR, before the election has its say.
        acceptable: who may lead: active brokers, corrected for the step that is being taken.
        min_isr: effective minimum of the topic.
        elr_enabled: feature ``eligible.leader.replicas.version``.
        mode: how hard to look for a leader.
        unclean_shutdown: brokers that may have lost a suffix of their log; they are no longer eligible.
        recovered: the leader says that it has recovered from an unclean election.
        assignment: the wanted replicas; None: those it has.
        switches: the checks that are in force.
    """

    isr: tuple[BrokerId, ...]
    acceptable: Callable[[BrokerId], bool]
    min_isr: int
    elr_enabled: bool
    mode: Mode = Mode.ONLINE
    unclean_shutdown: tuple[BrokerId, ...] = ()
    recovered: bool = False
    assignment: Assignment | None = None
    switches: Switches = _ALL_CHECKS


class Change(NamedTuple):
    """The state after a step, and how its election went."""

    after: PartitionRegistration
    outcome: Outcome


def build(before: PartitionRegistration, target: Target) -> Change | None:
    """Take one step towards ``target``; None if nothing changes."""
    assignment, isr = complete(target.assignment or assignment_of(before), target.isr)
    target = target._replace(isr=isr)
    planned = before._replace(
        replicas=assignment.replicas, adding_replicas=assignment.adding, removing_replicas=assignment.removing
    )
    elr, last_known = _eligible(planned, target)
    check = target.switches.last_known_leader_check
    # The election comes after the ELR: who leaves the ISR in this very step may be eligible, and lead at once.
    election = elect(planned, Candidates(isr, elr, target.acceptable, check), target.mode)
    isr, elr, last_known, recovery = _after_election(before, target, election, elr, last_known)
    if not isr and not target.elr_enabled:
        isr = before.isr  # without ELR the last member stays in the ISR without a leader
    if target.elr_enabled:
        last_known = _last_known_leader(before, election.leader, isr, last_known)
    after = planned._replace(
        isr=isr, elr=elr, last_known_elr=last_known, leader=election.leader, leader_recovery_state=recovery
    )
    if after == before:
        return None
    epoch = before.leader_epoch + _begins_epoch(before, after, target.switches)
    return Change(after._replace(leader_epoch=epoch, partition_epoch=before.partition_epoch + 1), election.outcome)


def _begins_epoch(before: PartitionRegistration, after: PartitionRegistration, switches: Switches) -> bool:
    """Return whether a leader epoch begins: another leader, a replica less, in old versions an ISR member less."""
    return (
        after.leader != before.leader
        or not set(before.replicas) <= set(after.replicas)
        or (switches.bump_leader_epoch_on_shrink and not set(before.isr) <= set(after.isr))
    )


def _eligible(planned: PartitionRegistration, target: Target) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
    """KIP-966: who left the ISR below the minimum holds all committed records, for they cannot grow meanwhile.

    So does a replica that a reassignment drops; its name stays though it is no replica, as in Kafka.
    """
    if not target.elr_enabled or len(target.isr) >= target.min_isr:
        return (), ()
    former = {*planned.elr, *planned.isr} - {*target.isr, *target.unclean_shutdown}
    if target.switches.elr_forgets_dropped_replicas:
        former.intersection_update(planned.replicas)
    return tuple(sorted(former)), planned.last_known_elr


def _after_election(
    before: PartitionRegistration,
    target: Target,
    election: Election,
    elr: tuple[BrokerId, ...],
    last_known: tuple[BrokerId, ...],
) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...], tuple[BrokerId, ...], int]:
    """Give ISR, ELR, last known ELR and recovery state as the election leaves them."""
    winner = election.leader
    if election.outcome.is_unclean:
        return (winner,), (), (), RECOVERING
    recovery = RECOVERED if target.recovered else before.leader_recovery_state
    if election.outcome is Outcome.FROM_ELR:
        return (winner,), tuple(broker for broker in elr if broker != winner), last_known, recovery
    return target.isr, elr, last_known, recovery


def _last_known_leader(
    before: PartitionRegistration, leader: BrokerId, isr: tuple[BrokerId, ...], last_known: tuple[BrokerId, ...]
) -> tuple[BrokerId, ...]:
    """Remember the leader when a partition first becomes leaderless with an empty ISR; forget it once one leads."""
    if leader >= 0:
        return ()
    if not isr and before.isr and before.leader >= 0:
        return (before.leader,)
    return last_known


def record_of(
    topic_partition: TopicPartition, before: PartitionRegistration, after: PartitionRegistration
) -> PartitionChange:
    """Write the record of a step: only the fields that changed; ``leader`` iff the leader epoch grew."""

    def changed(name: str) -> tuple[BrokerId, ...] | None:
        value: tuple[BrokerId, ...] = getattr(after, name)
        return None if value == getattr(before, name) else value

    recovery = after.leader_recovery_state
    return PartitionChange(
        topic_id=topic_partition.topic_id,
        partition=topic_partition.partition,
        isr=changed("isr"),
        leader=after.leader if after.leader_epoch != before.leader_epoch else None,
        replicas=changed("replicas"),
        removing_replicas=changed("removing_replicas"),
        adding_replicas=changed("adding_replicas"),
        leader_recovery_state=None if recovery == before.leader_recovery_state else recovery,
        elr=changed("elr"),
        last_known_elr=changed("last_known_elr"),
    )


def record_of_creation(topic_partition: TopicPartition, created: PartitionRegistration) -> Partition:
    """Write the record of a new partition."""
    return Partition(
        topic_id=topic_partition.topic_id,
        partition=topic_partition.partition,
        replicas=created.replicas,
        isr=created.isr,
        leader=created.leader,
        leader_epoch=created.leader_epoch,
        partition_epoch=created.partition_epoch,
    )


# Moves of replicas (KIP-455, ``PartitionReassignmentReplicas``, ``PartitionReassignmentRevert``). Pure.
#
# While they move, ``replicas`` holds the wanted ones followed by those to be removed; added ones count as replicas at
# once, so that they fetch, but neither for under-replication nor for the way back.


class Assignment(NamedTuple):
    """Replicas of a partition, and those of them that come and go."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        """Return whether replicas are on the move."""
        return bool(self.adding or self.removing)


class Reversion(NamedTuple):
    """The way back: the ISR that remains; ``unclean`` if a replica outside of it had to be put in."""

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
