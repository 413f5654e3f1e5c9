"""A later record proves the cause of an earlier step."""

from __future__ import annotations

import pytest

from streaming.changes.fold import fold
from streaming.changes.state import FoldResult, ReplicationState
from streaming.contracts.events import Cause, EventKind, Evidence
from streaming.contracts.identifiers import BrokerId, ClusterId, TopicId
from streaming.contracts.observations import CauseRevised
from tests.changes.conftest import Story

AMBIGUOUS = {"cause": Cause.FENCED, "evidence": Evidence.AMBIGUOUS}
TOPIC = (ClusterId("cluster-1"), TopicId("topic-1"))


@pytest.fixture
def shrunk() -> tuple[Story, ReplicationState]:
    """A partition whose ISR shrank for a cause that is not proven."""
    story, state = Story(), ReplicationState()
    story.snapshot([{}])
    story.later().partition(0, isr=(1, 2), partition_epoch=1, **AMBIGUOUS)
    state.apply(fold(state, story.seen).touched)
    return story, state


def proof(story: Story, revised_offset: int, partition: int = 0) -> CauseRevised:
    return CauseRevised(
        **story.envelope(), metadata_offset=story.offset, topic_id="topic-1", topic="orders", partition=partition,
        revised_offset=revised_offset, broker=BrokerId(3), cause=Cause.CONTROLLED_SHUTDOWN, evidence=Evidence.PROVEN,
    )  # fmt: skip


def details(folded: FoldResult) -> list[str | None]:
    return [
        event.detail for change in folded.changes for event in change.events if event.event is EventKind.CAUSE_REVISED
    ]


def test_a_proof_of_the_last_step_gives_its_cause_and_leaves_the_rest(shrunk: tuple[Story, ReplicationState]) -> None:
    story, state = shrunk
    before, offset = state.topic(TOPIC)[0], story.offset
    folded = fold(state, [proof(story.later(), offset)])
    assert details(folded) == [f"the change at offset {offset}: fenced to controlled_shutdown"]
    after = folded.touched.topics[TOPIC][0]
    assert (after.last_cause, after.last_evidence, after.last_cause_offset) == (
        Cause.CONTROLLED_SHUTDOWN, Evidence.PROVEN, offset,
    )  # fmt: skip
    assert (after.metadata_offset, after.change_number) == (story.offset, before.change_number + 1)
    kept = {"last_cause", "last_evidence", "metadata_offset", "metadata_index", "change_number"}
    assert after._replace(**{name: getattr(before, name) for name in kept}) == before


def test_a_proof_of_an_earlier_step_is_an_event_and_the_cause_stays(shrunk: tuple[Story, ReplicationState]) -> None:
    story, state = shrunk
    folded = fold(state, [proof(story.later(), 3)])
    assert details(folded) == ["the change at offset 3: another cause to controlled_shutdown"]
    after = folded.touched.topics[TOPIC][0]
    assert (after.last_cause, after.last_evidence) == (Cause.FENCED, Evidence.AMBIGUOUS)


@pytest.mark.parametrize("partition", [0, 7])
def test_a_proof_that_is_old_or_of_nothing_is_dropped(partition: int, shrunk: tuple[Story, ReplicationState]) -> None:
    story, state = shrunk
    folded = fold(state, [proof(story, 3, partition)])
    assert details(folded) == []
    assert len(folded.dropped) == 1


def test_a_deleted_partition_needs_no_proof(shrunk: tuple[Story, ReplicationState]) -> None:
    story, state = shrunk
    offset = story.offset
    story.later().removed()
    state.apply(fold(state, story.seen[-1:]).touched)
    assert details(fold(state, [proof(story.later(), offset)])) == []
