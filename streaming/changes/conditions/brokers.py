"""Brokers that are down, or missing from ISRs: each is in one condition at most. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from streaming.changes.conditions.harm import begun
from streaming.contracts.conditions import OF_BROKERS, Condition
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.changes.conditions.chains import LiveSpell, SpellBook
    from streaming.changes.conditions.harm import Harmed
    from streaming.changes.incidents.context import ChangeRow, ClusterContext
    from streaming.changes.incidents.incident import Incident


def broker_condition(broker: int, was: Condition | None, context: ClusterContext) -> Condition | None:
    """Return the condition of a broker, after the one that it had before.

    One that was down is, until it serves all of its replicas again. One that runs lacks nothing where it is in the last
    ISR of a partition without a leader. One that was missing from ISRs before work on it was announced is not missing
    by plan.
    """
    is_down = context.is_down(broker)
    if lacking_of(broker, was, context) <= 0:
        return None
    if was is Condition.BROKER_DOWN:
        return was
    if context.has_open_lease(broker) and (is_down or was is not Condition.UNDER_REPLICATED):
        return Condition.PLANNED_WORK
    return Condition.BROKER_DOWN if is_down else Condition.UNDER_REPLICATED


def lacking_of(broker: int, was: Condition | None, context: ClusterContext) -> int:
    """Return how many partitions a broker lacks that is in a condition."""
    is_down = was is Condition.BROKER_DOWN or context.is_down(broker)
    return context.lacking[broker] - (0 if is_down else context.leaderless[broker])


def explains(incident: Incident, broker: int) -> bool:
    """Return whether an incident is why a broker is down, or missing from ISRs."""
    if broker in incident.lost | incident.planned | incident.innocent or broker in incident.blamed:
        return True
    return any(left == broker for _, left in incident.departures)


class BrokerConditions:
    """The conditions of the brokers of one cluster."""

    def __init__(self, book: SpellBook, context: ClusterContext) -> None:
        """Continue with the spells of a book that last."""
        self._book, self._context = book, context
        self._spells = {int(spell.subject): spell for spell in book.open_ones() if spell.condition in OF_BROKERS}

    def follow(self, row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        """Follow a row, which has changed some incidents that stand."""
        if NO_LEADER in (row.leader_before, row.leader) and (row.lacking or row.lacking_before):
            self.look((*row.lacking_before, *row.lacking), row, touched)
        elif row.lacking != row.lacking_before:
            self._count((*row.lacking_before, *row.lacking), row, touched)
        elif row.subject == Subject.BROKER:
            self.look((row.broker,), row, touched)
        elif row.all_lacking:
            self.look((each.broker for each in row.all_lacking), row, touched)

    def _count(self, brokers: Iterable[int], row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        """Follow a row of a partition: only a broker that lacks none, or did, can have another condition."""
        spells, counts, leaderless = self._spells, self._context.lacking, self._context.leaderless
        for broker in brokers:
            spell, count = spells.get(broker), counts[broker]
            if spell is None or count <= 0 or leaderless.get(broker):
                self.look((broker,), row, touched)
            elif count > spell.partitions:
                spell.partitions = count
                self._book.note(spell)

    def look_at_all(self, row: ChangeRow, touched: Mapping[str, Incident], harmed: Iterable[Harmed]) -> None:
        """Look at every broker; what begins did so with the oldest partition that lacks this broker only."""
        since: defaultdict[int, list[int | None]] = defaultdict(list)
        for each in harmed:
            if len(each.lacking) == 1:
                since[each.lacking[0]].append(each.lacking_since)
        for broker in sorted({*self._context.lacking, *self._context.down, *self._spells}):
            self.look((broker,), row if broker in self._spells else begun(row, since[broker]), touched)

    def look(self, brokers: Iterable[int], row: ChangeRow, touched: Mapping[str, Incident]) -> None:
        """Begin and end spells of brokers by what is so now."""
        for broker in brokers:
            spell = self._spells.get(broker)
            was = None if spell is None else spell.condition
            now = broker_condition(broker, was, self._context)
            if now is not was:
                spell = self._change(broker, now, row, touched)
            if spell is not None and (lacking := lacking_of(broker, now, self._context)) > spell.partitions:
                spell.partitions = lacking
                self._book.note(spell)

    def _change(
        self, broker: int, now: Condition | None, row: ChangeRow, touched: Mapping[str, Incident]
    ) -> LiveSpell | None:
        """End the spell of a broker, and begin another one; one that went down was missing before."""
        before = self._spells.pop(broker, None)
        if before is not None:
            self._book.end(before, row)
        if now is None:
            return None
        incident_id = next((name for name, each in touched.items() if explains(each, broker)), None)
        is_worse = now is Condition.BROKER_DOWN and before is not None
        is_worse = is_worse and before is not None and before.condition is Condition.UNDER_REPLICATED
        spell = self._book.begin(now, str(broker), row, incident_id, follows=before if is_worse else None)
        self._spells[broker] = spell
        return spell
