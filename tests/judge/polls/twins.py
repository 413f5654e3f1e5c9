"""The other history of a polled play: the same cluster, the same moments, another fault; and whether it answers alike.

Whatever says that two histories look alike is taken at its word only if the model cannot tell them apart either: the
play is played again with the other fault, and both transcripts are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from streaming.contracts.identifiers import BrokerId
from streaming.model.messages.network import controllers
from streaming.sources.simulated.scenario import Action, Fault, Scenario
from tests.judge.play import Play, played_again
from tests.judge.polls.transcripts import difference
from tests.judge.trouble import NEVER, Absence, Act, Trouble

HISTORIES: Final[dict[str, tuple[str, ...]]] = {
    "a clean stop": ("controlled_shutdown", "unsafe_shutdown", "rolling_restart"),
    "a crash": ("broker_loss", "rack_loss"),
    "a hang": ("broker_loss", "leader_stall", "slow_follower"),
    "a cut-off broker": ("broker_loss", "network_split", "rack_loss"),
    "a slow broker": ("slow_follower",),
    "a failed link": ("link_failure",),
    "a network split": ("network_split",),
    "a stalled leader": ("leader_stall",),
    "a lost rack": ("rack_loss",),
    "a failed disk": ("disk_failure",),
}
"""Names of histories in the sentences of incidents, and the classes that they are."""


def _swapped(trouble: Trouble, actions: dict[Action, Action]) -> Trouble:
    acts = tuple(
        act._replace(what=replace(act.what, action=actions[act.what.action]))
        if isinstance(act.what, Fault) and act.what.action in actions
        else act
        for act in trouble.acts
    )
    return replace(trouble, acts=acts)


def _crash_of_stop(_: Scenario, trouble: Trouble) -> Trouble:
    return replace(_swapped(trouble, {Action.STOP: Action.KILL}), absences=())


def _stop_of_crash(_: Scenario, trouble: Trouble) -> Trouble:
    stopped = _swapped(trouble, {Action.KILL: Action.STOP, Action.LOSE_POWER: Action.STOP})
    absences = []
    for broker in trouble.brokers:
        first, last = trouble.span_of(broker)
        absences.append(Absence(broker, first, last if last > first else NEVER))
    return replace(stopped, absences=tuple(absences))


def _cut_of_hang(scenario: Scenario, trouble: Trouble) -> Trouble:
    nodes = [*scenario.brokers, *controllers(scenario.constants.controllers)]
    acts: list[Act] = []
    for act in trouble.acts:
        fault = act.what
        cut = {Action.PAUSE: Action.CUT, Action.RESUME: Action.MEND}
        if isinstance(fault, Fault) and fault.action in cut and fault.broker is not None:
            links = [(fault.broker, BrokerId(node)) for node in nodes if node != fault.broker]
            acts += [Act(act.at, Fault(at=act.at, action=cut[fault.action], link=link)) for link in links]
        else:
            acts.append(act)
    return replace(trouble, acts=tuple(acts))


def _hang_of_cut(_: Scenario, trouble: Trouble) -> Trouble:
    acts = [
        Act(at, Fault(at=at, action=action, broker=broker))
        for at, action in ((trouble.begin, Action.PAUSE), (trouble.end, Action.RESUME))
        for broker in sorted(trouble.brokers)
    ]
    return replace(trouble, acts=tuple(acts))


_OTHER: Final[dict[tuple[str, str], tuple[tuple[frozenset[str], Callable[[Scenario, Trouble], Trouble]], ...]]] = {
    ("a clean stop", "a crash"): (
        (frozenset({"stop", "rolling"}), _crash_of_stop),
        (frozenset({"crash", "power_loss", "several", "rack", "cascade"}), _stop_of_crash),
    ),
    ("a cut-off broker", "a hang"): (
        (frozenset({"pause"}), _cut_of_hang),
        (frozenset({"isolation", "rack_isolation"}), _hang_of_cut),
    ),
}
"""Of each pair of histories, how a fault of one is made that of the other."""


def twin_of(play: Play, one: str, other: str) -> Play | None:
    """Play the other history; None where the judge knows no such pair."""
    changes = _OTHER.get(min((one, other), (other, one)), ())
    troubles = [
        next((change(play.scenario, trouble) for kinds, change in changes if trouble.kind in kinds), trouble)
        for trouble in play.troubles
    ]
    if tuple(troubles) == play.troubles:
        return None
    return played_again(play, tuple(troubles))


def twin_difference(play: Play, one: str, other: str) -> str | None:
    """Return by what the other history of a play can be told from it; None if by nothing."""
    twin = twin_of(play, one, other)
    if twin is None or twin.met is None or play.met is None:
        return "the judge knows no play of the other history"
    return difference(play.met, twin.met)
