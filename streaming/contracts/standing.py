"""Conditions to be told: which spells last long enough. Derived when rows are read; pure. Theory: ``conditions``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.contracts.conditions import HOUR, RULES, SECOND, SETTLED, WINDOW, Condition, Rule, Spell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.events import Severity
    from streaming.contracts.identifiers import ClusterId

RESTARTS_OF_A_LOOP: Final = 6
FLAPPING_SLOTS: Final = 6
SLOT: Final = 300 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A condition that is told. Its labels, which are the first six fields, never change while it is.

    Attributes:
        cluster_id, condition, subject, severity, incident_id, short_id: who and what; the last two may be None.
        since: when it began, UTC microseconds.
        told_since: when it became severe enough.
        ended_at: when it ended; None while it lasts.
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
    told_since: int
    ended_at: int | None
    partitions: int
    topics: tuple[str, ...]
    topic_count: int


def standing(spells: Iterable[Spell], until: int, rules: Mapping[Condition, Rule] = RULES) -> Iterator[Standing]:
    """Yield what is to be told at a time.

    Args:
        spells: all that last, and those that ended less than ``RECENT`` before.
        until: up to when the change log is known, UTC microseconds; what began later does not count.
        rules: conditions without a rule are not told.
    """
    by_key: defaultdict[tuple[ClusterId, Condition, str], list[Spell]] = defaultdict(list)
    for spell in sorted(spells, key=lambda spell: (spell.began_at, spell.condition_id)):
        if spell.began_at <= until:
            by_key[spell.cluster_id, Condition(spell.condition), spell.subject].append(spell)
    for (_, condition, _), of_key in by_key.items():
        if (rule := rules.get(condition)) is not None:
            yield from _lasting(of_key, rule, until)
        if (again := _AGAIN.get(condition)) is not None and (rule := rules.get(again)) is not None:
            yield from _repeated(of_key, again, rule, until)
        if condition is Condition.REASSIGNING and (rule := rules.get(Condition.REASSIGNMENT_STUCK)) is not None:
            yield from _stuck(of_key, rule, until)


_AGAIN: Final = {Condition.BROKER_DOWN: Condition.RESTART_LOOP, Condition.UNDER_REPLICATED: Condition.ISR_FLAPPING}


def _lasting(spells: Sequence[Spell], rule: Rule, until: int) -> Iterator[Standing]:
    """Yield the chains that have lasted long enough."""
    chains: defaultdict[tuple[int, str | None], list[Spell]] = defaultdict(list)
    for spell in spells:
        chains[spell.since, spell.incident_id].append(spell)
    for chain in chains.values():
        told_since = min(
            (at for each in chain if (at := _reached(each, spells, rule, until)) is not None), default=None
        )
        if told_since is not None and _is_told(chain, rule, until):
            yield _told(chain, Condition(chain[0].condition), rule, told_since)


def _reached(spell: Spell, spells: Sequence[Spell], rule: Rule, until: int) -> int | None:
    """Return when a spell became severe enough; None if it did not until it ended, or until now."""
    end = until if spell.ended_at is None else min(spell.ended_at, until)
    if not rule.lasting:
        return spell.began_at
    moments = [spell.began_at + rule.lasting]
    if rule.adding_up is not None and (before := _before(spell, spells)):
        moments.append(spell.began_at + max(0, rule.adding_up - before))
    at = max(min(moments), spell.began_at + SETTLED)
    return at if at <= end else None


def _before(spell: Spell, spells: Sequence[Spell]) -> int:
    """Return for how long other spells lasted together in the window before one began."""
    total, upto = 0, spell.began_at - WINDOW
    for each in spells:
        end = spell.began_at if each.ended_at is None else min(each.ended_at, spell.began_at)
        if each is not spell and end > upto:
            total += end - max(each.began_at, upto)
            upto = end
    return total


def _is_told(chain: Sequence[Spell], rule: Rule, until: int) -> bool:
    ends = [each.ended_at for each in chain]
    return None in ends or until - max(end for end in ends if end is not None) < rule.kept


def _told(chain: Sequence[Spell], condition: Condition, rule: Rule, told_since: int) -> Standing:
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
        told_since=told_since,
        ended_at=None if None in ends else max(end for end in ends if end is not None),
        partitions=last.partitions,
        topics=last.topics,
        topic_count=last.topic_count,
    )


def _repeated(spells: Sequence[Spell], condition: Condition, rule: Rule, until: int) -> Iterator[Standing]:
    """Yield that spells began again and again within an hour; what explains one of them does not name the others."""
    begins = [spell.began_at for spell in spells]
    counted = begins if condition is Condition.RESTART_LOOP else sorted({begin // SLOT * SLOT for begin in begins})
    many = RESTARTS_OF_A_LOOP if condition is Condition.RESTART_LOOP else FLAPPING_SLOTS
    moments = [last for first, last in zip(counted, counted[many - 1 :], strict=False) if last - first < HOUR]
    if moments and until - moments[-1] < rule.kept:
        unnamed = [each._replace(incident_id=None, short_id=None, ended_at=None) for each in spells]
        yield _told(unnamed, condition, rule, moments[0])


def _stuck(spells: Sequence[Spell], rule: Rule, until: int) -> Iterator[Standing]:
    """Yield that a reassignment has not got on for long."""
    for spell in spells:
        at = (spell.progressed_at or spell.began_at) + rule.lasting
        if spell.ended_at is None and at <= until:
            yield _told([spell], Condition.REASSIGNMENT_STUCK, rule, at)
