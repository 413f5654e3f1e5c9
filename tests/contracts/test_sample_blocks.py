"""Samples in blocks and singly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts import sample_blocks
from streaming.contracts.codec import decode, encode
from streaming.contracts.observations import SourceKind
from streaming.contracts.sample_blocks import BrokerMetricsObserved, BrokerOffsetsObserved, offsets_in_blocks
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.errors import InvalidObservation
from tests.blocks import samples_of

if TYPE_CHECKING:
    from collections.abc import Sequence

ENVELOPE: dict[str, Any] = {
    "cluster_id": "c", "cluster": "prod", "source": "poll:a", "authority": SourceKind.NONE,
    "occurred_not_before": 1, "occurred_not_after": 2, "collected_at": 3,
}  # fmt: skip


def offsets(topic: str, partition: int, broker: int = 1, **fields: Any) -> ReplicaOffsetsObserved:
    identity = {"topic_id": topic, "topic": topic, "partition": partition, "broker": broker}
    return ReplicaOffsetsObserved(**ENVELOPE, **identity, **fields)


@st.composite
def rounds(draw: st.DrawFn) -> list[ReplicaOffsetsObserved]:
    """What some brokers report at one moment; each replica once."""
    keys = st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(1, 3))
    names = ("log_start_offset", "high_watermark", "log_end_offset")
    return [
        offsets(topic, partition, broker, **{name: draw(st.none() | st.integers(0, 9)) for name in names})
        for topic, partition, broker in draw(st.lists(keys, unique=True, max_size=15))
    ]


def key(sample: Any) -> tuple[Any, ...]:
    return sample.broker, sample.topic_id, sample.partition


@given(rounds(), st.integers(1, 4))
def test_no_sample_is_lost_or_changed_in_blocks(seen: list[ReplicaOffsetsObserved], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_blocks, "SAMPLES_PER_BLOCK", size)
        blocks = list(offsets_in_blocks(seen))

    assert all(len(block) <= size for block in blocks)
    assert sorted((each for block in blocks for each in samples_of(block)), key=key) == sorted(seen, key=key)
    assert [decode(encode(block)) for block in blocks] == blocks


def test_a_sample_in_a_block_costs_a_fraction_of_one_alone() -> None:
    numbers = {"log_start_offset": 12_345, "last_stable_offset": 7_654_321, "high_watermark": 7_654_321}
    seen = [offsets(f"payments.{topic:04d}", partition, **numbers) for topic in range(83) for partition in range(12)]
    (block,) = offsets_in_blocks(seen)

    assert len(encode(block)) / len(seen) <= 40
    assert len(encode(block)) * 10 < sum(len(encode(each)) for each in seen)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"replica_counts": (2,)}, "partition_by_sample has not one value per sample"),
        ({"replica_counts": (0,)}, "a topic has no samples"),
        ({"topic_ids": (), "topics": (), "replica_counts": ()}, "there are no samples"),
        ({"topics": ("a", "b")}, "topics differ in length"),
        ({"topics": ("",)}, "topic_id or topic is empty"),
        ({"log_start_offset_by_sample": (-1,)}, "log_start_offset is negative"),
        ({"high_watermark_by_sample": (1, 2)}, "high_watermark_by_sample has not one value per sample"),
    ],
)
def test_a_block_that_cannot_be_is_refused(wrong: dict[str, Sequence[Any]], reason: str) -> None:
    right = {"topic_ids": ("t",), "topics": ("orders",), "replica_counts": (1,), "partition_by_sample": (0,)}
    with pytest.raises(InvalidObservation, match=reason):
        BrokerOffsetsObserved(**ENVELOPE, broker=1, **{**right, **wrong})


def test_metrics_without_a_name_or_value_are_refused() -> None:
    with pytest.raises(InvalidObservation, match="metric is empty"):
        BrokerMetricsObserved(**ENVELOPE, broker=1, metric_by_sample=("",), metric_value_by_sample=(1.0,))
    with pytest.raises(InvalidObservation, match="metric_value_by_sample has not one value per sample"):
        BrokerMetricsObserved(**ENVELOPE, broker=1, metric_by_sample=("m",), metric_value_by_sample=())
