"""Partitions in blocks and singly."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.blocks import PARTITIONS_PER_BLOCK, PartitionsObserved, in_blocks, with_changes_in_blocks
from streaming.contracts.codec import decode, encode
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import BrokerObserved, Observation, PartitionObserved, SourceKind
from streaming.errors import InvalidObservation
from tests.blocks import singly
from tests.strategies import observations_of

ENVELOPE: dict[str, Any] = {
    "cluster_id": "c", "cluster": "prod", "source": "poll:a", "source_kind": SourceKind.POLL,
    "occurred_not_before": 1, "occurred_not_after": 2, "collected_at": 3, "in_snapshot": True,
}  # fmt: skip


def partition(number: int, topic: str = "orders", **fields: Any) -> PartitionObserved:
    values = {"topic_id": topic, "topic": topic, "replicas": (1, 2), "isr": (1,), "leader": 1, **fields}
    return PartitionObserved(**ENVELOPE, partition=number, **values)


@given(observations_of(PartitionsObserved))
def test_a_block_taken_apart_and_put_together_is_the_same(block: PartitionsObserved) -> None:
    (again,) = in_blocks(block.observations())
    assert list(again.observations()) == [replace(each, sequence=0) for each in block.observations()]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), unique=True).map(sorted))
def test_topics_are_not_mixed_and_nothing_is_lost(keys: list[tuple[str, int]]) -> None:
    seen = [partition(number, topic) for topic, number in keys]
    blocks = list(in_blocks(seen))
    assert [each for block in blocks for each in block.observations()] == seen
    assert [block.topic for block in blocks] == [topic for topic, _ in groupby(topic for topic, _ in keys)]


CHANGE: dict[str, Any] = {
    **ENVELOPE, "source_kind": SourceKind.METADATA_LOG, "in_snapshot": False,
    "replicas": (1, 2), "isr": (1,), "leader": 1, "evidence": Evidence.PROVEN,
}  # fmt: skip


@st.composite
def record_batches(draw: st.DrawFn) -> list[Observation]:
    """What the records of one batch change, a broker's own record among them."""
    drawn = st.tuples(
        st.sampled_from("ab"), st.integers(0, 3), st.sampled_from([Cause.FENCED, Cause.LAG]), st.integers(0, 9)
    )
    seen: list[Observation] = []
    for offset, (topic, number, cause, other) in enumerate(draw(st.lists(drawn, max_size=12)), start=5):
        seen.append(
            PartitionObserved(
                **CHANGE, topic_id=topic, topic=topic, partition=number, cause=cause, metadata_offset=offset,
                candidates=(Cause.LAG,) * (other == 1), elr=(2,) * (other == 2), metadata_index=int(other == 3),
            )
            if other
            else BrokerObserved(**envelope_only(CHANGE), broker=1, metadata_offset=offset)
        )  # fmt: skip
    return seen


def envelope_only(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in fields.items() if name in {each.name for each in dataclass_fields(Observation)}
    }


@given(record_batches())
def test_the_changes_of_a_record_batch_keep_their_order_and_offsets_in_blocks(seen: list[Observation]) -> None:
    gathered = list(with_changes_in_blocks(seen))
    assert list(singly(gathered)) == seen
    assert list(singly(map(decode, map(encode, gathered)))) == seen


def test_changes_of_one_topic_for_one_cause_are_one_block() -> None:
    seen = [
        PartitionObserved(
            **CHANGE, topic_id="a", topic="a", partition=each, cause=Cause.FENCED, metadata_offset=7 + each
        )
        for each in range(12)
    ]
    (block,) = with_changes_in_blocks(seen)
    assert len(encode(block)) * 5 < sum(len(encode(each)) for each in seen)


def test_a_block_of_a_large_topic_stays_small() -> None:
    blocks = list(in_blocks(partition(number) for number in range(PARTITIONS_PER_BLOCK + 1)))
    assert [len(block.partitions) for block in blocks] == [PARTITIONS_PER_BLOCK, 1]


def test_what_no_partition_has_is_not_sent() -> None:
    (plain,) = in_blocks([partition(0), partition(1)])
    (moving,) = in_blocks([partition(0), partition(1, adding_replicas=(3,))])
    assert b"adding" not in encode(plain)
    assert b'"adding_replicas_by_partition":[[],[3]]' in encode(moving)
    assert b"epoch" not in encode(moving)


def test_a_partition_in_a_block_costs_a_fraction_of_one_alone() -> None:
    fields = {"replicas": (101, 102, 103), "isr": (101, 102, 103), "leader_epoch": 17, "partition_epoch": 230}
    seen = [partition(number, topic="payments.settlement.v2", **fields) for number in range(100)]
    (block,) = in_blocks(seen)
    assert len(encode(block)) / 100 <= 60
    assert len(encode(block)) * 5 < sum(len(encode(each)) for each in seen)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"partitions": ()}, "partitions is empty"),
        ({"partitions": (-1, 0)}, "partition is negative: -1"),
        ({"partitions": (1, 0)}, "partitions are not in order"),
        ({"partitions": (1, 1)}, "partitions are not in order"),
        ({"replicas_by_partition": ((1,), ())}, "replicas is empty"),
        ({"replicas_by_partition": ((1,), (2, 2))}, "replicas name a broker twice"),
        ({"isr_by_partition": ((1,),)}, "isr_by_partition has not one value per partition"),
        ({"leader_epoch_by_partition": (1,)}, "leader_epoch_by_partition has not one value per partition"),
        ({"topic": ""}, "topic_id or topic is empty"),
    ],
)
def test_an_impossible_block_is_refused(wrong: dict[str, Any], reason: str) -> None:
    (block,) = in_blocks([partition(0), partition(1)])
    with pytest.raises(InvalidObservation, match=reason):
        replace(block, **wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replicas_by_partition", "[[1,true],[2]]"),
        ("replicas_by_partition", "[[1],2]"),
        ("replicas_by_partition", "[[1],[2147483648]]"),
        ("partitions", "[0,1.0]"),
        ("leader_by_partition", "[0,null]"),
        ("leader_recovering_by_partition", "[true,1]"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_field(name: str, value: str) -> None:
    (block,) = in_blocks([partition(0, leader_recovering=True), partition(1)])
    record = encode(block).decode()
    start = record.index(f'"{name}":') + len(name) + 3
    depth, end = 0, start
    while depth or end == start:
        depth += {"[": 1, "]": -1}.get(record[end], 0)
        end += 1
    with pytest.raises(InvalidObservation, match=f"partitions: {name} is not"):
        decode((record[:start] + value + record[end:]).encode())
