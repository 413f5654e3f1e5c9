"""The size of a Spark cluster, and the requests to an object store, by Kafka clusters and partitions.

    python -m tests.benchmarks.sizes [--clusters 1 10 100] [--partitions 10000 1000000 7000000]

Computed from what other commands measure (``MEASURED``), and printed as the table of docs/sizing.md. ``--partitions``
are those of all clusters together, which are equally large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.benchmarks._running import options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DAY: Final = 86_400
MEGABYTE: Final = 1_000_000
OFFSETS_SECONDS: Final = 10.0
"""The default of ``collect.offsets_interval``."""
BUSY: Final = 0.5
"""Share of its core that an executor may need for samples at rest; the rest is for reports, changes and a lost one."""
LARGEST_SHARD: Final = 1_000_000
"""Partitions of a Kafka cluster that one core still folds when its brokers fail: one in thirty changes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements that the table is computed from, each with the command that makes it again.

    Attributes:
        state_bytes: of a partition in the Python of its executor (``shards --clusters 50``).
        sample_bytes: of the samples of a partition there (``samples_of_partitions``).
        sample_seconds: processor time of a round of positions, of a partition (``samples_of_partitions``).
        executor_java, executor_python: megabytes of an executor without any partition (docs/large-form.md).
        driver_java, driver_python: the same of the driver with one cluster.
        driver_of_cluster: megabytes of a cluster in the driver (``shards``: 1 and 50 clusters).
        writes, writes_of_cluster: PUT and LIST requests in a day, of the job at rest and of each cluster
            (``requests --clusters 1 4``).
        reads, reads_of_cluster: the same of GET and HEAD requests, with one exporter.
        dollars_of_writes, dollars_of_reads: price of a million requests (Amazon S3 Standard, us-east-1, November 2026).
    """

    state_bytes: float = 3_846
    sample_bytes: float = 1_000
    sample_seconds: float = 10e-6
    executor_java: float = 440
    executor_python: float = 140
    driver_java: float = 710
    driver_python: float = 240
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
        executor_megabytes: of each, Java and Python, while it also has its part of the work of a lost one.
        driver_megabytes: Java and Python.
        offsets_seconds: the least ``collect.offsets_interval`` at which no executor is busy with samples alone.
        writes, reads: requests in a day, at rest.
        dollars: that these requests cost in a day.
    """

    executors: int
    executor_megabytes: float
    driver_megabytes: float
    offsets_seconds: float
    writes: float
    reads: float
    dollars: float


def size_of(clusters: int, partitions: int, measured: Measured = MEASURED) -> Size | None:
    """Return the size for clusters with so many partitions together; None if a cluster is too large for one shard."""
    if partitions / clusters > LARGEST_SHARD:
        return None
    of_executor = BUSY * OFFSETS_SECONDS / measured.sample_seconds
    executors = min(clusters, math.ceil(partitions / of_executor))
    # Whole clusters: the largest share is one cluster more than the mean may be.
    share = math.ceil(clusters / executors) * partitions / clusters
    without_one = math.ceil(clusters / max(executors - 1, 1)) * partitions / clusters
    state = without_one * (measured.state_bytes + measured.sample_bytes) / MEGABYTE
    writes = measured.writes + clusters * measured.writes_of_cluster
    reads = measured.reads + clusters * measured.reads_of_cluster
    return Size(
        executors,
        measured.executor_java + measured.executor_python + state,
        measured.driver_java + measured.driver_python + clusters * measured.driver_of_cluster,
        max(OFFSETS_SECONDS, math.ceil(share * measured.sample_seconds / BUSY)),
        writes,
        reads,
        (writes * measured.dollars_of_writes + reads * measured.dollars_of_reads) / 1e6,
    )
