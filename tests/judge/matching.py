"""What was told against what ought to be told: which incident is which, what is missing, and what is too much.

An incident that was told is one that was expected if they overlap in time and name a broker in common, or are of one
class without brokers; the best pairs are taken first. What is left may be a part of one that was found: a class that
the table calls divisible may be told in pieces, and what was lost at once or in turn may be told as one. The rest is
missed, or extra.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import BrokerId
from tests.judge.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.judge.expected import Expectation, ExpectedIncident

START_MICROS: Final = 1_700_000_000_000_000
BEFORE_SECONDS, AFTER_SECONDS = 1.0, 20.0
"""An incident opens with its first change; the second record of a fencing, and a late election, come after its last."""
LOSSES: Final = frozenset({"broker_loss", "rack_loss", "unclean_election"})
_LOST_BESIDE: Final = re.compile(r"\(brokers? ([\d, and]+) (?:was|were) lost, too\)")
_LAGGED_BESIDE: Final = re.compile(r"\(replication between brokers ([\d, and]+) lagged, too\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldIncident:
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


def _named(sentence: re.Pattern[str], summary: str) -> frozenset[BrokerId]:
    found = sentence.search(summary)
    return frozenset(BrokerId(int(broker)) for broker in re.findall(r"\d+", found[1] if found else ""))


@dataclass(slots=True, kw_only=True)
class Finding:
    """One expected incident, and what was told of it; nothing, if it was missed.

    ``shared``: other expected incidents that the same one stands for.
    """

    expected: ExpectedIncident
    told: list[ToldIncident] = field(default_factory=list)
    shared: list[ExpectedIncident] = field(default_factory=list)

    @property
    def kind_right(self) -> bool:
        """Whether every class that was told of it is right."""
        right = {kind for each in (self.expected, *self.shared) for kind in each.kinds}
        right |= {"broker_loss", "rack_loss"} if right & LOSSES and self.shared else set()  # all of a rack together
        told = [told for told in self.told if not _is_unproven(self.expected, told)]
        if not any(each.kind in right for each in told) and len(told) == len(self.told):
            return False
        right |= set(TABLE.pieces.get(self.expected.kind, ()))
        return all(each.kind in right for each in told)

    @property
    def told_kind(self) -> str:
        """The class to count: a right one counts as the expected one."""
        if not self.told:
            return "missed"
        return (
            self.expected.kind
            if self.kind_right
            else next(told.kind for told in self.told if told.kind not in self.expected.kinds)
        )

    @property
    def suspects_right(self) -> bool:
        """Whether everybody was blamed who must be, and nobody who may not."""
        every = (self.expected, *self.shared)
        told = frozenset[int]().union(*(told.suspects for told in self.told))
        must = frozenset[int]().union(*(each.must for each in every))
        may = frozenset[int]().union(*(each.may for each in every))
        return bool(self.told) and must <= told <= may

    @property
    def is_silent(self) -> bool:
        """Harm that nothing alarming was said of."""
        return bool(self.expected.harm) and not any(told.is_harmful for told in self.told)

    @property
    def is_false_alarm(self) -> bool:
        """No harm, and something alarming was said of it."""
        is_benign = self.expected.kind in TABLE.planned | TABLE.neutral and not self.expected.harm
        is_benign &= not self.expected.is_disputed
        alarming = [told for told in self.told if told.is_harmful and not _is_unproven(self.expected, told)]
        return is_benign and not any(each.harm for each in self.shared) and bool(alarming)


@dataclass(slots=True, kw_only=True)
class Verdict:
    """One play: a finding for each expected incident, and what was told beyond them."""

    findings: list[Finding]
    extra: list[ToldIncident]

    @property
    def errors(self) -> int:
        """How much of it is wrong; what hides harm counts most."""
        return sum(
            (not one.kind_right) + (not one.suspects_right) + 4 * one.is_silent + 2 * one.is_false_alarm
            for one in self.findings
        ) + 2 * len(self.extra)


def told_incidents(rows: Sequence[Mapping[str, Any]]) -> list[ToldIncident]:
    """Read rows of ``incidents``."""
    return [
        ToldIncident(
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


def judged(right: Sequence[Expectation], told: Sequence[ToldIncident]) -> Verdict:
    """Compare with the set of incidents that fits best, of all that are right."""
    return min((_matched(expected, told) for expected in right), key=lambda verdict: verdict.errors)


def _matched(expected: Expectation, told: Sequence[ToldIncident]) -> Verdict:
    findings = [Finding(expected=each) for each in expected]
    scores = [
        (_score(finding.expected, each), place, number)
        for place, finding in enumerate(findings)
        for number, each in enumerate(told)
        if _may_be(finding.expected, each)
    ]
    left = dict(enumerate(told))
    for _, place, number in sorted(scores, key=lambda score: (-score[0], score[1:])):
        if number in left and not findings[place].told:
            findings[place].told.append(left.pop(number))
    for number, each in list(left.items()):
        whole = next((finding for finding in findings if _is_piece(finding, each)), None)
        if whole is not None:
            whole.told.append(left.pop(number))
    for finding in findings:
        if not finding.told:
            _share(finding, findings)
        if not finding.told:
            _read_beside(finding, findings)
    for finding in findings:
        _share_losses(finding, findings)
    return Verdict(findings=findings, extra=list(left.values()))


def _may_be(expected: ExpectedIncident, told: ToldIncident) -> bool:
    overlap = told.begin <= expected.end + AFTER_SECONDS and told.end >= expected.begin - BEFORE_SECONDS
    if not overlap:
        return False
    if not expected.may:
        return told.kind in expected.kinds or not told.suspects
    return not (told.suspects | told.brokers).isdisjoint(expected.may) or told.kind in expected.kinds


def _score(expected: ExpectedIncident, told: ToldIncident) -> float:
    common, every = len(told.suspects & expected.may), len(told.suspects | expected.must)
    shared = min(told.end, expected.end) - max(told.begin, expected.begin)
    length = max(told.end, expected.end) - min(told.begin, expected.begin)
    return 4 * (told.kind in expected.kinds) + 3 * (common / every if every else 1) + max(0, shared) / max(1, length)


def _is_unproven(expected: ExpectedIncident, told: ToldIncident) -> bool:
    """Return whether a clean stop that nothing proves was told as a loss of that broker, and of no other."""
    return told.kind == TABLE.unproven and bool(told.suspects) and told.suspects <= expected.unproven


def _is_piece(finding: Finding, told: ToldIncident) -> bool:
    expected = finding.expected
    is_divisible = told.kind in TABLE.divisible and told.kind in expected.kinds
    is_piece = is_divisible or _is_unproven(expected, told) or told.kind in TABLE.pieces.get(expected.kind, ())
    return bool(finding.told) and is_piece and _may_be(expected, told) and told.suspects <= expected.may


def _share(missed: Finding, findings: Sequence[Finding]) -> None:
    """Find one that was told and stands for this one, too: of the same class, or two losses."""
    for other in findings:
        for told in other.told:
            is_one = told.kind in missed.expected.kinds and told.kind in TABLE.divisible
            are_losses = {other.expected.kind, missed.expected.kind, told.kind} <= LOSSES
            is_named = missed.expected.must <= told.lost
            if (is_one or are_losses) and is_named and _may_be(missed.expected, told) and other is not missed:
                missed.told.append(told)
                missed.shared.append(other.expected)
                other.shared.append(missed.expected)
                return


def _read_beside(missed: Finding, findings: Sequence[Finding]) -> None:
    """Find a loss that says that these brokers lagged, too: a wrong class, but nobody reads nothing of it."""
    every = missed.expected.must or missed.expected.may
    for other in findings:
        missed.told += [told for told in other.told if every & told.lagged and _may_be(missed.expected, told)]


def _share_losses(finding: Finding, findings: Sequence[Finding]) -> None:
    """Find another loss of which a broker was told with those of this one, as one incident: both stand for both."""
    blamed = frozenset[int]().union(*(told.suspects for told in finding.told if told.kind in LOSSES))
    for other in findings:
        are_losses = other is not finding and {finding.expected.kind, other.expected.kind} <= LOSSES
        strangers = blamed - finding.expected.may
        if are_losses and strangers and strangers <= other.expected.may and other.expected not in finding.shared:
            finding.told = other.told = [*finding.told, *other.told]
            finding.shared.append(other.expected)
            other.shared.append(finding.expected)
