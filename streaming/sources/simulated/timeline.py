"""Timeline of a simulated cluster, in lines that a person reads. Knows the model's commits and no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.records import (
    RECOVERING,
    BrokerRegistrationChange,
    Config,
    LeaderChange,
    MetadataRecord,
    RegisterBroker,
    RegisterController,
    UnregisterBroker,
)
from streaming.contracts.words import MovedPartition, StepShape, movements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.controller.metadata_writer import Commit
    from streaming.model.messages.registrations import PartitionRegistration, Transition


class Entry(NamedTuple):
    """One line.

    Attributes:
        at: model time, milliseconds.
        subject: ``orders-0``, ``broker 3``, ``controller 100``.
        what: what happened to it.
        cause: the true cause of a step of a partition; empty for everything else.
        after: the partition after this step; None for everything else, and for a deletion.
    """

    at: int
    subject: str
    what: str
    cause: str = ""
    after: PartitionRegistration | None = None


def timeline(commits: Iterable[Commit], *, each_step: bool = True) -> Iterator[Entry]:
    """Tell what was committed, in order: brokers and controllers first, then partitions, as far as one batch goes.

    Without ``each_step`` the steps of one batch that look alike are one entry.
    """
    for commit in commits:
        for record in commit.batch.records:
            words = _described(record)
            if words is not None:
                yield Entry(commit.now, *words)
        if each_step:
            for step in commit.transitions:
                yield Entry(commit.now, _name(step), step_text(step), str(step.cause), step.after)
        else:
            moved = movements(steps_of(commit))
            yield from (Entry(commit.now, *movement.sentence(), movement.shape.cause) for movement in moved)


def _name(step: Transition) -> str:
    return f"{step.topic.topic}-{step.topic_partition.partition}"


def _described(record: MetadataRecord) -> tuple[str, str] | None:
    match record:
        case RegisterBroker():
            return f"broker {record.broker}", f"registered, epoch {record.broker_epoch}"
        case UnregisterBroker():
            return f"broker {record.broker}", "unregistered"
        case BrokerRegistrationChange():
            return f"broker {record.broker}", _broker_change(record)
        case LeaderChange() | RegisterController():
            what = f"active, epoch {record.epoch}" if isinstance(record, LeaderChange) else "registered"
            return f"controller {record.controller}", what
        case Config():
            value = "deleted" if record.value is None else f"= {record.value}"
            return record.resource_name or "cluster", f"{record.key} {value}"
        case _:
            return None


def _broker_change(record: BrokerRegistrationChange) -> str:
    words = []
    if record.fenced:
        words.append("fenced" if record.fenced > 0 else "unfenced")
    if record.in_controlled_shutdown > 0:
        words.append("begins its controlled shutdown")
    if record.log_dirs is not None:
        words.append(f"has log directories {', '.join(record.log_dirs) or 'none'}")
    return ", ".join(words)


def step_text(step: Transition) -> str:
    """Tell a step: only what changed."""
    before, after = step.before, step.after
    if after is None:
        return "deleted"
    if before is None:
        return f"created: {partition(after)}"
    changes = [_field(before, after, name) for name in after._fields if name not in _UNTOLD]
    return "; ".join(change for change in changes if change)


# The partition epoch grows with every step, and the leader epoch is printed with the leader.
_UNTOLD = frozenset({"partition_epoch", "leader_epoch"})


def _field(before: PartitionRegistration, after: PartitionRegistration, name: str) -> str:
    old, new = getattr(before, name), getattr(after, name)
    if name == "leader":
        if before.leader_epoch == after.leader_epoch:
            return ""
        moved = f"leader {_leader(old)} -> {_leader(new)}" if old != new else f"leader {_leader(new)} again"
        return f"{moved} (epoch {after.leader_epoch})"
    if old == new:
        return ""
    if name == "leader_recovery_state":
        return "recovering" if new == RECOVERING else "recovered"
    return f"{name.replace('_', ' ')} {brokers(old)} -> {brokers(new)}"


def partition(state: PartitionRegistration) -> str:
    """Tell the whole state of a partition; what is empty is left out."""
    words = [f"leader {_leader(state.leader)} (epoch {state.leader_epoch})", f"isr {brokers(state.isr)}"]
    words += [
        f"{name.replace('_', ' ')} {brokers(getattr(state, name))}"
        for name in state._fields
        if name not in {"isr", "leader", "leader_recovery_state"} | _UNTOLD and getattr(state, name)
    ]
    if state.leader_recovery_state == RECOVERING:
        words.append("recovering")
    return "; ".join(words)


def brokers(ids: object) -> str:
    """Write a list of brokers, ``-`` for none; anything else as it is."""
    return (",".join(map(str, ids)) or "-") if isinstance(ids, tuple) else str(ids)


def _leader(leader: int) -> str:
    return "none" if leader == NO_LEADER else str(leader)


# The steps of one batch of the model, as those of one moment.


def steps_of(commit: Commit) -> Iterator[MovedPartition]:
    """Return the steps of a batch, in its order."""
    for step in commit.transitions:
        before, after = step.before, step.after
        yield MovedPartition(
            f"{step.topic.topic}-{step.topic_partition.partition}",
            _shape(step),
            leader_moved=bool(before and after and before.leader != after.leader),
            offline=bool(before and after and after.leader == NO_LEADER != before.leader),
        )


def _shape(step: Transition) -> StepShape:
    before, after, cause = step.before, step.after, str(step.cause)
    if not before or not after:
        return StepShape(cause, created=before is None, deleted=after is None)
    return StepShape(
        cause,
        left=_without(before.isr, after.isr),
        joined=_without(after.isr, before.isr),
        ineligible=_without(before.elr, (*after.elr, *after.isr)),
    )


def _without(members: tuple[BrokerId, ...], others: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return tuple(member for member in members if member not in others)
