from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.fold import fold
from streaming.changes.state import ListedPartitions, ReplicationState, TopicKey, counted
from streaming.contracts.observations import DISKLESS, Observation
from tests.blocks import singly
from tests.changes.conftest import LAG, Story, state_after

TOPIC: TopicKey = ("cluster-1", "topic-1")  # type: ignore[assignment]
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "isr": st.sampled_from([(1, 2, 3), (1, 2), (2,)]), "leader": st.sampled_from([1, 2, -1]),
    "leader_epoch": st.integers(0, 3), "partition_epoch": st.integers(0, 3),
    "adding_replicas": st.sampled_from([(), (3,)]),
}  # fmt: skip
PARTITIONS = st.lists(st.fixed_dictionaries({}, optional=FIELDS), min_size=1, max_size=8)


def first_report(
    partitions: list[dict[str, object]], minimum: str | None = None, *, is_diskless: bool = False
) -> list[Observation]:
    story = Story()
    if minimum is not None:
        story.config(minimum)
    if is_diskless:
        story.config("true", key=DISKLESS)
    story.snapshot(partitions)
    return story.seen


@given(PARTITIONS, st.none() | st.sampled_from(["1", "2", "3"]), st.booleans())
def test_listed_partitions_are_those_that_would_have_appeared_one_by_one(
    partitions: list[dict[str, object]],
    minimum: str | None,
    is_diskless: bool,  # noqa: FBT001 - drawn
) -> None:
    told = first_report(partitions, minimum, is_diskless=is_diskless)
    alone = state_after(replace(observed, sequence=0) for observed in singly(told))
    listed = state_after(told).topic(TOPIC)
    assert isinstance(listed, ListedPartitions)
    assert dict(listed) == alone.topic(TOPIC)
    assert list(listed) == sorted(alone.topic(TOPIC))
    assert len(listed) == len(partitions)


@pytest.mark.parametrize("number", [-1, 2])
def test_a_number_that_was_not_listed_has_no_partition(number: int) -> None:
    listed = state_after(first_report([{}, {}])).topic(TOPIC)
    assert number not in listed
    assert listed.get(number) is None


@given(st.lists(st.tuples(PARTITIONS, st.booleans()), min_size=1, max_size=3))
def test_listed_partitions_are_counted_as_each_would_be(reports: list[tuple[list[dict[str, object]], bool]]) -> None:
    topics = [
        state_after(first_report(partitions, is_diskless=diskless)).topic(TOPIC) for partitions, diskless in reports
    ]
    each, together = SuspectTally(), SuspectTally()
    for partitions in topics:
        for partition in partitions.values():
            each.replace(None, partition)
    for partition, count in counted(topic for topic in topics if isinstance(topic, ListedPartitions)):
        together.add_alike(partition, count)
    assert set(together.entries()) == set(each.entries())


def test_a_topic_becomes_objects_when_one_of_its_partitions_changes_and_the_fold_leaves_the_state_alone() -> None:
    story, state = Story(), ReplicationState()
    story.snapshot([{}, {}])
    state.apply(fold(state, story.seen).touched)
    before = state.topic(TOPIC)
    touched = fold(state, [story.later().partition(1, partition_epoch=1, isr=(1, 2), **LAG)]).touched
    assert state.topic(TOPIC) is before
    state.apply(touched)
    assert [partition.isr for _, partition in sorted(state.topic(TOPIC).items())] == [(1, 2, 3), (1, 2)]


def test_a_change_within_the_batch_of_the_first_report_follows_what_was_listed() -> None:
    story, state = Story(), ReplicationState()
    story.snapshot([{}, {}])
    story.later().partition(1, partition_epoch=1, isr=(1, 2), **LAG)
    folded = fold(state, story.seen)
    (listed,) = [change.listed for change in folded.changes if change.listed is not None]
    assert [partition.isr for partition in listed.values()] == [(1, 2, 3), (1, 2, 3)]
    assert [partition.isr for partition in folded.touched.topics[TOPIC].values()] == [(1, 2, 3), (1, 2)]


def test_only_the_block_itself_has_listed_the_partitions() -> None:
    story, other = Story(), Story()
    story.snapshot([{}])
    other.snapshot([{}])
    state = state_after(story.seen)
    (block,) = [each for each in story.seen if each.kind == "partitions"]
    (same,) = [each for each in other.seen if each.kind == "partitions"]
    listed = state.topic(TOPIC)
    assert isinstance(listed, ListedPartitions)
    assert listed.are_of(block)  # type: ignore[arg-type]
    assert not listed.are_of(same)  # type: ignore[arg-type]
