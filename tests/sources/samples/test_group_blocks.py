"""Groups in blocks are those that were reported, whatever is missing of some."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.codec import decode, encode
from streaming.contracts.identifiers import BrokerId, Micros, TopicId
from streaming.contracts.sample_blocks import BrokerGroupOffsetsObserved, BrokerGroupsObserved
from streaming.contracts.samples import GroupObserved, GroupOffsetsObserved
from streaming.jobs.streams.sample_columns import columns_of
from streaming.sources.samples.groups import blocks as module
from streaming.sources.samples.groups.blocks import (
    CoordinatorAnswer,
    ended_blocks,
    group_blocks,
    group_offset_blocks,
    kept_blocks,
)
from streaming.sources.samples.groups.described import DescribedGroup
from tests.blocks import ENVELOPE, singly

IDS = {"a": TopicId("id-a"), "b": TopicId("id-b")}
OWN = ("member", "committed_offset", "start_offset", "lag", "lag_seconds")
POSITIONS = ("log_start_offset", "last_stable_offset", "high_watermark")


def by_topic(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, dict[int, Any]]]:
    partitions = st.dictionaries(st.integers(0, 5), values, max_size=5)
    return st.dictionaries(st.sampled_from(["a", "b", "gone"]), partitions, max_size=3)


@st.composite
def answers(draw: st.DrawFn) -> CoordinatorAnswer:
    names = draw(st.lists(st.sampled_from("xyz"), unique=True))
    offsets = by_topic(st.integers(0, 9))
    group = st.builds(
        DescribedGroup, st.sampled_from(["classic", "share"]), st.just("Stable"), st.none() | st.integers(0, 3),
        st.none() | st.just("range"), by_topic(st.sampled_from("mn")),
    )  # fmt: skip
    groups = {name: draw(group) for name in names}
    some = st.dictionaries(st.sampled_from(names), offsets) if names else st.just({})
    positions = draw(st.dictionaries(st.sampled_from(POSITIONS), offsets))
    timed = st.dictionaries(st.sampled_from(names), by_topic(st.floats(0, 9))) if names else st.just({})
    return CoordinatorAnswer(
        groups, draw(some), draw(some), draw(some), positions=positions, lag_seconds=draw(timed),
        positions_at=draw(st.none() | st.just(Micros(7))),
    )  # fmt: skip


@given(answers(), st.integers(1, 4))
def test_every_partition_of_a_group_is_in_one_block_with_what_was_reported_of_it(
    answer: CoordinatorAnswer, size: int
) -> None:
    expected = {}
    for name, group in answer.groups.items():
        own = {
            "member": group.owners,
            "committed_offset": answer.committed.get(name, {}),
            "start_offset": answer.starts.get(name, {}),
            "lag": answer.lags.get(name, {}),
            "lag_seconds": answer.lag_seconds.get(name, {}),
        }
        for topic in IDS:
            for number in range(6):
                reported = {field: of.get(topic, {}).get(number) for field, of in own.items()}
                if any(value is not None for value in reported.values()):
                    at = {field: of.get(topic, {}).get(number) for field, of in answer.positions.items()}
                    expected[name, topic, number] = {**dict.fromkeys(POSITIONS), **reported, **at}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SAMPLES_PER_BLOCK", size)
        blocks = [*group_offset_blocks(BrokerId(7), answer, IDS, ENVELOPE)]
    assert all(len(block) <= size for block in blocks)
    assert [decode(encode(block)) for block in blocks] == blocks
    assert len(blocks) == 1 or all(len(block) for block in blocks)
    samples: dict[Any, Any] = {(one.group, one.topic, one.partition): one for one in singly(blocks)}  # type: ignore[attr-defined]
    assert samples.keys() == expected.keys()
    assert sum(map(len, blocks)) == len(expected)
    for (name, topic, _), one in samples.items():
        assert isinstance(one, GroupOffsetsObserved)
        assert (one.topic_id, one.coordinator) == (IDS[topic], 7)
        group = answer.groups[name]
        assert (one.group_protocol, one.group_state, one.members) == (group.protocol, group.state, group.members)
        assert one.positions_at == answer.positions_at
        assert {field: getattr(one, field) for field in (*OWN, *POSITIONS)} == expected[one.group, topic, one.partition]


@given(answers(), st.integers(1, 2), st.data())
def test_every_group_is_in_one_block(answer: CoordinatorAnswer, size: int, data: st.DataObject) -> None:
    unread = data.draw(st.sets(st.sampled_from(sorted(answer.groups)))) if answer.groups else set[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SAMPLES_PER_BLOCK", size)
        blocks = [*group_blocks(BrokerId(7), answer.groups, unread, ENVELOPE)]
    assert [decode(encode(block)) for block in blocks] == blocks
    assert len(blocks) == 1 or all(len(block) for block in blocks)
    samples = sorted(singly(blocks), key=lambda one: one.group)  # type: ignore[attr-defined]
    assert samples == [
        GroupObserved(
            **ENVELOPE, group=name, group_protocol=group.protocol, group_state=group.state, members=group.members,
            assignor=group.assignor, coordinator=BrokerId(7), is_unread=name in unread or None,
        )
        for name, group in sorted(answer.groups.items())
    ]  # fmt: skip


@given(st.lists(st.text(max_size=4), max_size=6), st.integers(1, 3))
def test_what_an_answer_keeps_is_in_blocks_of_both_kinds(names: list[str], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SAMPLES_PER_BLOCK", size)
        blocks = [*kept_blocks(BrokerId(7), names, ENVELOPE)]
    assert [decode(encode(block)) for block in blocks] == blocks
    assert all(len(block.kept) <= size and not len(block) for block in blocks)
    for kind in (BrokerGroupsObserved, BrokerGroupOffsetsObserved):
        assert [name for block in blocks if isinstance(block, kind) for name in block.kept] == names


@given(st.lists(st.text(max_size=4), min_size=1, max_size=6), st.integers(1, 3))
def test_what_has_ended_is_named_once_by_blocks_of_offsets(names: list[str], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SAMPLES_PER_BLOCK", size)
        blocks = [*ended_blocks(BrokerId(7), names, ENVELOPE)]
    assert [decode(encode(block)) for block in blocks] == blocks
    assert [name for block in blocks for name in block.ended] == names
    rows = [row for block in blocks for row in columns_of(block).to_pylist()]
    assert [row["group"] for row in rows if row["group_state"] == "Dead"] == names
    assert {row["partition"] for row in rows} == {None}


def test_three_hundred_groups_in_a_hundred_partitions_are_a_few_small_blocks() -> None:
    numbers = range(100)
    group = DescribedGroup("classic", "Stable", 1, "range", {"a": dict.fromkeys(numbers, "client")})
    groups = {f"payments-{number:03}": group for number in range(300)}
    committed = {name: {"a": {number: 7_654_321 + number for number in numbers}} for name in groups}
    positions = {name: {"a": {number: 7_654_399 + number for number in numbers}} for name in POSITIONS}
    answer = CoordinatorAnswer(groups, committed, positions=positions)
    blocks = [*group_offset_blocks(BrokerId(1), answer, IDS, ENVELOPE)]
    assert [len(block) for block in blocks] == [10_000] * 3
    assert sum(len(encode(block)) for block in blocks) / 30_000 < 60
