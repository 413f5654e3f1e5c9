"""What the neighbours of a partition change say about it: runs of records in one batch.

Pure: knows metadata records only. The rules that judge a move stand in :mod:`causes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, BrokerId
from streaming.contracts.records import (
    BrokerRegistrationChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterBroker,
    UnregisterBroker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


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


@dataclass(frozen=True, slots=True)
class Step:
    """One record in its place, with the partition before and after it when it is a ``PartitionChange``."""

    record: MetadataRecord
    before: Partition | None = None
    after: Partition | None = None


@dataclass(slots=True)
class Move:
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
        """Brokers that the ISR lost."""
        return set(self.before.isr).difference(self.after.isr)

    @property
    def joined(self) -> set[BrokerId]:
        """Brokers that the ISR gained."""
        return set(self.after.isr).difference(self.before.isr)

    @property
    def leader_moved(self) -> bool:
        """Another leader, or none (a leader that is named again only gets a new epoch)."""
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


def moves_of(steps: Sequence[Step], shutting_down: Iterable[BrokerId]) -> list[Move | None]:
    """Read each ``PartitionChange`` of one batch together with its neighbours; None for other records."""
    moves = [_move(step) for step in steps]
    _mark_shutdowns_and_unfencings(steps, moves, frozenset(shutting_down))
    _mark_departures(steps, moves)
    return moves


def _move(step: Step) -> Move | None:
    if isinstance(step.record, PartitionChange) and step.before is not None and step.after is not None:
        return Move(step.record, step.before, step.after)
    return None


def _mark_shutdowns_and_unfencings(
    steps: Sequence[Step], moves: Sequence[Move | None], shutting_down: frozenset[BrokerId]
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


def _mark_departures(steps: Sequence[Step], moves: Sequence[Move | None]) -> None:
    """Find the run of changes before each record that takes a broker away, and say why it went."""
    for index, step in enumerate(steps):
        record = step.record
        if isinstance(record, BrokerRegistrationChange) and record.fenced > 0:
            run = _run_before(moves, index, record.broker, Move.gives_up)
            _depart(run, _fencing(run, record.broker))
        elif isinstance(record, BrokerRegistrationChange) and record.log_dirs is not None:
            run = _run_before(moves, index, record.broker, Move.gives_up)
            _depart(run, proven(Cause.DIR_FAILURE))
        elif isinstance(record, RegisterBroker | UnregisterBroker):
            run = _run_before(moves, index, record.broker, Move.gives_up_or_strikes)
            _depart(run, _replacement(run, record))
    _mark_unfinished_departure(moves)


def _run_before(
    moves: Sequence[Move | None], end: int, broker: BrokerId, belongs: Callable[[Move, BrokerId], bool]
) -> list[Move]:
    run: list[Move] = []
    for move in reversed(moves[:end]):
        if move is None or not belongs(move, broker):
            break
        run.append(move)
    return run


def _depart(run: Iterable[Move], why: Explanation) -> None:
    for move in run:
        move.departure = why


def _fencing(run: Sequence[Move], broker: BrokerId) -> Explanation:
    """Tell a session expiry from a clean stop.

    A clean stop first moves every leadership away under ``inControlledShutdown``, so a broker that is fenced while it
    leads has lost its session. One that led nothing goes from running to stopped in one step, and looks the same.
    """
    if run and broker in run[0].shutting_down:
        return proven(Cause.CONTROLLED_SHUTDOWN)
    if any(move.before.leader == broker for move in run):
        return proven(Cause.FENCED)
    return ambiguous(Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)


def _replacement(run: Sequence[Move], record: RegisterBroker | UnregisterBroker) -> Explanation:
    """Tell a restart from an unclean one: only the latter costs the broker its eligibility (KIP-966)."""
    if isinstance(record, UnregisterBroker):
        return proven(Cause.UNREGISTERED)
    unclean = any(move.strikes(record.broker) for move in run)
    return proven(Cause.UNCLEAN_RESTART if unclean else Cause.RESTART)


def _mark_unfinished_departure(moves: Sequence[Move | None]) -> None:
    """Explain a departure that the controller split over batches: its registration record is still to come.

    A leader never removes itself, so a run in which a leader leaves the ISR is the controller's doing.
    """
    last = moves[-1] if moves else None
    if last is None:
        return
    for broker in set(last.before.isr) - last.shutting_down:
        run = _run_before(moves, len(moves), broker, Move.gives_up_in_place)
        if any(move.before.leader == broker for move in run):
            _depart(run, ambiguous(Cause.FENCED, Cause.DIR_FAILURE, Cause.RESTART))
