"""The conditions that are raised at a moment: spells that last long enough. Derived when rows are read; pure.

Theory: ``conditions``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from streaming.contracts.conditions import HOUR, RULES, SETTLED, WINDOW, Condition, Rule, Spell, chained_with
from streaming.contracts.identifiers import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.events import Severity
    from streaming.contracts.identifiers import ClusterId

RESTARTS_OF_A_LOOP: Final = 6
FLAPPING_SLOTS: Final = 6
SLOT: Final = 300 * SECOND
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A condition that is raised. Its labels, which are the first six fields, never change while it is.

    Attributes:
        cluster_id, condition, subject, severity, incident_id, short_id: what and whose; the last two may be None.
        since: when it began, UTC microseconds.
        raised_since: when it became severe enough.
        ended_at: when it ended; None while it lasts.
        again_since: from when it lasts without a break, if that is later than ``since``; else None.
        partitions: how many it concerns, at most.
        topics, topic_count: as in :class:`streaming.contracts.conditions.Spell`.
    """

    cluster_id: ClusterId
    condition: Condition
    subject: str
    severity: Severity
    incident_id: str | None
    short_id: str | None
    since: int
    raised_since: int
    ended_at: int | None
    partitions: int
    topics: tuple[str, ...]
    topic_count: int
    again_since: int | None = None


def standing(spells: Iterable[Spell], until: int, rules: Mapping[Condition, Rule] = RULES) -> Iterator[Standing]:
    """Yield what is raised at a moment, up to which the change log is known; no two of them have the same labels.

    ``spells`` are all that last, and those that ended less than ``RECENT`` before.
    """
    by_key: defaultdict[tuple[ClusterId, Condition, str], list[Spell]] = defaultdict(list)
    for spell in sorted(spells, key=_in_order):
        if spell.began_at <= until:
            condition = chained_with(Condition(spell.condition))
            by_key[spell.cluster_id, condition, spell.subject].append(_as_of(spell, until))
    for of_key in by_key.values():
        raised: dict[tuple[object, ...], Standing] = {}
        for each in (*_lasting(of_key, rules, until), *_repeated(of_key, rules, until), *_stuck(of_key, rules, until)):
            labels = (each.condition, each.severity, each.incident_id, each.short_id)
            raised[labels] = each if labels not in raised else _together(raised[labels], each)
        yield from raised.values()


def _in_order(spell: Spell) -> tuple[int, int, str]:
    return spell.began_at, spell.began_version, spell.condition_id


def _as_of(spell: Spell, until: int) -> Spell:
    """Return a spell as it was known at a moment."""
    ended_at = None if spell.ended_at is None or spell.ended_at > until else spell.ended_at
    return spell._replace(condition=Condition(spell.condition), ended_at=ended_at)


def _together(one: Standing, other: Standing) -> Standing:
    """Return one for two with the same labels, of which an earlier chain is not over yet."""
    first, second = sorted((one, other), key=lambda each: (each.since, each.raised_since))
    ends = [first.ended_at, second.ended_at]
    return replace(
        first,
        raised_since=min(first.raised_since, second.raised_since),
        ended_at=None if None in ends else max(end for end in ends if end is not None),
        again_since=_again(
            first.since, (each.again_since or each.since for each in (first, second) if each.ended_at is None)
        ),
        partitions=max(first.partitions, second.partitions),
    )


def _again(since: int, lasting: Iterable[int]) -> int | None:
    """Return the first begin of what lasts, if it came again; None if nothing lasts, or all the time."""
    begin = min(lasting, default=since)
    return begin if begin > since else None


def _lasting(spells: Sequence[Spell], rules: Mapping[Condition, Rule], until: int) -> Iterator[Standing]:
    """Yield the chains that have lasted long enough, under the condition by which they did first."""
    chains: defaultdict[tuple[int, str | None], list[Spell]] = defaultdict(list)
    for spell in spells:
        chains[spell.since, spell.incident_id].append(spell)
    adding_up = {
        condition: _Covered(each for each in spells if each.condition is condition)
        for condition in {each.condition for each in spells}
        if condition in rules and rules[condition].adding_up is not None
    }
    for chain in chains.values():
        reached = [(at, each) for each in chain if (at := _reached(each, adding_up, rules, until)) is not None]
        if reached:
            at, by = min(reached, key=_first)
            rule = rules[by.condition]
            if until - max(map(_end, chain)) < rule.kept:
                yield _standing(chain, by.condition, rule, at)


def _first(reached: tuple[int, Spell]) -> tuple[int, int, bool]:
    """Return the order of who reached it first: of two that began alike, the one that ended for the other."""
    at, spell = reached
    return at, _end(spell), spell.condition is not Condition.UNDER_REPLICATED


def _end(spell: Spell) -> int:
    """Return when a spell ended; one that lasts ends after all others."""
    return _NEVER if spell.ended_at is None else spell.ended_at


def _reached(
    spell: Spell, adding_up: Mapping[Condition, _Covered], rules: Mapping[Condition, Rule], until: int
) -> int | None:
    """Return when a spell became severe enough; None if it did not until it ended, or until now."""
    if (rule := rules.get(spell.condition)) is None:
        return None
    if spell.condition is Condition.UNCLEAN_ELECTION:
        return spell.began_at
    moments = [spell.began_at + rule.lasting]
    if rule.adding_up is not None and (before := adding_up[spell.condition].just_before(spell.began_at)):
        moments.append(spell.began_at + max(0, rule.adding_up - before))
    at = max(min(moments), spell.since + SETTLED)
    return at if at <= min(_end(spell), until) else None


class _Covered:
    """The time that spells cover together."""

    def __init__(self, spells: Iterable[Spell]) -> None:
        """Join spells that overlap; they are in the order of their begins."""
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._before: list[int] = []  # what is covered before each begin
        for each in spells:
            if self._begins and each.began_at <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], _end(each))
            else:
                covered = self._upto(each.began_at)
                self._begins.append(each.began_at)
                self._ends.append(_end(each))
                self._before.append(covered)

    def _upto(self, moment: int) -> int:
        """Return how much is covered up to a moment."""
        place = bisect_right(self._begins, moment) - 1
        if place < 0:
            return 0
        return self._before[place] + min(moment, self._ends[place]) - self._begins[place]

    def just_before(self, moment: int) -> int:
        """Return how much of the window before a moment is covered."""
        return self._upto(moment) - self._upto(moment - WINDOW)


def _standing(chain: Sequence[Spell], condition: Condition, rule: Rule, raised_since: int) -> Standing:
    first, last = chain[0], max(chain, key=lambda spell: spell.partitions)
    ends = [each.ended_at for each in chain]
    return Standing(
        cluster_id=first.cluster_id,
        condition=condition,
        subject=first.subject,
        severity=rule.severity,
        incident_id=first.incident_id,
        short_id=first.short_id,
        since=first.since,
        raised_since=raised_since,
        ended_at=None if None in ends else max(end for end in ends if end is not None),
        partitions=last.partitions,
        topics=last.topics,
        topic_count=last.topic_count,
        again_since=_again(first.since, (each.began_at for each in chain if each.ended_at is None)),
    )


def _repeated(spells: Sequence[Spell], rules: Mapping[Condition, Rule], until: int) -> Iterator[Standing]:
    """Yield that spells began again and again within an hour; what explains one of them does not name the others."""
    for condition, of, times in _AGAIN:
        rule, begins = rules.get(condition), _begins(spells, of)
        if condition is Condition.ISR_FLAPPING:
            begins = [next(of_slot) for _, of_slot in groupby(begins, lambda begin: begin // SLOT)]
        moments = [last for first, last in zip(begins, begins[times - 1 :], strict=False) if last - first < HOUR]
        if rule is not None and moments and until - moments[-1] < rule.kept:
            unnamed = [
                each._replace(since=each.began_at, incident_id=None, short_id=None, ended_at=None)
                for each in spells
                if each.condition is of
            ]
            yield _standing(unnamed, condition, rule, moments[0])


def _begins(spells: Sequence[Spell], condition: Condition) -> list[int]:
    """Return when spells of a condition began; what turned out to be the begin of another one is none of its own."""
    others = {each.began_at for each in spells if each.condition is not condition}
    is_first = condition is Condition.BROKER_DOWN
    return [
        each.began_at for each in spells if each.condition is condition and (is_first or each.began_at not in others)
    ]


_AGAIN: Final = (
    (Condition.RESTART_LOOP, Condition.BROKER_DOWN, RESTARTS_OF_A_LOOP),
    (Condition.ISR_FLAPPING, Condition.UNDER_REPLICATED, FLAPPING_SLOTS),
)


def _stuck(spells: Sequence[Spell], rules: Mapping[Condition, Rule], until: int) -> Iterator[Standing]:
    """Yield that a reassignment has not got on for long."""
    if (rule := rules.get(Condition.REASSIGNMENT_STUCK)) is None:
        return
    for spell in spells:
        at = max((spell.progressed_at or spell.began_at) + rule.lasting, spell.since + SETTLED)
        if spell.condition is Condition.REASSIGNING and spell.ended_at is None and at <= until:
            yield _standing([spell], Condition.REASSIGNMENT_STUCK, rule, at)
