"""Rows of the change log in, spells of conditions out. Pure; no clock, no IO.

Follows the fold of incidents row by row, after it: what partitions are counted as and whom incidents hold. Where no count
reaches or leaves zero, and none is larger than before, a row costs a few comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.conditions.brokers import broker_condition, explains
from streaming.changes.conditions.chains import SpellBook
from streaming.changes.incidents.context import State
from streaming.contracts.conditions import BOUND, TOPICS_NAMED, Condition
from streaming.contracts.events import EventKind, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.changes.conditions.chains import LiveSpell
    from streaming.changes.incidents.context import ChangeRow, ClusterContext
    from streaming.changes.incidents.incident import Incident, TopicPartition
    from streaming.contracts.conditions import Spell

_HARM: Final = {
    State.OFFLINE: (Condition.OFFLINE, Condition.OFFLINE_PLANNED),
    State.UNDER_MIN_ISR: (Condition.UNDER_MIN_ISR, Condition.UNDER_MIN_ISR_PLANNED),
}
_HARMED: Final = sum(1 << state for state in _HARM)
_COUNTED: Final = {
    State.MINIMUM_UNKNOWN: Condition.MIN_ISR_UNKNOWN,
    State.AT_MIN_ISR: Condition.AT_MIN_ISR,
    State.MOVING: Condition.REASSIGNING,
}
_OF_INCIDENTS: Final = frozenset(condition for both in _HARM.values() for condition in both)
_STEPS_OF_MOVES: Final = frozenset({
    EventKind.REASSIGNMENT_BEGAN, EventKind.REASSIGNMENT_COMPLETED, EventKind.REASSIGNMENT_CANCELLED,
})  # fmt: skip


class ClusterConditions:
    """The conditions of one cluster."""

    def __init__(self, spells: Iterable[Spell], context: ClusterContext, incidents: Iterable[Incident]) -> None:
        """Continue.

        Args:
            spells: those that last, and those that ended not long ago.
            context: of the cluster.
            incidents: those of the cluster that may still change.
        """
        self.book = SpellBook(spells)
        self._context = context
        self._held: dict[tuple[Condition, str | None], list[LiveSpell]] = {}
        self._counted: dict[Condition, LiveSpell] = {}
        self._brokers: dict[str, LiveSpell] = {}
        for spell in self.book.open_ones():
            if spell.condition in _OF_INCIDENTS:
                self._held.setdefault((spell.condition, spell.explained_by), []).append(spell)
            elif spell.subject:
                self._brokers[spell.subject] = spell
            else:
                self._counted[spell.condition] = spell
        self._explained: dict[State, set[TopicPartition]] = {state: set() for state in _HARM}
        for incident in incidents:
            for key, held in incident.held.items():
                for state, keys in self._explained.items():
                    if held.states[state]:
                        keys.add(key)

    def follow(self, row: ChangeRow, incidents: Iterable[Incident], touched: Mapping[str, Incident]) -> None:
        """Follow a row that context and incidents have followed.

        Args:
            row: the row.
            incidents: all of the cluster.
            touched: those that the row has changed, or that were merged with it.
        """
        if self.book.unsettled:
            self._settle(row, touched)
        gone = [each for each in touched.values() if each.merged_into is not None]
        if gone:
            touched = self._merged(touched, gone)
        states = row.states | row.states_before
        if states & _HARMED:
            self._explain(row, incidents)
        if touched or states & _HARMED or row.in_states:
            self._harm(row, touched)
        if states or row.in_states:
            self._count(row, touched)
        if row.lacking != row.lacking_before:
            for broker in {*row.lacking, *row.lacking_before}:
                self._broker(broker, row, touched)
        elif row.all_lacking:
            for each, _ in row.all_lacking:
                self._broker(each, row, touched)
        elif row.subject == Subject.BROKER:
            self._broker(row.broker, row, touched)
        if EventKind.UNCLEAN_ELECTION in row.events:
            self._unclean(row, touched)

    def _merged(self, touched: Mapping[str, Incident], gone: Iterable[Incident]) -> dict[str, Incident]:
        """Let those explain spells into which others were merged; return the incidents that stand."""
        for incident in gone:
            into = incident.merged_into
            while into is not None and (other := touched.get(into)) is not None and other.merged_into is not None:
                into = other.merged_into
            for condition in _OF_INCIDENTS:
                self._move(condition, incident.incident_id, into)
        return {name: each for name, each in touched.items() if each.merged_into is None}

    def reconcile(self, standing: Iterable[Incident]) -> None:
        """Begin and end what is and is not true: rows that said so are missing."""
        incidents = {each.incident_id: each for each in standing}
        row = self._context.standing_row()
        for condition, holder in list(self._held):
            if holder is not None and holder not in incidents:
                self._move(condition, holder, None)
        self._harm(row, incidents)
        for state in _COUNTED:
            self._counted_now(state, row, None)
        for broker in {*self._context.lacking, *self._context.down, *map(int, self._brokers)}:
            self._broker(broker, row, incidents)

    # ------------------------------------------------------------------ partitions that refuse writes, or have no leader

    def _explain(self, row: ChangeRow, incidents: Iterable[Incident]) -> None:
        key = (row.topic_id, row.partition)
        held = next((each.held[key] for each in incidents if key in each.held), None)
        for state, keys in self._explained.items():
            if held is not None and held.states[state]:
                keys.add(key)
            else:
                keys.discard(key)

    def _harm(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        for state, (harmful, planned) in _HARM.items():
            counts: dict[tuple[Condition, str | None], int] = {}
            for incident in touched.values():
                name, now = incident.incident_id, incident.tallies[state].now
                by_plan = incident.planned_now(state) if now else 0
                counts[harmful, name], counts[planned, name] = now - by_plan, by_plan
            counts[harmful, None] = max(0, self._context.in_states[state] - len(self._explained[state]))
            self._now(counts, state, row, touched)

    def _now(
        self,
        counts: Mapping[tuple[Condition, str | None], int],
        state: State,
        row: ChangeRow,
        touched: Mapping[str, Incident],
    ) -> None:
        for key, count in counts.items():  # first those that end: one that begins continues them
            if not count and key in self._held:
                self._over(key, counts, row, touched, state)
        for key, count in counts.items():
            if count and key not in self._held:
                self._begins(key, row)
            if count:
                incident = None if key[1] is None else touched.get(key[1])
                for spell in self._held[key]:
                    self._grow(spell, count, incident, state)

    def _begins(self, key: tuple[Condition, str | None], row: ChangeRow) -> None:
        condition, holder = key
        unexplained = self._held.get((condition, None), ())
        if holder is not None and unexplained and row.time - unexplained[0].began_at <= BOUND:
            self._adopt(condition, holder, row)
            return
        self._held[key] = [self.book.begin(condition, "", row, holder)]

    def _over(
        self,
        key: tuple[Condition, str | None],
        counts: Mapping[tuple[Condition, str | None], int],
        row: ChangeRow,
        touched: Mapping[str, Incident],
        state: State,
    ) -> None:
        """End spells; unexplained ones that an incident explains from now on are its own."""
        condition, holder = key
        heir = None
        if holder is None:
            heir = next(
                (
                    each
                    for (of, each), count in counts.items()
                    if of is condition and each is not None and count and (of, each) not in self._held
                ),
                None,
            )
        if heir is not None:
            self._adopt(condition, heir, row)
            return
        for spell in self._held.pop(key):
            if holder is not None and holder in touched:
                self._name_topics(spell, touched[holder], state)
            self.book.end(spell, row)

    def _adopt(self, condition: Condition, heir: str, row: ChangeRow) -> None:
        """Let an incident explain what none has explained; its name counts for a young chain."""
        self._move(condition, None, heir)
        for spell in self._held[condition, heir]:
            if row.time - spell.chain.since <= BOUND and spell.chain.incident_id is None:
                self.book.bind(spell.chain, heir)

    def _move(self, condition: Condition, holder: str | None, to: str | None) -> None:
        """Let another incident explain the spells that one has explained."""
        for spell in self._held.pop((condition, holder), ()):
            spell.explained_by = to
            self._held.setdefault((condition, to), []).append(spell)
            self.book.note(spell)

    def _grow(self, spell: LiveSpell, count: int, incident: Incident | None, state: State) -> None:
        if count > spell.partitions:
            spell.partitions = count
            self.book.note(spell)
        if incident is not None:
            self._name_topics(spell, incident, state)

    def _name_topics(self, spell: LiveSpell, incident: Incident, state: State) -> None:
        ids = incident.leaderless if state is State.OFFLINE else incident.refused
        if len(ids) == spell.topic_count:
            return
        names = sorted({incident.topics[each] for each in ids if each in incident.topics})
        spell.topics, spell.topic_count = tuple(names[:TOPICS_NAMED]), len(ids)
        self.book.note(spell)

    # ------------------------------------------------------------------ the cluster as a whole

    def _count(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        incident = next(iter(touched), None)
        for state in _COUNTED:
            if row.in_states or (row.states | row.states_before) >> state & 1:
                self._counted_now(state, row, incident)

    def _counted_now(self, state: State, row: ChangeRow, incident_id: str | None) -> None:
        condition, count = _COUNTED[state], self._context.in_states[state]
        spell = self._counted.get(condition)
        if count > 0:
            if spell is None:
                spell = self._counted[condition] = self.book.begin(condition, "", row, incident_id)
            if count > spell.partitions:
                spell.partitions = count
                self.book.note(spell)
            if state is State.MOVING and self._moves_on(row, spell):
                spell.progressed_at = max(spell.progressed_at or 0, row.time)
                self.book.note(spell)
        elif spell is not None:
            del self._counted[condition]
            self.book.end(spell, row)

    def _moves_on(self, row: ChangeRow, spell: LiveSpell) -> bool:
        is_step = (row.states ^ row.states_before) >> State.MOVING & 1
        return spell.progressed_at is None or bool(is_step) or not _STEPS_OF_MOVES.isdisjoint(row.events)

    def _unclean(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        key = (row.topic_id, row.partition)
        names = [name for name, each in touched.items() if each.has_touched(key)]
        spell = self.book.moment(Condition.UNCLEAN_ELECTION, row, names[0] if names else None)
        spell.partitions += 1
        if row.topic not in spell.topics and len(spell.topics) < TOPICS_NAMED:
            spell.topics = tuple(sorted({*spell.topics, row.topic}))
            spell.topic_count = len(spell.topics)

    # ------------------------------------------------------------------ brokers

    def _broker(self, broker: int, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        subject = str(broker)
        spell, lacking = self._brokers.get(subject), self._context.lacking[broker]
        was = None if spell is None else spell.condition
        now = broker_condition(broker, was, self._context)
        if now is was:
            if spell is not None and lacking > spell.partitions:
                spell.partitions = lacking
                self.book.note(spell)
            return
        if spell is not None:
            del self._brokers[subject]
            self.book.end(spell, row)
        if now is not None:
            incident_id = next((name for name, each in touched.items() if explains(each, broker)), None)
            has_begun = (was, now) == (Condition.UNDER_REPLICATED, Condition.BROKER_DOWN)
            begun = self.book.begin(now, subject, row, incident_id, spell if has_begun else None)
            begun.partitions = max(begun.partitions, lacking)
            self._brokers[subject] = begun

    def _settle(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        """Name the incident that explains a chain, or follow its merge, while the chain is young."""
        unsettled = self.book.unsettled
        for chain in list(unsettled):
            if row.time - chain.since > BOUND:
                unsettled.remove(chain)
            elif chain.incident_id is not None:
                while (incident := touched.get(chain.incident_id)) is not None and incident.merged_into is not None:
                    self.book.bind(chain, incident.merged_into)
            elif chain.spells and (subject := chain.spells[0].subject):
                for name, incident in touched.items():
                    if incident.merged_into is None and explains(incident, int(subject)):
                        self.book.bind(chain, name)
                        break


class ConditionFold:
    """The conditions of all clusters. Owned by the fold of incidents."""

    def __init__(self, spells: Iterable[Spell] = ()) -> None:
        """Continue with the spells that last, and those that ended not long ago."""
        self._spells: dict[str, list[Spell]] = {}
        for spell in spells:
            self._spells.setdefault(spell.cluster_id, []).append(spell)
        self._clusters: dict[str, ClusterConditions] = {}

    def of(self, cluster_id: str, context: ClusterContext, incidents: Iterable[Incident]) -> ClusterConditions:
        """Return the conditions of a cluster; before its first row with what is remembered of it."""
        if (known := self._clusters.get(cluster_id)) is None:
            spells = self._spells.pop(cluster_id, [])
            known = self._clusters[cluster_id] = ClusterConditions(spells, context, incidents)
        return known

    def take_changed(self) -> dict[str, Spell | None]:
        """Return the spells that have changed, by id, and forget that they have; None: it was withdrawn."""
        return {key: spell for each in self._clusters.values() for key, spell in each.book.take_changed().items()}
