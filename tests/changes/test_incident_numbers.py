"""The numbers of incidents: counted under a name, the same after a kill, and beyond what a restored table forgot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.incidents.short_ids import (
    AT_ONCE,
    MICROS_PER_NUMBER,
    ROUND,
    SHORTEST_GAP,
    IncidentNumbers,
    Lost,
    NumberStep,
    Opened,
    beyond,
)
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import number_of
from streaming.contracts.observations import Observation, SnapshotReason, SourceKind
from streaming.delta.changes.log import changes_to_arrow
from streaming.delta.incidents.rows import rows_of
from tests.changes.conftest import FENCED, SECOND, Story
from tests.examples import examples

NAMES, CLUSTERS = ("prod", "prod-1", "stage"), ("c1", "c2", "c3")
_OWNER = st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(NAMES))
_STEPS = st.lists(st.tuples(_OWNER, st.none() | st.integers(0, 10**12)), max_size=40)
_ENDS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["written", "kept", "killed"])), max_size=30)


def steps_of(drawn: list[tuple[tuple[str, str], int | None]]) -> list[NumberStep]:
    return [
        Opened(f"i{number}", *owner) if micros is None else Lost(*owner, micros)
        for number, (owner, micros) in enumerate(drawn)
    ]


def followed(steps: Sequence[NumberStep]) -> dict[str, str]:
    return IncidentNumbers({}.get).follow(steps)


@settings(max_examples=examples(200))
@given(_STEPS, _ENDS)
def test_a_number_is_the_same_however_steps_are_cut_and_whenever_the_writer_is_killed(
    drawn: list[tuple[tuple[str, str], int | None]], ends: list[tuple[int, str]]
) -> None:
    """A batch is written with its counters, or kept in memory; a kill goes back to what is written."""
    steps, stored = steps_of(drawn), dict[str, int]()
    numbers, seen, pending = IncidentNumbers(stored.get), dict[str, str](), dict[str, str]()
    at = written = 0
    for size, end in [*ends, (len(steps) + 1, "written")]:
        size = len(steps) if (size, end) == (len(steps) + 1, "written") else size  # noqa: PLW2901 - the last takes all
        pending |= numbers.follow(steps[at : at + size])
        at = min(at + size, len(steps))
        if end == "written":
            stored |= numbers.moved
            numbers.are_stored()
            seen |= pending
            pending, written = {}, at
        elif end == "killed":
            numbers, pending, at = IncidentNumbers(stored.get), {}, written
    assert seen == followed(steps)


@settings(max_examples=examples(200))
@given(_STEPS)
def test_no_two_incidents_have_one_id_nor_two_of_a_cluster_one_number(
    drawn: list[tuple[tuple[str, str], int | None]],
) -> None:
    steps = steps_of(drawn)
    given_ids = followed(steps)
    opened = [step for step in steps if isinstance(step, Opened)]
    assert [*given_ids] == [step.incident_id for step in opened]
    assert len({*given_ids.values()}) == len(opened)
    of_cluster = Counter((step.cluster_id, number_of(given_ids[step.incident_id])) for step in opened)
    assert set(of_cluster.values()) <= {1}
    for name in NAMES:
        under = [int(number_of(given_ids[step.incident_id])) for step in opened if step.cluster == name]
        assert under == sorted(under)
        assert all(given_ids[step.incident_id].startswith(f"{name}-") for step in opened if step.cluster == name)


@given(st.integers(0, 10**9), st.integers(0, 10**14))
def test_a_jump_is_beyond_all_that_may_have_been_given(last: int, micros: int) -> None:
    after = beyond(last, micros)
    assert last + AT_ONCE + micros // MICROS_PER_NUMBER <= after < last + AT_ONCE + micros // MICROS_PER_NUMBER + ROUND
    assert after % ROUND == 0


def test_a_new_cluster_under_an_old_name_goes_on_counting_and_a_renamed_one_takes_its_numbers_along() -> None:
    ids = followed(
        [
            Opened("1", "old", "prod"),
            Opened("2", "old", "prod"),
            Opened("3", "rebuilt", "prod"),
            Opened("4", "other", "live"),
            Opened("5", "rebuilt", "live"),  # prod is called live from now on
            Opened("6", "other", "live"),
            Opened("7", "third", "prod"),
        ]
    )
    assert [*ids.values()] == ["prod-1", "prod-2", "prod-3", "live-1", "live-4", "live-5", "prod-4"]


# What the change log says: which incidents were opened, and where observations may have been lost.


def told(*batches: Sequence[Observation]) -> list[NumberStep]:
    """The steps of what these batches report."""
    state, incidents, steps = ReplicationState(), IncidentFold(IncidentGaps()), list[NumberStep]()
    for version, batch in enumerate(batches, start=1):
        found = fold(state, batch)
        state.apply(found.touched)
        incidents.fold(rows_of(changes_to_arrow(found.changes), version))
        steps += incidents.number_steps
    return steps


def of_two_losses(story: Story, between: float) -> int:
    """Broker 3 is lost and is back; the story goes on. Gives where the second half begins."""
    story.snapshot([{}])
    lose(story, 1)
    story.later(10).broker(3, broker_epoch=6)
    story.later().partition(partition_epoch=2, cause="expand", evidence="proven")
    story.later(200).heartbeat()
    begin = len(story.seen)
    story.later(between)
    return begin


def lose(story: Story, epoch: int, **more: Any) -> None:
    story.later(10).broker(3, fenced=True, broker_epoch=5 + epoch // 2)
    story.partition(isr=(1, 2), **{**FENCED, "partition_epoch": epoch, **more})


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize("minutes", [0, 600])
def test_observations_that_are_missing_behind_the_applied_ones_let_the_numbers_jump(
    minutes: int, *, is_cut: bool
) -> None:
    story = Story()
    begin = of_two_losses(story, between=minutes * 60)
    story.sequence += 5
    lose(story, 3)
    batches = [story.seen[:begin], story.seen[begin:]] if is_cut else [story.seen]
    first, lost, second = told(*batches)
    assert isinstance(lost, Lost)
    assert lost.micros == (minutes * 60 + 10) * SECOND
    assert [*followed([first, lost, second]).values()] == ["orders-eu-1", "orders-eu-1001"]


@pytest.mark.parametrize(("seconds", "second"), [(SHORTEST_GAP // SECOND - 1, 2), (SHORTEST_GAP // SECOND, 1001)])
@pytest.mark.parametrize("kind", [SourceKind.METADATA_LOG, SourceKind.POLL])
def test_a_time_that_nobody_observed_lets_them_jump_if_it_is_longer_than_a_restart(
    kind: SourceKind, seconds: int, second: int
) -> None:
    """The bus and the collector were restored with the tables, so no number of an observation is missing."""
    story = Story("a:a", kind)
    of_two_losses(story, between=seconds)
    poll: dict[str, Any] = {"leader_epoch": None, "partition_epoch": None} if kind is SourceKind.POLL else {}
    story.snapshot([{"partition_epoch": 2, **poll}])
    lose(story, 3, **poll)
    steps = told(story.seen)
    assert [*followed(steps).values()] == ["orders-eu-1", f"orders-eu-{second}"]


def test_incidents_of_a_renamed_cluster_have_its_new_name_from_the_next_full_report_on() -> None:
    story = Story()
    begin = of_two_losses(story, between=1)
    lose(story, 3)  # by a collector that calls it live
    story.snapshot([{"isr": (1, 2), "partition_epoch": 3}])
    story.later(10).broker(3, broker_epoch=7)
    story.later().partition(partition_epoch=4, cause="expand", evidence="proven")
    story.later(200).heartbeat()
    story.later(10).broker(2, fenced=True)
    story.partition(isr=(1, 3), **{**FENCED, "partition_epoch": 5})
    seen = [*story.seen[:begin], *(replace(each, cluster="live") for each in story.seen[begin:])]
    assert [*followed(told(seen)).values()] == ["orders-eu-1", "orders-eu-2", "live-3"]


def test_a_full_report_that_only_repeats_lets_nothing_jump() -> None:
    story = Story()
    story.snapshot([{}])
    for _ in range(20):
        story.later(50).heartbeat()
    story.later(10).snapshot([{}], reason=SnapshotReason.PERIODIC)
    assert told(story.seen) == []
