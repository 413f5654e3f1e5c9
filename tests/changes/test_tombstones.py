from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.fold import fold
from streaming.changes.state import Change, ReplicationState
from streaming.changes.tombstones import KEPT, due, without_expired
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import DISKLESS, Observation
from streaming.contracts.state import COUNTS, SECONDS, TOTALS, ClusterState
from streaming.delta.projections.of_clusters import cluster_rows
from tests.changes.conftest import LAG, SECOND, Story
from tests.examples import examples

CLUSTER = ClusterId("cluster-1")
DAY = KEPT / SECOND


def run(told: Sequence[Observation], size: int = 1) -> tuple[ReplicationState, SuspectTally, list[Change]]:
    """Fold in batches of one size, as the job does."""
    state, tally, changes = ReplicationState(), SuspectTally(), list[Change]()
    for start in range(0, len(told), size):
        folded = without_expired(state, fold(state, told[start : start + size]))
        tally.apply(state, folded.touched)
        tally.forget(state.apply(folded.touched))
        changes += folded.changes
    return state, tally, changes


def shrunk_and_deleted() -> Story:
    story = Story()
    story.config("2")
    story.snapshot([{}, {}])
    story.later().partition(0, isr=(1,), partition_epoch=1, **LAG)
    story.later(5).removed()
    return story


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_tombstone_goes_after_a_day_and_its_totals_are_the_clusters(size: int) -> None:
    story = shrunk_and_deleted()
    state, _, _ = run(story.seen, size)
    assert [it.is_deleted for it in state.partitions()] == [True, True]
    story.later(2 * DAY).heartbeat()
    state, tally, changes = run(story.seen, size)
    (row,) = cluster_rows(state, tally, 1)
    assert list(state.partitions()) == []
    assert (row["isr_shrinks"], row["under_min_isr_seconds"], row["partitions"]) == (1, 5.0, 0)
    told = [
        change.cluster_after for change in changes if change.cluster_after and change.cluster_after.tombstones_until
    ]
    assert [(after.expired_isr_shrinks, after.expired_under_min_isr_seconds) for after in told] == [(1, 5.0)]


@pytest.mark.parametrize("seconds", [1, 2 * DAY])
def test_tombstones_go_although_another_cluster_of_the_batch_drops_none(seconds: float) -> None:
    story, quiet = shrunk_and_deleted(), Story("metadata_log:b")
    quiet.snapshot([{}])
    quiet.later(seconds).heartbeat()
    story.later(2 * DAY).heartbeat()
    *known, heartbeat = [replace(each, cluster_id=ClusterId("cluster-2")) for each in quiet.seen]
    *deleted, later = story.seen
    state, _, _ = run([*deleted, *known, heartbeat, later], len(deleted) + len(known))
    assert [(each.cluster_id, each.is_deleted) for each in state.partitions()] == [("cluster-2", False)]


def test_a_tombstone_stays_for_a_day() -> None:
    story = shrunk_and_deleted()
    story.later(0.9 * DAY).heartbeat()
    assert len(list(run(story.seen)[0].partitions())) == 2


def test_late_news_of_what_is_forgotten_does_not_make_it_appear_again() -> None:
    story = shrunk_and_deleted()
    late = next(it for it in story.seen if it.kind == "partition")
    story.later(2 * DAY).heartbeat()
    other = [replace(late, source="metadata_log:b", sequence=1)]
    state, _, changes = run([*story.seen, *other])
    assert list(state.partitions()) == []
    assert [change.subject for change in changes[-1:]] == [Subject.SOURCE]


def test_a_topic_that_comes_back_under_its_id_after_that_is_new_and_its_first_life_is_counted_once() -> None:
    story = shrunk_and_deleted()
    story.later(2 * DAY).heartbeat()
    story.later().partition(0, isr=(1, 2), **LAG)
    state, tally, changes = run(story.seen)
    (row,) = cluster_rows(state, tally, 1)
    assert [(it.isr_shrinks, it.is_deleted) for it in state.partitions()] == [(0, False)]
    assert row["isr_shrinks"] == 1 == sum(bool(change.left_isr) for change in changes)


@st.composite
def stories(draw: st.DrawFn) -> list[Observation]:
    """A log of days: topics come, suffer, go, and sometimes come back under their id; their configuration with them."""
    story = Story()
    story.config("2")
    story.snapshot([{}])
    is_gone = False
    acts = st.lists(
        st.sampled_from(["shrink", "expand", "stop", "remove", "wait", "rest", "diskless", "replicated"]), max_size=14
    )
    for epoch, what in enumerate(draw(acts), start=1):
        story.later(draw(st.integers(1, 9)))
        steps = {"shrink": ((1,), 1), "expand": ((1, 2, 3), 1), "stop": ((1,), -1)}
        if what in steps:
            isr, leader = steps[what]
            if is_gone:
                story.config("2")
            is_gone = False
            story.partition(isr=isr, leader=leader, partition_epoch=epoch, leader_epoch=epoch, **LAG)
        elif what == "remove":
            story.removed()
            story.config(None)
            story.config(None, key=DISKLESS)
            is_gone = True
        elif what in {"diskless", "replicated"}:
            story.config("true" if what == "diskless" else None, key=DISKLESS)
        else:
            story.later(DAY * (1.5 if what == "rest" else 0.3)).heartbeat()
    return story.seen


@settings(max_examples=examples(20))
@given(told=stories(), size=st.integers(1, 20))
def test_the_totals_of_a_cluster_are_the_sum_of_all_changes_ever(told: list[Observation], size: int) -> None:
    state, tally, changes = run(told, size)
    (row,) = cluster_rows(state, tally, 1)

    sums: Counter[str] = Counter()
    for change in changes:
        for name in TOTALS if change.after is not None else ():
            sums[name] += getattr(change.after, name) - (getattr(change.before, name) if change.before else 0)
    for partition in state.partitions():
        for name in SECONDS:
            sums[name] += state.clusters[CLUSTER].observed.seconds_in(partition, name) - getattr(partition, name)

    assert {name: row[name] for name in COUNTS} == {name: sums[name] for name in COUNTS}
    assert [row[name] for name in SECONDS] == pytest.approx([sums[name] for name in SECONDS], abs=1e-6)
    (singly,) = cluster_rows(*run(told)[:2], 1)
    assert [row[name] for name in TOTALS] == pytest.approx([singly[name] for name in TOTALS], abs=1e-6)


def test_the_totals_of_a_topic_are_those_of_its_partitions_with_open_episodes_up_to_the_watermark() -> None:
    story = Story()
    story.snapshot([{}, {}])
    story.later().partition(0, isr=(1,), partition_epoch=1, **LAG)
    story.later(3).partition(1, isr=(1, 2), partition_epoch=1, **LAG)
    story.later(4).partition(0, isr=(1, 2, 3), partition_epoch=2, **LAG)
    state, _, _ = run(story.seen)
    partitions, observed = [*state.partitions()], state.clusters[CLUSTER].observed
    assert (sum(each.isr_shrinks for each in partitions), sum(each.isr_expands for each in partitions)) == (2, 1)
    assert sum(observed.seconds_in(each, "under_replicated_seconds") for each in partitions) == 7.0 + 4.0


def test_the_events_of_a_partition_that_exists_again_have_ids_of_their_own() -> None:
    story = shrunk_and_deleted()
    story.later().partition(0)
    story.later().partition(0, isr=(1,), partition_epoch=1, **LAG)
    story.later().removed()
    _, _, changes = run(story.seen)
    ids = [event.event_id for change in changes for event in change.events]
    numbers = [change.after.change_number for change in changes if change.after and change.after.partition == 0]
    assert len(ids) == len(set(ids))
    assert numbers == sorted(numbers)


def test_tombstones_expire_when_a_day_begins_of_a_cluster_that_is_known() -> None:
    day = KEPT
    before = ClusterState(cluster_id=CLUSTER, cluster="c", has_baseline=True, primary_watermark=Micros(3 * day - 1))
    assert due(before, before._replace(primary_watermark=Micros(3 * day))) == 2 * day
    assert due(before, before._replace(primary_watermark=Micros(3 * day - 1))) is None
    assert due(None, before._replace(primary_watermark=Micros(3 * day))) == 2 * day
    assert due(before, before._replace(primary_watermark=None)) is None
    assert due(before, before._replace(primary_watermark=Micros(3 * day), has_baseline=False)) is None
