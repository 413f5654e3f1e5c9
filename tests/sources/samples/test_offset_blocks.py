"""Log positions in blocks are those that were reported, whatever is missing of some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.identifiers import BrokerId, TopicId
from streaming.contracts.sample_blocks import SAMPLES_PER_BLOCK
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.sources.samples.offsets import offset_blocks
from tests.blocks import ENVELOPE, singly

FIELDS = ("log_start_offset", "high_watermark", "log_end_offset", "leader_log_end_offset", "size_bytes")
IDS = {"a": TopicId("id-a"), "b": TopicId("id-b")}

by_partition = st.dictionaries(
    st.sampled_from(["a", "b", "gone"]), st.dictionaries(st.integers(0, 6), st.integers(0, 99), max_size=5), max_size=3
)


@given(st.dictionaries(st.sampled_from(FIELDS), by_partition))
def test_every_replica_is_in_one_block_with_what_was_reported_of_it(
    fields: dict[str, dict[str, dict[int, int]]],
) -> None:
    samples = [*singly([*offset_blocks(BrokerId(7), fields, IDS, ENVELOPE)])]
    positions = ("log_start_offset", "high_watermark", "log_end_offset")
    expected = {
        (topic, number): values
        for topic in IDS
        for number in range(7)
        for values in [{name: by_topic.get(topic, {}).get(number) for name, by_topic in fields.items()}]
        if any(values.get(name) is not None for name in positions)
    }
    assert len(samples) == len(expected)
    for sample in samples:
        assert isinstance(sample, ReplicaOffsetsObserved)
        assert sample.topic_id == IDS[sample.topic]
        assert sample.broker == BrokerId(7)
        reported = expected[sample.topic, sample.partition]
        assert {name: getattr(sample, name) for name in fields} == reported


def test_a_large_broker_is_cut_into_blocks() -> None:
    count = SAMPLES_PER_BLOCK + 1
    blocks = [*offset_blocks(BrokerId(1), {"log_end_offset": {"a": dict.fromkeys(range(count), 4)}}, IDS, ENVELOPE)]
    assert [len(block) for block in blocks] == [SAMPLES_PER_BLOCK, 1]
