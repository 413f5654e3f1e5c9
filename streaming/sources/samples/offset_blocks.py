"""Log positions of one broker's replicas, field by field, as blocks. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from streaming.contracts.sample_blocks import SAMPLES_PER_BLOCK, BrokerOffsetsObserved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.contracts.identifiers import BrokerId, TopicId

    ByPartition = Mapping[str, Mapping[int, Any]]
    """By topic and partition."""


def offset_blocks(
    broker: BrokerId, fields: Mapping[str, ByPartition], topic_ids: Mapping[str, TopicId], envelope: Mapping[str, Any]
) -> Iterator[BrokerOffsetsObserved]:
    """Gather what is reported into blocks: one per set of fields that a replica has, as most have the same.

    Args:
        broker: holds the replicas.
        fields: by field of a sample its values; a replica of which nothing but its place is reported is left out.
        topic_ids: by topic; what is of another topic is left out.
        envelope: the fields that all observations share.
    """
    replicas = sorted(
        (reported, topic_ids[topic], topic, number)
        for topic in {topic for by_topic in fields.values() for topic in by_topic} & topic_ids.keys()
        for reported, number in _reported(topic, fields)
    )
    for reported, same in groupby(replicas, lambda each: each[0]):
        gathered = [each[1:] for each in same]
        for start in range(0, len(gathered), SAMPLES_PER_BLOCK):
            yield _block(broker, reported, gathered[start : start + SAMPLES_PER_BLOCK], fields, envelope)


def _reported(topic: str, fields: Mapping[str, ByPartition]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Give the partitions of a topic that have a log end or start, with the fields that are reported of each."""
    of_topic = {name: by_topic[topic] for name, by_topic in fields.items() if topic in by_topic}
    places = [of_topic[name] for name in ("log_end_offset", "log_start_offset", "high_watermark") if name in of_topic]
    if not places:
        return
    numbers = set[int]().union(*places)
    everywhere = tuple(name for name, values in of_topic.items() if numbers <= values.keys())
    if len(everywhere) == len(of_topic):
        yield from ((everywhere, number) for number in numbers)
        return
    for number in numbers:
        yield tuple(name for name, values in of_topic.items() if number in values), number


def _block(
    broker: BrokerId,
    reported: tuple[str, ...],
    replicas: list[tuple[TopicId, str, int]],
    fields: Mapping[str, ByPartition],
    envelope: Mapping[str, Any],
) -> BrokerOffsetsObserved:
    topics = [(key, sum(1 for _ in same)) for key, same in groupby(replicas, lambda each: each[:2])]
    arrays: dict[str, Any] = {
        f"{name}_by_sample": tuple([by_topic[topic][number] for _, topic, number in replicas])
        for name in reported
        for by_topic in [fields[name]]
    }
    return BrokerOffsetsObserved(
        **envelope,
        broker=broker,
        topic_ids=tuple(topic_id for (topic_id, _), _ in topics),
        topics=tuple(topic for (_, topic), _ in topics),
        replica_counts=tuple(count for _, count in topics),
        partition_by_sample=tuple(number for _, _, number in replicas),
        **arrays,
    )
