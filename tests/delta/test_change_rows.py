from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.delta.changes.log import UNCOMMITTED, changes_to_arrow
from tests.changes.conftest import Story
from tests.examples import examples
from tests.strategies import streams

if TYPE_CHECKING:
    from streaming.contracts.observations import Observation


@settings(max_examples=examples(20))
@given(told=streams())
def test_partitions_of_a_first_report_are_written_together_as_each_would_be_alone(told: list[Observation]) -> None:
    changes = fold(ReplicationState(), told).changes

    together = changes_to_arrow(changes)

    assert together.equals(changes_to_arrow(each for change in changes for each in change.singly()))
    assert together.schema.equals(UNCOMMITTED)


def test_what_partitions_have_in_common_is_not_mixed_up_between_blocks_and_shapes() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{}, {"isr": (1, 2)}, {}, {"isr": (2,), "leader": 2, "leader_epoch": 7, "partition_epoch": 9}])
    changes = fold(ReplicationState(), story.seen).changes
    (listed,) = [change.listed for change in changes if change.listed is not None]

    rows = changes_to_arrow(changes).to_pylist()

    assert len(set(map(id, listed.shapes))) == 3
    expected = [(each.partition, list(each.isr), each.leader_epoch) for each in listed.values()]
    written = [row for row in rows if row["subject"] == "partition"]
    assert [(row["partition"], row["after"]["isr"], row["after"]["leader_epoch"]) for row in written] == expected
    assert [row["is_baseline"] for row in written] == [True] * 4
    assert {row["before"] for row in written} == {None}


def test_no_changes_are_no_rows() -> None:
    assert changes_to_arrow([]).equals(UNCOMMITTED.empty_table())
