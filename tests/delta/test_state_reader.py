"""A state that is read from changes is the state that the fold left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.delta import state_reader
from streaming.delta.change_rows import changes_to_arrow, in_commit
from streaming.delta.state_reader import AsOf, apply_changes
from tests.changes.conftest import Story
from tests.examples import examples
from tests.strategies import streams

if TYPE_CHECKING:
    from streaming.contracts.observations import Observation


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize("worth_choosing", [0, 1 << 30])
@settings(max_examples=examples(20))
@given(observations=streams())
def test_changes_give_the_state_whether_replaced_ones_are_read_or_not(
    worth_choosing: int, observations: list[Observation]
) -> None:
    folded = fold(ReplicationState(), observations)
    state = ReplicationState()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_reader, "_WORTH_CHOOSING", worth_choosing)
        apply_changes(state, in_commit(changes_to_arrow(folded.changes), 1, 0))

    assert state.topics == folded.touched.topics
    assert state.brokers == folded.touched.brokers


def test_the_row_of_a_cluster_does_not_move_back_what_its_sources_have_reported_since(story: Story) -> None:
    story.snapshot()
    state = ReplicationState()
    state.apply(fold(state, story.seen).touched)
    story.later().controller(9, 9)
    step = in_commit(changes_to_arrow(fold(ReplicationState(), story.seen).changes), 1, 0)
    story.later(30).heartbeat()
    whole = fold(ReplicationState(), story.seen).touched
    for source in whole.sources.values():  # their table is written more often than that of the clusters
        state.put_source(source)

    apply_changes(state, step, AsOf(sources=1))

    assert {(each.watermark, each.authority_watermark) for each in state.clusters.values()} == {(story.now, story.now)}
    assert state.clusters == whole.clusters
