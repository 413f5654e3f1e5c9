"""Observations that never arrive: told once, counted by the epochs, made good by the next snapshot."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.events import EventKind, Subject
from tests.changes.worlds import WORLDS, applied, baseline, log_of, mixed, seen_by_another, told_of_kafka, truth_of
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.state import Change
    from streaming.contracts.observations import Observation

worlds = st.integers(0, WORLDS - 1)
dice = st.integers(0, 2**32).map(Random)
checked = settings(max_examples=examples(8))


def with_gaps(log: Sequence[Observation], dice: Random) -> tuple[Observation, ...]:
    """Lose some of what stands between the first snapshot and the last."""
    last = max(n for n, it in enumerate(log) if it.kind == "snapshot_begin")
    lost = set(dice.sample(range(baseline(log), last), min(6, last - baseline(log))))
    return tuple(it for n, it in enumerate(log) if n not in lost)


def gaps_told(changes: Sequence[Change]) -> list[str]:
    return [
        event.event_id
        for it in changes
        if it.subject is Subject.CLUSTER
        for event in it.events
        if event.event is EventKind.CHANGES_MISSED
    ]


@checked
@given(world=worlds, dice=dice)
def test_each_gap_is_told_once_and_the_next_snapshot_makes_the_states_good(world: int, dice: Random) -> None:
    log = log_of(world)
    torn = with_gaps(log, dice)
    holes = sum(later.sequence > before.sequence + 1 for before, later in pairwise(torn))

    told, whole = applied(mixed([torn], dice)), applied([log])

    assert len(set(gaps_told(told.changes))) == len(gaps_told(told.changes)) == holes
    assert truth_of(told.state)["configs"] == truth_of(whole.state)["configs"]
    for key, parts in told.state.topics.items():
        for number, it in parts.items():
            true = whole.state.topics[key][number]
            assert (it.is_deleted, it.leader, it.isr, it.elr, it.is_offline, it.is_under_min_isr) == (
                true.is_deleted, true.leader, true.isr, true.elr, true.is_offline, true.is_under_min_isr
            )  # fmt: skip
            assert it.unknown_seconds >= 0
    assert {key: (it.is_registered, it.is_fenced) for key, it in told.state.brokers.items()} == {
        key: (it.is_registered, it.is_fenced) for key, it in whole.state.brokers.items()
    }


@checked
@given(world=worlds, dice=dice)
def test_what_a_second_collector_has_told_already_was_not_missed(world: int, dice: Random) -> None:
    log = log_of(world)
    ahead = seen_by_another(log, dice)
    late = with_gaps(log, dice)

    told = applied([*mixed([ahead], dice), *mixed([late], dice)])

    assert gaps_told(told.changes) == []
    assert told_of_kafka(told.changes) == told_of_kafka(applied([log]).changes)


@checked
@given(world=worlds, dice=dice)
def test_two_collectors_with_gaps_of_their_own_bring_the_true_state(world: int, dice: Random) -> None:
    log = log_of(world)
    whole = applied([log])

    both = applied(mixed([with_gaps(log, dice), with_gaps(seen_by_another(log, dice), dice)], dice))

    assert {key: {n: (it.isr, it.leader, it.partition_epoch) for n, it in parts.items() if not it.is_deleted}
            for key, parts in both.state.topics.items()} == {
        key: {n: (it.isr, it.leader, it.partition_epoch) for n, it in parts.items() if not it.is_deleted}
        for key, parts in whole.state.topics.items() if key in both.state.topics
    }  # fmt: skip
    accounted = [it.after for it in both.changes if it.after is not None and it.missed]
    assert all(it.missed_changes <= (it.partition_epoch or 0) for it in accounted)
