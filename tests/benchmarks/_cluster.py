"""A cluster of many partitions for the benchmarks, and what a metadata-log source would send about it."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from streaming.bus.frames import encode_frame
from streaming.bus.log import WritableLog
from streaming.bus.segments import folder_of
from streaming.contracts.blocks import in_blocks, with_changes_in_blocks
from streaming.contracts.codec import encode
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import (
    BrokerObserved,
    Channel,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
)
from streaming.contracts.sample_blocks import SAMPLES_PER_BLOCK, BrokerOffsetsObserved

SOURCE: Final = "metadata_log:bench"
CLUSTER: Final = "bench"
CLUSTER_ID: Final = "qHjCkR0xQyCbX0mYz3Yk3A"
# Topics have 1 to 100 partitions, 12 on average; the seed is fixed, so that two runs measure the same cluster.
LARGEST_TOPIC, MEAN_ABOVE_ONE, SEED = 100, 11.0, 1
SEGMENT_BYTES: Final = 64 << 20


def open_log(bus: Path, channel: Channel, source: str) -> WritableLog:
    """Begin the log of a source; what it says need not outlive the machine."""
    return WritableLog(bus / channel / folder_of(source), SEGMENT_BYTES, fsync=False)


class Topics:
    """Partitions, numbered through, cut into topics; ``firsts`` are the numbers of their first partitions."""

    def __init__(self, partitions: int) -> None:
        sizes, self.firsts = random.Random(SEED), [0]
        while (
            end := self.firsts[-1] + min(LARGEST_TOPIC, 1 + int(sizes.expovariate(1 / MEAN_ABOVE_ONE)))
        ) < partitions:
            self.firsts.append(end)

    def of(self, number: int) -> int:
        """Number the topic of a partition."""
        return bisect_right(self.firsts, number) - 1


@dataclass
class Cluster:
    """A cluster of many partitions, and the log with the records of it.

    Attributes:
        brokers: how many there are; the replicas of a partition are spread over them.
        away: the broker that is in no ISR after an odd number of changes of a partition; None: its last replica.
        clock: the time of what is reported, in microseconds.
    """

    log: WritableLog
    partitions: int
    brokers: int = 30
    away: int | None = None
    clock: Callable[[], int] = field(default=lambda: time.time_ns() // 1000)
    sequence: int = 0
    offset: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    topics: Topics = field(init=False)

    def __post_init__(self) -> None:
        """Cut the partitions into topics."""
        self.topics = Topics(self.partitions)

    def numbers_of(self, topic: int) -> range:
        end = self.topics.firsts[topic + 1] if topic + 1 < len(self.topics.firsts) else self.partitions
        return range(self.topics.firsts[topic], end)

    def envelope(self) -> dict[str, Any]:
        now = self.clock()
        return {
            "cluster_id": CLUSTER_ID,
            "cluster": CLUSTER,
            "source": SOURCE,
            "source_kind": SourceKind.METADATA_LOG,
            "occurred_not_before": now,
            "occurred_not_after": now,
            "collected_at": now,
            "metadata_offset": self.offset,
        }

    def partition(self, number: int, envelope: dict[str, Any], **fields: Any) -> PartitionObserved:
        topic, epoch = self.topics.of(number), self.epochs.get(number, 0)
        place = number - self.topics.firsts[topic]
        replicas = tuple((number + each) % self.brokers for each in range(3))
        absent = (replicas[-1] if self.away is None else self.away) if epoch % 2 else None
        isr = tuple(broker for broker in replicas if broker != absent)
        return PartitionObserved(
            **envelope, topic_id=f"{topic:022d}", topic=f"orders-{topic:06d}", partition=place, replicas=replicas,
            isr=isr, leader=isr[0], leader_epoch=epoch if replicas[0] == self.away else 0, partition_epoch=epoch,
            **fields,
        )  # fmt: skip

    def send(self, payloads: Iterable[bytes]) -> None:
        self.log.append(b"".join(map(encode_frame, payloads)))

    def numbered(self, observed: Observation) -> bytes:
        """Encode with the next number, without making a second object of it."""
        self.sequence += 1
        return encode(observed).replace(b'"sequence":0', b'"sequence":%d' % self.sequence, 1)

    def hosted_by(self, broker: int) -> list[int]:
        """Number the partitions that have a replica on a broker."""
        return [each for each in range(self.partitions) if (broker - each) % self.brokers < 3]

    def changes(self, numbers: Iterable[int], cause: tuple[Cause, Cause] = (Cause.LAG, Cause.EXPAND)) -> list[bytes]:
        """Let the ISR of some partitions shrink or grow, for these causes, by one record batch."""
        envelope, steps = self.envelope(), []
        for number in numbers:
            self.offset += 1
            self.epochs[number] = self.epochs.get(number, 0) + 1
            at = {**envelope, "metadata_offset": self.offset}
            why = cause[1 - self.epochs[number] % 2]
            steps.append(self.partition(number, at, cause=why, evidence=Evidence.PROVEN))
        return [self.numbered(observed) for observed in with_changes_in_blocks(steps)]

    def snapshot(self) -> list[bytes]:
        """Give a full report."""
        self.offset += 1
        envelope, name = self.envelope(), f"snapshot-{self.offset}"
        inside = {**envelope, "in_snapshot": True}
        topics = range(len(self.topics.firsts))
        brokers = tuple(range(self.brokers))
        counts = tuple(len(self.numbers_of(topic)) for topic in topics)
        ids = tuple(f"{topic:022d}" for topic in topics)
        begin = SnapshotBegin(**envelope, snapshot_id=name, reason=SnapshotReason.PERIODIC)
        end = SnapshotEnd(**envelope, snapshot_id=name, topic_ids=ids, partition_counts=counts, brokers=brokers)
        records = [self.numbered(begin)]
        records += [self.numbered(BrokerObserved(**inside, broker=broker, fenced=False)) for broker in brokers]
        for topic in topics:
            blocks = in_blocks(self.partition(number, inside) for number in self.numbers_of(topic))
            records += map(self.numbered, blocks)
        return [*records, self.numbered(end)]

    def offsets(self, source: str, numbers: Container[int], sequence: int = 0) -> Iterator[tuple[bytes, int]]:
        """Yield blocks with the positions of all replicas of some partitions, which have moved, and their lengths."""
        firsts, now = self.topics.firsts, self.clock()
        for broker in range(self.brokers):
            hosted = [number for number in self.hosted_by(broker) if number in numbers]
            for start in range(0, len(hosted), SAMPLES_PER_BLOCK):
                some, sequence = hosted[start : start + SAMPLES_PER_BLOCK], sequence + 1
                counts, ends = Counter(map(self.topics.of, some)), tuple(now // 1000 + number for number in some)
                block = BrokerOffsetsObserved(
                    cluster_id=CLUSTER_ID, cluster=CLUSTER, source=source, source_kind=SourceKind.NONE,
                    sequence=sequence, occurred_not_before=now, occurred_not_after=now, collected_at=now,
                    broker=broker, samples_by_topic=tuple(counts.values()),
                    arrays={
                        "topic_id": tuple(f"{topic:022d}" for topic in counts),
                        "topic": tuple(f"orders-{topic:06d}" for topic in counts),
                        "partition": tuple(number - firsts[self.topics.of(number)] for number in some),
                        "log_start_offset": (1,) * len(some), "last_stable_offset": ends, "high_watermark": ends,
                        "log_end_offset": ends, "leader_log_end_offset": tuple(end + 5 for end in ends),
                    },
                )  # fmt: skip
                yield encode(block), len(some)

    def send_snapshot(self) -> float:
        """Write a snapshot; give the moment of its first byte."""
        framed = list(map(encode_frame, self.snapshot()))
        pieces = [b"".join(framed[start : start + 10_000]) for start in range(0, len(framed), 10_000)]
        began = time.time()
        for piece in pieces:
            self.log.append(piece)
        return began
