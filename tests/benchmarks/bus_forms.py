"""What Kafka as the bus costs beside the directory: latency from publication to commit, and cores at rest.

    python -m tests.benchmarks.bus_forms [--batches 60] [--idle 30] [--bootstrap HOST:PORT]

One form after the other: a publisher with its shipping thread in this process, a job of its own, a broker of the
sandbox. A batch is five changes of a story, published at once; its latency ends with the commit of the last of them,
as a look at the log of the table each two milliseconds sees it. Then nothing is published for a while.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from deploy.sandbox import Sandbox, plan_cluster
from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.observations import Channel
from streaming.settings import KafkaBusSettings
from streaming.sources.collector.shipping import Shipping
from tests.benchmarks._processes import cpu_seconds
from tests.end_to_end.stories import long_story
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.pipeline import Pipeline

SOURCE = "metadata_log:a"
SIZE = 5


class CommitWatch:
    """The newest applied position, from the log of the change table."""

    def __init__(self, tables: Path) -> None:
        self._log = tables / "partition_changes" / "_delta_log"
        self._next, self.position = 0, -1

    def look(self) -> int:
        while (entry := self._log / f"{self._next:020d}.json").exists():
            for line in entry.read_text().splitlines():
                transaction = json.loads(line).get("txn", {})
                if transaction.get("appId") == f"position/{SOURCE}":
                    self.position = transaction["version"]
            self._next += 1
        return self.position


def measure(form: str, settings: KafkaBusSettings, batches: int, idle: float, directory: Path) -> None:
    """Run one form, and print its figures."""
    pipeline = Pipeline(directory) if form == "directory" else KafkaPipeline(directory, settings)
    story = long_story(seed=1, steps=SIZE * (batches + 20))
    with ExitStack() as stack:
        stack.callback(pipeline.close)
        publisher = stack.enter_context(closing(DirectoryPublisher(pipeline.bus, segment_bytes=1 << 26)))
        if form == "kafka":
            shipping = Shipping(pipeline.bus, settings, print)
            shipping.start()
            stack.callback(shipping.stop)
        job = pipeline.job()
        watch, reader, seconds = CommitWatch(pipeline.tables), DirectoryReader(pipeline.bus), list[float]()
        for turn in range(batches + 10):
            publisher.publish(story[turn * SIZE : (turn + 1) * SIZE])
            began = time.perf_counter()
            end = reader.end_positions(Channel.REPLICATION)[SOURCE]
            last = max(item.position for item in reader.read(Channel.REPLICATION, SOURCE, 0, end))
            while watch.look() < last:
                time.sleep(0.002)
            seconds.append(time.perf_counter() - began)
            time.sleep(random.uniform(0.1, 0.3))  # not to fall into step with a trigger
        cuts = statistics.quantiles(seconds[10:], n=20)
        time.sleep(5)
        before, own, since = cpu_seconds(job.pid).total(), time.process_time(), time.monotonic()
        time.sleep(idle)
        elapsed = time.monotonic() - since
        cores, shipping_cores = (cpu_seconds(job.pid).total() - before) / elapsed, (time.process_time() - own) / elapsed
        print(
            f"{form:9}  p50 {cuts[9] * 1000:4.0f} ms  p95 {cuts[18] * 1000:4.0f} ms;  idle: job {cores:.3f} cores, "
            f"publisher and shipping {shipping_cores:.4f} cores;  load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def main() -> None:
    """Read the options, and start a broker unless one is named."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap")
    options.add_argument("--batches", type=int, default=60)
    options.add_argument("--idle", type=float, default=30.0)
    options.add_argument("--forms", nargs="+", default=["directory", "kafka"])
    given = options.parse_args()
    with ExitStack() as stack:
        bootstrap = given.bootstrap
        if bootstrap is None:
            bootstrap = stack.enter_context(Sandbox(plan_cluster(brokers=1, controllers=1))).bootstrap_servers
        for form in given.forms:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-bus-")))
            measure(form, bus_settings(bootstrap), given.batches, given.idle, directory)


if __name__ == "__main__":
    main()
