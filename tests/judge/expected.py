"""Which incidents a play ought to be reported as: the table of truth, applied to what the model did.

*Harm* is computed, not labelled. A fault did harm if, by steps that it caused in the model,

- ``refused``: a partition fell under its minimum ISR, or stayed there when only the brokers of this fault were still
  missing, so writes with acks=all were refused, whether or not anybody wrote just then;
- ``leaderless``: nobody led a partition for longer than a clean election takes;
- ``unclean``: a leader was elected that may lack acknowledged records;
- ``lost``: acknowledged records are gone, as the model's own account of every record says;
- ``redundancy``: a replica left an ISR that nobody had stopped or moved on purpose.

An incident is *benign* if its fault did none of these beyond what the order itself implies: a stopped broker's replicas
leave their ISRs, a moved replica leaves its own. That is why a clean stop that brings a partition under its minimum,
or takes away its last leader, is harm although somebody ordered it: the order was to stop a broker, not to refuse
writes. Harm that a second fault does to partitions which lack a stopped broker is the second one's; what is said of the
stop may then be either.

What is reported of an incident is *benign* if its class is one of planned work, and *neutral* for a change of
controllers. A harmful incident that is reported as benign or neutral, or not at all, is the worst error; a benign one
that is reported as a harmful class is the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER, BrokerId
from tests.judge.play import Play
from tests.judge.steps import Effect, Effects, effects_of, pairs_in
from tests.judge.table import TABLE, Outcome
from tests.judge.trouble import Trouble

_GONE: Final = frozenset({Cause.FENCED, Cause.RESTART, Cause.UNCLEAN_RESTART})
_LOSSES: Final = frozenset({"broker_loss", "rack_loss", "unclean_election"})
_LAG: Final = frozenset({Cause.LAG, Cause.LEADER_STALL})
_FAILOVER_SECONDS: Final = 15.0
_SHOWN: Final = 2
"""Expired sessions of brokers whose stop is proven: what follows two others by as much is one, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedIncident:
    """One incident that ought to be reported.

    Attributes:
        kinds: classes that are right; the first is the class it is counted as.
        must: brokers that have to be blamed; ``may``: that may be.
        begin, first, end: seconds of the play: the fault, its first step and its last.
        harm: what its fault did.
        is_disputed: benign itself, but another fault did harm to what it had touched: harmful is right, too.
        trouble: the fault, for people.
        unproven: brokers whose clean stop no record proves: see the table.
        removals: from ISRs, each as who may be blamed for it.
    """

    kinds: tuple[str, ...]
    must: frozenset[BrokerId]
    may: frozenset[BrokerId]
    begin: float
    first: float
    end: float
    harm: frozenset[str]
    trouble: str
    is_disputed: bool = False
    unproven: frozenset[BrokerId] = frozenset()
    removals: frozenset[frozenset[BrokerId]] = frozenset()

    @property
    def kind(self) -> str:
        return self.kinds[0]


Expectation = tuple[ExpectedIncident, ...]


def expectations(play: Play) -> tuple[list[Expectation], Effects]:
    """Give the sets of incidents that are right, any of them; usually there is one. And what the faults did."""
    effects = effects_of(play)
    alone = [_expected(play, one, effect) for one, effect in zip(play.troubles, effects.of, strict=True)]
    alone += [_beside_death(one, effect) for one, effect in zip(play.troubles, effects.of, strict=True)]
    incidents = tuple(incident for incident in alone if incident is not None)
    if len(incidents) < 2 or len(play.troubles) < 2:
        return [incidents], effects
    return _of_a_pair(play, incidents), effects


def outcome_of(play: Play, one: Trouble, effect: Effect) -> Outcome | None:
    """Give the row of the table that counts; None: nothing that it lists happened."""
    return next((row for row in TABLE.of(one.kind) if _WHEN[row.when](play, one, effect)), None)


def _expected(play: Play, one: Trouble, effect: Effect) -> ExpectedIncident | None:
    outcome = outcome_of(play, one, effect)
    if outcome is None or outcome.kind is None:
        return None
    must, may = _SUSPECTS[outcome.suspects](play, one, effect)
    is_ordered = outcome.kind in TABLE.planned or outcome.kind == "unsafe_shutdown" or outcome.suspects == "away"
    unproven = _unproven(play, one, effect) if is_ordered else frozenset()
    also = tuple(kind for kind in outcome.also if _ONLY_IF[outcome.only_if](play, one, effect, kind))
    is_benign = outcome.kind in TABLE.planned
    is_disputed = is_benign and bool(effect.beside)
    if is_disputed:
        also = (*also, "unsafe_shutdown")
    begin = one.begin if effect.first is None else effect.first
    if also and outcome.suspects in {"smaller_side", "faulted"}:
        may = may.union(*pairs_in(effect.reports))
    return ExpectedIncident(
        kinds=(outcome.kind, *also),
        must=must if outcome.suspects == "away" else must - unproven,
        may=may | unproven,
        unproven=unproven,
        begin=min(begin, one.begin),
        first=begin,
        end=begin if effect.last is None else effect.last,
        harm=frozenset(effect.harm),
        trouble=f"{one.kind} ({one.what})",
        is_disputed=is_disputed,
        removals=frozenset(effect.removals),
    )


def _beside_death(one: Trouble, effect: Effect) -> ExpectedIncident | None:
    """Give the stall of a controller as an incident of its own where it fenced others than the broker that died."""
    fenced = effect.removed - one.brokers
    if one.kind != "controller_stall" or not fenced or one.brokers.isdisjoint(effect.removed):
        return None
    end = one.span_of(*one.paused())[1]
    return ExpectedIncident(
        kinds=("controller_stall",),
        must=_controllers(one),
        may=_controllers(one),
        begin=one.begin,
        first=end,
        end=end if effect.last is None else effect.last,
        harm=frozenset(effect.harm),
        trouble=f"{one.kind} ({one.what}), of the controller itself",
        removals=frozenset(frozenset({broker}) for broker in fenced),
    )


def _unproven(play: Play, one: Trouble, effect: Effect) -> frozenset[BrokerId]:
    """Give the brokers that led nothing when they were stopped, and whose stop no record proves.

    They were back before their session ended; or no record proves that the controllers keep the session of a stopped
    broker (4.0), or the log has not yet shown how long a session is.
    """
    constants = play.scenario.constants
    session = (constants.broker_session_timeout_ms + constants.session_check_ms + constants.start_up_ms) / 1_000
    shown = [
        absence.stopped
        for trouble in play.troubles
        for absence in trouble.absences
        if absence.started - absence.stopped > session
        and (absence.broker in effect.led or any(state.leader == absence.broker for state in play.before.values()))
    ]
    return frozenset(
        absence.broker
        for absence in one.absences
        if absence.broker not in effect.led
        and (
            absence.started - absence.stopped <= session
            or not constants.eligible_leader_replicas
            or sum(stopped < absence.stopped for stopped in shown) < _SHOWN
        )
    )


def _of_a_pair(play: Play, incidents: tuple[ExpectedIncident, ...]) -> list[Expectation]:
    """Give what is right for two faults that both had an effect: both incidents, or the one that they are together."""
    one, other = play.troubles
    kinds = sorted((one.kind, other.kind))
    if one.absences and other.absences and kinds[0] != "decommission" and "log_dir" not in kinds:
        gap = max(other.begin - one.end, one.begin - other.end)
        if gap < TABLE.turn_seconds:
            return _orders(play, incidents, "in_turn" if gap > 0 else "together")
    return [incidents]


def _orders(play: Play, incidents: tuple[ExpectedIncident, ...], when: str) -> list[Expectation]:
    kinds = sorted(one.kind for one in play.troubles)
    rule = next(rule for rule in TABLE.pairs if sorted(rule.of) == kinds and rule.when == when)
    are_benign = all(incident.kind in TABLE.planned for incident in incidents)
    alarming = [incident.kind for incident in incidents if incident.kind not in TABLE.planned]
    have_returned = all(absence.started < play.seconds for one in play.troubles for absence in one.absences)
    together = replace(
        incidents[0],
        kinds=(rule.kind,) if are_benign else tuple(dict.fromkeys(alarming)),
        must=frozenset().union(
            *(incident.must for incident in incidents if are_benign or incident.kind not in TABLE.planned)
        ),
        may=incidents[0].may.union(*(one.brokers for one in play.troubles)),
        unproven=frozenset[int]().union(*(incident.unproven for incident in incidents)),
        begin=min(incident.begin for incident in incidents),
        first=min(incident.first for incident in incidents),
        end=max(incident.end for incident in incidents),
        harm=frozenset().union(*(incident.harm for incident in incidents)),
        trouble=" and ".join(incident.trouble for incident in incidents),
        removals=frozenset().union(*(incident.removals for incident in incidents)),
    )
    if are_benign and have_returned and not any(incident.is_disputed for incident in incidents):
        return [(together,)]
    loose = (
        replace(together, kinds=(*together.kinds, "rolling_restart", "controlled_shutdown")) if are_benign else together
    )
    return [(loose,), incidents]


# ------------------------------------------------------------------------------------------------- when


def _away(play: Play, one: Trouble, effect: Effect) -> frozenset[BrokerId]:
    """Return who stays away; nobody misses a broker without replicas."""
    return frozenset(
        absence.broker
        for absence in one.absences
        if min(absence.started, play.seconds) - absence.stopped > TABLE.away_seconds
        and absence.broker in effect.removed
    )


def _moved(play: Play, one: Trouble, _: Effect) -> bool:
    until = one.end + _FAILOVER_SECONDS
    return any(moved.before is not None and one.begin <= moved.at <= until for moved in play.controllers)


_WHEN: Final[dict[str, Callable[[Play, Trouble, Effect], bool]]] = {
    "untouched": lambda _, __, effect: effect.first is None,
    "fenced": lambda _, __, effect: not _GONE.isdisjoint(effect.causes),
    "disk": lambda _, __, effect: Cause.DIR_FAILURE in effect.causes,
    "stalled": lambda _, one, effect: any(it.is_stall and it.leader in one.brokers for it in effect.reports),
    "lagged": lambda _, __, effect: bool(effect.reports),
    "unclean": lambda _, __, effect: "unclean" in effect.harm,
    "unsafe": lambda _, __, effect: not effect.harm.isdisjoint({"refused", "leaderless"}),
    "away": lambda play, one, effect: bool(_away(play, one, effect)),
    "moved": _moved,
    "died": lambda _, one, effect: not one.brokers.isdisjoint(effect.removed),
    "touched": lambda _, __, effect: effect.first is not None,
}


# ------------------------------------------------------------------------------------------------- only if


def _is_one_report(effect: Effect) -> bool:
    """Return whether one broker was removed by one leader alone, and had no other to follow."""
    followers = {report.follower for report in effect.reports}
    leaders = {report.leader for report in effect.reports}
    return len(followers) == len(leaders) == 1 and not any(report.other_leaders for report in effect.reports)


def _are_both_ways(one: Trouble, effect: Effect) -> bool:
    """Return whether the brokers of a fault removed others for lag, and were removed for it."""
    return all(any(report[place] in one.brokers for report in effect.reports) for place in (0, 1))


def _across(effect: Effect, kind: str) -> bool:
    leaders, followers = ({report[place] for report in effect.reports} for place in (0, 1))
    if kind == "link_failure":
        return len(pairs_in(effect.reports)) == 1
    return followers.isdisjoint(leaders) and (kind != "leader_stall" or len(leaders) == 1)


_ONLY_IF: Final[dict[str, Callable[[Play, Trouble, Effect, str], bool]]] = {
    "one_touched": lambda play, one, effect, _: len(effect.removed - _unproven(play, one, effect)) <= 1,
    "one_touched_or_split": lambda _, __, effect, kind: (
        len(effect.removed) == 1 if kind == "broker_loss" else bool(effect.reports)
    ),
    "away": lambda play, one, effect, _: bool(_away(play, one, effect)),
    "led": lambda play, one, _, __: any(state.leader in one.brokers for state in play.before.values()),
    "one_report": lambda _, __, effect, ___: _is_one_report(effect),
    "one_pair": lambda _, __, effect, kind: _across(effect, kind),
    "one_leader_or_both_ways": lambda _, one, effect, kind: (
        len(pairs_in(effect.reports)) == 1 if kind == "link_failure" else _are_both_ways(one, effect)
    ),
    "isolated": lambda *_: True,
    "always": lambda *_: True,
}


# ------------------------------------------------------------------------------------------------- suspects

_Suspects = tuple["frozenset[BrokerId]", "frozenset[BrokerId]"]


def _faulted(_: Play, one: Trouble, effect: Effect) -> _Suspects:
    """All brokers of the fault; those that had no replica need not be named."""
    involved = effect.removed.union(*pairs_in(effect.reports), effect.led_last)
    return one.brokers & involved, one.brokers


def _controllers(one: Trouble) -> frozenset[BrokerId]:
    """The nodes that stood still, as people call them: without the sign of their addresses in the model."""
    return frozenset(BrokerId(-broker) for broker in one.paused() if broker < 0)


def _side(play: Play, one: Trouble, effect: Effect) -> _Suspects:
    """The smaller side, as far as anybody reported of it; anybody, where reports make the other one smaller."""
    involved = frozenset[int]().union(*pairs_in(effect.reports))
    others = frozenset(play.scenario.brokers) - one.brokers
    is_smaller = _sign(len(one.brokers) - len(others)) == _sign(len(one.brokers & involved) - len(others & involved))
    everybody = frozenset(play.scenario.brokers)
    return (one.side & involved, one.side) if is_smaller else (frozenset(), everybody)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


_SUSPECTS: Final[dict[str, Callable[[Play, Trouble, Effect], _Suspects]]] = {
    "none": lambda *_: (frozenset(), frozenset()),
    "faulted": _faulted,
    "away": lambda play, one, effect: (_away(play, one, effect), _away(play, one, effect)),
    "unclean": lambda _, one, effect: (frozenset(effect.led_last - {NO_LEADER}), one.brokers),
    "unsafe": lambda _, one, effect: (one.brokers & effect.unsafe, one.brokers),
    "smaller_side": _side,
    "controller": lambda _, one, __: (_controllers(one), _controllers(one)),
}
