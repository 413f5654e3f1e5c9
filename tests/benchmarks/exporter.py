"""How long a scrape takes while the cluster moves, and what it costs; beside the ways of other exporters.

    python -m tests.benchmarks.exporter [--partitions 10000 100000] [--scrapes 200]

The exporter serves HTTP in a process of its own, as ``isrwatch export`` does; instead of reading tables it is given a
cluster of which 100 partitions change every second, in ten commits, and every offset every ten seconds, which another
thread makes as it reads them of the real table. Scrapes come as
from Prometheus, one after the other, compressed, then from 100 scrapers at once. A change is served when its snapshot
is rendered and compressed. A health check, which renders nothing, shows what HTTP and this machine cost by themselves.
The stock renderer makes the text of the same series at each scrape, as exporters do that
are made with the client library. A scrape that asks the brokers for each partition, as others do at every scrape, is
measured against stand-ins that answer from memory: log start and high watermark, log directories and one group.
"""

from __future__ import annotations

import gzip
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from exporters.metrics.exposition import Exposition
from exporters.read_model.cluster_samples import ReplicaOffsets
from exporters.read_model.draft import ClusterDraft
from exporters.read_model.reader import micros_now
from exporters.read_model.refresher import Refresher
from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
from exporters.web.server import SWITCH_SECONDS, Endpoints, ScrapePriority, application
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import BrokerState, ClusterState, PartitionState
from streaming.runtime.listening import address_of, listen
from streaming.runtime.memory import collect_seldom
from streaming.web.server import WebServer
from tests.benchmarks._processes import cpu_seconds, memory
from tests.benchmarks._running import child, options
from tests.benchmarks._stand_ins import Size, brokers
from tests.benchmarks.sampling import of_others

BROKERS: Final = 6
PARTITIONS_OF_A_TOPIC: Final = 20
CHANGED: Final = 10
OFFSETS_SECONDS: Final = 10.0
COMMIT_SECONDS: Final = 0.1
AT_ONCE: Final = 100


def partition(number: int, *, is_out: bool = False, shrinks: int = 0) -> PartitionState:
    """Make one partition of three replicas, the last of them out of sync or not."""
    replicas = tuple((number + place) % BROKERS + 1 for place in range(3))
    name = f"topic-{number // PARTITIONS_OF_A_TOPIC:05}"
    healthy = PartitionState(
        "id", "bench", f"id-of-{name}", name, number % PARTITIONS_OF_A_TOPIC, replicas, replicas,  # type: ignore[arg-type]
        leader=replicas[0], leader_epoch=3, min_isr_effective=2, is_under_min_isr=False, is_at_min_isr=is_out,
        isr_shrinks=shrinks,
    )  # fmt: skip
    if not is_out:
        return healthy._replace(changed_at=micros_now() if shrinks else None)
    now = micros_now()
    return healthy._replace(isr=replicas[:2], is_under_replicated=True, under_replicated_since=now, changed_at=now)


class MovingCluster:
    """In the place of a reader of tables: each refresh is the next commit."""

    tables = Path("moving")
    statuses = ()
    reads_side_tables_apart = True
    monotonic = staticmethod(time.monotonic)

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.seconds: list[float] = []
        self._turn, self._next, self._offsets_at = 0, 0.0, 0.0
        self._offsets: dict[str, Any] | None = None
        cluster = ClusterSnapshot(
            cluster=ClusterState("id", "bench", SourceKind.METADATA_LOG),  # type: ignore[arg-type]
            brokers={each: BrokerState("id", "bench", each) for each in range(1, BROKERS + 1)},  # type: ignore[arg-type]
        )
        draft = ClusterDraft(cluster)
        for number in range(partitions):
            draft.put_partition(partition(number))
        self.snapshot = ReplicationSnapshot()
        self._cluster = draft.finish()

    def has_news(self) -> bool:
        return time.monotonic() >= self._next

    def read_side_tables(self) -> None:
        """Move every offset, every ten seconds, for the next refresh."""
        now = time.monotonic()
        if now - self._offsets_at >= OFFSETS_SECONDS:
            self._offsets_at = now
            offset = 1_000_000 + self._turn
            self._offsets = {
                topic_id: {each: (ReplicaOffsets(1, 17, offset + each),) for each in topic.partitions}
                for topic_id, topic in self._cluster.topics.items()
            }

    def refresh(self) -> ReplicationSnapshot:
        """Change some partitions, and take over the offsets that were read."""
        now = time.monotonic()
        self._next, self._turn = now + COMMIT_SECONDS, self._turn + 1
        last = self._cluster
        draft = ClusterDraft(last)
        for place in range(CHANGED):
            number = (self._turn // 2 * CHANGED + place) * 7919 % self.partitions
            draft.put_partition(partition(number, is_out=self._turn % 2 == 0, shrinks=self._turn))
        draft.put_cluster(last.cluster._replace(primary_watermark=micros_now()))
        offsets, self._offsets = self._offsets, None
        if offsets is not None:
            draft.put_offsets(offsets, micros_now())
        self._cluster = draft.finish()
        self.snapshot = ReplicationSnapshot(clusters={"id": self._cluster}, version=self._turn, read_at=micros_now())
        return self.snapshot


def serve(pipe: Connection, partitions: int) -> None:
    """Serve a moving cluster, and say how long each change took from its commit until it could be served."""
    exposition, reader, seconds = Exposition(60.0), MovingCluster(partitions), []

    def prepare(snapshot: ReplicationSnapshot) -> bool:
        prepared = exposition.prepare(snapshot, micros_now(), in_steps=True)
        seconds.append(time.monotonic() - (reader._next - COMMIT_SECONDS))
        return prepared.is_complete

    refresher = Refresher(reader, COMMIT_SECONDS, "bench", prepare)  # type: ignore[arg-type]
    refresher.after_first = collect_seldom  # as ``isrwatch export`` does
    endpoints = Endpoints(refresher, 60.0, exposition=exposition)
    sys.setswitchinterval(SWITCH_SECONDS)
    opened = listen("127.0.0.1:0", "--listen")
    server = WebServer(application(endpoints), [opened])
    exposition.give_way = ScrapePriority(server.counts)
    refresher.start()
    threading.Thread(target=server.run, daemon=True).start()
    pipe.send(address_of(opened))
    pipe.recv()
    pipe.send(seconds)


def scrape(address: str, path: str = "/metrics") -> tuple[float, bytes]:
    """Scrape as Prometheus does; give the seconds and what was sent."""
    request = urllib.request.Request(f"http://{address}{path}", headers={"Accept-Encoding": "gzip"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own address
        body = answer.read()
    return time.perf_counter() - began, body


class Stock:
    """The same series by the client library, made at each scrape."""

    def __init__(self, text: str) -> None:
        self._families = list(text_string_to_metric_families(text))

    def collect(self) -> Iterator[Any]:
        for family in self._families:
            labels = list(family.samples[0].labels) if family.samples else []
            kind = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
            made = kind(family.name, family.documentation, labels=labels)
            for sample in family.samples:
                made.add_metric(list(sample.labels.values()), sample.value)
            yield made


def stock_seconds(text: str) -> float:
    """Return the seconds of a scrape by the client library, compressed as its server compresses."""
    registry = CollectorRegistry()
    registry.register(Stock(text))  # type: ignore[arg-type]
    began = time.perf_counter()
    gzip.compress(generate_latest(registry))
    return time.perf_counter() - began


def asking_seconds(partitions: int) -> float:
    """Return the seconds of a scrape that asks the brokers for each partition, before it renders anything."""
    with brokers(Size(partitions, groups=1, partitions_of_a_group=10)) as cluster:
        of_others(cluster.ports, one_by_one=True)  # the stand-ins compose each answer once
        return of_others(cluster.ports, one_by_one=True).wall_seconds


def measure(partitions: int, scrapes: int) -> None:
    """Measure one size, and print it."""
    with child(serve, partitions) as (pipe, pid):
        address = pipe.recv()
        while not (body := _first(address)):
            time.sleep(0.2)
        time.sleep(2 * OFFSETS_SECONDS)
        before, began = spent(pid), time.monotonic()
        time.sleep(OFFSETS_SECONDS)
        moving = (spent(pid) - before) / (time.monotonic() - began)
        before, began = spent(pid), time.monotonic()
        times, checks = [], []
        for _ in range(scrapes):
            seconds, body = scrape(address)
            times.append(seconds)
            time.sleep(0.1)
            checks.append(scrape(address, "/-/healthy")[0])
            time.sleep(0.1)
        of_each = (spent(pid) - before - moving * (time.monotonic() - began)) / scrapes
        before, began = spent(pid), time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            at_once = list(pool.map(lambda _: scrape(address)[0], range(AT_ONCE)))
        of_all = spent(pid) - before - moving * (time.monotonic() - began)
        size = memory(pid).total()
        pipe.send(None)
        served = pipe.recv()
    text = gzip.decompress(body)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    lengths = f"{len(text) / 1e6:.1f} MB of text, {len(body) / 1e6:.2f} zipped"
    print(f"{partitions:,} partitions, {series:,} series, {lengths}")
    _print("a scrape", times)
    _print("a health check", checks)
    _print(f"of {AT_ONCE} at once", at_once)
    _print("a commit is served", served)
    at_all = f"CPU of a scrape {1000 * of_each:8.1f} ms, of {AT_ONCE} at once {1000 * of_all:.0f} ms"
    print(f"  {at_all}; of rendering what moves {moving:.2f} cores")
    _print_beside("the client library", stock_seconds(text.decode()), times)
    _print_beside("asking for each partition", asking_seconds(partitions), times)
    print(f"  memory {size / 1e6:.0f} MB (PSS)", flush=True)


def spent(pid: int) -> float:
    """Give the CPU seconds of a process until now."""
    return cpu_seconds(pid).total()


def _first(address: str) -> bytes:
    try:
        return scrape(address)[1]
    except OSError:
        return b""


def _print(what: str, seconds: list[float]) -> None:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    measured = " ".join(f"{name} {1000 * cut:7.1f} ms" for name, cut in (("p50", cuts[49]), ("p99", cuts[98])))
    print(f"  {what:20} {measured}   worst {1000 * max(seconds):.1f} ms")


def _print_beside(what: str, seconds: float, ours: list[float]) -> None:
    print(f"  {what:25} {1000 * seconds:8.0f} ms a scrape: {seconds / statistics.median(ours):.0f} times ours")


def main() -> None:
    """Measure each size."""
    arguments = options(__doc__, partitions=[10_000, 100_000], scrapes=200)
    for partitions in arguments.partitions:
        measure(partitions, arguments.scrapes)


if __name__ == "__main__":
    main()
