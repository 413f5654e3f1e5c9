"""Samples in blocks and singly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts import sample_blocks
from streaming.contracts.codec import decode, encode
from streaming.contracts.sample_blocks import BrokerMetricsObserved, BrokerOffsetsObserved, offsets_in_blocks
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.errors import InvalidObservation
from tests.blocks import ENVELOPE, samples_of


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
        ({}, "there are no samples"),
        ({"topic": None}, "topic_by_topic is missing"),
        ({"partition": (0, 1)}, "samples_by_topic do not add up to the samples"),
        ({"topic": ("a", "b")}, "topic_by_topic has not one value per topic"),
        ({"topic": ("",)}, "topic is empty"),
        ({"partition": (-1,)}, "partition is negative"),
        ({"log_start_offset": (-1,)}, "log_start_offset is negative"),
        ({"high_watermark": (1, 2)}, "high_watermark_by_sample has not one value per sample"),
        ({"weather": (1,)}, "broker_offsets has none of {'weather'}"),
    ],
)
def test_a_block_that_cannot_be_is_refused(wrong: dict[str, Sequence[Any] | None], reason: str) -> None:
    right = {"topic_id": ("t",), "topic": ("orders",), "partition": (0,)}
    arrays = {name: values for name, values in (right | wrong).items() if values is not None} if wrong else {}
    with pytest.raises(InvalidObservation, match=reason):
        BrokerOffsetsObserved(**ENVELOPE, broker=1, samples_by_topic=(1,), arrays=arrays)


def test_a_topic_without_samples_is_refused() -> None:
    arrays = {"topic_id": ("t", "u"), "topic": ("t", "u"), "partition": (0,)}
    with pytest.raises(InvalidObservation, match="a topic has no samples"):
        BrokerOffsetsObserved(**ENVELOPE, broker=1, samples_by_topic=(1, 0), arrays=arrays)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"partition_by_sample": [None]}, r"broker_offsets: partition_by_sample is not int\[\]: \[None\]"),
        ({"size_bytes_by_sample": [True]}, r"broker_offsets: size_bytes_by_sample is not long\[\]: \[True\]"),
        ({"log_dir_by_sample": [1]}, r"broker_offsets: log_dir_by_sample is not string\[\]: \[1\]"),
        ({"log_end_offset_by_sample": [2**63]}, "broker_offsets: log_end_offset_by_sample is not long"),
        ({"partition_by_sample": None}, "partition_by_sample is missing"),
    ],
)
def test_a_record_of_a_block_has_the_types_of_its_samples(wrong: dict[str, Any], reason: str) -> None:
    (block,) = offsets_in_blocks([offsets("orders", 0, log_end_offset=4)])
    record = json.loads(encode(block))
    assert decode(json.dumps(record | {"size_bytes_by_sample": [None]}).encode()).arrays["size_bytes"] == (None,)  # type: ignore[attr-defined]
    with pytest.raises(InvalidObservation, match=reason):
        decode(json.dumps(record | wrong).encode())


def test_metrics_without_a_name_or_value_are_refused() -> None:
    with pytest.raises(InvalidObservation, match="metric is empty"):
        BrokerMetricsObserved(**ENVELOPE, broker=1, arrays={"metric": ("",), "metric_value": (1.0,)})
    with pytest.raises(InvalidObservation, match="metric_value_by_sample has not one value per sample"):
        BrokerMetricsObserved(**ENVELOPE, broker=1, arrays={"metric": ("m",), "metric_value": ()})
