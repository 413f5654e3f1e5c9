"""A real cluster of many partitions: what the pipeline costs while nothing happens, and how soon a hung broker is seen.

    python -m tests.benchmarks.large_cluster [--partitions 10000] [--seconds 120]

Three brokers, every partition on all of them. A broker is paused until the controller has fenced it, and resumed. Of
both it is measured how long after the last record of the controller ``/metrics`` shows the right number of
under-replicated partitions.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.plan import plan_cluster
from tests.benchmarks._processes import cpu_seconds, memory
from tests.benchmarks._running import collect_from, installation, options
from tests.plugins.pipeline import Pipeline, Program

METRIC: Final = "kafka_replication_cluster_under_replicated_partitions"
TOPIC_PARTITIONS: Final = 1_000
SETTLING_SECONDS: Final = 150.0  # Spark's planners end after two minutes
PATIENCE: Final = 300.0
# Kafka's defaults, where the sandbox has shorter ones.
PROPERTIES: Final = {"broker.session.timeout.ms": "9000", "replica.lag.time.max.ms": "30000"}


def under_replicated(pipeline: Pipeline) -> int | None:
    """Scrape one metric; None while there is no value."""
    url = f"http://127.0.0.1:{pipeline.port}/metrics?name[]={METRIC}"
    with urllib.request.urlopen(url, timeout=10) as response:
        values = [line.rsplit(" ", 1)[1] for line in response.read().decode().splitlines() if line.startswith(METRIC)]
    return int(float(values[0])) if values else None


def seen_at(pipeline: Pipeline, expected: int) -> float:
    """Scrape until the number is right for good, for ten seconds; return when it was right first."""
    since: float | None = None
    deadline = time.monotonic() + PATIENCE
    while since is None or time.time() - since < 10:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{expected} under-replicated partitions were not seen in {PATIENCE:.0f} s")
        is_right = under_replicated(pipeline) == expected
        since = (since or time.time()) if is_right else None
        time.sleep(0.02)
    return since


def fault(pipeline: Pipeline, what: str, do: Callable[[], None], expected: int) -> None:
    """Do something to a broker, and print when it was seen."""
    began = time.time()
    do()
    seen = seen_at(pipeline, expected)
    times = [row["occurred_not_after"].timestamp() for row in pipeline.rows("partition_changes")]
    steps = [at for at in times if began <= at <= seen]
    after = f"{seen - max(steps):.2f} s after the last record of {len(steps):,}" if steps else "without a record"
    spread = max(steps) - min(steps) if steps else 0.0
    print(f"{what:16} seen {seen - began:5.1f} s after it began, {after}, which took {spread:.2f} s", flush=True)


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


def create_topics(sandbox: Sandbox, partitions: int) -> None:
    """Create topics of a thousand partitions, and wait until every replica is in sync."""
    for first in range(0, partitions, TOPIC_PARTITIONS):
        size = min(TOPIC_PARTITIONS, partitions - first)
        assignment = [[(first + each + place) % 3 + 1 for place in range(3)] for each in range(size)]
        sandbox.admin.create_topic(f"orders-{first // TOPIC_PARTITIONS:03}", assignment=assignment)
        print(f"  {first + size:,} partitions", flush=True)


def main() -> None:
    arguments = options(__doc__, partitions=10_000, seconds=120.0)
    with ExitStack() as stack:
        plan = plan_cluster(brokers=3, properties=PROPERTIES, heap_megabytes=1_024)
        sandbox = stack.enter_context(Sandbox(plan))
        create_topics(sandbox, arguments.partitions)
        pipeline = stack.enter_context(installation())
        programs = [collect_from(sandbox, pipeline), pipeline.job(), pipeline.export()]
        seen_at(pipeline, 0)
        time.sleep(SETTLING_SECONDS)
        print(f"{arguments.partitions:,} partitions on three brokers, nothing changes, for {arguments.seconds:.0f} s")
        cost(programs, arguments.seconds)
        fault(pipeline, "broker 2 hangs", lambda: sandbox.pause(2), arguments.partitions)
        fault(pipeline, "broker 2 goes on", lambda: sandbox.resume(2), 0)


if __name__ == "__main__":
    main()
