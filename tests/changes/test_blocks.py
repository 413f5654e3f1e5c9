"""A block is folded as its partitions would be, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.blocks import with_changes_in_blocks
from streaming.delta.changes.log import changes_to_arrow
from tests.blocks import singly
from tests.changes.conftest import LAG, Story, state_after
from tests.strategies import streams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.state import Change
    from streaming.contracts.observations import Observation


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
