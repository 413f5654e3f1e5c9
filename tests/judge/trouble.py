"""One fault of a play as a value: what is done when, to which brokers, and what of it was ordered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from streaming.contracts.identifiers import BrokerId
from streaming.sources.simulated.scenario import Action, Fault, TopicPlan

NEVER: Final = math.inf
LINGER_SECONDS: Final = 0.05
"""A controller that lingers gives a batch the time of its first record, which may be older than what ended up in it."""

LOSE_RECORDS: Final = frozenset({"unclean", "power_loss", "log_dir"})
"""The faults by which acknowledged records may be lost: these plays are watched, which takes longer."""

_PARTING: Final = frozenset({
    Action.CUT, Action.MEND, Action.HOLD, Action.RELEASE, Action.PAUSE, Action.RESUME
})  # fmt: skip


class Absence(NamedTuple):
    """A broker was stopped on purpose, and started again (``NEVER``: it was not). Seconds of the play."""

    broker: BrokerId
    stopped: float
    started: float

    def shifted(self, seconds: float) -> Absence:
        """The same, later."""
        return Absence(self.broker, self.stopped + seconds, self.started + seconds)


class Act(NamedTuple):
    """One thing that is done at a time. A topic is created, or, with ``deletes``, deleted.

    ``if_empty``: only if no replica is on this broker, which an operator checks before a broker is decommissioned.
    """

    at: float
    what: Fault | TopicPlan
    deletes: bool = False
    if_empty: BrokerId | None = None

    def sentence(self) -> str:
        if isinstance(self.what, Fault):
            return self.what.sentence()
        return f"{'delete' if self.deletes else 'create'} topic {self.what.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One fault.

    Attributes:
        kind: its name in the table of truth.
        what: the variation, for people.
        brokers: that it happens to.
        begin: its first act, in seconds of the play.
        end: when everything of it is repaired; the last act if nothing is.
        acts: in the order of time.
        absences: its ordered stops.
        announced: from when until when work on brokers was announced.
        side: of a split, the smaller side; of a tie, everybody.
        topics: that an administrator changes.
    """

    kind: str
    what: str
    begin: float
    end: float
    acts: tuple[Act, ...]
    brokers: frozenset[BrokerId] = frozenset()
    absences: tuple[Absence, ...] = ()
    announced: tuple[Absence, ...] = ()
    side: frozenset[BrokerId] = frozenset()
    topics: frozenset[str] = frozenset()

    def shifted(self, seconds: float) -> Trouble:
        """The same, later."""
        return replace(
            self,
            begin=self.begin + seconds,
            end=self.end + seconds,
            acts=tuple(act._replace(at=act.at + seconds) for act in self.acts),
            absences=tuple(each.shifted(seconds) for each in self.absences),
            announced=tuple(each.shifted(seconds) for each in self.announced),
        )

    def span_of(self, broker: BrokerId) -> tuple[float, float]:
        """Return when the first and the last thing is done to a broker; of one that no act names begin and end."""
        times = [act.at for act in self.acts if isinstance(act.what, Fault) and act.what.broker == broker]
        return (min(times), max(times)) if times else (self.begin, self.end)

    def paused(self) -> frozenset[BrokerId]:
        """Return the nodes that it freezes; controllers have negative addresses."""
        acts = (act.what for act in self.acts if isinstance(act.what, Fault))
        return frozenset(act.broker for act in acts if act.action is Action.PAUSE and act.broker is not None)

    def parts(self, one: BrokerId, other: BrokerId) -> tuple[float, float] | None:
        """Return from when until when no fetch request came from one broker to the other, if this fault did that."""
        times = [
            act.at
            for act in self.acts
            if isinstance(act.what, Fault)
            and act.what.action in _PARTING
            and (act.what.broker in {one, other} or set(act.what.link or ()) == {one, other})
        ]
        return (min(times), max(times)) if times else None

    def was_stopped(self, broker: BrokerId, moment: float, grace: float) -> bool:
        """Return whether an order explains that a broker is away: stopped, and not yet back for so many seconds."""
        return any(
            absence.broker == broker and absence.stopped - LINGER_SECONDS <= moment <= absence.started + grace
            for absence in self.absences
        )
