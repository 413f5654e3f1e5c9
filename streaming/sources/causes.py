"""Why an ISR or a leader changed, from the order in which the controller wrote its records.

Pure; depends on metadata records and the set of causes. One batch may hold the records of several controller operations
(``controller.quorum.append.linger.ms``), so a cause is derived from runs of adjacent records, never from the whole
batch. Source: record order of ``ReplicationControlManager`` (Apache Kafka), KIP-631, KIP-966.

Invariants: an operation that removes a broker (fencing, unregistration, a new registration, a failed log directory)
writes the partition changes first and the registration record last; one that begins a controlled shutdown or unfences a
broker writes the registration record first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.records import RECOVERING
from streaming.sources.causes_context import (
    AppliedRecord,
    ChangeInContext,
    Explanation,
    ambiguous,
    changes_in_context,
    inferred,
    proven,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streaming.contracts.identifiers import BrokerId, TopicId


_UNKNOWN: Final = Explanation(Cause.UNKNOWN, Evidence.AMBIGUOUS)


def explain(
    steps: Sequence[AppliedRecord],
    *,
    shutting_down: Iterable[BrokerId],
    unclean_enabled: Callable[[TopicId], bool],
    may_have_elr: bool,
) -> list[Explanation | None]:
    """Return the cause of each step of one batch.

    Args:
        steps: every record of the batch in log order.
        shutting_down: brokers in controlled shutdown before the batch.
        unclean_enabled: whether the log enables ``unclean.leader.election.enable`` for a topic.
        may_have_elr: whether eligible leader replicas are on, or it is unknown.

    Returns:
        one item per step: None for records that are not a ``PartitionChange``, and for changes that affect neither ISR,
        leader, replicas nor eligible leader replicas (directories, the end of a leader's recovery).
    """
    changes = changes_in_context(steps, shutting_down, may_have_elr=may_have_elr)
    for change in changes:
        if change is not None and change.after.leader_recovery_state == RECOVERING:
            change.unclean_enabled = unclean_enabled(change.record.topic_id)
    return [None if change is None else _explain(change) for change in changes]


def _explain(change: ChangeInContext) -> Explanation | None:
    """Return the result of the first rule that applies."""
    for rule in _RULES:
        explanation = rule(change)
        if explanation is not None:
            return explanation
    is_relevant = change.left or change.joined or change.leader_moved or change.before.elr != change.after.elr
    return _UNKNOWN if is_relevant else None


def _unclean(change: ChangeInContext) -> Explanation | None:
    """A new leader may lack committed records: an unclean election, or the last known leader (KIP-966)."""
    if not change.elected or change.after.leader_recovery_state != RECOVERING:
        return None
    # The state stays until the ISR changes (KIP-704). An election of an in-sync replica meanwhile is clean.
    was_recovering = change.before.leader_recovery_state == RECOVERING
    if was_recovering and change.after.leader in {*change.before.isr, *change.before.elr}:
        return None
    if change.before.last_known_elr != (change.after.leader,):
        return proven(Cause.UNCLEAN_ELECTION)
    # Outside of an unfencing an administrator's unclean election leaves the same record.
    if change.unclean_enabled or not change.broker_unfenced:
        return ambiguous(Cause.LAST_KNOWN_LEADER, Cause.UNCLEAN_ELECTION)
    return proven(Cause.LAST_KNOWN_LEADER)


def _reassignment(change: ChangeInContext) -> Explanation | None:
    record = change.record
    if record.replicas is None and record.adding_replicas is None and record.removing_replicas is None:
        return None
    if change.removal is None:
        return proven(Cause.REASSIGNMENT)
    # The removal of a broker may complete a reassignment, and a reassignment may end directly before a removal.
    return ambiguous(Cause.REASSIGNMENT, change.removal.cause)


def _removal(change: ChangeInContext) -> Explanation | None:
    return change.removal


def _controlled_shutdown(change: ChangeInContext) -> Explanation | None:
    if any(change.drops_from_isr(broker) for broker in change.shutting_down):
        return proven(Cause.CONTROLLED_SHUTDOWN)
    return None


def _election(change: ChangeInContext) -> Explanation | None:
    """A leaderless partition gets a leader again, without data loss."""
    if not change.elected or change.before.leader != NO_LEADER:
        return None
    if not change.before.isr and change.after.leader in change.before.elr:
        return proven(Cause.ELR_ELECTION)
    if change.left or change.joined:
        return None
    return proven(Cause.UNFENCED) if change.broker_unfenced else ambiguous(Cause.UNFENCED, Cause.PREFERRED_ELECTION)


def _preferred(change: ChangeInContext) -> Explanation | None:
    is_isr_unchanged = not change.left and not change.joined
    if change.elected and is_isr_unchanged and change.after.leader == change.after.replicas[0]:
        return proven(Cause.PREFERRED_ELECTION)
    return None


def _by_leader(change: ChangeInContext) -> Explanation | None:
    """A leader's AlterPartition: it removes followers that lag and adds those that caught up."""
    if change.leader_moved or bool(change.left) == bool(change.joined):
        return None
    if change.joined:
        return proven(Cause.EXPAND)
    if change.record.leader is not None:
        # With a new leader epoch: a leader's own shrink before 3.6, or a ZooKeeper controller removed a broker.
        return ambiguous(Cause.LAG, Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)
    return _lag(change)


def _lag(change: ChangeInContext) -> Explanation:
    """A follower lags by the leader's clock alone, and a leader that was itself paused sees all followers lag at once.

    So one leader's removals of a batch are judged together. Whoever lost several brokers, or its last follower, may be
    the one that stalled. A follower that stayed makes that unlikely but does not exclude it: its fetch may have been
    the first after the pause. So lag is never proven.
    """
    several, alone = len(change.removed_by_leader) > 1, not change.followers_of_leader
    if several:
        return ambiguous(*((Cause.LEADER_STALL, Cause.LAG) if alone else (Cause.LAG, Cause.LEADER_STALL)))
    return ambiguous(Cause.LAG, Cause.LEADER_STALL) if alone else inferred(Cause.LAG)


_RULES: Final[tuple[Callable[[ChangeInContext], Explanation | None], ...]] = (
    _unclean,
    _reassignment,
    _removal,
    _controlled_shutdown,
    _election,
    _preferred,
    _by_leader,
)
