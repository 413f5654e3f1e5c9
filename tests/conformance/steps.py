"""What may change a partition, and what the controller's rules would make of it: a table of reasons.

The rules themselves are those of ``streaming.model.controller``; this file only says when they are asked, and for what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicPartition
from streaming.contracts.records import (
    BrokerRegistrationChange,
    MetadataRecord,
    PartitionChange,
    RegisterBroker,
    UnregisterBroker,
)
from streaming.model.constants import Error
from streaming.model.controller.alter_partition import Proposal, verdict
from streaming.model.controller.change import Mode, Outcome, assignment_of, reassign, record_of, revert
from streaming.model.controller.metadata_writer import CAUSE_OF_ELECTION, DEFAULT, StepOptions
from streaming.model.controller.registry import Registry
from streaming.model.messages.registrations import PartitionRegistration, TopicRegistration
from streaming.model.messages.replication import ANY_BROKER_EPOCH, AlterPartitionItem
from tests.conformance.actions import ActionName, Alternative
from tests.conformance.quirks import Quirk
from tests.conformance.replay import Replay, Settings


class Case(NamedTuple):
    """A partition at one record: ``after`` is what the log made of it, ``settings`` what its topic's may have been."""

    key: TopicPartition
    topic: TopicRegistration
    settings: tuple[Settings, ...]
    before: PartitionRegistration
    after: PartitionRegistration


class Plan(NamedTuple):
    """What an action aims for: an ISR, and what is special about the step."""

    isr: tuple[BrokerId, ...]
    how: StepOptions = DEFAULT


class Reason(NamedTuple):
    """A reason to change partitions.

    Attributes:
        name: of the action.
        plan: what it aims for with a partition; a sentence where it is not enabled.
        causes: what the step of a partition is put down to.
        broker: who comes or goes.
        members: every partition that it looks at; empty where it is about the one that the record names.
    """

    name: ActionName
    plan: Callable[[Replay, Case], Plan | str]
    causes: Callable[[Case], tuple[Cause, ...]]
    broker: BrokerId | None = None
    members: Callable[[Registry], Iterable[TopicPartition]] = lambda _: ()


class Match(NamedTuple):
    """A reason that explains a record, the causes that remain, and the deviation that it takes."""

    reason: Reason
    causes: tuple[Cause, ...]
    quirk: Quirk | None = None


def would_write(replay: Replay, reason: Reason, case: Case) -> Iterator[tuple[PartitionChange | None, Outcome | None]]:
    """Give the record that an action would write, once for each thing that is not known; None: no step.

    Not known may be the topic's configuration, and which replicas went with a lost directory. Nothing is given where
    the action is not enabled.
    """
    plan = reason.plan(replay, case)
    if isinstance(plan, str):
        return
    for (min_isr, unclean), offline in product(case.settings, replay.offline(case.before)):
        how = plan.how._replace(offline=offline)
        step = replay.writer.step(case.before, plan.isr, how, min_isr=min_isr, unclean=unclean)
        yield (None, None) if step is None else (record_of(case.key, case.before, step.after), step.outcome)


def match(replay: Replay, reason: Reason, case: Case, record: PartitionChange) -> Match | Alternative:
    """Return whether an action would write ``record``; if not, what else."""
    plan = reason.plan(replay, case)
    if isinstance(plan, str):
        return Alternative(reason.name, None, plan)
    if reason.name is ActionName.ASSIGN_DIRECTORIES:
        return Match(reason, ())
    expected = None
    for expected, outcome in would_write(replay, reason, case):
        if expected is not None and outcome is not None and _comparable(expected) == _comparable(record):
            return Match(reason, _causes(reason, case, outcome))
    return Alternative(reason.name, expected, "would change nothing" if expected is None else "would write")


def _causes(reason: Reason, case: Case, outcome: Outcome) -> tuple[Cause, ...]:
    """An election beyond the ISR, or a reassignment that ends, says more than the reason."""
    if outcome in CAUSE_OF_ELECTION:
        return (CAUSE_OF_ELECTION[outcome],)
    moves = assignment_of(case.before) != assignment_of(case.after)
    return (Cause.REASSIGNMENT,) if moves else reason.causes(case)


def _comparable(record: PartitionChange) -> PartitionChange:
    """Leave out what the model does not decide.

    Kafka writes the eligible replicas in the order of a hash set, and with new replicas in which directories they lie
    (KIP-858).
    """
    return replace(record, elr=record.elr and tuple(sorted(record.elr)), directories=None)


# -------------------------------------------------------------- brokers come and go


def _leaving(
    name: ActionName, broker: BrokerId, causes: tuple[Cause, ...], *, unclean_shutdown: bool = False
) -> Reason:
    """Take a broker out of every ISR; after an unclean shutdown also out of what it was eligible for."""
    how = StepOptions(leaving=broker, unclean_shutdown=unclean_shutdown)

    def plan(_: Replay, case: Case) -> Plan:
        return Plan(tuple(member for member in case.before.isr if member != broker), how)

    def members(registry: Registry) -> list[TopicPartition]:
        eligible = registry.with_elr_member(broker) if unclean_shutdown else []
        return [*registry.with_isr_member(broker), *eligible]

    return Reason(name, plan, lambda _: causes, broker, members)


def _unfencing(broker: BrokerId) -> Reason:
    """Elect for whatever has no leader; nobody joins an ISR."""

    def plan(_: Replay, case: Case) -> Plan | str:
        return Plan(case.before.isr) if case.before.leader == NO_LEADER else "the partition has a leader"

    return Reason(
        ActionName.UNFENCE_BROKER, plan, lambda _: (Cause.UNFENCED,), broker, lambda registry: list(registry.leaderless)
    )


def _of_fencing(case: Case) -> tuple[Cause, ...]:
    """A broker that leads is not let go: it has lost its session. Another one may have stopped cleanly."""
    led = case.before.leader != case.after.leader
    return (Cause.FENCED,) if led else (Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)


def opened_by(record: MetadataRecord | None) -> Reason | None:
    """Give the action that writes its partition changes after this record."""
    match record:
        case BrokerRegistrationChange(fenced=-1):
            return _unfencing(record.broker)
        case BrokerRegistrationChange(in_controlled_shutdown=1):
            causes = (Cause.CONTROLLED_SHUTDOWN,)
            return _leaving(ActionName.BEGIN_CONTROLLED_SHUTDOWN, record.broker, causes)
        case _:
            return None


def closed_by(record: MetadataRecord | None) -> tuple[Reason, ...]:
    """Give the actions that write their partition changes before this record; more than one where it looks alike.

    A clean stop of a broker that leads nothing looks like the end of its session.
    """
    match record:
        case BrokerRegistrationChange(fenced=1):
            return (_leaving(ActionName.FENCE_BROKER, record.broker, ())._replace(causes=_of_fencing),)
        case BrokerRegistrationChange(log_dirs=dirs) if dirs is not None:
            failing = _leaving(ActionName.FAIL_DIRECTORIES, record.broker, (Cause.DIR_FAILURE,))
            return (failing._replace(members=lambda _: ()),)  # no record tells which partitions a directory holds
        case RegisterBroker():
            return (
                _leaving(ActionName.REGISTER_BROKER, record.broker, (Cause.RESTART,)),
                _leaving(ActionName.REGISTER_BROKER, record.broker, (Cause.UNCLEAN_RESTART,), unclean_shutdown=True),
            )
        case UnregisterBroker():
            return (_leaving(ActionName.UNREGISTER_BROKER, record.broker, (Cause.UNREGISTERED,)),)
        case _:
            return ()


# -------------------------------------------------------------- what stands alone


def _proposed(replay: Replay, case: Case) -> Plan | str:
    """Leader proposes the ISR that the log then has, as recovered; what a finished reassignment dropped, with it."""
    isr, dropped = case.after.isr, set(case.before.removing_replicas) - set(case.after.replicas)
    isr += tuple(broker for broker in case.before.isr if broker in dropped)
    if set(isr) == set(case.before.isr) and case.after.leader_recovery_state == case.before.leader_recovery_state:
        return "the leader would propose what is"
    members = tuple((broker, ANY_BROKER_EPOCH) for broker in isr)
    item = AlterPartitionItem(case.key, case.before.leader_epoch, case.before.partition_epoch, members, Cause.UNKNOWN)
    error = verdict(Proposal(case.before.leader, item, case.before, replay.registry.brokers))
    return (
        Plan(isr, StepOptions(recovered=True)) if error is Error.NONE else f"the leader would be refused, {error.name}"
    )


def _assign_directories(_: Replay, case: Case) -> Plan | str:
    """Broker tells where it keeps a replica, and nothing else changes."""
    same = case.after._replace(partition_epoch=case.before.partition_epoch) == case.before
    return Plan(case.before.isr) if same else "more than directories changed"


def _by_leader(case: Case) -> tuple[Cause, ...]:
    left, joined = set(case.before.isr) - set(case.after.isr), set(case.after.isr) - set(case.before.isr)
    return ((Cause.LAG, Cause.LEADER_STALL) if left else ()) + ((Cause.EXPAND,) if joined else ())


def _prefer(_: Replay, case: Case) -> Plan | str:
    if case.before.leader == case.before.replicas[0]:
        return "the preferred leader leads"
    return Plan(case.before.isr, StepOptions(mode=Mode.PREFERRED))


def _force(_: Replay, case: Case) -> Plan | str:
    if case.before.leader != NO_LEADER:
        return "the partition has a leader"
    return Plan(case.before.isr, StepOptions(mode=Mode.UNCLEAN))


def _reassign(_: Replay, case: Case) -> Plan | str:
    """Administrator asks for the replicas that the log then has."""
    target = tuple(broker for broker in case.after.replicas if broker not in case.after.removing_replicas)
    moving = reassign(assignment_of(case.before), target)
    return Plan(case.before.isr, StepOptions(mode=Mode.ONLINE, assignment=moving))


def _cancel(_: Replay, case: Case) -> Plan | str:
    if not assignment_of(case.before).is_reassigning:
        return "no reassignment is in progress"
    back = revert(case.before)
    if back.unclean and not any(setting.unclean for setting in case.settings):
        return "only added replicas are in sync"
    return Plan(back.isr, StepOptions(assignment=back.assignment))


# Leaders ask for the first, administrators and time for the others. The order is that of likelihood.
ALONE: Final = (
    Reason(ActionName.ASSIGN_DIRECTORIES, _assign_directories, lambda _: ()),
    Reason(ActionName.ALTER_PARTITION, _proposed, _by_leader),
    Reason(ActionName.ELECT_PREFERRED, _prefer, lambda _: (Cause.PREFERRED_ELECTION,)),
    Reason(ActionName.ELECT_UNCLEAN, _force, lambda _: (Cause.UNCLEAN_ELECTION,)),
    Reason(ActionName.CANCEL_REASSIGNMENT, _cancel, lambda _: (Cause.REASSIGNMENT,)),
    Reason(ActionName.REASSIGN, _reassign, lambda _: (Cause.REASSIGNMENT,)),
)
