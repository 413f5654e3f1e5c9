"""How fast the replication query is, by the number of partitions: small batches of changes, and full snapshots.

    python -m tests.benchmarks.replication [--partitions 10000 100000] [--batches 60]

The job runs in this process as ``isrwatch job`` runs it, on a bus of its own. A batch of 100 changes is known by its
time from the last byte on the bus to the commit that holds it; a snapshot, of which 0.1 % is new, by its observations
a second from the first byte to the commit of the last one, and by the share of its bytes that reaches Python on the
driver: blocks that changed, and what stands for the others. Beside both stand, from the same run, an empty micro-batch
and reading and decoding the same bytes without Spark.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.contracts.codec import decode
from streaming.contracts.observations import Channel, Heartbeat
from streaming.jobs.application import Application
from streaming.jobs.queries import JobLocations
from streaming.jobs.session import build_session
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.runtime.jars import DELTA, jar_paths
from streaming.settings import JobSettings
from tests.benchmarks._cluster import SOURCE, Cluster, open_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from streaming.jobs.queries import BatchResult

CHANGED_IN: Final = 1000
SNAPSHOTS: Final = 5
STAGES: Final = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


class Job:
    """The replication query in this process, and when each of its commits became visible."""

    def __init__(self, spark: SparkSession, places: JobLocations) -> None:
        began = time.perf_counter()
        self.application = Application(JobSettings(queries=("replication",)), places, print)
        self.opened = time.perf_counter() - began
        self.batch: ReplicationBatch = self.application.queries[0].batch  # type: ignore[assignment]
        self.bytes_received = 0
        self._apply, self.batch.apply = self.batch.apply, self._counted  # type: ignore[method-assign]
        self.log = places.tables / "partition_changes" / "_delta_log"
        self.spark = spark
        self.application.start(spark)
        self.thread = Thread(target=self.application.wait)
        self.thread.start()

    def _counted(self, rows: pa.Table) -> BatchResult:
        self.bytes_received += rows.nbytes
        return self._apply(rows)

    def received_since(self, size: int) -> float:
        """Give the share of so many bytes that Python received since it was last asked."""
        received, self.bytes_received = self.bytes_received, 0
        return received / size

    def committed(self, sequence: int) -> float:
        """Wait until an observation is applied; give when its commit became visible."""
        while max((source.sequence for source in self.batch.sources()[0]), default=0) < sequence:
            if not self.thread.is_alive():
                raise SystemExit("the job ended")
            time.sleep(0.002)
        return max(entry.stat().st_mtime for entry in self.log.glob("*.json"))

    def stages(self) -> list[dict[str, int]]:
        """Give the milliseconds of each stage of the newest micro-batches that read something."""
        (query,) = self.spark.streams.active
        return [dict(each.durationMs) for each in query.recentProgress if each.numInputRows]

    def stop(self) -> None:
        self.application.request_stop()
        self.thread.join()


def spread(values: Sequence[float]) -> str:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"p50 {cuts[49] * 1000:5.0f} ms   p95 {cuts[94] * 1000:5.0f} ms   p99 {cuts[98] * 1000:5.0f} ms"


def small_batches(cluster: Cluster, job: Job, count: int, size: int) -> list[float]:
    """Publish batches one after the other, each when the one before is committed and a moment has passed."""
    seconds: list[float] = []
    for turn in range(count + 5):
        numbers = [(turn * size + each) * 7919 % cluster.partitions for each in range(size)]
        records = cluster.changes(numbers) or [cluster.numbered(Heartbeat(**cluster.envelope()))]
        cluster.send(records)
        sent = time.time()
        seconds.append(job.committed(cluster.sequence) - sent)
        time.sleep(0.02 + turn % 7 * 0.01)
    return seconds[5:]  # the first ones wait for what came before


def snapshots(cluster: Cluster, job: Job, count: int, *, with_news: bool = True) -> list[float]:
    """Send whole snapshots; give the seconds of each from its first byte to the commit of its last."""
    seconds: list[float] = []
    for turn in range(count):
        unsent = cluster.changes(range(turn, cluster.partitions if with_news else 0, CHANGED_IN))
        cluster.sequence -= len(unsent)  # the snapshot alone has them
        began = cluster.send_snapshot()
        seconds.append(job.committed(cluster.sequence) - began)
    return seconds


def alone(directory: Path, partitions: int) -> tuple[int, float, float]:
    """Read a snapshot without Spark, then decode it; give the bytes of a partition and the seconds of both."""
    log = open_log(directory, Channel.REPLICATION, SOURCE)
    Cluster(log, partitions).send_snapshot()
    log.close()
    end = DirectoryReader(directory).end_positions(Channel.REPLICATION)[SOURCE]
    began = time.perf_counter()
    frames = list(DirectoryReader(directory).read(Channel.REPLICATION, SOURCE, 0, end))
    read = time.perf_counter()
    for frame in frames:
        if isinstance(frame, BusFrame):
            decode(frame.payload)
    return end // partitions, read - began, time.perf_counter() - read


def measure(spark: SparkSession, directory: Path, partitions: int, batches: int) -> None:
    """Measure one size, and print a table of it."""
    size, read, decoded = alone(directory / "alone", partitions)
    print(f"{partitions:,} partitions, {size} bytes each in a snapshot")
    places = JobLocations(bus=directory / "bus", tables=directory / "tables", checkpoint=directory / "checkpoint")
    log = open_log(places.bus, Channel.REPLICATION, SOURCE)
    cluster, job = Cluster(log, partitions), Job(spark, places)
    (first,) = snapshots(cluster, job, 1)
    print(f"  first snapshot, all of it new   {first:6.2f} s   {partitions / first:9,.0f} observations/s", flush=True)
    empty = small_batches(cluster, job, batches, 0)
    changed = small_batches(cluster, job, batches, 100)
    print(f"  batch of 100 changes            {spread(changed)}")
    print(f"    empty micro-batch             {spread(empty)}")
    print(f"    ratio of the medians          {statistics.median(changed) / statistics.median(empty):.2f}x")
    print(f"  milliseconds of its stages      {stage_times(job.stages()[-batches // 2 :])}", flush=True)
    snapshots(cluster, job, 1)  # what the batches changed is new in it
    job.received_since(1)
    best, received = min(snapshots(cluster, job, SNAPSHOTS)), job.received_since(size * partitions * SNAPSHOTS)
    snapshots(cluster, job, 1, with_news=False)
    nothing_new = job.received_since(size * partitions)
    print(f"  snapshot, 0.1 % of it new       {best:6.2f} s   {partitions / best:9,.0f} observations/s")
    print(
        f"    the same read without Spark   {read:6.2f} s, and decoded {decoded:.2f} s: {best / (read + decoded):.2f}x"
    )
    print(f"    of its bytes reach Python on the driver {received:.2%}; of a snapshot without news {nothing_new:.2%}")
    print(f"  the same of a snapshot's        {stage_times(job.stages()[-SNAPSHOTS:])}", flush=True)
    job.stop()
    again = Job(spark, places)
    again.stop()
    log.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  start on these tables           {again.opened:6.2f} s   peak memory of the process {peak:,.0f} MB",
        flush=True,
    )


def stage_times(stages: Sequence[dict[str, int]]) -> str:
    return ", ".join(f"{name} {statistics.median(each.get(name, 0) for each in stages):.0f}" for name in STAGES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--batches", type=int, default=60)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        spark = build_session("replication-benchmark", jars=jar_paths(DELTA, progress=lambda _: None))
        stack.callback(spark.stop)
        for partitions in arguments.partitions:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            measure(spark, directory, partitions, arguments.batches)


if __name__ == "__main__":
    main()
