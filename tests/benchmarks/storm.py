"""How long a broker's death and return take to be right on ``/metrics``, and what each process spends on them.

    python -m tests.benchmarks.storm [--partitions 10000 100000] [--storms 10]

A broker dies and returns; each partition that it hosts changes twice. The collector's observations of all of it are
written to the bus at once. The cluster's totals are right when a scrape of them shows every shrink and every expand and
nothing under-replicated; the storm is over when a whole scrape after that, compressed as Prometheus asks for it, shows
each partition so.
"""

from __future__ import annotations

import gzip
import re
import statistics
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from streaming.contracts.events import Cause
from streaming.contracts.observations import BrokerObserved, Channel
from tests.benchmarks._cluster import CLUSTER, SOURCE, Cluster, open_log
from tests.benchmarks._processes import cpu_seconds
from tests.benchmarks._running import installation, options
from tests.plugins.pipeline import Pipeline

BROKER: Final = 0
# Brokers of a cluster, by its partitions, so that a storm changes all of 10,000 partitions, and 30 % of 100,000.
BROKERS: Final = {10_000: 6, 100_000: 20}
PATIENCE: Final = 300.0
SHRINKS, EXPANDS, UNDER_REPLICATED = (
    f"kafka_replication_cluster_{name}"
    for name in ("isr_shrinks_total", "isr_expands_total", "under_replicated_partitions")
)
UNDER_REPLICATED_PARTITION: Final = re.compile(
    rb"^kafka_topic_partition_under_replicated_partition\{.*\} (\S+)$", re.MULTILINE
)


def scrape(port: int) -> dict[str, float]:
    """Give the three numbers that show whether a storm is over."""
    names = "&".join(f"name[]={name}" for name in (SHRINKS, EXPANDS, UNDER_REPLICATED))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics?{names}", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    samples: Counter[str] = Counter()
    for line in lines:
        if not line.startswith("#"):
            samples[line.partition("{")[0]] += float(line.rpartition(" ")[2])
    return samples


def whole_scrape(port: int) -> float:
    """Read everything as Prometheus does, check that no partition is under-replicated, and give the moment."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own address
        received = answer.read()
    moment = time.time()
    values = set(UNDER_REPLICATED_PARTITION.findall(gzip.decompress(received)))
    if values != {b"0"}:
        raise SystemExit(f"a whole scrape shows {sorted(values)} as partitions' under-replication instead of 0 only")
    return moment


def wait_for(port: int, changes: int) -> float:
    """Wait until that many shrinks and as many expands are shown and nothing is under-replicated; give the moment."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        shown = scrape(port)
        if shown[SHRINKS] == shown[EXPANDS] == changes and not shown[UNDER_REPLICATED]:
            return time.time()
        time.sleep(0.01)
    raise SystemExit(f"the storm is not over after {PATIENCE:.0f} s: {dict(shown)} instead of {changes} changes")


def death_and_return(cluster: Cluster, hosted: Sequence[int]) -> list[bytes]:
    """Give the records of a broker that is fenced and leaves every ISR, and then is back in all of them."""
    records: list[bytes] = []
    for fenced in (True, False):
        records += cluster.changes(hosted, cause=(Cause.FENCED, Cause.EXPAND))
        records.append(cluster.numbered(BrokerObserved(**cluster.envelope(), broker=BROKER, fenced=fenced)))
    return records


def storms(pipeline: Pipeline, cluster: Cluster, count: int) -> tuple[list[float], list[float], list[Counter[str]]]:
    """Raise storms one after the other; give the seconds of each, of totals and whole, and each process's CPU."""
    hosted = cluster.hosted_by(BROKER)
    totals, whole, spent = [], [], []
    for turn in range(1, count + 2):
        records = death_and_return(cluster, hosted)
        before = costs(pipeline)
        cluster.send(records)
        began = time.time()
        totals.append(wait_for(pipeline.port, turn * len(hosted)) - began)
        whole.append(whole_scrape(pipeline.port) - began)
        time.sleep(5)  # what is left to do for it, projections and incidents, belongs to its cost
        spent.append(costs(pipeline) - before)
    return totals[1:], whole[1:], spent[1:]  # the first one compiles the JVM's code


def costs(pipeline: Pipeline) -> Counter[str]:
    return Counter({
        f"{program.name} {kind}": seconds
        for program in pipeline.programs
        for kind, seconds in cpu_seconds(program.pid).items()
    })  # fmt: skip


def measure(partitions: int, count: int) -> None:
    """Measure one size, and print it."""
    with ExitStack() as stack:
        pipeline = stack.enter_context(installation())
        log = open_log(pipeline.bus, Channel.REPLICATION, SOURCE)
        stack.callback(log.close)
        cluster = Cluster(log, partitions, BROKERS.get(partitions, 10), away=BROKER)
        pipeline.job()
        cluster.send_snapshot()
        pipeline.eventually(lambda: pipeline.rows("partition_state"), "the first report is in the tables")
        pipeline.export()
        wait_for(pipeline.port, 0)
        whole_scrape(pipeline.port)
        totals, whole, spent = storms(pipeline, cluster, count)
    changes = 2 * len(cluster.hosted_by(BROKER))
    print(f"{partitions:,} partitions of {CLUSTER}, {changes:,} changes a storm, {count} storms")
    for what, seconds in (("totals right", totals), ("a whole scrape right", whole)):
        print(f"  {what:22} median {statistics.median(seconds):6.2f} s, worst {max(seconds):.2f} s")
    for name in sorted({name for each in spent for name in each}):
        print(f"  CPU of {name:22} median {statistics.median(each[name] for each in spent):6.2f} s")
    total = statistics.median(sum(each.values()) for each in spent)
    print(f"  CPU of all of it               median {total:6.2f} s", flush=True)


def main() -> None:
    arguments = options(__doc__, partitions=[10_000, 100_000], storms=10)
    for partitions in arguments.partitions:
        measure(partitions, arguments.storms)


if __name__ == "__main__":
    main()
