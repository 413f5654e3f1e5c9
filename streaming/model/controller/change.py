"""One step of a partition, and the record that tells of it (``PartitionChangeBuilder``). Pure.

The order of the parts is Kafka's: reassignment, eligible leader replicas, election, leader epoch, ISR, last known
leader. A step that changes nothing is no step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.records import RECOVERED, RECOVERING, Partition, PartitionChange
from streaming.model.controller.election import Candidates, Election, Mode, Outcome, elect
from streaming.model.controller.reassignment import Assignment, assignment_of, complete
from streaming.model.switches import Switches

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.registrations import PartitionRegistration

_ALL_CHECKS: Final = Switches()


class Target(NamedTuple):
    """What a change aims for.

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
        replicas=assignment.replicas,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
    )
    elr, last_known = _eligible(planned, target)
    check = target.switches.last_known_leader_check
    # The election comes after the ELR: who leaves the ISR in this very step may be eligible, and lead at once.
    election = elect(planned, Candidates(isr, elr, target.acceptable, check), target.mode)
    isr, elr, last_known, recovery = _after_election(before, target, election, elr, last_known)
    if not isr and not target.elr_enabled:
        isr = before.isr  # without ELR the last member stays in the ISR while nobody leads
    if target.elr_enabled:
        last_known = _last_known_leader(before, election.leader, isr, last_known)
    after = planned._replace(
        isr=isr,
        elr=elr,
        last_known_elr=last_known,
        leader=election.leader,
        leader_recovery_state=recovery,
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
