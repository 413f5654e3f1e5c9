from __future__ import annotations

from dataclasses import replace

from streaming.changes.fold import fold
from streaming.changes.partitions import is_repeated
from streaming.changes.state import ReplicationState
from streaming.contracts.observations import PartitionObserved
from tests.blocks import singly
from tests.changes.conftest import Story


def test_an_observation_is_repeated_if_its_content_is_the_state_s_and_it_is_no_news() -> None:
    story = Story()
    story.snapshot([{}])
    state = ReplicationState()
    state.apply(fold(state, story.seen).touched)
    (partition,) = state.partitions()
    (observed,) = (each for each in singly(story.seen) if isinstance(each, PartitionObserved))

    assert is_repeated(partition, observed)
    assert not is_repeated(partition, replace(observed, isr=(1, 2))), "another content, although it is no news"
    assert not is_repeated(partition, replace(observed, partition_epoch=(observed.partition_epoch or 0) + 1))
    assert not is_repeated(partition._replace(is_deleted=True), observed)
