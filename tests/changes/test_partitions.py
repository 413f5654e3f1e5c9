from __future__ import annotations

from dataclasses import replace

from streaming.changes.partitions import is_repeated, news
from streaming.contracts.blocks import PartitionsObserved
from streaming.contracts.observations import PartitionObserved, SourceKind
from tests.blocks import singly
from tests.changes.conftest import Story, state_after


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
    polled = replace(block, authority=SourceKind.POLL)

    def numbers(block: PartitionsObserved) -> list[int]:
        return [observed.partition for observed in news(block, states)]

    assert numbers(block) == []
    assert numbers(replace(block, elr_by_partition=((), (3,)))) == [1]
    assert numbers(replace(polled, elr_by_partition=((), (3,)))) == []
    assert numbers(replace(polled, isr_by_partition=((1, 2), (1, 2, 3)))) == [0]
    states[0] = states[0]._replace(is_deleted=True)
    del states[1]
    assert numbers(block) == [0, 1]
