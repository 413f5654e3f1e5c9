from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import UnchangedRun, fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.observations import Observation, PartitionObserved
from streaming.delta.changes.log import changes_to_arrow
from streaming.errors import InvalidObservation
from tests.changes.conftest import state_after
from tests.examples import examples
from tests.strategies import streams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.changes.conftest import Story


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
