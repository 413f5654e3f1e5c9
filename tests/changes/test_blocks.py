"""A block, a run of what was confirmed and the single observations that they stand for give the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import UnchangedRun, fold
from streaming.changes.partitions import is_repeated, news
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.blocks import PartitionsObserved, with_changes_in_blocks
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.observations import Observation, PartitionObserved, SourceKind
from streaming.delta.changes.log import changes_to_arrow
from streaming.errors import InvalidObservation
from tests.blocks import singly
from tests.changes.conftest import LAG, Story, state_after
from tests.examples import examples
from tests.strategies import streams


def steps(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """List what changes say as rows, without the numbers of their observations and how far each source came."""
    rows = changes_to_arrow(change for change in changes if change.source_after is None)
    return [row | {"sequence": 0} for row in rows.to_pylist()]


def unnumbered(observations: Iterable[Observation]) -> list[Observation]:
    """Leave the numbers out: taken apart, blocks have more of them, and no gap is between them."""
    return [replace(observed, sequence=0) for observed in observations]


@given(streams())
def test_a_block_is_folded_as_its_partitions(told: list[Observation]) -> None:
    in_blocks = fold(ReplicationState(), unnumbered(told))
    alone = fold(ReplicationState(), unnumbered(singly(told)))
    assert steps(in_blocks.changes) == steps(alone.changes)
    assert in_blocks.touched.topics == alone.touched.topics


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([(1, 2), (1, 2, 3), (2, 3)])), min_size=1, max_size=12))
def test_changes_of_a_record_batch_are_folded_as_one_by_one(drawn: list[tuple[int, tuple[int, ...]]]) -> None:
    story, epochs = Story(), [0] * 4
    story.snapshot([{}] * 4)
    before = state_after(story.seen)
    known = len(story.seen)
    for number, isr in drawn:
        epochs[number] += 1
        story.partition(number, partition_epoch=epochs[number], isr=isr, leader=isr[0], **LAG)
    singly_told = [
        replace(each, sequence=0, metadata_offset=1_000 + place)  # type: ignore[call-arg]
        for place, each in enumerate(story.seen[known:])
    ]
    gathered = list(with_changes_in_blocks(singly_told))

    in_blocks, alone = fold(before, gathered), fold(before, singly_told)

    assert len(gathered) <= len(singly_told)
    assert steps(in_blocks.changes) == steps(alone.changes)
    assert in_blocks.touched.topics == alone.touched.topics
    assert in_blocks.touched.sources == alone.touched.sources
    assert [replace(each, sequence=0) for each in in_blocks.dropped] == list(alone.dropped)


def run_of(observations: Sequence[Observation]) -> UnchangedRun:
    """Stand for neighbours of one source."""
    last = observations[-1]
    envelope = {name: getattr(last, name) for name in Observation.__slots__}
    offset = getattr(last, "metadata_offset", None)
    return UnchangedRun(**envelope, first_sequence=observations[0].sequence, metadata_offset=offset)


def tells_nothing(state: ReplicationState, observed: Observation) -> bool:
    folded = fold(state, [observed])
    return all(change.subject is Subject.SOURCE for change in folded.changes)


@settings(max_examples=examples(20))
@given(told=streams(), data=st.data())
def test_runs_in_the_place_of_what_told_nothing_change_nothing(told: list[Observation], data: st.DataObject) -> None:
    state, shortened, run = ReplicationState(), list[Observation](), list[Observation]()
    for observed in told:
        follows = run and (run[-1].source, run[-1].sequence + 1) == (observed.source, observed.sequence)
        is_silent = isinstance(observed, PartitionObserved) and observed.in_snapshot and tells_nothing(state, observed)
        state.apply(fold(state, [observed]).touched)
        is_taken = is_silent and data.draw(st.booleans())
        if run and not (is_taken and follows):
            shortened.append(run_of(run))
            run = []
        (run if is_taken else shortened).append(observed)
    if run:
        shortened.append(run_of(run))

    before = ReplicationState()
    cut = data.draw(st.integers(0, len(shortened)))
    expected = fold(ReplicationState(), told)
    first = fold(before, shortened[:cut])
    before.apply(first.touched)
    second = fold(before, shortened[cut:])
    before.apply(second.touched)
    whole = fold(ReplicationState(), shortened)

    assert changes_to_arrow(expected.changes).to_pylist() == changes_to_arrow(whole.changes).to_pylist()
    assert expected.touched == whole.touched == before


def test_a_gap_before_a_run_is_told_and_a_replayed_part_of_it_is_not(story: Story) -> None:
    story.snapshot([{}, {}, {}])
    state = state_after(story.seen)
    last = story.seen[-1]
    replayed = replace(run_of([last]), first_sequence=last.sequence - 2, sequence=last.sequence + 3)
    gapped = replace(replayed, first_sequence=last.sequence + 2)
    firsts = (run.first_after(last.sequence) for run in (replayed, gapped))
    assert [first.sequence - last.sequence for first in firsts] == [1, 2], "each has the number of what is new in it"
    assert _events(fold(state, [replayed])) == []
    assert fold(state, [replayed]).touched.sources["cluster-1", story.source].sequence == last.sequence + 3
    assert _events(fold(state, [gapped])) == [
        (EventKind.CHANGES_MISSED, f"1 observations of {story.source} are missing, after number {last.sequence}")
    ]


def test_a_run_that_was_applied_already_changes_nothing_and_is_no_duplicate(story: Story) -> None:
    story.snapshot([{}, {}, {}])
    state = state_after(story.seen)
    folded = fold(state, [replace(run_of(story.seen[1:2]), first_sequence=1)])
    assert folded.touched.sources == state.sources


@pytest.mark.parametrize(("first", "last"), [(0, 1), (3, 2)])
def test_a_run_without_numbers_is_refused(story: Story, first: int, last: int) -> None:
    story.heartbeat()
    with pytest.raises(InvalidObservation, match="no run"):
        replace(run_of(story.seen), first_sequence=first, sequence=last)


def _events(folded: Any) -> list[tuple[EventKind, str | None]]:
    return [(event.event, event.detail) for change in folded.changes for event in change.events]


def test_an_observation_is_repeated_if_its_content_is_the_state_s_and_it_is_no_news() -> None:
    story = Story()
    story.snapshot([{}])
    state = state_after(story.seen)
    (partition,) = state.partitions()
    (observed,) = (each for each in singly(story.seen) if isinstance(each, PartitionObserved))
    assert is_repeated(partition, observed)
    assert not is_repeated(partition, replace(observed, isr=(1, 2))), "another content, although it is no news"
    assert not is_repeated(partition, replace(observed, partition_epoch=(observed.partition_epoch or 0) + 1))
    assert not is_repeated(partition._replace(is_deleted=True), observed)


def test_news_of_a_block_are_the_partitions_that_differ_in_what_its_source_reports() -> None:
    story = Story()
    story.snapshot([{}, {}])
    state = state_after(story.seen)
    states = {partition.partition: partition for partition in state.partitions()}
    (block,) = (each for each in story.seen if isinstance(each, PartitionsObserved))
    polled = replace(block, source_kind=SourceKind.POLL)

    def numbers(block: PartitionsObserved) -> list[int]:
        return [observed.partition for observed in news(block, states)]

    assert numbers(block) == []
    assert numbers(replace(block, elr_by_partition=((), (3,)))) == [1]
    assert numbers(replace(polled, elr_by_partition=((), (3,)))) == []
    assert numbers(replace(polled, isr_by_partition=((1, 2), (1, 2, 3)))) == [0]
    states[0] = states[0]._replace(is_deleted=True)
    del states[1]
    assert numbers(block) == [0, 1]
