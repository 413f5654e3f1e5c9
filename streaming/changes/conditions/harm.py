"""Partitions that refuse writes, or have no leader: a spell for each incident that explains some of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.incidents.context import DegradedState
from streaming.changes.incidents.incident import HEALTHY
from streaming.contracts.conditions import BOUND, TOPICS_NAMED, Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streaming.changes.conditions.chains import LiveSpell, SpellBook
    from streaming.changes.incidents.context import ChangeRow, ClusterContext
    from streaming.changes.incidents.incident import Incident, TopicPartition

CONDITIONS_OF: Final = {
    DegradedState.OFFLINE: (Condition.OFFLINE, Condition.OFFLINE_PLANNED),
    DegradedState.UNDER_MIN_ISR: (Condition.UNDER_MIN_ISR, Condition.UNDER_MIN_ISR_PLANNED),
}
"""By state: when it is harmful, and when all of its partitions are of planned work."""
HARMFUL: Final = frozenset(condition for both in CONDITIONS_OF.values() for condition in both)
HARMED: Final = sum(1 << state for state in CONDITIONS_OF)


class Harmed(NamedTuple):
    """A partition that is not healthy, as its state has it.

    Attributes:
        key: of the partition.
        lacking: the brokers that do not serve it.
        states: since when it is in each state.
        lacking_since: since when it lacks any.
    """

    key: TopicPartition
    lacking: tuple[int, ...]
    states: Mapping[DegradedState, int]
    lacking_since: int | None


def begun(row: ChangeRow, moments: Iterable[int | None]) -> ChangeRow:
    """Return a row at the oldest of some moments, if one is before it."""
    return row._replace(time=min((each for each in moments if each is not None and each < row.time), default=row.time))


class HarmedPartitions:
    """The partitions of one cluster in one of these states.

    Those that no incident explains are counted, and have a spell of their own. An incident that explains them from now
    on takes over their spell, and so does one that another one is merged into.
    """

    def __init__(
        self, state: DegradedState, book: SpellBook, context: ClusterContext, incidents: Iterable[Incident]
    ) -> None:
        """Continue with the spells of a book that last."""
        self._state, self._book, self._context = state, book, context
        self._conditions, self._incidents = CONDITIONS_OF[state], incidents
        self._spells: dict[tuple[Condition, str | None], list[LiveSpell]] = {}
        for spell in book.open_ones():
            if spell.condition in self._conditions:
                self._spells.setdefault((spell.condition, spell.explained_by), []).append(spell)
        self._explained: set[TopicPartition] = {
            key for incident in incidents for key, held in incident.held.items() if held.states[state]
        }

    def follow(self, row: ChangeRow, incidents: Iterable[Incident], touched: Mapping[str, Incident]) -> None:
        """Follow a row that may have changed a count; it has changed the incidents that are ``touched``."""
        if (row.states | row.states_before) >> self._state & 1:
            self._explain(row, incidents)
        if self._spells or self._context.in_states[self._state] > 0:
            self._incidents = incidents
            self.count(row, touched)

    def _explain(self, row: ChangeRow, incidents: Iterable[Incident]) -> None:
        key, state = (row.topic_id, row.partition), self._state
        for each in incidents:
            if key in each.held and each.held[key].states[state]:
                self._explained.add(key)
                return
        self._explained.discard(key)

    def count(self, row: ChangeRow, touched: Mapping[str, Incident], harmed: Iterable[Harmed] = ()) -> None:
        """Begin and end spells by the numbers of partitions now.

        If rows are missing, ``harmed`` are partitions in the state: what begins did so with them.
        """
        state, (harmful, planned) = self._state, self._conditions
        counts: dict[tuple[Condition, str | None], int] = {}
        for name, incident in touched.items():
            by_plan = incident.planned_now(state)
            counts[harmful, name], counts[planned, name] = incident.tallies[state].now - by_plan, by_plan
        counts[harmful, None] = self._context.in_states[state] - len(self._explained)
        for key, count in counts.items():  # first those that end: one that begins continues them
            if count <= 0 and key in self._spells and not self._is_inherited(key, counts, row):
                self._end(key, touched, row)
        for key, count in counts.items():
            if count > 0:
                if harmed and key not in self._spells:
                    self._spells[key] = [self._begun(*key, begun(row, self._moments(key, touched, harmed)))]
                self._last(key, count, touched, row)

    def _moments(
        self, key: tuple[Condition, str | None], touched: Mapping[str, Incident], harmed: Iterable[Harmed]
    ) -> Iterator[int]:
        """Yield since when those partitions are in the state that a spell is about."""
        (condition, holder), state = key, self._state
        for each in harmed:
            if state not in each.states:
                continue
            if holder is None:
                is_one = each.key not in self._explained
            else:
                incident = touched[holder]
                held = incident.held.get(each.key, HEALTHY)
                is_planned = held.needs_all and held.missing <= incident.stopped
                is_one = held.states[state] and is_planned == (condition is self._conditions[1])
            if is_one:
                yield each.states[state]

    def _is_inherited(
        self, key: tuple[Condition, str | None], counts: Mapping[tuple[Condition, str | None], int], row: ChangeRow
    ) -> bool:
        """Let an incident take over what none has explained, if it explains it all; return whether one has."""
        condition, holder = key
        heirs = (
            name for (of, name), count in counts.items()
            if of is condition and name is not None and count > 0 and (of, name) not in self._spells
        )  # fmt: skip
        heir = next(heirs, None) if holder is None else None
        if heir is not None:
            self._adopt(condition, heir, row)
        return heir is not None

    def _end(self, key: tuple[Condition, str | None], touched: Mapping[str, Incident], row: ChangeRow) -> None:
        for spell in self._spells.pop(key):
            if (incident := touched.get(key[1] or "")) is not None:
                self._name_topics(spell, incident)
            self._book.end(spell, row)

    def _last(
        self, key: tuple[Condition, str | None], count: int, touched: Mapping[str, Incident], row: ChangeRow
    ) -> None:
        condition, holder = key
        if key not in self._spells:
            unexplained = self._spells.get((condition, None), ())
            if holder is not None and unexplained and row.time - unexplained[0].began_at <= BOUND:
                self._adopt(condition, holder, row)
            else:
                self._spells[key] = [self._begun(condition, holder, row)]
        for spell in self._spells[key]:
            if count > spell.partitions:
                spell.partitions = count
                self._book.note(spell)
            if (
                holder is None
                and row.states >> self._state & 1
                and (row.topic_id, row.partition) not in self._explained
            ):
                self._book.add_topic(spell, row.topic)
            elif holder is not None and holder in touched:
                self._name_topics(spell, touched[holder])

    def _begun(self, condition: Condition, holder: str | None, row: ChangeRow) -> LiveSpell:
        """Begin a spell; one that begins with another one is in its chain, which the newest incident names."""
        young = (
            spell.chain
            for (of, _), spells in self._spells.items()
            for spell in spells
            if of is condition and abs(row.time - spell.chain.since) <= BOUND
        )
        chain = next(young, None)
        begun = self._book.begin(condition, "", row, holder, follows=chain)
        is_own = chain is not None and any(each.explained_by == chain.incident_id for each in chain.spells)
        opened = {each.incident_id: each.opened_at for each in self._incidents}
        if chain is not None and is_own and opened.get(holder or "", 0) > opened.get(chain.incident_id or "", 0):
            self._book.bind(chain, holder or "")
        return begun

    def _adopt(self, condition: Condition, heir: str, row: ChangeRow) -> None:
        """Let an incident explain what none has explained; a young chain gets its name."""
        self._move(condition, None, heir)
        for spell in self._spells[condition, heir]:
            if spell.chain.incident_id is None and row.time - spell.chain.since <= BOUND:
                self._book.bind(spell.chain, heir)

    def merge(self, name: str | None, into: str | None) -> None:
        """Let another incident explain the spells that one has explained; they keep their own labels."""
        for condition in self._conditions:
            self._move(condition, name, into)

    def release(self, standing: Mapping[str, Incident]) -> None:
        """Let those be unexplained whose incident is gone."""
        for condition, holder in list(self._spells):
            if holder is not None and holder not in standing:
                self._move(condition, holder, None)

    def _move(self, condition: Condition, holder: str | None, to: str | None) -> None:
        for spell in self._spells.pop((condition, holder), ()):
            spell.explained_by = to
            self._spells.setdefault((condition, to), []).append(spell)
            self._book.note(spell)

    def _name_topics(self, spell: LiveSpell, incident: Incident) -> None:
        ids = incident.leaderless if self._state is DegradedState.OFFLINE else incident.refused
        if len(ids) != spell.topic_count:
            names = sorted({incident.topics[each] for each in ids if each in incident.topics})
            spell.topics, spell.topic_count = tuple(names[:TOPICS_NAMED]), len(ids)
            self._book.note(spell)
