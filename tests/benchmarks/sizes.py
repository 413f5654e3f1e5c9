"""The size of a Spark cluster, and the requests to an object store, by Kafka clusters and partitions.

    python -m tests.benchmarks.sizes [--clusters 1 10 100] [--partitions 10000 1000000] [--measure 0]

Prints the table of docs/sizing.md, which is computed from ``MEASURED``. ``--partitions`` are those of all clusters
together, which are equally large. ``--measure 200000`` first measures what the samples of so many partitions cost.
"""

from __future__ import annotations

import math
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import encode_frame
from streaming.contracts.observations import Channel
from streaming.delta.changes.reader import SECONDS_BETWEEN_LOOKS
from streaming.delta.store.announced import SECONDS_BETWEEN_GETS
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
"""Partitions of a Kafka cluster that one core folds: when one of 100 brokers fails, 30,000 change, 5 s of work."""
OFFSETS_SOURCE: Final = "offsets:bench"


class Measurement(NamedTuple):
    """A measurement, and how it was made: ``source`` is the command that makes it again, or a page."""

    value: float
    what: str
    source: str


STATE: Final = Measurement(3_846, "bytes of a partition in an executor, changes", "shards --clusters 50")
SAMPLES: Final = Measurement(5_050, "bytes of a partition in an executor, samples, at most", "sizes --measure 200000")
ROUND: Final = Measurement(12, "microseconds of CPU of a round of positions, per partition", "sizes --measure 200000")
EXECUTOR: Final = Measurement(
    580, "MB of an executor without partitions, after the loss of others", "docs/large-form.md"
)
DRIVER: Final = Measurement(950, "MB of the driver with one cluster", "docs/large-form.md")
OF_CLUSTER: Final = Measurement(0.41, "MB of each other cluster in the driver", "shards --clusters 1 50")
FILES_PUT: Final = Measurement(80_350, "PUT of data files per day, one cluster at rest", "requests --clusters 1")
FILES_READ: Final = Measurement(
    80_350, "GET of data files per day, the same with one exporter", "requests --clusters 1"
)
OTHER_WRITES: Final = Measurement(148_600, "other PUT and LIST per day, the same", "requests --clusters 1")
OTHER_READS: Final = Measurement(561_200, "other GET and HEAD per day, the same", "requests --clusters 1")
MEASURED: Final = (
    STATE, SAMPLES, ROUND, EXECUTOR, DRIVER, OF_CLUSTER, FILES_PUT, FILES_READ, OTHER_WRITES, OTHER_READS
)  # fmt: skip
AS_MANY_COMMITS: Final = 18
"""Commits are this many times those of one cluster at most: each of 18 tables once a second, where one makes 1.0."""
LOOKS: Final = 86_400 / SECONDS_BETWEEN_LOOKS + 86_400 / SECONDS_BETWEEN_GETS
"""Requests per day of an exporter that finds nothing, however many clusters there are; some of ``OTHER_READS``."""
DOLLARS_OF_WRITES, DOLLARS_OF_READS = 5.00, 0.40
"""Prices of a million requests: Amazon S3 Standard, us-east-1, November 2026."""


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


def size_of(clusters: int, partitions: int) -> Size | None:
    """Return the size for clusters with so many partitions together; None if a cluster is too large for one shard."""
    each = partitions / clusters
    if each > LARGEST_SHARD:
        return None
    round_seconds = ROUND.value / 1e6
    executors = min(clusters, math.ceil(partitions * round_seconds / OFFSETS_SECONDS / BUSY))
    busiest, without_one = (math.ceil(clusters / count) * each for count in (executors, max(executors - 1, 1)))
    commits = min(clusters, AS_MANY_COMMITS)
    writes = clusters * FILES_PUT.value + commits * OTHER_WRITES.value
    reads = clusters * FILES_READ.value + LOOKS + commits * (OTHER_READS.value - LOOKS)
    return Size(
        executors=executors,
        executor=EXECUTOR.value + without_one * (STATE.value + SAMPLES.value) / 1e6,
        driver=DRIVER.value + (clusters - 1) * OF_CLUSTER.value,
        offsets_seconds=max(OFFSETS_SECONDS, math.ceil(busiest * round_seconds / BUSY)),
        writes=writes,
        reads=reads,
        dollars=(writes * DOLLARS_OF_WRITES + reads * DOLLARS_OF_READS) / 1e6,
    )


HEAD: Final = (
    "| clusters | partitions | executors | memory of each | of the driver | offsets_interval | PUT, LIST per day | "
    "GET, HEAD per day | dollars per day |"
)
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
            mark = "m" if some in REQUESTS_MEASURED else "c"
            cells = (
                f"{some}",
                f"{count:,}",
                f"{size.executors} c",
                gigabytes(size.executor),
                gigabytes(size.driver),
                f"{size.offsets_seconds:.0f}s c",
                f"{rounded(size.writes)} {mark}",
                f"{rounded(size.reads)} {mark}",
                f"{size.dollars:.2f} c",
            )
            yield f"| {' | '.join(cells)} |"


def measurements() -> Iterator[str]:
    """Yield the lines of the table of what the other one is computed from."""
    yield "| measured | value | by |"
    yield "|---|---|---|"
    yield from (f"| {each.what} | {each.value:,.10g} | `{each.source}` |" for each in MEASURED)


def gigabytes(megabytes: float) -> str:
    """Write a computed size, rounded up."""
    return f"{math.ceil(megabytes / 100) / 10:.1f} GB c"


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
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
            print(
                f"{partitions:,} partitions: {seconds / partitions * 1e6:.1f} microseconds of CPU, and "
                f"{(memory() - before) / partitions:,.0f} B, {most / partitions:,.0f} B at most, per partition",
                flush=True,
            )


def main() -> None:
    chosen = options(__doc__, clusters=[1, 10, 100], partitions=[10_000, 1_000_000], measure=0)
    if chosen.measure:
        measure(chosen.measure)
    print(*rows(chosen.clusters, chosen.partitions), "", *measurements(), sep="\n")


if __name__ == "__main__":
    main()
