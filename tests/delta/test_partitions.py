from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.state import PartitionState
from streaming.contracts.tables import PARTITION_STATE_TABLE
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.projections.projections import Projections, newest_partitions, states_after
from streaming.delta.state import states_of
from tests.changes.conftest import Story
from tests.examples import examples
from tests.plugins.played import decoded
from tests.strategies import streams

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streaming.contracts.observations import Observation

Keyed = dict[tuple[str, str, int], PartitionState]


def keyed(partitions: Iterable[PartitionState]) -> Keyed:
    return {(each.cluster_id, each.topic_id, each.partition): each for each in partitions}


@settings(max_examples=examples(20))
@given(told=streams(), cuts=st.lists(st.integers(0, 60), max_size=3))
def test_the_newest_rows_laid_over_the_known_ones_are_the_state(told: list[Observation], cuts: list[int]) -> None:
    state, rows = ReplicationState(), arrow_schema(PARTITION_STATE_TABLE).empty_table()
    bounds = sorted({0, len(told), *(min(cut, len(told)) for cut in cuts)})
    for version, (start, end) in enumerate(itertools.pairwise(bounds)):
        folded = fold(state, told[start:end])
        state.apply(folded.touched)
        rows = newest_partitions(rows, states_after(changes_to_arrow(folded.changes), version), version)
        assert set(rows["as_of_version"].to_pylist()) <= {version}

    read = list(states_of(PartitionState, rows))

    assert keyed(state.partitions()) == keyed(read)
    assert len(read) == len(keyed(read))


def test_a_round_without_changed_partitions_moves_the_version_and_writes_no_row(tmp_path: Path) -> None:
    story, truth, state = Story(), ChangeLog(tmp_path), ReplicationState()
    projections = Projections(tmp_path)
    story.snapshot([{}, {}])
    for number in range(2):
        folded = fold(state, story.seen)
        state.apply(folded.touched)
        version = truth.commit(changes_to_arrow(folded.changes), {"a": number})
        projections.project(projections.recover(version))
        story.seen = []
        story.later().heartbeat()

    table = DeltaTable(str(tmp_path / "partition_state"))

    assert table.transaction_version("partition_changes") == version
    assert len(table.file_uris()) == 1
    assert decoded(Projections(tmp_path).recover(version).state) == state
