"""The size of a Spark cluster, and the requests to an object store, by Kafka clusters and partitions.

    python -m tests.benchmarks.sizes [--clusters 1 10 100] [--partitions 10000 1000000 7000000] [--measure 0]

Prints the table of docs/sizing.md, which is computed from ``MEASURED``. ``--partitions`` are those of all clusters
together, which are equally large. ``--measure 200000`` first measures what the samples of so many partitions cost.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import encode_frame
from streaming.contracts.observations import Channel
from streaming.jobs.shards.samples import SampleBatch
from tests.benchmarks._cluster import Cluster, open_log
from tests.benchmarks._running import options
from tests.benchmarks.shards import memory
from tests.plugins.logs import rows_of_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OFFSETS_SECONDS: Final = 10.0
"""The default of ``collect.offsets_interval``."""
BUSY: Final = 0.5
"""Share of its core that an executor may take for samples at rest; the rest is for all else, and for a lost one."""
LARGEST_SHARD: Final = 1_000_000
"""Partitions of a Kafka cluster that one core still folds when its brokers fail: one in thirty changes at once."""
OFFSETS_SOURCE: Final = "offsets:bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements that the table is computed from; in brackets what gives them again.

    Attributes:
        state_bytes: of a partition in the Python of its executor (``shards``).
        sample_bytes: of the samples of a partition there (``sizes --measure 200000``).
        sample_seconds: processor time of a round of positions, for each partition (the same).
        executor: megabytes of an executor without any partition, after the loss of others (docs/large-form.md).
        driver: megabytes of the driver with one cluster (the same).
        driver_of_cluster: megabytes of each other cluster in the driver (``shards``).
        writes, writes_of_cluster: PUT and LIST requests per day, of the job, and of each cluster at rest
            (``requests``).
        reads, reads_of_cluster: the same of GET and HEAD requests, with one exporter.
        dollars_of_writes, dollars_of_reads: price of a million of them (Amazon S3 Standard, us-east-1, November 2026).
    """

    state_bytes: float = 3_846
    sample_bytes: float = 3_350
    sample_seconds: float = 11e-6
    executor: float = 440 + 140
    driver: float = 710 + 240
    driver_of_cluster: float = 0.41
    writes: float = 0
    writes_of_cluster: float = 0
    reads: float = 0
    reads_of_cluster: float = 0
    dollars_of_writes: float = 5.00
    dollars_of_reads: float = 0.40


MEASURED: Final = Measured()


class Size(NamedTuple):
    """Size of an installation.

    Attributes:
        executors: with one core each.
        executor: megabytes of each, Java and Python, while it also has its share of the work of a lost one.
        driver: megabytes, Java and Python.
        offsets_seconds: the least ``collect.offsets_interval`` at which samples leave the busiest executor half a core.
        writes, reads: requests per day at rest, with one exporter.
        dollars: price of these requests per day.
    """

    executors: int
    executor: float
    driver: float
    offsets_seconds: float
    writes: float
    reads: float
    dollars: float


def size_of(clusters: int, partitions: int, measured: Measured = MEASURED) -> Size | None:
    """Return the size for clusters with so many partitions together; None if a cluster is too large for one shard."""
    each = partitions / clusters
    if each > LARGEST_SHARD:
        return None
    executors = min(clusters, math.ceil(partitions * measured.sample_seconds / OFFSETS_SECONDS / BUSY))
    busiest, without_one = (math.ceil(clusters / count) * each for count in (executors, max(executors - 1, 1)))
    writes = measured.writes + clusters * measured.writes_of_cluster
    reads = measured.reads + clusters * measured.reads_of_cluster
    return Size(
        executors=executors,
        executor=measured.executor + without_one * (measured.state_bytes + measured.sample_bytes) / 1e6,
        driver=measured.driver + (clusters - 1) * measured.driver_of_cluster,
        offsets_seconds=max(OFFSETS_SECONDS, math.ceil(busiest * measured.sample_seconds / BUSY)),
        writes=writes,
        reads=reads,
        dollars=(writes * measured.dollars_of_writes + reads * measured.dollars_of_reads) / 1e6,
    )


HEAD: Final = (
    "| clusters | partitions | executors | memory of each | of the driver | offsets_interval | PUT, LIST per day | "
    "GET, HEAD per day | dollars per day |"
)
STATE_MEASURED: Final = frozenset({(1, 10_000), (1, 1_000_000), (10, 10_000), (10, 1_000_000), (100, 10_000)})
"""Clusters and partitions with which ``shards`` was run: what they take in executors and driver was measured."""
REQUESTS_MEASURED: Final = frozenset({1})
"""Clusters with which ``requests`` was run."""


def rows(clusters: Sequence[int], partitions: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table, in Markdown; "m" marks what was measured with so many, "c" what is computed."""
    yield HEAD
    yield "|" + "---|" * HEAD.count(" |")
    for some in clusters:
        for count in partitions:
            size = size_of(some, count)
            if size is None:
                yield f"| {some} | {count:,} | a cluster of more than {LARGEST_SHARD:,} does not fit |" + " |" * 6
                continue
            memory_mark, request_mark = ("mc"[kind] for kind in (
                (some, count) not in STATE_MEASURED, some not in REQUESTS_MEASURED
            ))  # fmt: skip
            cells = (
                f"{some}",
                f"{count:,}",
                f"{size.executors} c",
                f"{size.executor / 1000:.1f} GB {memory_mark}",
                f"{size.driver / 1000:.1f} GB {memory_mark}",
                f"{size.offsets_seconds:.0f}s c",
                f"{rounded(size.writes)} {request_mark}",
                f"{rounded(size.reads)} {request_mark}",
                f"{size.dollars:.2f} c",
            )
            yield f"| {' | '.join(cells)} |"


def rounded(number: float) -> str:
    """Write a number with two digits that count."""
    digits = 10 ** max(0, math.floor(math.log10(number)) - 1) if number >= 1 else 1
    return f"{round(number / digits) * digits:,}"


def measure(partitions: int) -> None:
    """Print memory and processor time of rounds in which the positions of all replicas of a cluster move."""
    with tempfile.TemporaryDirectory() as folder:
        bus, before = Path(folder) / "bus", memory()
        log = open_log(bus, Channel.SAMPLES, OFFSETS_SOURCE)
        cluster, batch = Cluster(log, partitions), SampleBatch(Path(folder) / "tables")
        for _ in range(3):
            payloads = (payload for payload, _ in cluster.offsets(OFFSETS_SOURCE, range(partitions)))
            log.append(b"".join(map(encode_frame, payloads)))
            pieces = list(rows_of_log(DirectoryReader(bus), Channel.SAMPLES, OFFSETS_SOURCE))
            began = time.process_time()
            batch.apply(pa.Table.from_batches(pieces))
            seconds = time.process_time() - began
            del pieces
            print(
                f"{partitions:,} partitions: {seconds / partitions * 1e6:.1f} microseconds of CPU, and "
                f"{(memory() - before) / partitions:,.0f} B, per partition",
                flush=True,
            )


def main() -> None:
    chosen = options(__doc__, clusters=[1, 10, 100], partitions=[10_000, 1_000_000, 7_000_000], measure=0)
    if chosen.measure:
        measure(chosen.measure)
    print(*rows(chosen.clusters, chosen.partitions), sep="\n")


if __name__ == "__main__":
    main()
