"""Why an ISR or a leader changed, from the order in which a controller wrote its records.

Pure: knows metadata records and the set of causes, nothing of time, files or networks. One batch may hold the records
of several controller operations (``controller.quorum.append.linger.ms``), so the analysis goes by runs of neighbours,
never by the whole batch. Source: record order of ``ReplicationControlManager`` (Apache Kafka), KIP-631, KIP-966.

An operation that takes a broker away writes the partition changes first and the registration record last; one that
begins a controlled shutdown or unfences a broker writes the registration record first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.records import RECOVERING
from streaming.sources.causes_moves import Explanation, Move, Step, ambiguous, moves_of, proven

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streaming.contracts.identifiers import BrokerId, TopicId


_UNKNOWN: Final = Explanation(Cause.UNKNOWN, Evidence.AMBIGUOUS)


def explain(
    steps: Sequence[Step],
    *,
    shutting_down: Iterable[BrokerId],
    unclean_enabled: Callable[[TopicId], bool],
) -> list[Explanation | None]:
    """Explain each step of one batch.

    Args:
        steps: every record of the batch in log order.
        shutting_down: brokers in controlled shutdown before the batch.
        unclean_enabled: whether ``unclean.leader.election.enable`` is known to be on for a topic.

    Returns:
        as many items as ``steps``: None for records that are no ``PartitionChange``, and for changes of neither ISR,
        leader, replicas nor eligible leader replicas (directories, the end of a leader's recovery).
    """
    moves = moves_of(steps, shutting_down)
    for move in moves:
        if move is not None and move.after.leader_recovery_state == RECOVERING:
            move.unclean_enabled = unclean_enabled(move.change.topic_id)
    return [None if move is None else _explain(move) for move in moves]


def _explain(move: Move) -> Explanation | None:
    """Take the first rule that applies."""
    for rule in _RULES:
        found = rule(move)
        if found is not None:
            return found
    changed = move.left or move.joined or move.leader_moved or move.before.elr != move.after.elr
    return _UNKNOWN if changed else None


def _unclean(move: Move) -> Explanation | None:
    """Somebody leads who may lack committed records: by permission, or as the last known leader (KIP-966)."""
    if not move.elected or move.after.leader_recovery_state != RECOVERING:
        return None
    if move.before.last_known_elr != (move.after.leader,):
        return proven(Cause.UNCLEAN_ELECTION)
    # Away from an unfencing it may also be an administrator's election, which leaves the same record.
    if move.unclean_enabled or not move.broker_unfenced:
        return ambiguous(Cause.LAST_KNOWN_LEADER, Cause.UNCLEAN_ELECTION)
    return proven(Cause.LAST_KNOWN_LEADER)


def _reassignment(move: Move) -> Explanation | None:
    change = move.change
    if change.replicas is None and change.adding_replicas is None and change.removing_replicas is None:
        return None
    if move.departure is None:
        return proven(Cause.REASSIGNMENT)
    # The departure of a broker may complete a reassignment, and a reassignment may end next to a departure.
    return ambiguous(Cause.REASSIGNMENT, move.departure.cause)


def _departure(move: Move) -> Explanation | None:
    return move.departure


def _controlled_shutdown(move: Move) -> Explanation | None:
    if any(move.gives_up(broker) for broker in move.shutting_down):
        return proven(Cause.CONTROLLED_SHUTDOWN)
    return None


def _election(move: Move) -> Explanation | None:
    """A leaderless partition gets a leader again without loss."""
    if not move.elected or move.before.leader != NO_LEADER:
        return None
    if not move.before.isr and move.after.leader in move.before.elr:
        return proven(Cause.ELR_ELECTION)
    if move.left or move.joined:
        return None
    return proven(Cause.UNFENCED) if move.broker_unfenced else ambiguous(Cause.UNFENCED, Cause.PREFERRED_ELECTION)


def _preferred(move: Move) -> Explanation | None:
    settled = not move.left and not move.joined
    if move.elected and settled and move.after.leader == move.after.replicas[0]:
        return proven(Cause.PREFERRED_ELECTION)
    return None


def _by_leader(move: Move) -> Explanation | None:
    """What a leader asks for (AlterPartition): it drops who lags and adds who caught up."""
    if move.leader_moved or bool(move.left) == bool(move.joined):
        return None
    if move.joined:
        return proven(Cause.EXPAND)
    if move.change.leader is not None:
        # With a new leader epoch: a leader's own shrink before 3.6, or a controller on ZooKeeper took a broker away.
        return ambiguous(Cause.LAG, Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)
    # A leader that was itself frozen or cut off finds every follower late at once.
    alone = move.after.isr == (move.after.leader,) and len(move.left) > 1
    return ambiguous(Cause.LEADER_STALL, Cause.LAG) if alone else proven(Cause.LAG)


_RULES: Final[tuple[Callable[[Move], Explanation | None], ...]] = (
    _unclean,
    _reassignment,
    _departure,
    _controlled_shutdown,
    _election,
    _preferred,
    _by_leader,
)
