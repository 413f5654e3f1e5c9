"""Totals against the model's own account, which knows nothing of the fold: what is said holds until the next is said.

Deletion, creation of the same name again, a change of the primary source and back. Rebuilt clusters and lost polls are
in ``test_unobserved``. And no total ever falls: Prometheus reads a counter that falls as a restart from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.fold import fold
from streaming.changes.sources import SILENCE
from streaming.changes.state import ReplicationState
from streaming.contracts.observations import (
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from streaming.contracts.state import COUNTS, SECONDS
from streaming.delta.projections.of_clusters import cluster_rows
from tests.blocks import singly
from tests.changes.conftest import Story
from tests.changes.test_unobserved import Look, account
from tests.changes.worlds import (
    WORLDS,
    applied,
    baseline,
    log_of,
    mixed,
    numbered,
    polls_of,
    seen_by_another,
    stretched,
)
from tests.examples import examples

MICROS: Final = 1_000_000
SLOWER: Final = 10  # so that there is time for a silence
all_worlds = st.integers(0, WORLDS - 1)
# Of the others some topics are diskless for a while.
worlds = all_worlds.filter(lambda world: world % 3)
dice = st.integers(0, 2**32).map(Random)
checked = settings(max_examples=examples(8))


def totals_of(state: ReplicationState) -> dict[str, Any]:
    (row,) = cluster_rows(state, SuspectTally(state.partitions()), 1)
    return {name: row[name] for name in (*COUNTS, *SECONDS)}


def looks_at(told: Iterable[Observation]) -> list[Look]:
    """What is there after each observation; a full report lists everything, its end removes the rest."""
    states: dict[Any, PartitionObserved] = {}
    listed: set[Any] = set()
    looks: list[Look] = []
    for it in singly(told):
        if isinstance(it, SnapshotBegin):
            listed = set()
        elif isinstance(it, PartitionObserved):
            states = {**states, (it.topic_id, it.partition): it}
            listed.add((it.topic_id, it.partition))
        elif isinstance(it, SnapshotEnd):
            states = {key: state for key, state in states.items() if key in listed}
        elif isinstance(it, TopicRemoved):
            states = {key: state for key, state in states.items() if key[0] != it.topic_id}
        looks.append(Look(it.occurred_not_after, states, is_after_gap=False))
    return looks


def steps_of(told: Iterable[Observation]) -> Counter[str]:
    """Count what happened to partitions, from one observation of each to the next."""
    counts: Counter[str] = Counter()
    for one, two in pairwise(looks_at(told)):
        for key, after in two.states.items():
            before = one.states.get(key)
            if before is not None and before is not after:
                counts["isr_shrinks"] += not set(before.isr) <= set(after.isr)
                counts["isr_expands"] += not set(after.isr) <= set(before.isr)
                counts["leader_changes"] += before.leader != after.leader
    return counts


@checked
@given(world=worlds, dice=dice)
def test_the_counts_of_a_log_are_those_of_its_steps_of_deleted_topics_too(world: int, dice: Random) -> None:
    log = log_of(world)
    totals = totals_of(applied(mixed([log], dice)).state)
    steps = steps_of(log)
    spent = sum(account(looks_at(log)).values(), Counter[str]())
    assert {name: totals[name] for name in steps} == steps
    assert totals["missed_changes"] == 0
    for name in ("offline_seconds", "under_replicated_seconds", "unknown_seconds"):
        assert totals[name] == pytest.approx(spent[name] / MICROS, abs=1e-5)


@checked
@given(world=worlds, dice=dice)
def test_totals_stay_true_when_a_poller_takes_a_cluster_over_and_the_log_comes_back(world: int, dice: Random) -> None:
    """What was there while nobody looked is unknown; of the rest each source says its part."""
    log = stretched(log_of(world), SLOWER)
    begins = [n for n, it in enumerate(log) if isinstance(it, SnapshotBegin)]
    assume(len(begins) > 1)
    back = dice.choice(begins[1:])
    ended = dice.randrange(next(n for n, it in enumerate(log) if isinstance(it, SnapshotEnd)) + 1, back + 1)
    silent_since, resumed = log[ended - 1].occurred_not_after, log[back].occurred_not_after
    polls = [
        it
        for it in polls_of(log, SourceKind.POLL)
        if silent_since + SILENCE < it.occurred_not_after and it.occurred_not_after < resumed
    ]
    assume(polls)
    first, rest = log[:ended], (replace(log[back], reason=SnapshotReason.START), *log[back + 1 :])
    told = numbered((*first, *rest))
    found = applied([
        *mixed([told[:ended]], dice), *mixed([numbered(polls)], dice), *mixed([told[ended:]], dice, replays=False)
    ])  # fmt: skip

    totals, looks = totals_of(found.state), list[Look]()
    for part in (first, polls, rest):
        of_part = _after_reports(looks_at(part), part)
        looks += [of_part[0]._replace(is_after_gap=bool(looks)), *of_part[1:]]
    spent = sum(account(looks).values(), Counter[str]())

    for name in ("offline_seconds", "under_replicated_seconds", "unknown_seconds"):
        assert totals[name] == pytest.approx(spent[name] / MICROS, abs=1e-5), name


def _after_reports(looks: list[Look], told: Sequence[Observation]) -> list[Look]:
    """Leave out the looks within the first full report: only its end says everything."""
    end = next(n for n, it in enumerate(singly(told)) if isinstance(it, SnapshotEnd))
    return looks[end:]


ROUNDING = 1e-6

Total = tuple[str, int, str]


def exposed(batches: Iterable[Sequence[Observation]]) -> Iterator[dict[Total, float]]:
    """The seconds of each partition, as an exporter that starts after a batch would expose them."""
    state = ReplicationState()
    for batch in batches:
        state.apply(fold(state, batch).touched)
        yield {
            (it.topic_id, it.partition, name): state.clusters[it.cluster_id].observed.seconds_in(it, name)
            for it in state.partitions()
            for name in SECONDS
        }


def falls(batches: Iterable[Sequence[Observation]]) -> list[tuple[Total, float, float]]:
    """Every total that is lower after a batch than after the one before."""
    found, before = [], dict[Total, float]()
    for after in exposed(batches):
        found += [(key, before[key], now) for key, now in after.items() if now < before.get(key, 0) - ROUNDING]
        before = after
    return found


def one_by_one(observed: Sequence[Observation]) -> list[Sequence[Observation]]:
    return [[it] for it in observed]


def test_a_gap_that_a_full_report_closes_is_not_counted_and_then_taken_back() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{}, {}])
    for number in (0, 1):
        story.later(10).partition(number, isr=(1,), partition_epoch=1)
    story.later(100).heartbeat()
    story.later(1000).snapshot([{"isr": (1, 2), "partition_epoch": 3}, {"isr": (1,), "partition_epoch": 1}])

    seconds = [
        [
            values.get(("topic-1", number, f"{name}_seconds"))
            for number in (0, 1)
            for name in ("under_min_isr", "unknown")
        ]
        for values in exposed(one_by_one(story.seen))
    ]

    assert falls(one_by_one(story.seen)) == []
    # Of partition 0 changes were missed, so the gap is unknown time; the epoch of 1 proves that nothing changed.
    assert seconds[-1] == [110, 1000, 1100, 0]


@checked
@given(world=all_worlds, dice=dice)
def test_no_total_falls_where_the_collector_of_the_log_was_away(world: int, dice: Random) -> None:
    log = log_of(world)
    begins = [n for n, it in enumerate(log) if isinstance(it, SnapshotBegin)]
    back = dice.choice(begins[1:])
    away = dice.randrange(baseline(log), back + 1)
    opening = replace(log[back], reason=SnapshotReason.START)  # type: ignore[call-arg]
    assert falls(one_by_one(numbered([*log[:away], opening, *log[back + 1 :]]))) == []


@checked
@given(world=all_worlds, dice=dice)
def test_no_total_falls_with_two_collectors_of_one_log(world: int, dice: Random) -> None:
    log = log_of(world)
    assert falls(mixed([log, seen_by_another(log, dice)], dice)) == []
