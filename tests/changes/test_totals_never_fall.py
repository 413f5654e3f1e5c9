"""What is exposed of the seconds in a state never falls: Prometheus reads a counter that falls as a restart from 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.observations import Observation, SnapshotBegin, SnapshotReason
from streaming.contracts.state import SECONDS
from tests.changes.conftest import Story
from tests.changes.worlds import (
    WORLDS,
    baseline,
    log_of,
    mixed,
    numbered,
    seen_by_another,
)
from tests.examples import examples

worlds = st.integers(0, WORLDS - 1)
dice = st.integers(0, 2**32).map(Random)
checked = settings(max_examples=examples(8))
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
@given(world=worlds, dice=dice)
def test_no_total_falls_where_the_collector_of_the_log_was_away(world: int, dice: Random) -> None:
    log = log_of(world)
    begins = [n for n, it in enumerate(log) if isinstance(it, SnapshotBegin)]
    back = dice.choice(begins[1:])
    away = dice.randrange(baseline(log), back + 1)
    opening = replace(log[back], reason=SnapshotReason.START)  # type: ignore[call-arg]
    assert falls(one_by_one(numbered([*log[:away], opening, *log[back + 1 :]]))) == []


@checked
@given(world=worlds, dice=dice)
def test_no_total_falls_with_two_collectors_of_one_log(world: int, dice: Random) -> None:
    log = log_of(world)
    assert falls(mixed([log, seen_by_another(log, dice)], dice)) == []
