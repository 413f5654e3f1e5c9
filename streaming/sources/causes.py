"""Why an ISR or a leader changed, from the order in which a controller wrote its records.

Pure: knows metadata records and the set of causes, nothing of time, files or networks. One batch may hold the records
of several controller operations (``controller.quorum.append.linger.ms``), so the analysis goes by runs of neighbours,
never by the whole batch. Source: record order of ``ReplicationControlManager`` (Apache Kafka), KIP-631, KIP-966.

An operation that takes a broker away writes the partition changes first and the registration record last; one that
begins a controlled shutdown or unfences a broker writes the registration record first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, BrokerId
from streaming.contracts.records import (
    RECOVERING,
    BrokerRegistrationChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterBroker,
    UnregisterBroker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streaming.contracts.identifiers import TopicId


class Explanation(NamedTuple):
    """A cause, how it is known, and what else it may have been (with ambiguous evidence only)."""

    cause: Cause
    evidence: Evidence
    candidates: tuple[Cause, ...] = ()


def proven(cause: Cause) -> Explanation:
    """State a cause that the record sequence leaves no choice about."""
    return Explanation(cause, Evidence.PROVEN)


def ambiguous(cause: Cause, *others: Cause) -> Explanation:
    """State the likeliest of several causes that the record sequence allows."""
    return Explanation(cause, Evidence.AMBIGUOUS, (cause, *others))


_UNKNOWN: Final = Explanation(Cause.UNKNOWN, Evidence.AMBIGUOUS)


@dataclass(frozen=True, slots=True)
class Step:
    """One record in its place, with the partition before and after it when it is a ``PartitionChange``."""

    record: MetadataRecord
    before: Partition | None = None
    after: Partition | None = None


@dataclass(slots=True)
class _Move:
    """One partition's step, and what its neighbours say about it."""

    change: PartitionChange
    before: Partition
    after: Partition
    departure: Explanation | None = None
    broker_unfenced: bool = False
    shutting_down: frozenset[BrokerId] = field(default_factory=frozenset)
    unclean_enabled: bool = False

    @property
    def left(self) -> set[BrokerId]:
        return set(self.before.isr).difference(self.after.isr)

    @property
    def joined(self) -> set[BrokerId]:
        return set(self.after.isr).difference(self.before.isr)

    @property
    def leader_moved(self) -> bool:
        return self.before.leader != self.after.leader

    @property
    def elected(self) -> bool:
        """Somebody leads who did not."""
        return self.leader_moved and self.after.leader != NO_LEADER

    def gives_up(self, broker: BrokerId) -> bool:
        """Tell whether the ISR loses a broker; without ELR the last member stays on paper and only the leader goes."""
        orphaned = self.before.leader == broker and self.after.leader == NO_LEADER
        return orphaned or (broker in self.before.isr and broker not in self.after.isr)

    def gives_up_in_place(self, broker: BrokerId) -> bool:
        """The same, not as part of a reassignment."""
        return self.change.replicas is None and self.gives_up(broker)

    def strikes(self, broker: BrokerId) -> bool:
        """Tell whether the eligible leader replicas lose a broker that does not come back to the ISR."""
        return broker in self.before.elr and broker not in self.after.elr and broker not in self.after.isr

    def gives_up_or_strikes(self, broker: BrokerId) -> bool:
        """Tell whether the partition counts on a broker no longer."""
        return self.gives_up(broker) or self.strikes(broker)


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
    moves = [_move(step) for step in steps]
    _mark_shutdowns_and_unfencings(steps, moves, frozenset(shutting_down))
    _mark_departures(steps, moves)
    for move in moves:
        if move is not None and move.after.leader_recovery_state == RECOVERING:
            move.unclean_enabled = unclean_enabled(move.change.topic_id)
    return [None if move is None else _explain(move) for move in moves]


def _move(step: Step) -> _Move | None:
    if isinstance(step.record, PartitionChange) and step.before is not None and step.after is not None:
        return _Move(step.record, step.before, step.after)
    return None


def _mark_shutdowns_and_unfencings(
    steps: Sequence[Step], moves: Sequence[_Move | None], shutting_down: frozenset[BrokerId]
) -> None:
    """Note, on each move, who is in controlled shutdown, and whether it belongs to an unfencing (leaderless only)."""
    unfencing = False
    for step, move in zip(steps, moves, strict=True):
        record = step.record
        if move is not None:
            unfencing = unfencing and move.before.leader == NO_LEADER
            move.broker_unfenced, move.shutting_down = unfencing, shutting_down
            continue
        unfencing = isinstance(record, BrokerRegistrationChange) and record.fenced < 0
        if isinstance(record, BrokerRegistrationChange) and record.in_controlled_shutdown > 0:
            shutting_down |= {record.broker}
        elif isinstance(record, RegisterBroker | UnregisterBroker):
            shutting_down -= {record.broker}


def _mark_departures(steps: Sequence[Step], moves: Sequence[_Move | None]) -> None:
    """Find the run of changes before each record that takes a broker away, and say why it went."""
    for index, step in enumerate(steps):
        record = step.record
        if isinstance(record, BrokerRegistrationChange) and record.fenced > 0:
            run = _run_before(moves, index, record.broker, _Move.gives_up)
            _depart(run, _fencing(run, record.broker))
        elif isinstance(record, BrokerRegistrationChange) and record.log_dirs is not None:
            run = _run_before(moves, index, record.broker, _Move.gives_up)
            _depart(run, proven(Cause.DIR_FAILURE))
        elif isinstance(record, RegisterBroker | UnregisterBroker):
            run = _run_before(moves, index, record.broker, _Move.gives_up_or_strikes)
            _depart(run, _replacement(run, record))
    _mark_unfinished_departure(moves)


def _run_before(
    moves: Sequence[_Move | None], end: int, broker: BrokerId, belongs: Callable[[_Move, BrokerId], bool]
) -> list[_Move]:
    run: list[_Move] = []
    for move in reversed(moves[:end]):
        if move is None or not belongs(move, broker):
            break
        run.append(move)
    return run


def _depart(run: Iterable[_Move], why: Explanation) -> None:
    for move in run:
        move.departure = why


def _fencing(run: Sequence[_Move], broker: BrokerId) -> Explanation:
    """Tell a session expiry from a clean stop.

    A clean stop first moves every leadership away under ``inControlledShutdown``, so a broker that is fenced while it
    leads has lost its session. One that led nothing goes from running to stopped in one step, and looks the same.
    """
    if run and broker in run[0].shutting_down:
        return proven(Cause.CONTROLLED_SHUTDOWN)
    if any(move.before.leader == broker for move in run):
        return proven(Cause.FENCED)
    return ambiguous(Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)


def _replacement(run: Sequence[_Move], record: RegisterBroker | UnregisterBroker) -> Explanation:
    """Tell a restart from an unclean one: only the latter costs the broker its eligibility (KIP-966)."""
    if isinstance(record, UnregisterBroker):
        return proven(Cause.UNREGISTERED)
    unclean = any(move.strikes(record.broker) for move in run)
    return proven(Cause.UNCLEAN_RESTART if unclean else Cause.RESTART)


def _mark_unfinished_departure(moves: Sequence[_Move | None]) -> None:
    """Explain a departure that the controller split over batches: its registration record is still to come.

    A leader never removes itself, so a run in which a leader leaves the ISR is the controller's doing.
    """
    last = moves[-1] if moves else None
    if last is None:
        return
    for broker in last.left - last.shutting_down:
        run = _run_before(moves, len(moves), broker, _Move.gives_up_in_place)
        if any(move.before.leader == broker and broker in move.left for move in run):
            _depart(run, ambiguous(Cause.FENCED, Cause.DIR_FAILURE, Cause.RESTART))


def _explain(move: _Move) -> Explanation | None:
    """Take the first rule that applies."""
    for rule in _RULES:
        found = rule(move)
        if found is not None:
            return found
    changed = move.left or move.joined or move.leader_moved or move.before.elr != move.after.elr
    return _UNKNOWN if changed else None


def _unclean(move: _Move) -> Explanation | None:
    """Somebody leads who may lack committed records: by permission, or as the last known leader (KIP-966)."""
    if not move.elected or move.after.leader_recovery_state != RECOVERING:
        return None
    before = move.before
    last_known = not before.isr and not before.elr and before.last_known_elr == (move.after.leader,)
    if not last_known:
        return proven(Cause.UNCLEAN_ELECTION)
    # Away from an unfencing it may also be an administrator's election, which leaves the same record.
    if move.unclean_enabled or not move.broker_unfenced:
        return ambiguous(Cause.LAST_KNOWN_LEADER, Cause.UNCLEAN_ELECTION)
    return proven(Cause.LAST_KNOWN_LEADER)


def _reassignment(move: _Move) -> Explanation | None:
    change = move.change
    if change.replicas is None and change.adding_replicas is None and change.removing_replicas is None:
        return None
    if move.departure is None:
        return proven(Cause.REASSIGNMENT)
    # The departure of a broker may complete a reassignment, and a reassignment may end next to a departure.
    return ambiguous(Cause.REASSIGNMENT, move.departure.cause)


def _departure(move: _Move) -> Explanation | None:
    return move.departure


def _controlled_shutdown(move: _Move) -> Explanation | None:
    if any(move.gives_up(broker) for broker in move.shutting_down):
        return proven(Cause.CONTROLLED_SHUTDOWN)
    return None


def _election(move: _Move) -> Explanation | None:
    """A leaderless partition gets a leader again without loss."""
    if not move.elected or move.before.leader != NO_LEADER:
        return None
    if not move.before.isr and move.after.leader in move.before.elr:
        return proven(Cause.ELR_ELECTION)
    if move.left or move.joined:
        return None
    return proven(Cause.UNFENCED) if move.broker_unfenced else ambiguous(Cause.UNFENCED, Cause.PREFERRED_ELECTION)


def _preferred(move: _Move) -> Explanation | None:
    settled = not move.left and not move.joined
    if move.elected and settled and move.after.leader == move.after.replicas[0]:
        return proven(Cause.PREFERRED_ELECTION)
    return None


def _by_leader(move: _Move) -> Explanation | None:
    """What a leader asks for (AlterPartition): it drops who lags and adds who caught up."""
    if move.leader_moved or bool(move.left) == bool(move.joined):
        return None
    if move.joined:
        return proven(Cause.EXPAND)
    # A leader that was itself frozen or cut off finds every follower late at once.
    alone = move.after.isr == (move.after.leader,) and len(move.left) > 1
    return ambiguous(Cause.LEADER_STALL, Cause.LAG) if alone else proven(Cause.LAG)


_RULES: Final[tuple[Callable[[_Move], Explanation | None], ...]] = (
    _unclean,
    _reassignment,
    _departure,
    _controlled_shutdown,
    _election,
    _preferred,
    _by_leader,
)
