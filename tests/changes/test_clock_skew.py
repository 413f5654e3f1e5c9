"""Clocks that jump: order is never theirs, no duration is negative, and no watermark is lost in the future."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.sources import MAX_SKEW, with_plausible_time
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import LONGEST_LEASE, MaintenanceObserved, Observation, SourceKind
from tests.changes.conftest import Story
from tests.changes.worlds import (
    SECOND,
    WORLDS,
    AppliedHistory,
    applied,
    log_of,
    mixed,
    numbered,
    polls_of,
    seen_by_another,
)
from tests.examples import examples

worlds = st.integers(0, WORLDS - 1)
dice = st.integers(0, 2**32).map(Random)
checked = settings(max_examples=examples(8))
HOUR = 3_600 * SECOND
TIMES = ("occurred_not_before", "occurred_not_after")


def jumped(told: Sequence[Observation], dice: Random, hours: Sequence[int]) -> tuple[Observation, ...]:
    """A controller whose clock jumps for a while; the log's times never run back, the collector's clock is right."""
    first, last = sorted(dice.sample(range(len(told)), 2))
    by = dice.choice(hours) * HOUR
    newest = 0
    found = []
    for n, it in enumerate(told):
        newest = max(newest, it.occurred_not_after + (by if first <= n < last else 0))
        found.append(replace(it, occurred_not_before=Micros(newest), occurred_not_after=Micros(newest)))
    return tuple(found)


def untimed(changes: Sequence[Change]) -> list[Any]:
    """What changes say apart from times."""
    return [
        (it.after.topic_id, it.after.partition, it.after.partition_epoch, it.after.isr, it.after.leader, it.missed,
         it.cause, it.events, it.after.isr_shrinks, it.after.change_number)
        for it in changes if it.subject is Subject.PARTITION and it.after is not None
    ]  # fmt: skip


def negative(state: ReplicationState) -> list[Any]:
    names = ("offline_seconds", "under_replicated_seconds", "under_min_isr_seconds", "unknown_seconds")
    return [it for it in state.partitions() if min(getattr(it, name) for name in names) < 0]


def check_watermarks(told: AppliedHistory) -> None:
    seen: dict[str, int] = {}
    for it in told.changes:
        if it.source_after is not None and it.source_after.observed_until is not None:
            assert it.source_after.observed_until >= seen.get(it.source_after.source, 0)
            seen[it.source_after.source] = it.source_after.observed_until
    for cluster in told.state.clusters.values():
        assert cluster.watermark == max(seen.values())


@checked
@given(world=worlds, dice=dice)
def test_a_controllers_clock_that_jumps_changes_no_order_and_poisons_no_watermark(world: int, dice: Random) -> None:
    log = log_of(world)
    odd = jumped(log, dice, (-5, -1, 1, 5))
    told = applied(mixed([odd], dice))
    assert untimed(told.changes) == untimed(applied([log]).changes)
    assert negative(told.state) == []
    check_watermarks(told)
    assert (told.state.clusters["c1"].watermark or 0) <= log[-1].collected_at + MAX_SKEW


@checked
@given(world=worlds, dice=dice)
def test_two_collectors_agree_on_everything_but_times_when_a_controllers_clock_jumps(world: int, dice: Random) -> None:
    log = log_of(world)
    odd = jumped(log, dice, (-5, 5))
    told = applied(mixed([odd, seen_by_another(odd, dice)], dice))
    assert sorted(map(repr, untimed(told.changes))) == sorted(map(repr, untimed(applied([log]).changes)))
    assert negative(told.state) == []
    check_watermarks(told)


@checked
@given(world=worlds, dice=dice, hours=st.sampled_from([-5, -1, 1, 5]))
def test_a_poller_whose_clock_jumps_and_that_starts_anew_is_heard(world: int, dice: Random, hours: int) -> None:
    """Set ahead and then right again, or set back: its news are taken in its own order."""
    polls = polls_of(log_of(world), SourceKind.POLL)
    times = sorted({it.occurred_not_after for it in polls})
    first, last = sorted(dice.sample(times, 2))
    odd = numbered(
        replace(it, **{name: Micros(getattr(it, name) + hours * HOUR) for name in (*TIMES, "collected_at")})
        if first <= it.occurred_not_after < last
        else it
        for it in polls
    )

    told = applied(mixed([odd], dice))

    true = {
        (it.topic_id, it.partition): (it.is_deleted, it.isr, it.leader) for it in applied([polls]).state.partitions()
    }
    assert {(it.topic_id, it.partition): (it.is_deleted, it.isr, it.leader) for it in told.state.partitions()} == true
    assert negative(told.state) == []
    check_watermarks(told)


def test_a_poller_whose_clock_was_set_back_by_less_than_a_minute_is_not_old() -> None:
    story = Story("admin:a", SourceKind.POLL)
    nothing = {"leader_epoch": None, "partition_epoch": None}
    story.snapshot([nothing])
    story.later(5).partition(0, isr=(1, 2), **nothing)
    story.later(-45).partition(0, isr=(1,), **nothing)
    story.later(5).partition(0, isr=(1, 3), **nothing)
    told = fold(ReplicationState(), story.seen)
    isrs = [it.after.isr for it in told.changes if it.after is not None]
    assert isrs == [(1, 2), (1,), (1, 3)], "beside the first report"
    times = [it.after.changed_at or 0 for it in told.changes if it.after is not None]
    assert times == sorted(times)


def test_a_lease_whose_time_is_corrected_lasts_as_long_as_was_announced() -> None:
    at = Micros(1_700_000_000 * SECOND)
    lease = MaintenanceObserved(
        cluster_id=ClusterId("c"), cluster="c", source="maintenance:a", source_kind=SourceKind.NONE, sequence=1,
        occurred_not_before=Micros(at + HOUR), occurred_not_after=Micros(at + HOUR), collected_at=at,
        broker=BrokerId(1), lease="l", lease_until=Micros(at + HOUR + LONGEST_LEASE), why="new disk",
    )  # fmt: skip
    corrected = with_plausible_time(lease, None)
    assert (corrected.occurred_not_after, corrected.lease_until) == (at, at + LONGEST_LEASE)


def test_a_collectors_clock_that_was_ahead_for_one_observation_does_not_hide_that_it_is_silent_since() -> None:
    story, state = Story("metadata_log:a"), ReplicationState()
    story.snapshot([{}])
    ahead = replace(story.later().partition(0, isr=(1,)), collected_at=Micros(story.now + HOUR))
    last = story.later().partition(0, isr=(1, 2))
    state.apply(fold(state, [*story.seen[:-2], ahead, last]).touched)
    (source,) = state.sources.values()
    assert source.collected_at == last.collected_at
