"""Cause of each step between two answers about a partition, from the conduct of the brokers concerned. Pure."""

# Theory of operation
#
# An answer shows that a broker left an ISR, not why. When it stopped to answer, and who still lists it, distinguishes:
#
#   | it answered             | it is listed          | what it did                                                    |
#   |-------------------------|-----------------------|----------------------------------------------------------------|
#   | long before             | no                    | crashed, hung or was cut off: its session ended. FENCED        |
#   | long before             | yes                   | hangs: its leaders removed it. LAG. Its process ended: FENCED  |
#   | until it had left       | no, and then silence  | stopped cleanly. CONTROLLED_SHUTDOWN                           |
#   | all the time            | no                    | is cut off from the controllers. FENCED                        |
#   | all the time            | yes, its leaders left | begins to stop. CONTROLLED_SHUTDOWN                            |
#   | all the time            | yes                   | its leader removed it. LAG; LEADER_STALL if that one was silent|
#   | until it had left       | yes, and then silence | its process ended with its last directory. DIR_FAILURE, FENCED |
#
# "Long before" is before the window in which it left, by more than one question about its presence takes. A window is
# as small as the questions were frequent: the first answer after a connection ended shows whether the broker had left
# before. A step is held for ``Intervals.hold`` where the next answers decide.

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER, BrokerId, Micros
from streaming.sources.polling.conduct import SLOW, Absence, seconds
from streaming.sources.polling.elections import election_of
from streaming.sources.polling.view import Explanation, PartitionView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.sources.polling.conduct import Listeners
    from streaming.sources.polling.schedule import Intervals

_SECOND: Final = 1_000_000
_REMEMBERED: Final = 30 * _SECOND
_BEHIND: Final = 300_000
"""What the broker that answers has read of the metadata may be older than its answer, by less than this."""


class Step(NamedTuple):
    """Difference between two answers about a partition; it happened after ``since`` and before ``until``."""

    topic: str
    number: int
    before: PartitionView | None
    after: PartitionView
    since: Micros
    until: Micros

    @property
    def left(self) -> tuple[BrokerId, ...]:
        """The brokers that left the ISR, and the one that led last if nobody leads any more."""
        if self.before is None:
            return ()
        left = tuple(broker for broker in self.before.isr if broker not in self.after.isr)
        has_lost_leader = self.after.leader == NO_LEADER != self.before.leader
        is_last = has_lost_leader and self.before.leader >= 0 and self.before.leader not in left
        return (*left, self.before.leader) if is_last else left


class Fate(Enum):
    """What a broker did that left ISRs, or is not listed any more."""

    STOPPED = auto()
    """It stopped cleanly, or begins to."""
    LOST = auto()
    """It crashed, hung or was cut off for longer than a session."""
    CUT_OFF = auto()
    """It answers, and the controllers do not take it for alive."""
    BROKE = auto()
    """Its process ended while it was listed, with its last directory or otherwise."""
    RUNS = auto()
    """It answers, or is silent, and is listed."""


class Finding(NamedTuple):
    """What a broker did, and why one may think so."""

    fate: Fate
    because: str


class Circumstances:
    """What is known besides a step: the conduct of brokers, and the other steps.

    Attributes:
        stopped: brokers that were found to stop cleanly, until they are listed again.
        stalled_until: end of the last time in which the controller stood still.
    """

    def __init__(self, intervals: Intervals, listeners: Listeners) -> None:
        self._intervals, self._listeners = intervals, listeners
        self._steps: deque[Step] = deque()
        self.stopped: set[BrokerId] = set()
        self.stalled_until: Micros | None = None
        self._new_stopped: set[BrokerId] = set()
        self._back: set[BrokerId] = set()

    def note(self, steps: Iterable[Step]) -> None:
        """Take steps for circumstances of each other."""
        for step in steps:
            self._steps.append(step)
        while self._steps and self._steps[0].until + _REMEMBERED < self._steps[-1].until:
            self._steps.popleft()

    def is_listed_again(self, broker: BrokerId) -> None:
        """Take a broker for one that runs."""
        self.stopped.discard(broker)

    def take_stopped(self) -> list[BrokerId]:
        """Return the brokers that were found to stop cleanly since the last call."""
        found, self._new_stopped = sorted(self._new_stopped), set()
        return found

    def take_back(self) -> list[BrokerId]:
        """Return the brokers that were found to have been away, and are listed again, since the last call."""
        found, self._back = sorted(self._back), set()
        return found

    # ------------------------------------------------------------------ what a broker did

    def fate(self, broker: BrokerId, since: Micros, until: Micros, now: Micros) -> Finding | None:
        """Return what a broker did that left ISRs, or ceased to be listed, within a window; None: that is not clear yet."""
        finding = self._fate(broker, since, until, now)
        if finding is not None and finding.fate is Fate.STOPPED and broker not in self.stopped:
            self.stopped.add(broker)
            self._new_stopped.add(broker)
        return finding

    def _fate(self, broker: BrokerId, since: Micros, until: Micros, now: Micros) -> Finding | None:
        listeners, is_late = self._listeners, now >= until + self._intervals.hold
        if broker in self.stopped:
            return Finding(Fate.STOPPED, f"broker {broker} had begun to stop")
        listener = listeners.of.get(broker)
        if listener is None or listener.answered is None:
            return Finding(Fate.LOST if listeners.is_listed(broker) is False else Fate.RUNS, "")
        absence = listener.absence_at(until) or (listener.absences[-1] if listener.is_absent else None)
        is_listed = listeners.is_listed(broker) is not False
        if absence is not None and _is_before(absence, since):
            return self._fate_of_absent(broker, since, until, now)
        has_moved = self._has_moved_from(broker, until)
        if absence is not None:  # it answered until about then
            gone = now if absence.ended_at is None else absence.ended_at
            lasted = since - absence.last_answer
            if not is_listed:
                if until - absence.last_answer > 2 * self._intervals.session // 3 and lasted > -SLOW:
                    return Finding(
                        Fate.LOST, f"broker {broker} answered last {seconds(until - absence.last_answer)} before"
                    )
                return Finding(Fate.STOPPED, f"broker {broker} answered until it had left, then no more")
            if has_moved:
                return Finding(Fate.STOPPED, f"broker {broker} answered until it led nothing any more, then no more")
            if not is_late:
                return None
            if absence.is_process_gone and listeners.is_trusted(broker):
                return Finding(Fate.BROKE, f"broker {broker} ended at once, {seconds(gone - until)} after it had left")
            return Finding(Fate.RUNS, f"broker {broker} does not answer, and is listed")
        if not is_listed:
            if not is_late:
                return None
            return Finding(Fate.CUT_OFF, f"broker {broker} answers, and the others do not list it")
        if not listeners.is_confirmed(broker, until) and not is_late:
            return None
        if self._is_after_stall(since, until):
            return Finding(Fate.CUT_OFF, f"broker {broker} answers, and the controller had stood still")
        if has_moved and self._has_rejoined(broker, until):
            return Finding(Fate.CUT_OFF, f"broker {broker} answers, and was out of its ISRs for a moment")
        if has_moved:
            if not is_late:
                return None
            return Finding(Fate.STOPPED, f"broker {broker} answers and is listed, and leads nothing any more")
        return Finding(Fate.RUNS, f"broker {broker} answers and is listed")

    def _fate_of_absent(self, broker: BrokerId, since: Micros, until: Micros, now: Micros) -> Finding | None:
        """Return what a broker did that had not answered for a while when it left."""
        listeners = self._listeners
        absence = listeners.of[broker].absence_at(until)
        assert absence is not None  # noqa: S101 - for the type checker
        how = "refused connections" if absence.is_refused else "did not answer"
        because = f"broker {broker} {how} for {seconds(until - absence.last_answer)} when it left"
        if not listeners.is_trusted(broker):
            because += ", behind a proxy"
        is_process_gone = absence.is_process_gone and listeners.is_trusted(broker)
        if listeners.is_listed(broker) is False or is_process_gone or self._has_moved_from(broker, until):
            return Finding(Fate.LOST, because)
        if not listeners.is_confirmed(broker, until) and now < until + self._intervals.hold:
            return None
        return Finding(Fate.RUNS, because)

    def _has_moved_from(self, broker: BrokerId, until: Micros) -> bool:
        """Return whether a broker lost the leadership of a partition, with its place in the ISR, at about that time."""
        return any(
            step.before is not None
            and step.before.leader == broker != step.after.leader
            and (broker not in step.after.isr or step.after.leader == NO_LEADER)
            and set(step.before.replicas) == set(step.after.replicas)
            and broker not in step.after.offline
            for step in self._steps
            if abs(step.until - until) <= self._intervals.hold
        )

    def _is_after_stall(self, since: Micros, until: Micros) -> bool:
        """Return whether the controller resumed within a window, or just before."""
        end = self.stalled_until
        return end is not None and since - _BEHIND <= end <= until + _SECOND

    def _has_rejoined(self, broker: BrokerId, until: Micros) -> bool:
        """Return whether a broker joined an ISR since a moment."""
        return any(
            step.until > until
            and step.before is not None
            and broker in step.after.isr
            and broker not in step.before.isr
            for step in self._steps
        )

    # ------------------------------------------------------------------ steps

    def is_clear(self, step: Step, now: Micros) -> bool:
        """Return whether nothing that may still be met would change the cause of a step."""
        return all(self.fate(broker, step.since, step.until, now) is not None for broker in step.left)

    def explain(self, step: Step, now: Micros) -> Explanation | None:
        """Return the cause of a step, as far as it is known; None where nothing changed."""
        before, after = step.before, step.after
        if before is None:
            return Explanation(Cause.CREATED)
        if before._replace(offline=after.offline) == after:
            return None
        if set(before.replicas) != set(after.replicas) or before.reassignment != after.reassignment:
            return Explanation(Cause.REASSIGNMENT)
        elected = election_of(step, self._listeners)
        if elected is not None:
            return elected
        if step.left:
            return self._removal(step, now)
        if before.leader == after.leader and set(before.isr) < set(after.isr):
            return Explanation(Cause.EXPAND)
        is_preferred = after.leader == after.replicas[0] != before.leader and before.leader != UNSEEN_LEADER
        return Explanation(Cause.PREFERRED_ELECTION if is_preferred else Cause.UNKNOWN)

    def _removal(self, step: Step, now: Micros) -> Explanation:
        findings = [self.fate(broker, step.since, step.until, now) for broker in step.left]
        whys = [self._of_finding(step, broker, each) for broker, each in zip(step.left, findings, strict=True)]
        causes = {why.cause for why in whys}
        because = "; ".join(why.because for why in whys if why.because)
        if len(causes) == 1:
            return whys[0]._replace(because=because)
        gravest = min(whys, key=lambda why: _GRAVEST.index(why.cause) if why.cause in _GRAVEST else len(_GRAVEST))
        others = tuple(dict.fromkeys(why.cause for why in whys if why.cause is not gravest.cause))
        return Explanation(gravest.cause, Evidence.AMBIGUOUS, (gravest.cause, *others), because)

    def _of_finding(self, step: Step, broker: BrokerId, finding: Finding | None) -> Explanation:
        if finding is None:
            return Explanation(Cause.UNKNOWN)
        if finding.fate is Fate.STOPPED:
            return Explanation(Cause.CONTROLLED_SHUTDOWN, because=finding.because)
        if finding.fate in (Fate.LOST, Fate.CUT_OFF):
            if self._listeners.is_listed(broker) and not self._listeners.of[broker].is_absent:
                self._back.add(broker)
            return Explanation(Cause.FENCED, because=finding.because)
        if finding.fate is Fate.BROKE:
            return Explanation(Cause.FENCED, because=finding.because)
        if broker in step.after.offline:
            return Explanation(Cause.DIR_FAILURE, because=f"{finding.because}, and its replica is offline")
        if step.before is None or step.after.leader != step.before.leader or step.after.leader == NO_LEADER:
            return Explanation(Cause.UNKNOWN, because=finding.because)
        return self._lag(step, broker, finding)

    def _lag(self, step: Step, broker: BrokerId, finding: Finding) -> Explanation:
        """Return why a leader removed a follower that is listed: that one hangs, the leader stood still, or neither."""
        leader = self._listeners.of.get(step.after.leader)
        absence = None if leader is None else leader.absence_within(Micros(step.since - 3 * _SECOND), step.until)
        if absence is not None and absence.until is not None:
            lasted = absence.until - absence.last_answer
            if lasted >= self._intervals.lag // 2:
                because = f"leader {step.after.leader} had not answered for {seconds(lasted)} just before"
                return Explanation(Cause.LEADER_STALL, because=because)
        return Explanation(Cause.LAG, because=finding.because)


def _is_before(absence: Absence, since: Micros) -> bool:
    """Return whether a broker ceased to answer clearly before the begin of a window."""
    ended = absence.ended_at
    return absence.last_answer < since - SLOW or (ended is not None and ended + _BEHIND < since)


_GRAVEST: Final = (Cause.FENCED, Cause.DIR_FAILURE, Cause.LAG, Cause.LEADER_STALL, Cause.CONTROLLED_SHUTDOWN)
