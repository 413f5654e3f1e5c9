"""How long the positions of many replicas take from the bus to ``replica_offsets``, through the real Spark query.

    python -m tests.benchmarks.offsets [--replicas 100000 1000000]

Topics have 1 to 100 partitions. Two rounds: into an empty table, and again with every replica moved. Beside them what
a micro-batch of one sample costs, and what reading and decoding the same bytes costs alone, without Spark; and where
the time of a round goes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import encode_frame
from streaming.bus.segments import folder_of, segment_name
from streaming.contracts.codec import encode
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.sample_blocks import SAMPLES_PER_BLOCK, BrokerOffsetsObserved
from streaming.jobs.application import QUERIES
from streaming.jobs.queries import JobLocations, QueryRun
from streaming.jobs.session import build_session
from streaming.jobs.shards import samples
from streaming.jobs.shards.samples import SampleBatch, read_samples
from streaming.jobs.streams import bus_source
from streaming.jobs.streams.bus_source import arrow_batches
from streaming.settings import JobSettings
from tests.benchmarks._cluster import SEGMENT_BYTES, Topics
from tests.benchmarks._processes import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

SOURCE: Final = "offsets:bench"
BROKERS: Final = 30
REPLICAS_OF_A_PARTITION: Final = 3
PATIENCE_SECONDS: Final = 600.0
MOMENT: Final = 1_700_000_000_000_000


def payloads(replicas: int, moment: int) -> Iterator[bytes]:
    """What a collector writes of that many replicas, each of which has moved since the last moment: blocks."""
    topics = Topics(-(-replicas // REPLICAS_OF_A_PARTITION))
    hosted: list[list[int]] = [[] for _ in range(BROKERS)]
    for number in range(replicas):
        partition, replica = divmod(number, REPLICAS_OF_A_PARTITION)
        hosted[(partition + replica) % BROKERS].append(partition)
    sequence = 0
    for broker, partitions in enumerate(hosted):
        for start in range(0, len(partitions), SAMPLES_PER_BLOCK):
            sequence += 1
            yield encode(block(topics, broker, partitions[start : start + SAMPLES_PER_BLOCK], moment, sequence))


def block(topics: Topics, broker: int, partitions: Sequence[int], moment: int, sequence: int) -> BrokerOffsetsObserved:
    counts = Counter(map(topics.of, partitions))
    ends = tuple(moment // 1000 + partition for partition in partitions)
    return BrokerOffsetsObserved(
        cluster_id="MkU3OEVBNTcwNTJENDM2Qk", cluster="bench", source=SOURCE, source_kind=SourceKind.NONE,
        sequence=sequence, occurred_not_before=moment, occurred_not_after=moment, collected_at=moment, broker=broker,
        samples_by_topic=tuple(counts.values()),
        arrays={
            "topic_id": tuple(f"AAAAAAAAAAAAAAAA{topic:06d}" for topic in counts),
            "topic": tuple(f"orders-{topic:06d}" for topic in counts),
            "partition": tuple(partition - topics.firsts[topics.of(partition)] for partition in partitions),
            "log_start_offset": (1,) * len(partitions), "last_stable_offset": ends,
            "high_watermark": ends, "log_end_offset": ends, "leader_log_end_offset": tuple(end + 5 for end in ends),
        },
    )  # fmt: skip


class Bus:
    """A log that grows by whole segments, each there at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.folder = directory / Channel.SAMPLES / folder_of(SOURCE)
        self.folder.mkdir(parents=True)
        self.end = 0
        self.last = -1

    def segments(self, values: Iterator[bytes]) -> list[tuple[Path, bytes]]:
        """Frame payloads; nothing is visible yet."""
        made: list[tuple[Path, bytes]] = []
        frames: list[bytes] = []
        size = 0
        for value in values:
            frames.append(encode_frame(value))
            self.last = self.end + size
            size += len(frames[-1])
            if size >= SEGMENT_BYTES:
                made.append((self.folder / segment_name(self.end, 1), b"".join(frames)))
                self.end, frames, size = self.end + size, [], 0
        made.append((self.folder / segment_name(self.end, 1), b"".join(frames)))
        self.end += size
        return made

    def publish(self, segments: Sequence[tuple[Path, bytes]]) -> None:
        """Make segments visible."""
        for path, data in segments:
            hidden = path.with_suffix(".new")
            hidden.write_bytes(data)
            hidden.rename(path)


class Timed(SampleBatch):
    """Says what its batches cost."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.batches = 0
        self.applying = 0.0
        self.decoding = 0.0
        self.settled = -1

    def apply(self, rows: pa.Table) -> Any:
        began = time.perf_counter()
        with timed_reading(self):
            applied = super().apply(rows)
        self.batches += 1
        self.applying += time.perf_counter() - began
        self.settled = self.at(SOURCE).position
        return applied


@contextmanager
def timed_reading(timed: Timed) -> Iterator[None]:
    """Time the reading of payloads within a batch."""

    def reading(rows: pa.Table) -> Any:
        began = time.perf_counter()
        try:
            return read_samples(rows)
        finally:
            timed.decoding += time.perf_counter() - began

    samples.read_samples = reading
    try:
        yield
    finally:
        samples.read_samples = read_samples


def cpu_of_all() -> float:
    """Give what this process and all below it have used: the JVM and its Python workers, too."""
    return cpu_seconds(os.getpid()).total()


def wait_for(batch: Timed, position: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while batch.settled < position:
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE_SECONDS:g} s in vain for position {position}")
        time.sleep(0.005)


def one_round(bus: Bus, batch: Timed, values: Iterator[bytes], what: str) -> float:
    """Publish, wait until it is committed, and say where the time went."""
    segments = bus.segments(values)
    batch.batches, batch.applying, batch.decoding = 0, 0.0, 0.0
    began, used = time.perf_counter(), cpu_of_all()
    bus.publish(segments)
    wait_for(batch, bus.last)
    seconds, used = time.perf_counter() - began, cpu_of_all() - used
    merging, around = batch.applying - batch.decoding, seconds - batch.applying
    print(
        f"  {what:20}{seconds:6.2f} s = {batch.decoding:5.2f} decoding + {merging:5.2f} merging and writing "
        f"+ {around:5.2f} Spark and the bus; {batch.batches} batches, {used:.1f} s of CPU",
        flush=True,
    )
    return seconds


def alone(bus: Bus) -> float:
    """Read and decode everything on the bus in this process, without Spark and without a table."""
    began = time.perf_counter()
    items = DirectoryReader(bus.directory).read(Channel.SAMPLES, SOURCE, 0, bus.end)
    rows = pa.Table.from_batches(arrow_batches(SOURCE, items))
    samples = read_samples(rows)
    seconds = time.perf_counter() - began
    assert not samples.refused
    return seconds


def measure(spark: SparkSession, replicas: int, directory: Path) -> None:
    print(f"{replicas:,} replicas", flush=True)
    places = JobLocations(bus=directory / "bus", tables=directory / "tables", checkpoint=directory / "checkpoint")
    bus, batch = Bus(places.bus), Timed(places.tables)
    rows = QUERIES["samples"].stream(spark, places, JobSettings(), None)
    run = QueryRun("samples", rows, batch, lambda *_: None, checkpoint=places.checkpoint, trigger_seconds=0.0)
    for number in range(5):  # the JVM of a fresh query compiles its hot code
        one = one_sample(bus, batch, MOMENT + number)
    first = one_round(bus, batch, payloads(replicas, MOMENT + 1_000_000), "first round")
    again = one_round(bus, batch, payloads(replicas, MOMENT + 2_000_000), "every replica moved")
    run.stop()
    used = cpu_of_all()
    lone = alone(bus) / 2
    used = (cpu_of_all() - used) / 2
    print(f"  one sample {one * 1000:.0f} ms; reading and decoding alone {lone:.2f} s a round, {used:.1f} s of CPU")
    print(
        f"  a round is {again / one:.0f} x a batch of one sample, {first / lone:.1f} to {again / lone:.1f} x decoding"
    )


def one_sample(bus: Bus, batch: Timed, moment: int) -> float:
    segments = bus.segments(payloads(1, moment))
    began = time.perf_counter()
    bus.publish(segments)
    wait_for(batch, bus.last)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[100_000, 1_000_000])
    arguments = parser.parse_args()
    spark = build_session("offsets benchmark")
    bus_source.register(spark)
    for replicas in arguments.replicas:
        with tempfile.TemporaryDirectory() as directory:
            measure(spark, replicas, Path(directory))
    spark.stop()


if __name__ == "__main__":
    main()
