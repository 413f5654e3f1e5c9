"""Rows of the change log in, spells of conditions out. Pure; no clock, no IO.

Follows the fold of incidents row by row, after it: how partitions are counted, and which brokers incidents hold. Where
no count reaches or leaves zero, and none is larger than before, a row costs a few comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.conditions.brokers import BrokerConditions, explains
from streaming.changes.conditions.chains import SpellBook
from streaming.changes.conditions.harm import CONDITIONS_OF, HARMED, HarmedPartitions, begun
from streaming.changes.incidents.context import STATES_OF, DegradedState
from streaming.contracts.conditions import BOUND, Condition
from streaming.contracts.events import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming.changes.conditions.chains import LiveSpell
    from streaming.changes.conditions.harm import Harmed
    from streaming.changes.incidents.context import ChangeRow, ClusterContext
    from streaming.changes.incidents.incident import Incident
    from streaming.contracts.conditions import Spell

_COUNTED: Final = {
    DegradedState.MINIMUM_UNKNOWN: Condition.MIN_ISR_UNKNOWN,
    DegradedState.AT_MIN_ISR: Condition.AT_MIN_ISR,
    DegradedState.MOVING: Condition.REASSIGNING,
}
_UNCLEAN: Final = EventKind.UNCLEAN_ELECTION
_MOVING: Final = 1 << DegradedState.MOVING
_STEPS_OF_MOVES: Final = frozenset({
    EventKind.REASSIGNMENT_BEGAN, EventKind.REASSIGNMENT_COMPLETED, EventKind.REASSIGNMENT_CANCELLED,
})  # fmt: skip


class ClusterConditions:
    """The conditions of one cluster."""

    def __init__(self, spells: Iterable[Spell], context: ClusterContext, incidents: Iterable[Incident]) -> None:
        """Continue with the spells that last or ended not long ago, and the incidents that may still change."""
        self.book = book = SpellBook(spells)
        self._context = context
        self._counted: dict[Condition, LiveSpell] = {
            spell.condition: spell for spell in book.open_ones() if spell.condition in _COUNTED.values()
        }
        self._harmed = [HarmedPartitions(state, book, context, incidents) for state in CONDITIONS_OF]
        self._brokers = BrokerConditions(book, context)
        self._stopped: dict[str, set[int]] = {}  # brokers that work is done on, by incident, as of its last row

    def follow(self, row: ChangeRow, incidents: Iterable[Incident], touched: Mapping[str, Incident]) -> None:
        """Follow a row that context and incidents have followed; it has changed, or merged, those that are touched."""
        self.book.blind_since, is_regrouped = self._context.blind_since, bool(row.in_states)
        for name, each in touched.items():
            if each.merged_into is not None:
                self._follow_merges(row, touched)
                touched, is_regrouped = self._merged(touched), True
                self._stopped.clear()
                break
            if (each.planned or name in self._stopped) and (stopped := each.stopped) != self._stopped.get(name):
                stand = {other.incident_id for other in incidents}
                self._stopped = {key: of for key, of in self._stopped.items() if key in stand} | {name: stopped}
                is_regrouped = True
        if touched and self.book.unnamed:
            self._name(row, touched)
        if is_regrouped or (row.states | row.states_before) & HARMED:
            for harmed in self._harmed:
                harmed.follow(row, incidents, touched)
        if row.states != row.states_before or row.in_states or row.states & _MOVING:
            self._count(row, touched)
        self._brokers.follow(row, touched)
        if _UNCLEAN in row.events:
            self._unclean(row, touched)

    def _merged(self, touched: Mapping[str, Incident]) -> dict[str, Incident]:
        """Let those explain spells into which others were merged; return the incidents that stand."""
        for name, incident in touched.items():
            into = incident.merged_into
            while into is not None and (other := touched.get(into)) is not None and other.merged_into is not None:
                into = other.merged_into
            for harmed in self._harmed if into is not None else ():
                harmed.merge(name, into)
        return {name: each for name, each in touched.items() if each.merged_into is None}

    def reconcile(self, incidents: Iterable[Incident], harmed: Sequence[Harmed] = ()) -> None:
        """Begin and end what is and is not true: rows that said so are missing; ``harmed``: since when it is true."""
        standing = {each.incident_id: each for each in incidents}
        row = self._context.standing_row()
        for each in self._harmed:
            each.release(standing)
            each.count(row, standing, harmed)
        for state, condition in _COUNTED.items():
            begins = self._context.in_states[state] > 0 and condition not in self._counted
            at = begun(row, (each.states.get(state) for each in harmed)) if begins else row
            self._count_state(state, at, None)
        self._brokers.look_at_all(row, standing, harmed)

    def _count(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        incident = next(iter(touched), None)
        changed = row.states ^ row.states_before | row.states & _MOVING
        for state in _COUNTED if row.in_states else STATES_OF[changed]:
            if state in _COUNTED:
                self._count_state(state, row, incident)

    def _count_state(self, state: DegradedState, row: ChangeRow, incident_id: str | None) -> None:
        """Begin or end the spell of a state by the number of partitions in it."""
        condition, count = _COUNTED[state], self._context.in_states[state]
        spell = self._counted.get(condition)
        if count > 0:
            if spell is None:
                spell = self._counted[condition] = self.book.begin(condition, "", row, incident_id)
            if count > spell.partitions:
                spell.partitions = count
                self.book.note(spell)
            if state is DegradedState.MOVING and _moves_on(row, spell):
                spell.progressed_at = max(spell.progressed_at or 0, row.time)
                self.book.note(spell)
        elif spell is not None:
            del self._counted[condition]
            self.book.end(spell, row)

    def _unclean(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        key = (row.topic_id, row.partition)
        names = [name for name, each in touched.items() if each.has_touched(key)]
        spell = self.book.moment(Condition.UNCLEAN_ELECTION, row, names[0] if names else None)
        spell.partitions += 1
        self.book.add_topic(spell, row.topic)

    def _follow_merges(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        """Name the incident that one which explains a young chain was merged into."""
        for chain in self.book.unsettled if touched else ():
            while row.time - chain.since <= BOUND and (incident := touched.get(chain.incident_id or "")) is not None:
                if incident.merged_into is None:
                    break
                self.book.bind(chain, incident.merged_into)

    def _name(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        """Name the incident that explains a chain about a broker, while the chain is young."""
        for chain in list(self.book.unnamed):
            subject = chain.spells[0].subject
            if row.time - chain.since > BOUND:
                self.book.unnamed.remove(chain)
                continue
            names = (name for name, each in touched.items() if explains(each, int(subject)))
            if (name := next(names, None)) is not None:
                self.book.bind(chain, name)


def _moves_on(row: ChangeRow, spell: LiveSpell) -> bool:
    """Return whether a reassignment began, was completed or was cancelled."""
    is_step = bool((row.states ^ row.states_before) >> DegradedState.MOVING & 1)
    return spell.progressed_at is None or is_step or not _STEPS_OF_MOVES.isdisjoint(row.events)


class ConditionFold:
    """The conditions of all clusters. Owned by the fold of incidents."""

    def __init__(self, spells: Iterable[Spell] = ()) -> None:
        """Continue with the spells that last, and those that ended not long ago."""
        self._spells: dict[str, list[Spell]] = {}
        for spell in spells:
            self._spells.setdefault(spell.cluster_id, []).append(spell)
        self._clusters: dict[str, ClusterConditions] = {}

    def follow(
        self, row: ChangeRow, context: ClusterContext, incidents: Iterable[Incident], touched: Mapping[str, Incident]
    ) -> None:
        """Follow a row, as :meth:`ClusterConditions.follow` does."""
        conditions = self._clusters.get(row.cluster_id) or self._of(row.cluster_id, context, incidents)
        conditions.follow(row, incidents, touched)

    def reconcile(
        self, cluster_id: str, context: ClusterContext, incidents: Iterable[Incident], harmed: Sequence[Harmed] = ()
    ) -> None:
        """Make the spells of a cluster agree with what is, as :meth:`ClusterConditions.reconcile` does."""
        self._of(cluster_id, context, incidents).reconcile(incidents, harmed)

    def _of(self, cluster_id: str, context: ClusterContext, incidents: Iterable[Incident]) -> ClusterConditions:
        """Return the conditions of a cluster; at first with what is remembered of it."""
        if (conditions := self._clusters.get(cluster_id)) is None:
            spells = self._spells.pop(cluster_id, [])
            conditions = self._clusters[cluster_id] = ClusterConditions(spells, context, incidents)
        return conditions

    def take_changed(self) -> dict[str, Spell | None]:
        """Return the spells that have changed, by id, and forget that they have; None: it was withdrawn."""
        return {key: spell for each in self._clusters.values() for key, spell in each.book.take_changed().items()}
