"""What a quiet cluster costs: CPU and memory of job and exporter, beside an idle Spark session with as many queries.

    python -m tests.benchmarks.idle [--partitions 10000] [--seconds 120]

Nothing changes; heartbeats come as often as a collector sends them, and the positions of 30 % of the replicas move
every ten seconds. Prometheus scrapes every 15 seconds. What is measured begins two and a half minutes after the first
full report.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from streaming.bus.frames import encode_frame
from streaming.contracts.observations import Channel, Heartbeat
from streaming.jobs.application import QUERIES
from streaming.sources.metadata_log.image import HEARTBEAT_MICROS
from tests.benchmarks._cluster import SOURCE, Cluster, open_log
from tests.benchmarks._processes import cpu_seconds, memory
from tests.benchmarks._running import installation, options
from tests.plugins.pipeline import Pipeline, Program

OFFSETS_SOURCE: Final = "offsets:bench"
SETTLING_SECONDS: Final = 150.0  # Spark's planners end after two minutes
BESIDE: Final = """
import sys, tempfile, time
from streaming.jobs.session import build_session
spark = build_session("idle")
for number in range(int(sys.argv[1])):
    rows = spark.readStream.text(tempfile.mkdtemp())
    writer = rows.writeStream.foreachBatch(lambda frame, _: frame.toArrow())
    writer.option("checkpointLocation", tempfile.mkdtemp()).trigger(processingTime="500 milliseconds").start()
print("running", flush=True)
time.sleep(3600)
"""


def every(seconds: float, stopped: threading.Event, do: Callable[[], None]) -> None:
    """Do something at a fixed rate until it is stopped, in a thread."""

    def run() -> None:
        due = time.monotonic()
        while not stopped.wait(max(due - time.monotonic(), 0)):
            do()
            due += seconds

    threading.Thread(target=run, daemon=True).start()


class Traffic:
    """What a quiet cluster of many partitions sends."""

    def __init__(self, pipeline: Pipeline, partitions: int) -> None:
        logs = ((Channel.REPLICATION, SOURCE), (Channel.SAMPLES, OFFSETS_SOURCE))
        self.replication, self.offsets = (open_log(pipeline.bus, channel, source) for channel, source in logs)
        self.cluster = Cluster(self.replication, partitions)
        self.rounds = 0

    def beat(self) -> None:
        self.cluster.send([self.cluster.numbered(Heartbeat(**self.cluster.envelope()))])

    def move(self) -> None:
        """Move the positions of 30 % of the partitions, of all of them at first."""
        self.rounds += 1
        moved = {number for number in range(self.cluster.partitions) if self.rounds == 1 or number % 10 < 3}
        payloads = (payload for payload, _ in self.cluster.offsets(OFFSETS_SOURCE, moved))
        self.offsets.append(b"".join(map(encode_frame, payloads)))


def cost(programs: list[Program], seconds: float) -> None:
    """Print what programs use over a time: cores, and memory at its end."""
    before = [cpu_seconds(program.pid) for program in programs]
    time.sleep(seconds)
    cores_of_all = 0.0
    for program, earlier in zip(programs, before, strict=True):
        size, spent = memory(program.pid), cpu_seconds(program.pid) - earlier
        size["all"], spent["all"] = size.total(), spent.total()
        cores_of_all += spent["all"] / seconds
        for kind in size:
            print(f"  {program.name:7} {kind:15} {spent[kind] / seconds:6.3f} cores  {size[kind] / 2**20:7,.0f} MB")
    print(f"  together                {cores_of_all:6.3f} cores", flush=True)


def measure(pipeline: Pipeline, partitions: int, seconds: float) -> None:
    """Measure job and exporter, then the idle session, and print both."""
    traffic, stopped = Traffic(pipeline, partitions), threading.Event()
    job = pipeline.job()
    traffic.cluster.send_snapshot()
    pipeline.eventually(lambda: pipeline.rows("partition_state"), "the first report is in the tables", job)
    export = pipeline.export()
    every(HEARTBEAT_MICROS / 1e6, stopped, traffic.beat)
    every(10, stopped, traffic.move)
    every(15, stopped, lambda: pipeline.metrics() and None)
    time.sleep(SETTLING_SECONDS)
    print(f"{partitions:,} partitions, nothing changes, for {seconds:.0f} s")
    cost([job, export], seconds)
    stopped.set()
    for program in (export, job):
        program.stop()
    beside = pipeline.run("beside", [sys.executable, "-c", BESIDE, str(len(QUERIES))])
    pipeline.eventually(lambda: "running" in beside.text(), "the session runs", beside)
    time.sleep(SETTLING_SECONDS / 2)
    print("an idle Spark session with as many queries")
    cost([beside], seconds / 2)


def main() -> None:
    arguments = options(__doc__, partitions=10_000, seconds=120.0)
    with installation() as pipeline:
        measure(pipeline, arguments.partitions, arguments.seconds)


if __name__ == "__main__":
    main()
