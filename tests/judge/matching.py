"""What was reported against what ought to be reported: which incident is which, what is missing, and what is too much.

An incident that was reported is one that was expected if they overlap in time and name a broker in common, or are of
one class without brokers; the best pairs are taken first. What is left may be a part of one that was found: a class
that the table calls divisible may be reported in pieces, and what was lost at once or in turn as one. Of two faults at
once, an alarming incident about the other one may explain every removal of this one by a broker that it blames: its
class is wrong, its suspects mostly are, but nobody is left in peace. The rest is missed, or extra.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streaming.contracts.identifiers import BrokerId
from tests.judge.expected import Expectation, ExpectedIncident
from tests.judge.table import TABLE

START_MICROS: Final = 1_700_000_000_000_000
BEFORE_SECONDS, AFTER_SECONDS = 1.0, 20.0
"""An incident opens with its first change; the second record of a fencing, and a late election, come after its last."""
LOSSES: Final = frozenset({"broker_loss", "rack_loss", "unclean_election"})
_LOST_BESIDE: Final = re.compile(r"\(brokers? ([\d, and]+) (?:was|were) lost, too\)")
_STALLED_BESIDE: Final = re.compile(r"\(controller (\d+) stood still for ")
_LAGGED_BESIDE: Final = re.compile(r"\(replication between brokers ([\d, and]+) lagged, too\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedIncident:
    """One row of the table ``incidents``; seconds of the play.

    ``suspects`` are the brokers with a score; all that are listed, if none has one.
    """

    kind: str
    suspects: frozenset[BrokerId]
    brokers: frozenset[BrokerId]
    begin: float
    end: float
    summary: str

    @property
    def is_harmful(self) -> bool:
        """Whether a person who reads the class is alarmed."""
        return self.kind not in TABLE.planned | TABLE.neutral

    @property
    def lost(self) -> frozenset[BrokerId]:
        """Whom a person who reads of it takes for lost: the suspects, and who was lost beside them."""
        return self.suspects | _named(_LOST_BESIDE, self.summary)

    @property
    def lagged(self) -> frozenset[BrokerId]:
        """Between whom replication lagged beside a loss."""
        return _named(_LAGGED_BESIDE, self.summary)

    @property
    def stalled(self) -> frozenset[BrokerId]:
        """The controller whose stall came before a loss."""
        return _named(_STALLED_BESIDE, self.summary)


def _named(sentence: re.Pattern[str], summary: str) -> frozenset[BrokerId]:
    found = sentence.search(summary)
    return frozenset(BrokerId(int(broker)) for broker in re.findall(r"\d+", found[1] if found else ""))


@dataclass(slots=True, kw_only=True)
class Finding:
    """One expected incident, and what was reported of it; nothing, if it was missed.

    ``shared``: other expected incidents that the same one stands for.
    """

    expected: ExpectedIncident
    reported: list[ReportedIncident] = field(default_factory=list)
    shared: list[ExpectedIncident] = field(default_factory=list)

    @property
    def kind_right(self) -> bool:
        """Whether every class that was reported of it is right."""
        right = {kind for each in (self.expected, *self.shared) for kind in each.kinds}
        right |= {"broker_loss", "rack_loss"} if right & LOSSES and self.shared else set()  # all of a rack together
        reported = [reported for reported in self.reported if not _is_unproven(self.expected, reported)]
        if not any(each.kind in right for each in reported) and len(reported) == len(self.reported):
            return False
        right |= {kind for each in (self.expected, *self.shared) for kind in TABLE.pieces.get(each.kind, ())}
        return all(each.kind in right for each in reported)

    @property
    def reported_kind(self) -> str:
        """The class to count: a right one counts as the expected one."""
        if not self.reported:
            return "missed"
        return (
            self.expected.kind
            if self.kind_right
            else next(reported.kind for reported in self.reported if reported.kind not in self.expected.kinds)
        )

    @property
    def suspects_right(self) -> bool:
        """Whether everybody was blamed who must be, and nobody who may not."""
        every = (self.expected, *self.shared)
        reported = frozenset[int]().union(*(reported.suspects for reported in self.reported))
        must = frozenset[int]().union(*(each.must for each in every))
        may = frozenset[int]().union(*(each.may for each in every))
        return bool(self.reported) and must <= reported <= may

    @property
    def is_silent(self) -> bool:
        """Harm that nothing alarming was said of."""
        return bool(self.expected.harm) and not any(reported.is_harmful for reported in self.reported)

    @property
    def is_false_alarm(self) -> bool:
        """No harm, and something alarming was said of it."""
        is_benign = self.expected.kind in TABLE.planned | TABLE.neutral and not self.expected.harm
        is_benign &= not self.expected.is_disputed
        alarming = [
            reported for reported in self.reported if reported.is_harmful and not _is_unproven(self.expected, reported)
        ]
        return is_benign and not any(each.harm for each in self.shared) and bool(alarming)


@dataclass(slots=True, kw_only=True)
class Verdict:
    """One play: a finding for each expected incident, and what was reported beyond them."""

    findings: list[Finding]
    extra: list[ReportedIncident]

    @property
    def errors(self) -> int:
        """How much of it is wrong; what hides harm counts most."""
        return sum(
            (not one.kind_right) + (not one.suspects_right) + 4 * one.is_silent + 2 * one.is_false_alarm
            for one in self.findings
        ) + 2 * len(self.extra)


def reported_incidents(rows: Sequence[Mapping[str, Any]]) -> list[ReportedIncident]:
    """Read rows of ``incidents``."""
    return [
        ReportedIncident(
            kind=str(row["incident_class"]),
            suspects=_blamed(row["suspects"]),
            brokers=frozenset(row["brokers"]) | {each["broker"] for each in row["suspects"]},
            begin=(row["opened_at"] - START_MICROS) / 1e6,
            end=(row["updated_at"] - START_MICROS) / 1e6,
            summary=row["summary"],
        )
        for row in rows
    ]


def _blamed(suspects: Sequence[Mapping[str, Any]]) -> frozenset[BrokerId]:
    scored = frozenset(each["broker"] for each in suspects if each["score"] > 0)
    return scored or frozenset(each["broker"] for each in suspects)


def judged(right: Sequence[Expectation], reported: Sequence[ReportedIncident]) -> Verdict:
    """Compare with the set of incidents that fits best, of all that are right."""
    return min((_matched(expected, reported) for expected in right), key=lambda verdict: verdict.errors)


def _matched(expected: Expectation, reported: Sequence[ReportedIncident]) -> Verdict:
    findings = [Finding(expected=each) for each in expected]
    scores = [
        (_score(finding.expected, each), place, number)
        for place, finding in enumerate(findings)
        for number, each in enumerate(reported)
        if _may_be(finding.expected, each)
    ]
    left = dict(enumerate(reported))
    for _, place, number in sorted(scores, key=lambda score: (-score[0], score[1:])):
        if number in left and not findings[place].reported:
            findings[place].reported.append(left.pop(number))
    for number, each in list(left.items()):
        whole = next((finding for finding in findings if _is_piece(finding, each)), None)
        if whole is not None:
            whole.reported.append(left.pop(number))
    for finding in findings:
        if not finding.reported:
            _share(finding, findings)
        if not finding.reported:
            _read_beside(finding, findings)
    for finding in findings:
        _share_losses(finding, findings)
    return Verdict(findings=findings, extra=list(left.values()))


def _may_be(expected: ExpectedIncident, reported: ReportedIncident) -> bool:
    if not _overlaps(expected, reported):
        return False
    if not expected.may:
        return reported.kind in expected.kinds or not reported.suspects
    return not (reported.suspects | reported.brokers).isdisjoint(expected.may) or reported.kind in expected.kinds


def _overlaps(expected: ExpectedIncident, reported: ReportedIncident) -> bool:
    return reported.begin <= expected.end + AFTER_SECONDS and reported.end >= expected.begin - BEFORE_SECONDS


def _score(expected: ExpectedIncident, reported: ReportedIncident) -> float:
    common, every = len(reported.suspects & expected.may), len(reported.suspects | expected.must)
    shared = min(reported.end, expected.end) - max(reported.begin, expected.begin)
    length = max(reported.end, expected.end) - min(reported.begin, expected.begin)
    return (
        4 * (reported.kind in expected.kinds) + 3 * (common / every if every else 1) + max(0, shared) / max(1, length)
    )


def _is_unproven(expected: ExpectedIncident, reported: ReportedIncident) -> bool:
    """Return whether a clean stop that nothing proves was reported as a loss of that broker, and of no other."""
    return reported.kind in TABLE.unproven and bool(reported.suspects) and reported.suspects <= expected.unproven


def _is_piece(finding: Finding, reported: ReportedIncident) -> bool:
    expected = finding.expected
    is_divisible = reported.kind in TABLE.divisible and reported.kind in expected.kinds
    is_piece = is_divisible or _is_unproven(expected, reported) or reported.kind in TABLE.pieces.get(expected.kind, ())
    return bool(finding.reported) and is_piece and _may_be(expected, reported) and reported.suspects <= expected.may


def _share(missed: Finding, findings: Sequence[Finding]) -> None:
    """Find one that was reported and stands for this one, too: of the same class, or two losses."""
    for other in findings:
        for reported in other.reported:
            is_one = reported.kind in missed.expected.kinds and reported.kind in TABLE.divisible
            are_losses = {other.expected.kind, missed.expected.kind, reported.kind} <= LOSSES
            is_named = missed.expected.must <= reported.lost
            if (is_one or are_losses) and is_named and _may_be(missed.expected, reported) and other is not missed:
                missed.reported.append(reported)
                missed.shared.append(other.expected)
                other.shared.append(missed.expected)
                return


def _read_beside(missed: Finding, findings: Sequence[Finding]) -> None:
    """Find an alarming incident that explains all that this one did, or a loss whose sentence names it, too.

    A wrong class, but nobody reads nothing of it.
    """
    expected = missed.expected
    every = expected.must or expected.may
    for reported in [reported for other in findings for reported in other.reported]:
        is_named = bool(every & (reported.lagged | reported.stalled)) and _overlaps(expected, reported)
        if _explains(reported, expected) or is_named:
            missed.reported.append(reported)


def _explains(reported: ReportedIncident, expected: ExpectedIncident) -> bool:
    """Return whether an alarming incident was open when this one began, and blames somebody for every removal of it."""
    is_open = reported.begin <= expected.first + AFTER_SECONDS and expected.first <= reported.end
    explained = [bool(removal & reported.suspects) for removal in expected.removals]
    return reported.is_harmful and is_open and bool(explained) and all(explained)


def _share_losses(finding: Finding, findings: Sequence[Finding]) -> None:
    """Find another loss of which a broker was reported with those of this one, as one incident: both stand for both.

    Of the other one it may be clean stops that nothing proves, and no other of its brokers.
    """
    blamed = frozenset[int]().union(*(reported.suspects for reported in finding.reported if reported.kind in LOSSES))
    for other in findings:
        strangers = blamed - finding.expected.may
        lost = other.expected.may if other.expected.kind in LOSSES else other.expected.unproven
        are_losses = other is not finding and finding.expected.kind in LOSSES and bool(strangers) and strangers <= lost
        if are_losses and other.expected not in finding.shared:
            finding.reported = other.reported = [*finding.reported, *other.reported]
            finding.shared.append(other.expected)
            other.shared.append(finding.expected)
