"""Spells of one cluster in progress and just over, and the chains that they are in. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.contracts.conditions import (
    BOUND,
    HARMFUL,
    KEPT,
    RECENT,
    RULES,
    TOPICS_NAMED,
    WINDOW,
    Condition,
    Spell,
    chained_with,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.incidents.context import ChangeRow


@dataclass(slots=True, eq=False)
class Chain:
    """Spells that follow each other: what they have in common. The short id is the writer's.

    Attributes:
        since, incident_id, short_id: as of a spell.
        spells: all of them that are remembered.
    """

    since: int
    incident_id: str | None
    short_id: str | None
    spells: list[LiveSpell]


@dataclass(slots=True, eq=False)
class LiveSpell:
    """A spell that may still change. Fields are those of ``Spell``, without those of its chain."""

    condition_id: str
    cluster_id: str
    cluster: str
    condition: Condition
    subject: str
    chain: Chain
    began_at: int
    began_version: int
    ended_at: int | None = None
    ended_version: int | None = None
    progressed_at: int | None = None
    partitions: int = 0
    topics: tuple[str, ...] = ()
    topic_count: int = 0
    explained_by: str | None = None

    def row(self) -> Spell:
        """Return it as it is now."""
        return Spell(
            condition_id=self.condition_id,
            cluster_id=self.cluster_id,  # type: ignore[arg-type]
            cluster=self.cluster,
            condition=self.condition,
            subject=self.subject,
            since=self.chain.since,  # type: ignore[arg-type]
            began_at=self.began_at,  # type: ignore[arg-type]
            ended_at=self.ended_at,  # type: ignore[arg-type]
            progressed_at=self.progressed_at,  # type: ignore[arg-type]
            incident_id=self.chain.incident_id,
            short_id=self.chain.short_id,
            partitions=self.partitions,
            topics=self.topics,
            topic_count=self.topic_count,
            began_version=self.began_version,
            ended_version=self.ended_version,
            explained_by=self.explained_by,
        )


class SpellBook:
    """The spells of one cluster that last, or ended not long ago.

    Attributes:
        changed: those that rows have changed since it was last asked; by id. None: it was withdrawn.
        blind_since: while a full report closes a gap in which the cluster was not observed: the begin of the gap.
        unsettled: chains whose incident may not be fixed yet, and some older ones.
        unnamed: those of them that are about a broker, and that no incident explains yet.
    """

    def __init__(self, spells: Iterable[Spell] = ()) -> None:
        self._of_key: dict[tuple[Condition, str], list[LiveSpell]] = {}
        self.changed: dict[str, LiveSpell | None] = {}
        self.blind_since = 0
        chains: dict[tuple[object, ...], Chain] = {}
        for each in sorted(spells, key=lambda spell: (spell.began_at, spell.condition_id)):
            condition = Condition(each.condition)
            key = (chained_with(condition), each.subject, each.since, each.incident_id)
            chain = chains.setdefault(key, Chain(each.since, each.incident_id, each.short_id, []))
            values = {name: getattr(each, name) for name in _OWN}
            live = LiveSpell(**{**values, "condition": condition, "chain": chain})
            chain.spells.append(live)
            self._of_key.setdefault((chained_with(condition), each.subject), []).append(live)
        self.unsettled = list(chains.values())
        self.unnamed = [each for each in self.unsettled if each.incident_id is None and each.spells[0].subject]

    def open_ones(self) -> list[LiveSpell]:
        """Return the spells that last."""
        return [spell for spells in self._of_key.values() for spell in spells if spell.ended_at is None]

    def begin(
        self,
        condition: Condition,
        subject: str,
        row: ChangeRow,
        incident_id: str | None,
        follows: LiveSpell | Chain | None = None,
    ) -> LiveSpell:
        """Begin a spell with a row; one that ended at this moment, and was explained alike, lasts on.

        ``follows`` is the spell that has just ended and with which it began, or a chain that it is in.
        """
        began_at = min(row.time, follows.began_at) if isinstance(follows, LiveSpell) else row.time
        spells = self._of_key.setdefault((chained_with(condition), subject), [])
        over = [spell for spell in spells if spell.ended_at is not None and began_at - spell.ended_at <= KEPT]
        at_once = [
            spell for spell in over
            if (spell.condition, spell.explained_by) == (condition, incident_id) and (spell.ended_at or 0) >= row.time
        ]  # fmt: skip
        if (spell := max(at_once, key=_newest, default=None)) is not None:
            spell.ended_at = spell.ended_version = None
            self.note(spell)
            return spell
        chain = follows.chain if isinstance(follows, LiveSpell) else follows
        if chain is None:
            led = [each for each in over if each.explained_by == incident_id or _was_raised(each, spells, began_at)]
            before = max(led, key=_newest, default=None)
            name = self._name(condition, incident_id, row.time)
            chain = Chain(began_at, name, None, []) if before is None else before.chain
        began_at = max(began_at, chain.since)  # time may run back
        return self._added(_spell(condition, subject, row, incident_id, chain, began_at, spells), spells)

    def moment(self, condition: Condition, row: ChangeRow, incident_id: str | None) -> LiveSpell:
        """Note a moment: it is named by its own row, and joins the one just before it that was explained alike."""
        spells = self._of_key.setdefault((chained_with(condition), ""), [])
        alike = [each for each in spells if each.explained_by == incident_id and each.ended_at is not None]
        before = max(alike, key=_newest, default=None)
        if before is None or before.ended_at is None or row.time - before.ended_at > WINDOW:
            chain = Chain(row.time, self._name(condition, incident_id, row.time), None, [])
        elif row.time - before.ended_at < BOUND:
            before.ended_at, before.ended_version = max(before.ended_at, row.time), row.version
            self.note(before)
            return before
        else:
            chain = before.chain
        spell = _spell(condition, "", row, incident_id, chain, row.time, spells)
        spell.ended_at, spell.ended_version = row.time, row.version
        return self._added(spell, spells)

    def _name(self, condition: Condition, incident_id: str | None, at: int) -> str | None:
        """Return the incident that names what begins: of harm that of other harm, if it was raised and is young."""
        raised = (
            each
            for of in HARMFUL
            if condition in HARMFUL
            for spells in [self._of_key.get((of, ""), [])]
            for each in spells
            if at - each.began_at <= KEPT and _was_raised(each, spells, at)
        )
        newest = max(raised, key=lambda each: (each.began_at, each.condition_id), default=None)
        return incident_id if newest is None else newest.chain.incident_id or incident_id

    def _added(self, spell: LiveSpell, spells: list[LiveSpell]) -> LiveSpell:
        chain = spell.chain
        if not chain.spells and spell.ended_at is None:
            self.unsettled = [each for each in self.unsettled if spell.began_at - each.since <= KEPT]
            self.unsettled.append(chain)
            if chain.incident_id is None and spell.subject:
                self.unnamed.append(chain)
        chain.spells.append(spell)
        spells.append(spell)
        self._forget(spells, spell.began_at - RECENT)
        self.note(spell)
        return spell

    def _forget(self, spells: list[LiveSpell], before: int) -> None:
        if any(each.ended_at is not None and each.ended_at < before for each in spells):
            spells[:] = [each for each in spells if each.ended_at is None or each.ended_at >= before]

    def end(self, spell: LiveSpell, row: ChangeRow) -> None:
        """End a spell with a row; what lasted no time that was observed, or none as what it is, is withdrawn."""
        at = max(spell.began_at, min(row.time - row.gap, self.blind_since or row.time))
        span = spell.began_at, at
        is_covered = any((each.began_at, each.ended_at) == span for each in spell.chain.spells if each is not spell)
        if at == spell.began_at or is_covered:
            self.withdraw(spell)
            return
        spell.ended_at, spell.ended_version = at, row.version
        self.note(spell)

    def withdraw(self, spell: LiveSpell) -> None:
        """Take a spell back, as if it had never begun."""
        self._of_key[chained_with(spell.condition), spell.subject].remove(spell)
        spell.chain.spells.remove(spell)
        if not spell.chain.spells and spell.chain in self.unsettled:
            self.unsettled.remove(spell.chain)
        if not spell.chain.spells and spell.chain in self.unnamed:
            self.unnamed.remove(spell.chain)
        self.changed[spell.condition_id] = None

    def add_topic(self, spell: LiveSpell, topic: str) -> None:
        """Add the name of a topic to a spell, if there is room."""
        if topic not in spell.topics and len(spell.topics) < TOPICS_NAMED:
            spell.topics = tuple(sorted({*spell.topics, topic}))
            spell.topic_count = len(spell.topics)
            self.note(spell)

    def note(self, spell: LiveSpell) -> None:
        """Note that a spell has changed."""
        self.changed[spell.condition_id] = spell

    def bind(self, chain: Chain, incident_id: str) -> None:
        """Name the incident that explains a chain."""
        chain.incident_id, chain.short_id = incident_id, None
        if chain in self.unnamed:
            self.unnamed.remove(chain)
        for spell in chain.spells:
            self.note(spell)

    def take_changed(self) -> dict[str, Spell | None]:
        """Return the spells that have changed, and forget that they have."""
        changed = {key: None if spell is None else spell.row() for key, spell in self.changed.items()}
        self.changed = {}
        return changed


def _was_raised(spell: LiveSpell, spells: Iterable[LiveSpell], at: int) -> bool:
    """Return whether the chain of a spell was raised, by the rules as they come: what follows keeps its name then."""
    if (rule := RULES.get(spell.condition)) is None or not rule.lasting:
        return rule is not None
    in_chain = ((each.ended_at or at) - each.began_at for each in spell.chain.spells)
    alike = (each for each in spells if each.condition is spell.condition and (each.ended_at or at) > at - WINDOW)
    total = sum((each.ended_at or at) - each.began_at for each in alike)
    return any(lasted >= rule.lasting for lasted in in_chain) or (rule.adding_up or total + 1) <= total


def _spell(  # noqa: PLR0913, PLR0917 - what a spell begins with
    condition: Condition,
    subject: str,
    row: ChangeRow,
    incident_id: str | None,
    chain: Chain,
    began_at: int,
    others: Iterable[LiveSpell],
) -> LiveSpell:
    """Return a spell that begins with a row; ``others``: those of its key."""
    return LiveSpell(
        condition_id=_unused(f"{row.cluster_id}/{condition}/{subject}/{began_at}/{incident_id or ''}", others),
        cluster_id=row.cluster_id,
        cluster=row.cluster,
        condition=condition,
        subject=subject,
        chain=chain,
        began_at=began_at,
        began_version=row.version,
        explained_by=incident_id,
    )


def _unused(condition_id: str, spells: Iterable[LiveSpell]) -> str:
    """Return an id that none of the spells has: time may have run back."""
    used = {spell.condition_id for spell in spells}
    while condition_id in used:
        condition_id += "+"
    return condition_id


def _newest(spell: LiveSpell) -> tuple[int, int, str]:
    return spell.ended_at or 0, spell.began_at, spell.condition_id


_OWN: Final = (
    "condition_id", "cluster_id", "cluster", "subject", "began_at", "began_version", "ended_at", "ended_version",
    "progressed_at", "partitions", "topics", "topic_count", "explained_by",
)  # fmt: skip
