"""Spells of conditions: at every row those last that the whole state says; cuts and starts change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.conditions.fold import ConditionFold
from streaming.changes.fold import fold
from streaming.changes.incidents.context import ChangeRow, ClusterContext
from streaming.changes.incidents.document import decode_incident, encode_incident
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.incidents.incident import OFFLINE, UNDER_MIN_ISR, Incident
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.conditions import KEPT, RECENT, RULES, Condition, Spell
from streaming.contracts.events import Subject
from streaming.contracts.health import replication_factor
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import SnapshotReason, SourceKind
from streaming.contracts.state import PartitionState
from streaming.delta.changes.log import changes_to_arrow
from streaming.delta.incidents.rows import rows_of
from tests.changes.conftest import START, Story, folded, rows_from
from tests.changes.test_announced_incidents import crash, played, stop
from tests.changes.worlds import log_of, mixed, polls_of
from tests.examples import examples

SECOND = 1_000_000
Table = dict[str, Spell]


class Watch:
    """Folds rows into spells, as the job does; knows the table so far."""

    def __init__(self) -> None:
        self.table: Table = {}
        self.context: dict[str, ClusterContext] = {}
        self.incidents: dict[str, Incident] = {}
        self.open()

    def open(self) -> None:
        """Start again, with what the tables have."""
        newest = max((max(it.began_at, it.ended_at or 0) for it in self.table.values()), default=0)
        spells = [it for it in self.table.values() if it.ended_at is None or it.ended_at > newest - RECENT]
        self.conditions = ConditionFold(spells)
        carried = [decode_incident(encode_incident(it)) for it in self.incidents.values()]
        self._fold = IncidentFold(IncidentGaps(), carried, deepcopy(self.context), self.conditions.follow)

    def follow(self, rows: Iterable[ChangeRow]) -> None:
        for incident in self._fold.fold(rows):
            self.incidents[incident.incident_id] = incident
        self.incidents = {name: it for name, it in self.incidents.items() if self._fold.remembered(it)}
        self.context = dict(self._fold.contexts)
        for name, spell in self.conditions.take_changed().items():
            if spell is None:
                self.table.pop(name, None)
            else:
                self.table[name] = spell

    @property
    def lasting(self) -> set[tuple[str, str, str | None]]:
        return {(it.condition, it.subject, it.explained_by) for it in self.table.values() if it.ended_at is None}

    def essence(self) -> set[Spell]:
        return {it._replace(began_version=0, ended_version=None) for it in self.table.values()}


class Naive:
    """The whole state, change by change, and what follows for the conditions of one cluster."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], PartitionState] = {}
        self.brokers: dict[int, Condition] = {}

    def follow(self, change: Change) -> None:
        after = change.after
        if change.subject is Subject.PARTITION and isinstance(after, PartitionState):
            self.partitions[after.topic_id, after.partition] = after

    @property
    def here(self) -> list[PartitionState]:
        return [it for it in self.partitions.values() if not it.is_deleted and not it.is_diskless]

    def counted(self) -> Counter[Condition]:
        counted: Counter[Condition] = Counter()
        for it in self.here:
            is_lacking = len(it.isr) < replication_factor(it.replicas, it.adding_replicas)
            counted[Condition.MIN_ISR_UNKNOWN] += is_lacking and it.min_isr_effective is None
            counted[Condition.AT_MIN_ISR] += is_lacking and len(it.isr) == it.min_isr_effective
            counted[Condition.REASSIGNING] += bool(it.adding_replicas or it.removing_replicas)
        return +counted

    def lacking(self) -> Counter[int]:
        return Counter(
            broker
            for it in self.here
            for broker in it.replicas
            if broker not in it.adding_replicas and (it.leader == NO_LEADER or broker not in it.isr)
        )

    def leaderless(self) -> Counter[int]:
        return Counter(
            broker
            for it in self.here
            for broker in it.isr
            if it.leader == NO_LEADER and broker in it.replicas and broker not in it.adding_replicas
        )

    def harmed(self, incidents: Iterable[Incident]) -> Iterator[tuple[str, str, str | None]]:
        places = (OFFLINE, Condition.OFFLINE, Condition.OFFLINE_PLANNED), (
            UNDER_MIN_ISR, Condition.UNDER_MIN_ISR, Condition.UNDER_MIN_ISR_PLANNED,
        )  # fmt: skip
        for place, harmful, planned in places:
            explained = set()
            for incident in incidents:
                stopped = incident.planned - incident.lost - incident.overdue
                for key, held in incident.held.items():
                    if held.states[place]:
                        explained.add(key)
                        by_plan = held.needs_all and held.missing <= stopped
                        yield planned if by_plan else harmful, "", incident.incident_id
            harmed = {
                (it.topic_id, it.partition)
                for it in self.here
                if (it.is_offline if place == OFFLINE else it.is_under_min_isr)
            }
            assert explained <= harmed
            if harmed - explained:
                yield harmful, "", None

    def of_brokers(self, context: ClusterContext) -> dict[int, Condition]:
        lacking, leaderless = self.lacking(), self.leaderless()
        found = {}
        for broker in lacking:
            was, is_down = self.brokers.get(broker), context.is_down(broker)
            if not is_down and was is not Condition.BROKER_DOWN and lacking[broker] == leaderless[broker]:
                continue
            has_lease = any(lease.is_open for lease in context.leases.get(broker, ()))
            if was is Condition.BROKER_DOWN or (is_down and not has_lease):
                found[broker] = Condition.BROKER_DOWN
            elif has_lease and (is_down or was is not Condition.UNDER_REPLICATED):
                found[broker] = Condition.PLANNED_WORK
            else:
                found[broker] = Condition.UNDER_REPLICATED
        self.brokers = found
        return found


def changes_of(told: Iterable[object]) -> list[Change]:
    return list(fold(ReplicationState(), told).changes)  # type: ignore[arg-type]


@cache
def rows_of_world(world: int) -> tuple[ChangeRow, ...]:
    """The rows of a log with polls next to it, which come later or take over."""
    told = log_of(world)
    sources = [told, polls_of(told, SourceKind.POLL)] if world % 2 else [told]
    dice, state, rows = Random(world), ReplicationState(), list[ChangeRow]()
    for version, batch in enumerate(mixed(sources, dice), start=1):
        _, changes = folded(batch, state)
        rows += rows_of(changes_to_arrow(changes), version)
    return tuple(rows)


def assert_same_as_the_state(changes: Sequence[Change]) -> None:
    watch, naive = Watch(), Naive()
    for change in changes:
        naive.follow(change)
        before = watch.lasting
        rows = list(rows_of(changes_to_arrow([change]), 1))
        watch.follow(rows)
        context = next(iter(watch.context.values()), ClusterContext())
        expected = set(naive.harmed(watch.incidents.values()))
        expected |= {(str(name), str(broker), None) for broker, name in naive.of_brokers(context).items()}
        expected |= {(str(name), "", None) for name in naive.counted()}
        of_incidents = {name for name, _, _ in expected} | {name for name, _, _ in before}
        assert {
            (name, subject, by if "offline" in name or "under_min" in name else None)
            for name, subject, by in watch.lasting
        } == expected, of_incidents


@pytest.mark.parametrize("world", [*range(1, 2), *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 41))])
def test_at_every_row_what_lasts_is_what_the_state_says(world: int) -> None:
    told = log_of(world)
    assert_same_as_the_state(changes_of(told))
    assert_same_as_the_state(changes_of(polls_of(told, SourceKind.POLL)))


@settings(max_examples=examples(10), deadline=None)
@given(world=st.integers(1, 40), seed=st.integers(0, 1 << 20))
def test_cuts_and_starts_change_nothing(world: int, seed: int) -> None:
    rows, dice = rows_of_world(world), Random(seed)
    whole, cut = Watch(), Watch()
    whole.follow(rows)
    begin = 0
    while begin < len(rows):
        end = begin + dice.choice((1, 2, 5, 30, 200))
        cut.follow(rows[begin:end])
        if dice.random() < 0.5:
            cut.open()
        begin = end
    assert cut.essence() == whole.essence()


@settings(max_examples=examples(8), deadline=None)
@given(world=st.integers(1, 40))
def test_no_spell_ends_before_its_begin_and_chains_have_one_name(world: int) -> None:
    watch = Watch()
    watch.follow(rows_of_world(world))
    for spell in watch.table.values():
        assert spell.since <= spell.began_at <= (spell.ended_at or spell.began_at)
        assert spell.partitions > 0
    moment = Condition.UNCLEAN_ELECTION
    over = [it for it in watch.table.values() if it.ended_at is not None and it.condition != moment]
    for one in over:
        later = [
            it for it in watch.table.values()
            if (it.condition, it.subject) == (one.condition, one.subject) and one.ended_at is not None
            and 0 <= it.began_at - one.ended_at <= KEPT
            and ((rule := RULES.get(one.condition)) is not None and one.ended_at - one.began_at >= rule.lasting)
        ]  # fmt: skip
        assert all(it.since < it.began_at for it in later)


ONE: dict[str, Any] = {"replication_factor": 1, "min_insync_replicas": 1}
TWO: dict[str, Any] = {"replication_factor": 2, "min_insync_replicas": 2}
Times = tuple[int, int]


def times_of(rows: Sequence[ChangeRow]) -> dict[str, Times]:
    watch = Watch()
    watch.follow(rows)
    assert len({it.condition for it in watch.table.values()}) == len(watch.table)
    return {
        str(it.condition): (round((it.began_at - START) / SECOND), round(((it.ended_at or 0) - START) / SECOND))
        for it in watch.table.values()
        if it.condition is not Condition.AT_MIN_ISR
    }


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            lambda: played(stop(3, 30, 20), 120, [], **ONE),
            {"broker_down": (30, 51), "offline_partitions_planned": (30, 51)},
            id="a clean stop of the only replica",
        ),
        pytest.param(
            lambda: played(crash(3, 30, 20), 120, [], **ONE),
            {"broker_down": (35, 51), "offline_partitions": (35, 51)},
            id="a crash of the only replica",
        ),
        pytest.param(
            lambda: played(stop(3, 30, 20), 120, [(20, 100, 3)], **TWO),
            {"planned_work": (30, 51), "under_min_isr_planned": (30, 51)},
            id="announced work on a replica that cannot be spared",
        ),
        pytest.param(
            lambda: played(crash(3, 30, 60), 160, [(20, 50, 3)], **ONE),
            {
                "planned_work": (35, 50), "offline_partitions_planned": (35, 50),
                "broker_down": (50, 91), "offline_partitions": (50, 91),
            },
            id="announced work that is overrun",
        ),
        pytest.param(
            lambda: played(stop(3, 30, 20), 120, [(60, 100, 3)]),
            {"broker_down": (30, 51)},
            id="announced afterwards",
        ),
    ],
)  # fmt: skip
def test_planned_work_is_a_condition_of_its_own_until_it_is_overrun(
    rows: Callable[[], tuple[ChangeRow, ...]], expected: dict[str, Times]
) -> None:
    assert times_of(rows()) == expected


def test_a_partition_that_was_offline_before_anything_was_seen_is_explained_by_nothing(story: Story) -> None:
    story.snapshot([{"leader": -1, "isr": (1,)}, {}])
    story.later()
    story.partition(0, leader=1, isr=(1, 2, 3), leader_epoch=1, partition_epoch=1)
    watch = Watch()
    watch.follow(rows_from(story.seen))
    (offline,) = (it for it in watch.table.values() if it.condition is Condition.OFFLINE)
    assert (offline.incident_id, offline.partitions) == (None, 1)
    assert offline.ended_at == offline.began_at + SECOND


@pytest.mark.parametrize("reason", [SnapshotReason.START, SnapshotReason.HISTORY_LOST])
def test_what_is_over_after_a_gap_has_not_lasted_in_it(story: Story, reason: SnapshotReason) -> None:
    story.snapshot([{}, {}])
    story.later(10)
    story.partition(0, leader=-1, isr=(1,), partition_epoch=1)
    story.later(20)
    story.heartbeat()
    story.later(900)
    story.snapshot(
        [{"leader_epoch": 2, "partition_epoch": 2}, {"leader": -1, "isr": (1,), "partition_epoch": 1}], reason=reason
    )
    watch = Watch()
    watch.follow(rows_from(story.seen))
    spells = [it for it in watch.table.values() if it.condition == Condition.OFFLINE]
    assert [(it.began_at - START, it.ended_at and it.ended_at - START) for it in spells] == [
        (10 * SECOND, 30 * SECOND), (930 * SECOND, None),
    ]  # fmt: skip


def test_a_broker_that_runs_lacks_nothing_where_it_is_in_the_last_isr_of_a_partition_without_leader(
    story: Story,
) -> None:
    story.snapshot([{}, {}])
    story.later(60)
    story.partition(0, leader=-1, isr=(1, 2), partition_epoch=1)
    story.later(60)
    story.partition(0, leader=-1, isr=(1,), partition_epoch=2)
    story.later(60)
    story.partition(0, leader=1, isr=(1, 2, 3), leader_epoch=1, partition_epoch=3)
    watch = Watch()
    watch.follow(rows_from(story.seen))
    began = {it.subject: it.began_at for it in watch.table.values() if it.condition is Condition.UNDER_REPLICATED}
    assert began == {"3": START + 60 * SECOND, "2": START + 120 * SECOND}
