"""Groups from blocks: what a coordinator's newest answer leaves out is gone from both tables, whoever else reports."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import BrokerId, TopicId
from streaming.contracts.observations import Channel, Observation, SourceKind
from streaming.jobs.driver.samples import NewestBatch
from streaming.sources.samples.groups.blocks import CoordinatorAnswer, group_blocks, group_offset_blocks
from streaming.sources.samples.groups.described import DescribedGroup
from tests.examples import examples
from tests.jobs.driver.test_batch import published, rows

if TYPE_CHECKING:
    from pathlib import Path

Offsets = dict[str, dict[int, int]]
IDS = {"orders": TopicId("t")}


def answered(broker: int, moment: int, groups: dict[str, dict[int, int]], **fields: Any) -> list[Observation]:
    """What a coordinator says at a moment: by group its committed offsets by partition."""
    envelope: dict[str, Any] = {
        "cluster_id": "c",
        "cluster": "prod",
        "source": "samples:a",
        "authority": SourceKind.NONE,
        **dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), moment),
    }
    described = {name: DescribedGroup("classic", "Empty", 0) for name in groups}
    committed = {name: {"orders": {**offsets}} for name, offsets in groups.items()}
    answer = CoordinatorAnswer(described, committed, **fields)
    return [
        *group_blocks(BrokerId(broker), described, envelope),
        *group_offset_blocks(BrokerId(broker), answer, IDS, envelope),
    ]


def tables(directory: Path) -> tuple[Any, Any]:
    return (
        {row["group"]: row["coordinator"] for row in rows(directory, "groups")},
        {(row["group"], row["partition"]): row["coordinator"] for row in rows(directory, "group_offsets")},
    )


def expected(answers: list[tuple[int, dict[str, dict[int, int]]]]) -> tuple[Any, Any]:
    """The newest row of each key, if it is in the newest answer of who reported it."""
    last = {broker: moment for moment, (broker, _) in enumerate(answers)}
    groups: dict[Any, tuple[int, int]] = {}
    offsets: dict[Any, tuple[int, int]] = {}
    for moment, (broker, named) in enumerate(answers):
        groups |= dict.fromkeys(named, (moment, broker))
        offsets |= {(name, number): (moment, broker) for name, parts in named.items() for number in parts}

    def there(newest: dict[Any, tuple[int, int]]) -> dict[Any, int]:
        return {key: broker for key, (moment, broker) in newest.items() if last[broker] == moment}

    return there(groups), there(offsets)


ANSWERS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.dictionaries(
            st.sampled_from("xyz"), st.dictionaries(st.integers(0, 2), st.integers(0, 9), max_size=2), max_size=3
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(20))
@given(answers=ANSWERS, cuts=st.sets(st.integers(1, 7)), restarts=st.booleans())
def test_groups_and_partitions_are_those_of_the_newest_answers_however_the_log_is_cut(
    tmp_path_factory: pytest.TempPathFactory, *, answers: list[Any], cuts: set[int], restarts: bool
) -> None:
    directory = tmp_path_factory.mktemp("groups")
    observed = [answered(broker, moment, named) for moment, (broker, named) in enumerate(answers)]
    batch, start = NewestBatch(directory, Channel.OFFSETS), 0
    for begin, end in pairwise(sorted({0, len(answers), *(cut for cut in cuts if cut < len(answers))})):
        batch = NewestBatch(directory, Channel.OFFSETS) if restarts else batch
        piece = [one for several in observed[begin:end] for one in several]
        batch.apply(published(piece, start=start))
        start += len(piece)
    assert tables(directory) == expected(answers)


def test_the_last_group_of_a_cluster_leaves_with_the_next_answer(tmp_path: Path) -> None:
    batch = NewestBatch(tmp_path, Channel.OFFSETS)
    batch.apply(published(answered(1, 5, {"last": {0: 3}})))
    assert tables(tmp_path) == ({"last": 1}, {("last", 0): 1})
    batch.apply(published(answered(1, 6, {}), start=2))
    assert tables(tmp_path) == ({}, {})
    assert not any(len(each) for each in batch._rows.values())


def test_the_lag_of_a_share_group_is_the_reported_one_and_of_others_it_follows_from_their_offsets(
    tmp_path: Path,
) -> None:
    positions = {
        "log_start_offset": {"orders": {0: 4, 1: 0, 2: 0}},
        "last_stable_offset": {"orders": {0: 9, 1: 19, 2: 29}},
        "high_watermark": {"orders": {0: 10, 1: 20, 2: 30}},
    }
    lags = {"shared": {"orders": {1: 7}}}
    observed = answered(1, 5, {"plain": {0: 3, 2: 31, 5: 1}, "shared": {}}, positions=positions, lags=lags)
    NewestBatch(tmp_path, Channel.OFFSETS).apply(published(observed))
    shown = {
        (row["group"], row["partition"]): (row["lag"], row["stable_lag"], row["records_lost"])
        for row in rows(tmp_path, "group_offsets")
    }
    assert shown == {
        ("plain", 0): (7, 6, 1),
        ("plain", 2): (0, 0, 0),
        ("plain", 5): (None, None, None),
        ("shared", 1): (7, None, None),
    }
