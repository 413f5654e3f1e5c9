"""Cause of each step between two answers about a partition: from what its brokers did. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER, BrokerId, Micros
from streaming.sources.polling.inference.conduct import seconds
from streaming.sources.polling.inference.elections import SeenLogEnds, election_of, is_from_outside, is_missing_records
from streaming.sources.polling.inference.fates import Conclusion, Fate, Fates, Step
from streaming.sources.polling.view import InferredCause, PartitionView

if TYPE_CHECKING:
    from streaming.sources.polling.inference.conduct import Listeners
    from streaming.sources.polling.inference.schedule import Intervals

_AFTER_SILENCE: Final = 3_000_000
"""A leader that stood still removes its followers within this after its first answer."""
_OF_FATE: Final = {
    Fate.STOPPED: Cause.CONTROLLED_SHUTDOWN,
    Fate.LOST: Cause.FENCED,
    Fate.CUT_OFF: Cause.FENCED,
    Fate.BROKE: Cause.FENCED,
}
_LOST: Final = frozenset({Fate.LOST, Fate.CUT_OFF, Fate.GONE})
_IN_TURN: Final = (
    Cause.UNKNOWN,
    Cause.LAG,
    Cause.LEADER_STALL,
    Cause.DIR_FAILURE,
    Cause.FENCED,
    Cause.CONTROLLED_SHUTDOWN,
)
"""Order in which brokers are taken to have left, of those that left between two answers for different reasons."""


class Causes:
    """Causes of steps.

    Args:
        intervals: with the configured times of the cluster.
        listeners: conduct of brokers.
        fates: what they did.
        ends: of logs.
    """

    def __init__(self, intervals: Intervals, listeners: Listeners, fates: Fates, ends: SeenLogEnds) -> None:
        self._intervals, self._listeners, self._fates, self._ends = intervals, listeners, fates, ends

    def use(self, intervals: Intervals) -> None:
        """Use other times of the cluster."""
        self._intervals = intervals

    def is_clear(self, step: Step, now: Micros) -> bool:
        """Return whether nothing that may still be met would change the cause of a step."""
        if is_from_outside(step) and self._ends.shown(step) is not None and self._ends.epoch_end(step) is None:
            return False
        return all(self._fates.of(broker, step.since, step.until, now) is not None for broker in step.left)

    def lost_by(self, step: Step, now: Micros) -> set[BrokerId]:
        """Return the brokers that a step removed because the controllers did not take for alive, as far as known."""
        conclusions = {broker: self._fates.of(broker, step.since, step.until, now) for broker in step.left}
        if (outage := self._outage(step)) is not None and step.before is not None:
            conclusions |= dict.fromkeys(step.before.isr, outage)
        if (crash := self._crash(step)) is not None and step.before is not None:
            conclusions[step.before.leader] = crash
        return {broker for broker, each in conclusions.items() if each and each.fate in _LOST}

    def explain(self, step: Step, now: Micros) -> InferredCause | None:
        """Return the cause of a step, as far as it is known; None where nothing changed."""
        before, after = step.before, step.after
        if before is None:
            return InferredCause(Cause.CREATED)
        if before._replace(offline=after.offline) == after:
            return None
        if set(before.replicas) != set(after.replicas) or before.reassignment != after.reassignment:
            return InferredCause(Cause.REASSIGNMENT)
        elected = election_of(step, self._listeners, self._ends)
        if elected is not None:
            return elected
        if not step.left and (back := self._return(step)) is not None:
            return back
        why = self._removal(step, now) if step.left else _of_full_isr(step)
        return why._replace(because=self._with_doubt(step, why.because)) if is_from_outside(step) else why

    def _with_doubt(self, step: Step, because: str) -> str:
        """Say of a leader that can have caught up why that is doubtful."""
        has_all = is_missing_records(step, self._ends) is False
        doubt = f"broker {step.after.leader} leads, and was not in the ISR seen last"
        doubt += ", but has all that was seen" if has_all else ": it can have caught up, or lack acknowledged records"
        return "; ".join(filter(None, (because, doubt)))

    def between(self, step: Step, now: Micros) -> list[tuple[PartitionView, InferredCause]]:
        """Return the states between the two of a step by which brokers left for different reasons, with their causes.

        A leader that crashed and is in the ISR again was out of it for a moment, too. While all of an ISR were gone, no
        broker led. A leader without a successor was lost after the others.

        It is unknown which one left first. A broker that was stopped is taken for the last one: if writes are refused
        then, the stop was not safe, and to call it planned would be wrong.
        """
        before, after = step.before, step.after
        if before is None or set(before.replicas) != set(after.replicas) or is_from_outside(step):
            return []
        if (outage := self._outage(step)) is not None:
            return [(before._replace(leader=NO_LEADER), _lost(outage))]
        crash = self._crash(step)
        isr = tuple(broker for broker in before.isr if broker != before.leader)
        if crash is not None and after.leader in isr:
            moved = before._replace(isr=isr, leader=after.leader, leader_epoch=after.leader_epoch)
            return [(moved, _lost(crash))]
        view, states = before, list[tuple[PartitionView, InferredCause]]()
        *others, (last, reason) = self._reasons(step, now) or [(set[BrokerId](), InferredCause(Cause.UNKNOWN))]
        if before.leader in after.isr and last > {before.leader}:
            others.append((last - {before.leader}, reason))
        for brokers, why in others:
            isr = tuple(broker for broker in view.isr if broker not in brokers)
            has_moved = view.leader in brokers
            leader, epoch = (after.leader, after.leader_epoch) if has_moved else (view.leader, view.leader_epoch)
            view = view._replace(isr=isr, leader=leader, leader_epoch=epoch)
            states.append((view, why))
        return states

    def _return(self, step: Step) -> InferredCause | None:
        """Return the cause of a step by which an ISR is full again that was not meanwhile."""
        if self._outage(step) is not None:
            because = f"broker {step.after.leader} is back, and was in the ISR"
            return InferredCause(Cause.UNFENCED, because=because)
        return None if self._crash(step) is None else InferredCause(Cause.EXPAND)

    def _outage(self, step: Step) -> Conclusion | None:
        """Return that all of an ISR were gone at one time, if a leader was elected since."""
        before, after = step.before, step.after
        if before is None or NO_LEADER in (before.leader, after.leader):
            return None
        is_elected = before.leader != after.leader or (after.leader_epoch or 0) > (before.leader_epoch or 0)
        return self._fates.outage_of(before.isr, step.since, step.until) if is_elected else None

    def _crash(self, step: Step) -> Conclusion | None:
        """Return what the leader before a step did, if it crashed or was cut off, and is in the ISR again.

        No order takes the leadership from a member of the ISR and gives it to a replica that is not the first one, at
        least not in one election.
        """
        before, after = step.before, step.after
        if (
            before is None
            or before.leader in (NO_LEADER, UNSEEN_LEADER, after.leader)
            or before.leader not in after.isr
        ):
            return None
        crash = self._fates.crash_between(before.leader, step.since, step.until)
        is_ordered = before.replicas != after.replicas or after.leader in (NO_LEADER, UNSEEN_LEADER, after.replicas[0])
        if crash is not None or is_ordered or after.leader_epoch is None or before.leader_epoch is None:
            return crash
        if after.leader_epoch != before.leader_epoch + 1:
            return None
        return self._fates.cut_off_between(before.leader, step.since, step.until)

    def _reasons(self, step: Step, now: Micros) -> list[tuple[set[BrokerId], InferredCause]]:
        """Return which brokers left for which reason, in the order in which they are taken to have left."""
        reasons: dict[tuple[Cause, BrokerId | None], tuple[set[BrokerId], InferredCause]] = {}
        for broker in step.left:
            why = self._why(step, broker, self._fates.of(broker, step.since, step.until, now))
            key = why.cause, broker if why.cause is Cause.DIR_FAILURE else None  # each disk fails separately
            brokers, first = reasons.setdefault(key, (set(), why))
            because = "; ".join(dict.fromkeys(filter(None, (first.because, why.because))))
            reasons[key] = brokers | {broker}, first._replace(because=because)
        return [reasons[cause] for cause in sorted(reasons, key=_place)]

    def _removal(self, step: Step, now: Micros) -> InferredCause:
        return self._reasons(step, now)[-1][1]

    def _why(self, step: Step, broker: BrokerId, conclusion: Conclusion | None) -> InferredCause:
        """Return why one broker left the ISR."""
        if conclusion is None:
            return InferredCause(Cause.UNKNOWN)
        if conclusion.fate is Fate.GONE:
            return _lost(conclusion)
        if conclusion.fate in _OF_FATE:
            return InferredCause(_OF_FATE[conclusion.fate], because=conclusion.because)
        if broker in step.after.offline and self._answered(broker, step):
            return InferredCause(Cause.DIR_FAILURE, because=f"{conclusion.because}, and its replica is offline")
        assert step.before is not None  # noqa: S101 - for the type checker
        if step.after.leader == NO_LEADER or step.after.leader != step.before.leader:
            return InferredCause(Cause.UNKNOWN, because=conclusion.because)
        return self._lag(step, conclusion)

    def _answered(self, broker: BrokerId, step: Step) -> bool:
        """Return whether a broker answered all through a step; of one that is not alive every replica is offline."""
        listener = self._listeners.of.get(broker)
        return listener is not None and listener.absence_within(step.since, step.until) is None

    def _lag(self, step: Step, conclusion: Conclusion) -> InferredCause:
        """Return why a leader removed a follower that is listed: it stood still itself, or the follower lagged."""
        leader = self._listeners.of.get(step.after.leader)
        absence = None if leader is None else leader.absence_within(Micros(step.since - _AFTER_SILENCE), step.until)
        if absence is not None and absence.until is not None:
            lasted = absence.until - absence.last_answer
            if 2 * lasted >= self._intervals.lag:
                because = f"leader {step.after.leader} had not answered for {seconds(lasted)} just before"
                return InferredCause(Cause.LEADER_STALL, because=because)
        return InferredCause(Cause.LAG, because=conclusion.because)


def _lost(conclusion: Conclusion) -> InferredCause:
    """Return that a broker was lost, or stopped cleanly if that looks alike."""
    if conclusion.fate is not Fate.GONE:
        return InferredCause(Cause.FENCED, because=conclusion.because)
    either = (Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)
    return InferredCause(Cause.FENCED, Evidence.AMBIGUOUS, either, conclusion.because)


def _place(reason: tuple[Cause, BrokerId | None]) -> int:
    return _IN_TURN.index(reason[0])


def _of_full_isr(step: Step) -> InferredCause:
    """Return the cause of a step by which no broker left the ISR."""
    before, after = step.before, step.after
    assert before is not None  # noqa: S101 - for the type checker
    if before.leader == after.leader and set(before.isr) < set(after.isr):
        return InferredCause(Cause.EXPAND)
    is_preferred = after.leader == after.replicas[0] != before.leader and before.leader != UNSEEN_LEADER
    return InferredCause(Cause.PREFERRED_ELECTION if is_preferred else Cause.UNKNOWN)
