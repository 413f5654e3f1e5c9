"""Conclusions on a broker that left ISRs, or is not listed any more: from when it answered, and who lists it. Pure."""

# Theory of operation
#
# An answer shows that a broker left an ISR, not why. When it ceased to answer, and whether it is listed, distinguishes:
#
#   | it answered       | listed                | what it did                                                        |
#   | ----------------- | --------------------- | ------------------------------------------------------------------ |
#   | long before       | no                    | LOST: it crashed, hung or was cut off, and its session ended       |
#   | long before       | yes                   | RUNS, and hangs: its leaders removed it; LOST if its process ended |
#   | until it had left | no                    | STOPPED cleanly                                                    |
#   | until it had left | yes, its leaders left | STOPPED cleanly                                                    |
#   | until it had left | yes                   | BROKE: its process ended by itself                                 |
#   | all the time      | no                    | CUT_OFF from the controllers                                       |
#   | all the time      | yes, its leaders left | STOPPED, soon; CUT_OFF if it is back in ISRs: for a moment         |
#   | all the time      | yes                   | RUNS: its leader removed it                                        |
#
# "Long before" is before the window in which it left, by more than a question about its presence takes; or its
# connection had ended when others were asked, and they showed it in its ISRs still. A window is as small as questions
# were frequent, and the first one follows the end of a connection at once.

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, BrokerId, Micros
from streaming.sources.polling.inference.conduct import SLOW, Absence, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.sources.polling.inference.conduct import ListenerConduct, Listeners
    from streaming.sources.polling.inference.schedule import Intervals
    from streaming.sources.polling.view import PartitionView

ALIKE: Final = "a clean stop and a crash look alike here"
_SECOND: Final = 1_000_000
_REMEMBERED: Final = 30 * _SECOND
_BEHIND: Final = 300_000
"""Most by which the metadata that a broker has read are older than its answer (measured)."""


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
        """The brokers that left the ISR, and the one that led last if no broker leads any more."""
        if self.before is None:
            return ()
        left = tuple(broker for broker in self.before.isr if broker not in self.after.isr)
        has_lost_leader = self.after.leader == NO_LEADER != self.before.leader
        is_last = has_lost_leader and self.before.leader >= 0 and self.before.leader not in left
        return (*left, self.before.leader) if is_last else left

    def moves_from(self, broker: BrokerId) -> bool:
        """Return whether a broker lost the leadership with its place in the ISR, and not with its directory."""
        before, after = self.before, self.after
        if before is None or not before.leader == broker != after.leader or set(before.replicas) != set(after.replicas):
            return False
        return (broker not in after.isr or after.leader == NO_LEADER) and broker not in after.offline

    def is_joined_by(self, broker: BrokerId) -> bool:
        """Return whether a broker joined the ISR."""
        return self.before is not None and broker in self.after.isr and broker not in self.before.isr


class Fate(Enum):
    """The kinds of what a broker did."""

    STOPPED = auto()
    """It stopped cleanly, or begins to."""
    LOST = auto()
    """It crashed, hung or was cut off for longer than a session."""
    GONE = auto()
    """It stopped cleanly or was lost: both look alike here."""
    CUT_OFF = auto()
    """It answers, and the controllers did not take it for alive, be it for a moment."""
    BROKE = auto()
    """Its process ended by itself while it was listed, as with its last directory."""
    RUNS = auto()
    """It is listed, whether it answers or is silent."""


class Conclusion(NamedTuple):
    """Conclusion on a broker, and the evidence in words."""

    fate: Fate
    because: str


class _Leaving(NamedTuple):
    """A broker left ISRs, or ceased to be listed, within a window; ``is_late``: the next answers have been awaited."""

    broker: BrokerId
    since: Micros
    until: Micros
    is_late: bool


class Fates:
    """Conclusions on brokers.

    Attributes:
        stopped: brokers that were found to stop cleanly, until they are listed again or join an ISR, and why.
        stalled_until: end of the last time in which the controller stood still.
        waited_until: of brokers that waited for a controller while most others were silent, when that ended.
    """

    def __init__(self, intervals: Intervals, listeners: Listeners) -> None:
        self._intervals, self._listeners = intervals, listeners
        self._steps: deque[Step] = deque()
        self.stopped: dict[BrokerId, Conclusion] = {}
        self.stalled_until: Micros | None = None
        self.waited_until: dict[BrokerId, Micros] = {}

    def use(self, intervals: Intervals) -> None:
        """Use other times of the cluster."""
        self._intervals = intervals

    def note(self, steps: Iterable[Step]) -> None:
        """Take steps for circumstances of each other."""
        self._steps.extend(steps)
        while self._steps and self._steps[0].until + _REMEMBERED < self._steps[-1].until:
            self._steps.popleft()

    def of(self, broker: BrokerId, since: Micros, until: Micros, now: Micros) -> Conclusion | None:
        """Return what a broker did that left ISRs, or ceased to be listed, within a window; None: not clear yet."""
        if broker in self.stopped:
            return self.stopped[broker]
        leaving = _Leaving(broker, since, until, is_late=now >= until + self._intervals.hold)
        listener = self._listeners.of.get(broker)
        if listener is None or listener.answered is None:
            is_gone = self._listeners.is_listed(broker) is False
            because = f"broker {broker} is not listed, and was never asked: {ALIKE}"
            if not is_gone and not leaving.is_late:
                return None
            return Conclusion(Fate.GONE, because) if is_gone else Conclusion(Fate.RUNS, "")
        absence = listener.absence_within(since, until) or (listener.absences[-1] if listener.is_absent else None)
        has_waited = broker in self.waited_until and absence is not None and not absence.is_process_gone
        if has_waited and (cut_off := self._cut_off_before(broker, since, until)) is not None:
            return cut_off  # it answers nothing else while it waits
        if absence is None:
            conclusion = self._of_present(leaving)
        elif _is_before(absence, since):
            conclusion = self._of_absent(leaving, absence)
        else:
            conclusion = self._of_ended(leaving, absence, listener)
        if conclusion is not None and conclusion.fate is Fate.STOPPED:
            self.stopped[broker] = conclusion
        return conclusion

    def crash_between(self, broker: BrokerId, since: Micros, until: Micros) -> Conclusion | None:
        """Return what a broker did that led nothing any more within a window and is in its ISRs again, if it crashed.

        Its process was gone already when it was seen to lead last: a clean stop gives up the leaders first. If the
        partition was not seen in between, it may have been stopped cleanly, too.
        """
        listener = self._listeners.of.get(broker)
        absence = None if listener is None else listener.absence_within(since, until)
        if absence is None or not absence.is_refused or not self._listeners.is_trusted(broker):
            return None
        gone = absence.since if absence.ended_at is None else absence.ended_at
        back = until if absence.until is None else absence.until
        if gone + _BEHIND > since:
            return self._unseen(broker, back - absence.last_answer, absence.last_answer, back)
        lasted = back - gone
        because = f"broker {broker} refused connections for {seconds(lasted)}, and had led until then"
        return Conclusion(Fate.LOST, because)

    def outage_of(self, brokers: Iterable[BrokerId], since: Micros, until: Micros) -> Conclusion | None:
        """Return that the processes of all these brokers were gone at one time within a window; None: not all."""
        absences = list[Absence]()
        for broker in brokers:
            listener = self._listeners.of.get(broker)
            absence = None if listener is None else listener.absence_within(since, until)
            if absence is None or not absence.is_refused or not self._listeners.is_trusted(broker):
                return None
            absences.append(absence)
        end = min((until if each.until is None else each.until for each in absences), default=until)
        if end - max((each.since for each in absences), default=until) <= SLOW:
            return None
        lasted = end - max(each.last_answer for each in absences)
        return Conclusion(Fate.GONE, f"no broker of the ISR answered for {seconds(lasted)}: {ALIKE}")

    def cut_off_between(self, broker: BrokerId, since: Micros, until: Micros) -> Conclusion | None:
        """Return what a broker did that lost leaders within a window, and is in their ISRs again.

        It answered all through it, or not at all.
        """
        listener = self._listeners.of.get(broker)
        if listener is None or listener.answered is None:
            return None
        if (absence := listener.absence_within(since, until)) is not None:
            is_whole = _is_before(absence, since) and (absence.until is None or absence.until >= until)
            because = f"broker {broker} did not answer, and was out of its ISRs for a moment: {ALIKE}"
            return Conclusion(Fate.GONE, because) if is_whole else None
        if self._listeners.is_listed(broker) is False:
            return None
        cut_off = self._cut_off_before(broker, since, until)
        return cut_off or Conclusion(Fate.CUT_OFF, f"broker {broker} answers, and was out of its ISRs for a moment")

    def _of_absent(self, leaving: _Leaving, absence: Absence) -> Conclusion | None:
        """Return what a broker did that had not answered for a while when it left."""
        broker, since, until, is_late = leaving
        listeners = self._listeners
        if self._leads_after(broker, absence):
            return Conclusion(Fate.RUNS, f"broker {broker} does not answer here, and leads on")
        how = "had refused connections" if absence.is_refused else "had not answered"
        lasted = max(since, absence.since) - absence.since
        least = f" for at least {seconds(lasted)}" if lasted > _BEHIND else ""
        because = f"broker {broker} {how}{least} when it left"
        is_process_gone = absence.is_process_gone and listeners.is_trusted(broker)
        if not listeners.is_trusted(broker):
            because += ", as far as can be seen through a proxy"
        is_listed = listeners.is_listed(broker) is not False and listeners.is_listed_since(broker, until)
        if is_listed is False or is_process_gone or self._has_moved_from(broker, until):
            if not is_process_gone and self._has_outlived(absence, since):
                return Conclusion(Fate.GONE, f"{because}, and ran until then: {ALIKE}")
            return Conclusion(Fate.LOST, because)
        is_uncontrolled = self._was_uncontrolled(absence, since, until)
        if is_uncontrolled or self._leader_was_absent(broker, until):
            who = "a controller" if is_uncontrolled else "its leader"
            return Conclusion(Fate.LOST, f"{because}, nor had {who}") if is_late else None
        return Conclusion(Fate.RUNS, because) if is_listed or is_late else None

    def _of_ended(self, leaving: _Leaving, absence: Absence, listener: ListenerConduct) -> Conclusion | None:
        """Return what a broker did that answered until about the time at which it left, and then no more."""
        broker, since, until, is_late = leaving
        if self._listeners.is_listed(broker) is False:
            return self._of_unlisted(leaving, absence)
        if self._has_moved_from(broker, until):
            because = f"broker {broker} answered until it led nothing any more, then no more"
            return self._unseen(broker, until - absence.last_answer, absence.last_answer, until) or Conclusion(
                Fate.STOPPED, because
            )
        if not is_late:
            return None
        if listener.is_absent and absence.is_process_gone and self._listeners.is_trusted(broker):
            return Conclusion(Fate.BROKE, f"the process of broker {broker} ended while it was listed")
        if self._was_uncontrolled(absence, since, until):
            return Conclusion(Fate.LOST, f"broker {broker} did not answer, nor did a controller")
        return Conclusion(Fate.RUNS, f"broker {broker} does not answer, and is listed")

    def _of_unlisted(self, leaving: _Leaving, absence: Absence) -> Conclusion | None:
        """Return what a broker did that answered until about the time at which it left, and is not listed any more."""
        broker, _, until, is_late = leaving
        if (unseen := self._unseen(broker, until - absence.last_answer, absence.last_answer, until)) is not None:
            return unseen
        if absence.is_process_gone:
            return Conclusion(Fate.STOPPED, f"broker {broker} answered until it had left, then no more")
        if not is_late:  # a broker that stops closes its connections with its next heartbeat
            return None
        because = f"broker {broker} is silent since about when it left, and closed nothing"
        return Conclusion(Fate.LOST if self._listeners.is_trusted(broker) else Fate.GONE, because)

    def _of_present(self, leaving: _Leaving) -> Conclusion | None:
        """Return what a broker did that answers all the time."""
        broker, since, until, is_late = leaving
        is_unlisted = self._listeners.is_listed(broker) is False
        if is_unlisted or self._listeners.was_unlisted_within(broker, since, until):
            because = f"broker {broker} answers, and the others {'do' if is_unlisted else 'did'} not list it"
            return Conclusion(Fate.CUT_OFF, because) if is_late or not is_unlisted else None
        if not self._listeners.is_listed_since(broker, until) and not is_late:
            return None
        if (cut_off := self._cut_off_before(broker, since, until)) is not None:
            return cut_off
        if not self._has_moved_from(broker, until):
            return Conclusion(Fate.RUNS, f"broker {broker} answers and is listed")
        return self._of_freed(leaving)

    def _of_freed(self, leaving: _Leaving) -> Conclusion | None:
        """Return what a broker did that answers, is listed, and leads nothing any more."""
        broker, since, until, is_late = leaving
        unasked = self._listeners.listener(broker).unasked_within(since, until)
        if (unseen := self._unseen(broker, unasked, since, until)) is not None:
            return unseen
        if any(step.until > until and step.is_joined_by(broker) for step in self._steps):
            return Conclusion(Fate.CUT_OFF, f"broker {broker} answers, and was out of its ISRs for a moment")
        because = f"broker {broker} answers and is listed, and leads nothing any more"
        return Conclusion(Fate.STOPPED, because) if is_late else None

    def _unseen(self, broker: BrokerId, lasted: int, since: Micros, until: Micros) -> Conclusion | None:
        """Return that a broker stopped or was lost, if it was not seen for too long within a window to say which."""
        lasted += self._listeners.slept_within(since, until)
        if 3 * lasted <= 2 * self._intervals.session:
            return None
        because = f"broker {broker} had left after {seconds(lasted)} in which it was not seen: {ALIKE}"
        return Conclusion(Fate.GONE, because)

    def _cut_off_before(self, broker: BrokerId, since: Micros, until: Micros) -> Conclusion | None:
        """Return that no controller took the heartbeats of a broker until a window, or until just before."""
        for end, because in (
            (self.stalled_until, "answers, and the controller had stood still"),
            (self.waited_until.get(broker), "had reached no controller, nor had this collector"),
        ):
            if end is not None and since - _BEHIND <= end <= until + _SECOND:
                return Conclusion(Fate.CUT_OFF, f"broker {broker} {because}")
        return None

    def _leads_after(self, broker: BrokerId, absence: Absence) -> bool:
        """Return whether a silent broker has changed ISRs that it leads: it removed brokers that are well."""
        return any(
            step.after.leader == broker
            and step.before is not None
            and step.before.leader == broker
            and step.since > (absence.ended_at or absence.since)
            and bool(step.left)
            and not any(self._listeners.listener(each).is_absent for each in step.left)
            and all(self._listeners.is_listed(each) for each in step.left)
            for step in self._steps
        )

    def _has_outlived(self, absence: Absence, moment: Micros) -> bool:
        """Return whether a silent broker sent heartbeats: it was still listed when a silent one would have been fenced.

        So it is cut off from the poller, and what it did when it left was not seen.
        """
        session = self._intervals.session
        is_controlled = self._listeners.controller_answered > absence.since + session
        return is_controlled and moment - absence.since > session + session // 2

    def _was_uncontrolled(self, absence: Absence, since: Micros, until: Micros) -> bool:
        """Return whether no controller could end the session of a silent broker: that it is listed says nothing."""
        begin, end = self._listeners.uncontrolled
        is_all_the_time = begin <= absence.since + self._intervals.session and since <= end
        return is_all_the_time and until - absence.since > self._intervals.session

    def _leader_was_absent(self, broker: BrokerId, until: Micros) -> bool:
        """Return whether a leader that may be dead would have removed a broker: the controller did, as both are."""
        steps = [
            step
            for step in self._steps
            if broker in step.left
            and step.before is not None
            and step.before.leader == step.after.leader
            and abs(step.until - until) <= self._intervals.hold
        ]
        return bool(steps) and all(self._may_have_been_dead(step.after.leader, step.since) for step in steps)

    def _may_have_been_dead(self, broker: BrokerId, moment: Micros) -> bool:
        """Return whether a broker that is silent was so for a while before a moment, and no longer than a session."""
        if not self._listeners.is_absent_since(broker, Micros(moment - SLOW)):
            return False
        return not self._has_outlived(self._listeners.of[broker].absences[-1], moment)

    def _has_moved_from(self, broker: BrokerId, until: Micros) -> bool:
        """Return whether a broker lost leaderships at about that time."""
        return any(step.moves_from(broker) for step in self._steps if abs(step.until - until) <= self._intervals.hold)


def _is_before(absence: Absence, since: Micros) -> bool:
    """Return whether a broker ceased to answer clearly before the begin of a window."""
    ended = absence.ended_at
    return absence.last_answer < since - SLOW or (ended is not None and ended + _BEHIND < since)
