"""How long an ISR change takes from the controller's append to the new value on ``/metrics``, on a real cluster.

    python -m tests.benchmarks.latency [--changes 100]

A replication link is held and released at random moments, so every cycle makes one shrink and one expand, each of one
partition. A change is seen when a scrape of the exporter shows its counter. Prints p50, p95 and p99, and where the time
goes: tail (append to observation), batch (observation to commit), exporter (commit to scrape).
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.plan import plan_cluster
from streaming.delta.changes.reader import ChangeReader
from tests.benchmarks._running import collect_from, installation, options, spread
from tests.plugins.pipeline import Pipeline
from tests.topic_writer import TopicWriter

TOPIC = "orders"
PROPERTIES = {"replica.lag.time.max.ms": "600", "replica.fetch.wait.max.ms": "100"}
COUNTERS = ("isr_shrinks_total", "isr_expands_total")


@dataclass
class Watch:
    """Scrapes without pause and remembers when the sum of shrinks and expands reached each number."""

    pipeline: Pipeline
    seen: dict[int, float] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        names = [f"kafka_replication_partition_{name}" for name in COUNTERS]
        while not self.stopped.wait(0.005):
            samples = self.pipeline.metrics() or {}
            now = time.time()
            wanted = [value for series, value in samples.items() if series.startswith(tuple(names)) and TOPIC in series]
            for number in range(int(sum(wanted)), 0, -1):
                if number in self.seen:
                    break
                self.seen[number] = now


def flap(sandbox: Sandbox, cycles: int, seed: int) -> None:
    """Hold and release one link, at moments that no period of the pipeline can follow."""
    dice = random.Random(seed)
    for cycle in range(cycles):
        time.sleep(dice.uniform(0.05, 0.6))
        sandbox.proxy.hold(1, 2)
        sandbox.admin.wait_isr(TOPIC, 0, {1})
        time.sleep(dice.uniform(0.05, 0.6))
        sandbox.proxy.release(1, 2)
        sandbox.admin.wait_isr(TOPIC, 0, {1, 2})
        if cycle % 10 == 9:
            print(f"  {2 * (cycle + 1)} changes", flush=True)


def report(pipeline: Pipeline, seen: dict[int, float]) -> None:
    rows = [row for row in pipeline.rows("partition_changes") if row["topic"] == TOPIC and row["before"]]
    rows = sorted((row for row in rows if row["left_isr"] or row["joined_isr"]), key=lambda row: row["offset"])
    commits = commit_times(pipeline)
    parts: dict[str, list[float]] = {"append to /metrics": [], "  tail": [], "  batch and commit": [], "  exporter": []}
    for number, row in enumerate(rows, start=1):
        if number in seen and row["sequence"] in commits:
            appended, collected = row["occurred_not_after"].timestamp(), row["collected_at"].timestamp()
            committed, shown = commits[row["sequence"]], seen[number]
            spent = (shown - appended, collected - appended, committed - collected, shown - committed)
            for values, seconds in zip(parts.values(), spent, strict=True):
                values.append(seconds)
    print(f"{len(parts['append to /metrics'])} ISR changes, each at a moment of its own")
    for name, values in parts.items():
        print(f"{name:20} {spread(values)}")


def commit_times(pipeline: Pipeline) -> dict[int, float]:
    """When the commit that holds each observation became visible: its file in the log."""
    table = pipeline.tables / "partition_changes"
    times: dict[int, float] = {}
    for version, rows in ChangeReader(table).poll():
        at = (table / "_delta_log" / f"{version:020}.json").stat().st_mtime
        times.update(dict.fromkeys(rows["sequence"].to_pylist(), at))
    return times


def main() -> None:
    arguments = options(__doc__, changes=100, seed=1)
    print(f"latency: seed {arguments.seed}, lag limit {PROPERTIES['replica.lag.time.max.ms']} ms", flush=True)
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox(plan_cluster(brokers=2, properties=PROPERTIES, proxy=True)))
        pipeline = stack.enter_context(installation())
        sandbox.admin.create_topic(TOPIC, assignment=[[1, 2]])
        collect_from(sandbox, pipeline)
        pipeline.job()
        pipeline.export()
        watch = Watch(pipeline)
        threading.Thread(target=watch.run, daemon=True).start()
        stack.enter_context(TopicWriter(sandbox.bootstrap_servers, TOPIC))
        time.sleep(20)  # the JVM of a fresh job compiles its hot code: what is measured is a job that has been running
        flap(sandbox, arguments.changes // 2 + 5, arguments.seed)
        time.sleep(2)
        watch.stopped.set()
        report(pipeline, watch.seen)


if __name__ == "__main__":
    main()
