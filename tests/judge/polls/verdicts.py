"""What of a polled play could be seen at all, which unclean elections were reported, and who names two histories.

The judge's own rules, committed before the rules that they judge. They read the model, when the metadata was read, and
what is reported, and never how isrwatch came to it.

- *Could be seen*: an incident of which any poll, of the metadata or of some partitions, showed another ISR, leader,
  leader epoch or other replicas than before its fault. What is over between two polls, and leaves no trace, cannot be
  seen by them; it is judged, too, and counted apart. A controller that changes leaves its epoch.
- *An unclean election could be seen* if a poll showed its leader in its leader epoch, and the one before had shown that
  this leader was neither in the ISR nor eligible.
- *As seen*: a leader that stood still for less than its session and removed its followers when it went on is a slow
  broker, too, if no poll showed an ISR without those followers: they are back within half a second.
- *Two histories*: an incident may have another class if it says which two look alike, and why, and if the other history
  of this very play gives the same transcript (:mod:`twins`). Nothing else is right by saying that it is unsure.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Collection, Sequence
from typing import Any, Final

from streaming.contracts.events import Cause
from streaming.sources.simulated.source import TraceEntry
from tests.judge.expected import ExpectedIncident, expectations
from tests.judge.matching import Finding, ReportedIncident, judged, reported_incidents
from tests.judge.play import Play
from tests.judge.polls.monitor import Polling
from tests.judge.polls.strata import polled, stratum_of
from tests.judge.polls.surroundings import drawn_surroundings
from tests.judge.polls.twins import HISTORIES, twin_difference
from tests.judge.results import result_of
from tests.judge.steps import START_MICROS, Effect

Result = dict[str, Any]
ALIKE: Final = re.compile(r"\((an? [\w -]+?) and (an? [\w -]+?) look alike here: ([^)]+)\)")
_BEFORE, _AFTER = 2.0, 30.0


def could_be_seen(play: Play, expected: ExpectedIncident, effects: Sequence[Effect]) -> bool:
    """Return whether a poll showed anything of an incident."""
    if play.met is None:
        return True
    touched = [
        (play.topics.get(key, ""), key.partition)
        for one, effect in zip(play.troubles, effects, strict=True)
        if f"{one.kind} ({one.what})" in expected.trouble
        for key in effect.partitions
    ]
    return not touched or any(
        expected.first < at <= expected.end + _AFTER
        for name in touched
        for at, _ in play.met.partitions.get(name, [])[1:]
    )


def is_right_as_seen(play: Play, finding: Finding) -> bool:
    """Return whether a stalled leader was reported as a slow broker, and no poll showed what it did as a leader."""
    if finding.expected.kind != "leader_stall" or not finding.reported or play.met is None:
        return False
    if {each.kind for each in finding.reported} - {"leader_stall", "slow_follower"}:
        return False
    return not any(
        (part.leader, frozenset(part.isr)) == (entry.leader, frozenset(entry.isr))
        for entry in play.trace
        if entry.cause is Cause.LEADER_STALL
        for at, part in play.met.partitions.get((entry.topic, entry.partition), [])
        if 0 <= at - (entry.time - START_MICROS) / 1e6 <= _AFTER
    )


def unclean_elections(
    play: Play, reported: Sequence[ReportedIncident], causes: Collection[Cause] = (Cause.UNCLEAN_ELECTION,)
) -> list[Result]:
    """Give the moments of unclean elections: whether a poll could see one, and whether one was reported."""
    moments: dict[float, list[TraceEntry]] = {}
    for entry in play.trace:
        if entry.cause in causes and not entry.deleted:
            moments.setdefault((entry.time - START_MICROS) / 1e6, []).append(entry)
    said = [each for each in reported if each.kind == "unclean_election"]
    return [
        {
            "at": round(at, 2),
            "partitions": len(entries),
            "could_be_seen": any(_shows_unclean(play, entry, at) for entry in entries),
            "reported": any(each.begin - _BEFORE <= at + _AFTER and at <= each.end + _AFTER for each in said),
        }
        for at, entries in sorted(moments.items())
    ]


def _shows_unclean(play: Play, entry: TraceEntry, at: float) -> bool:
    seen = [] if play.met is None else play.met.partitions.get((entry.topic, entry.partition), [])
    before = [part for moment, part in seen if moment < at]
    after = [part for moment, part in seen if moment > at]
    if not before or not after or (after[0].leader, after[0].leader_epoch) != (entry.leader, entry.leader_epoch):
        return False
    return entry.leader not in {*before[-1].isr, *before[-1].elr}


def named_histories(each: ReportedIncident) -> tuple[str, str, str] | None:
    """Return the two histories that an incident says to look alike, and the reason; None: it names none."""
    found = ALIKE.search(each.summary)
    return None if found is None else (found[1], found[2], found[3])


def alike(play: Play, finding: Finding) -> Result | None:
    """Return the two histories that a finding names, and their ``difference``; None: it names none.

    If nothing tells them apart, the difference is None, and the finding is right whichever of the two classes it has.
    """
    for each in finding.reported:
        named = named_histories(each)
        if named is not None:
            classes = {kind for name in named[:2] for kind in HISTORIES.get(name, ())}
            is_among = not classes.isdisjoint(finding.expected.kinds)
            difference = twin_difference(play, *named[:2]) if is_among else "neither of them is what happened"
            return {"named": list(named), "difference": difference}
    return None


def polled_judged(seed: int, kinds: tuple[str, ...] = (), polling: Polling | None = None) -> Result:
    """Play and judge one seed; a play that fails is a result, too."""
    began = time.process_time()
    try:
        play = polled(seed, kinds, polling)
        return polled_result(play, time.process_time() - began)
    except Exception:  # noqa: BLE001 - one play must not end the others, and its error is shown
        return {"seed": seed, "failed": traceback.format_exc()}


def polled_result(play: Play, cpu: float) -> Result:
    """Judge a polled play as every play, and by the rules of polled ones."""
    result = result_of(play, cpu)
    (right, effects), reported = expectations(play), reported_incidents(play.incidents)
    verdict = judged(right, reported)
    for one, finding in zip(result["findings"], verdict.findings, strict=True):
        one["could_be_seen"] = could_be_seen(play, finding.expected, effects.of)
        one["alike"] = alike(play, finding)
        one["right_as_seen"] = is_right_as_seen(play, finding)
    return result | {
        "stratum": stratum_of(play.seed).name,
        "around": drawn_surroundings(play.seed, play.scenario, play.troubles).words(),
        "unclean": unclean_elections(play, reported),
        "most_asked": 0.0 if play.met is None else play.met.most_asked,
    }
