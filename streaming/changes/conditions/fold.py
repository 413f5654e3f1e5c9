"""Rows of the change log in, spells of conditions out. Pure; no clock, no IO.

Follows the fold of incidents row by row, after it: how partitions are counted, and whom incidents hold. Where no count
reaches or leaves zero, and none is larger than before, a row costs a few comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.conditions.brokers import BrokerConditions, explains
from streaming.changes.conditions.chains import SpellBook
from streaming.changes.conditions.harm import CONDITIONS_OF, HarmedPartitions
from streaming.changes.incidents.context import DegradedState
from streaming.contracts.conditions import BOUND, Condition
from streaming.contracts.events import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.changes.conditions.chains import LiveSpell
    from streaming.changes.incidents.context import ChangeRow, ClusterContext
    from streaming.changes.incidents.incident import Incident
    from streaming.contracts.conditions import Spell

_COUNTED: Final = {
    DegradedState.MINIMUM_UNKNOWN: Condition.MIN_ISR_UNKNOWN,
    DegradedState.AT_MIN_ISR: Condition.AT_MIN_ISR,
    DegradedState.MOVING: Condition.REASSIGNING,
}
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
        self.book = book = SpellBook(spells)
        self._context = context
        self._counted: dict[Condition, LiveSpell] = {
            spell.condition: spell for spell in book.open_ones() if spell.condition in _COUNTED.values()
        }
        self._harmed = [HarmedPartitions(state, book, context, incidents) for state in CONDITIONS_OF]
        self._brokers = BrokerConditions(book, context)

    def follow(self, row: ChangeRow, incidents: Iterable[Incident], touched: Mapping[str, Incident]) -> None:
        """Follow a row that context and incidents have followed.

        Args:
            row: the row.
            incidents: all of the cluster.
            touched: those that the row has changed, or merged with others, by id.
        """
        if self.book.unsettled:
            self._settle(row, touched)
        for each in touched.values():
            if each.merged_into is not None:
                touched = self._merged(touched)
                break
        for harmed in self._harmed:
            harmed.follow(row, incidents, touched)
        if row.states or row.states_before or row.in_states:
            self._count(row, touched)
        self._brokers.follow(row, touched)
        if EventKind.UNCLEAN_ELECTION in row.events:
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

    def reconcile(self, incidents: Iterable[Incident]) -> None:
        """Begin and end what is and is not true: rows that said so are missing."""
        standing = {each.incident_id: each for each in incidents}
        row = self._context.standing_row()
        for harmed in self._harmed:
            harmed.release(standing)
            harmed.count(row, standing)
        for state in _COUNTED:
            self._count_state(state, row, None)
        self._brokers.look_at_all(row, standing)

    def _count(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        incident = next(iter(touched), None)
        states = row.states | row.states_before
        for state in _COUNTED:
            if states >> state & 1 or row.in_states:
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

    def _settle(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        """Name the incident that explains a chain, or follow its merge, while the chain is young."""
        for chain in list(self.book.unsettled):
            if row.time - chain.since > BOUND:
                self.book.unsettled.remove(chain)
            elif chain.incident_id is not None:
                while (incident := touched.get(chain.incident_id)) is not None and incident.merged_into is not None:
                    self.book.bind(chain, incident.merged_into)
            elif chain.spells and (subject := chain.spells[0].subject):
                names = (name for name, each in touched.items() if each.merged_into is None)
                name = next((name for name in names if explains(touched[name], int(subject))), None)
                if name is not None:
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
        self._of(row.cluster_id, context, incidents).follow(row, incidents, touched)

    def reconcile(self, cluster_id: str, context: ClusterContext, incidents: Iterable[Incident]) -> None:
        """Make the spells of a cluster agree with what is."""
        self._of(cluster_id, context, incidents).reconcile(incidents)

    def _of(self, cluster_id: str, context: ClusterContext, incidents: Iterable[Incident]) -> ClusterConditions:
        """Return the conditions of a cluster; at first with what is remembered of it."""
        if (conditions := self._clusters.get(cluster_id)) is None:
            spells = self._spells.pop(cluster_id, [])
            conditions = self._clusters[cluster_id] = ClusterConditions(spells, context, incidents)
        return conditions

    def take_changed(self) -> dict[str, Spell | None]:
        """Return the spells that have changed, by id, and forget that they have; None: it was withdrawn."""
        return {key: spell for each in self._clusters.values() for key, spell in each.book.take_changed().items()}
