"""What each form of an installation costs: latency from publication to a reader of the tables, and cores at rest.

    python -m tests.benchmarks.bus_forms [--batches 60] [--idle 30] [--milliseconds 25]

The forms: the directory and Kafka as the bus, with tables in a folder; and Kafka with tables in a server of S3 that is
behind a proxy, which adds the milliseconds to each request. One form after the other: a publisher, with its shipping
thread, in this process; a job of its own; a broker of the sandbox. A batch is five changes of a story, published at
once; its latency ends when a reader in this process, which follows the tables as an exporter does, has the last one.
Then nothing is published for a while.
"""

from __future__ import annotations

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
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.store.place import Place, options_of, place_of
from streaming.sources.collector.shipping import Shipping
from tests.benchmarks._processes import cpu_seconds
from tests.benchmarks._running import options
from tests.end_to_end.stories import long_story
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.pipeline import Pipeline
from tests.stores.fault_proxy import fault_proxy
from tests.stores.s3 import versitygw

SOURCE = "metadata_log:a"
SIZE = 5


class Reader:
    """The newest position that a reader of the change table has."""

    def __init__(self, tables: Place) -> None:
        self._reader, self.position = ChangeReader(tables / PARTITION_CHANGES.name), -1

    def look(self) -> int:
        if self._reader.version < 0 or self._reader.is_worth_a_poll():
            for _, rows in self._reader.poll():
                positions = [state["position"] for state in rows["source_after"].to_pylist() if state is not None]
                self.position = max((self.position, *positions))
        return self.position


def in_store(pipeline: KafkaPipeline, place: Place) -> None:
    """Let the job of a pipeline have its tables in a store."""
    options = "".join(f'"{name}" = "{value}"\n' for name, value in (options_of(place) or {}).items())
    text = pipeline.config.read_text()
    before = f'[tables]\ndirectory = "{pipeline.tables}"\n'
    pipeline.config.write_text(text.replace(before, f'[tables]\ndirectory = "{place}"\n[tables.storage]\n{options}'))


def measure(pipeline: Pipeline, tables: Place, batches: int, idle: float) -> None:
    """Run one form, and print its figures."""
    story = long_story(seed=1, steps=SIZE * (batches + 20))
    with ExitStack() as stack:
        stack.callback(pipeline.close)
        publisher = stack.enter_context(closing(DirectoryPublisher(pipeline.bus, segment_bytes=1 << 26)))
        if isinstance(pipeline, KafkaPipeline):
            shipping = Shipping(pipeline.bus, pipeline.settings, print)
            shipping.start()
            stack.callback(shipping.stop)
        job = pipeline.job()
        watch, reader, seconds = Reader(tables), DirectoryReader(pipeline.bus), list[float]()
        for turn in range(batches + 10):
            publisher.publish(story[turn * SIZE : (turn + 1) * SIZE])
            began = time.perf_counter()
            end = reader.end_positions(Channel.REPLICATION)[SOURCE]
            last = max(item.position for item in reader.read(Channel.REPLICATION, SOURCE, 0, end))
            while watch.look() < last:
                time.sleep(0.002)
            seconds.append(time.perf_counter() - began)
            time.sleep(random.uniform(0.1, 0.3))  # not to fall into step with a trigger
        cuts = statistics.quantiles(seconds[10:], n=100)
        time.sleep(5)
        before, own, since = cpu_seconds(job.pid).total(), time.process_time(), time.monotonic()
        time.sleep(idle)
        elapsed = time.monotonic() - since
        cores, shipping_cores = (cpu_seconds(job.pid).total() - before) / elapsed, (time.process_time() - own) / elapsed
        latency = "  ".join(f"p{percent} {cuts[percent - 1] * 1000:4.0f} ms" for percent in (50, 95, 99))
        print(
            f"{latency};  idle: job {cores:.3f} cores, publisher and shipping {shipping_cores:.4f} cores;  load "
            f"{os.getloadavg()[0]:.1f}",
            flush=True,
        )


def main() -> None:
    """Read the options, and start what the forms need."""
    forms = ["directory", "kafka", "kafka-s3"]
    given = options(__doc__, batches=60, idle=30, milliseconds=25, forms=forms)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bus-forms-")))
        broker = stack.enter_context(Sandbox(plan_cluster(brokers=1, controllers=1)))
        proxy = stack.enter_context(fault_proxy(stack.enter_context(versitygw(folder))))
        proxy.round_trip_seconds = given.milliseconds / 1000
        for number, form in enumerate(given.forms):
            (directory := folder / f"{number}-{form}").mkdir()
            settings = bus_settings(broker.bootstrap_servers)
            pipeline = Pipeline(directory) if form == "directory" else KafkaPipeline(directory, settings)
            tables: Place = pipeline.tables
            if form == "kafka-s3" and isinstance(pipeline, KafkaPipeline):
                tables = place_of(f"{proxy.store.url}/{directory.name}", proxy.store.options)
                in_store(pipeline, tables)
            print(f"{form:10}", end="", flush=True)
            measure(pipeline, tables, given.batches, given.idle)


if __name__ == "__main__":
    main()
