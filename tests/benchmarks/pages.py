"""How long a page takes over real tables: of the present, and at a moment of the past.

    python -m tests.benchmarks.pages [--clusters 100] [--partitions 1000] [--requests 100] [--readers 20]

One exporter in a process of its own serves all clusters, each with so many partitions and with 20 incidents. In every
tenth cluster a broker is down, and in one every partition is offline. Pages are asked for one after the other; a health
check, which renders nothing, shows what HTTP and this machine cost by themselves; on a busy machine the CPU of a page
says more than its time. Then ten of the clusters are scraped,
alone and beside readers in a process of their own, each of which asks for a page a second.
"""

from __future__ import annotations

import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from exporters.answers import links
from exporters.read_model.reader import micros_now
from exporters.web.server import SWITCH_SECONDS, serving
from streaming.settings import ExportSettings
from tests.benchmarks._processes import cpu_seconds
from tests.benchmarks._running import child, options, spread
from tests.exporters.conftest import SECOND, Rows, Tables

BROKERS: Final = 6
PARTITIONS_OF_A_TOPIC: Final = 20
INCIDENTS: Final = 20
_DAY: Final = 86_400 * SECOND
_STALE_AFTER: Final = 86_400.0


def write_cluster(tables: Tables, number: int, partitions: int, now: int) -> list[dict[str, Any]]:
    """Write the changes of one cluster, and give its incidents."""
    rows = Rows(cluster_id=f"id-{number}", cluster=name_of(number), start=now - _DAY)
    is_down, is_lost = number % 10 == 3, number == 13
    told = []
    for each in range(partitions):
        replicas = [(each + place) % BROKERS + 1 for place in range(3)]
        isr = [] if is_lost else [broker for broker in replicas if not (is_down and broker == 6)]
        state = rows.state(replicas, isr, isr[0] if isr else -1)
        topic = f"topic-{each // PARTITIONS_OF_A_TOPIC:05}"
        told.append(rows.partition(topic, each % PARTITIONS_OF_A_TOPIC, state, now - _DAY, is_baseline=True))
    brokers = [rows.broker(each, now - _DAY, is_fenced=is_down and each == 6) for each in range(1, BROKERS + 1)]
    tables.commit(rows.cluster_row(now - _DAY), *brokers, *told, rows.source(now - _DAY))
    tables.commit(rows.cluster_row(now), rows.source(now))
    return [_incident(rows, number, each, now) for each in range(INCIDENTS)]


def write_clusters(folder: Path, clusters: int, partitions: int) -> int:
    """Write the tables of clusters into a folder, and give the moment that they are of."""
    tables, now = Tables(folder), micros_now()
    incidents = [row for number in range(clusters) for row in write_cluster(tables, number, partitions, now)]
    tables.put("incidents", *incidents, as_of=2 * clusters - 1)
    return now


def _incident(rows: Rows, number: int, each: int, now: int) -> dict[str, Any]:
    opened = now - each * _DAY
    is_open = each == 0 and number % 10 == 3
    told = {"short_id": f"{rows.cluster}-{INCIDENTS - each}", "brokers": [6], "suspects": [{"broker": 6, "score": 1.0}]}
    closed = {} if is_open else {"closed_at": opened + 600 * SECOND, "carried": None}
    updated = {"updated_at": now if is_open else opened + 600 * SECOND}
    return rows.incident(f"loss:{number}/{each}", "broker_loss", opened, **told, **closed, **updated)


def name_of(number: int) -> str:
    """Return the name of a cluster."""
    return f"shop-{number:03}"


def serve(pipe: Connection, tables: str) -> None:
    """Serve the tables until the measurement is over, with threads that take turns as those of the exporter do."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with serving(Path(tables), replace(ExportSettings(listen="127.0.0.1:0"), stale_after=_STALE_AFTER)) as address:
        pipe.send(address)
        pipe.recv()


def seconds_of(address: str, path: str) -> float:
    """Ask for a path, and give how long the whole answer took."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        answer.read()
    return time.perf_counter() - began


def paths_of(now: int) -> dict[str, str]:
    """Return the pages that are asked for: of the cluster with most trouble, and of one without."""
    lost, well, at = name_of(13), name_of(1), now - 3600 * SECOND
    return {
        "a health check": "/-/healthy",
        "fleet": links.fleet(),
        "cluster in trouble": links.cluster(lost),
        "cluster, well": links.cluster(well),
        "broker": links.broker(lost, 6),
        "topic": links.topic(lost, "topic-00001"),
        "incident": links.incident(f"{lost}-{INCIDENTS}"),
        "incidents": links.incidents(),
        "fleet, at a moment": links.fleet(at),
        "cluster, at a moment": links.cluster(lost, at),
        "incident, at a moment": links.incident(f"{lost}-{INCIDENTS - 1}", at),
    }


def measure(clusters: int, partitions: int, requests: int) -> None:
    """Measure every page, and print it."""
    with tempfile.TemporaryDirectory() as folder:
        now = write_clusters(Path(folder), clusters, partitions)
        with child(serve, folder) as (pipe, pid):
            address = pipe.recv()
            while not _is_ready(address):
                time.sleep(0.2)
            time.sleep(2)
            print(f"{clusters:,} clusters, {clusters * partitions:,} partitions, {INCIDENTS * clusters:,} incidents")
            for name, path in paths_of(now).items():
                count = max(5, requests // 10) if "moment" in name else requests
                before = cpu_seconds(pid).total()
                times = spread([seconds_of(address, path) for _ in range(count)])
                used = 1000 * (cpu_seconds(pid).total() - before) / count
                print(f"  {name:22} {times}   CPU {used:6.1f} ms", flush=True)
            pipe.send(None)


def read_pages(pipe: Connection, address: str, paths: list[str], readers: int) -> None:
    """Read pages, each reader one a second, until the measurement is over."""
    pipe.send(None)
    with ThreadPoolExecutor(readers) as pool:
        while not pipe.poll():
            began = time.monotonic()
            list(pool.map(lambda number: seconds_of(address, paths[number % len(paths)]), range(readers)))
            time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))


def measure_scrapes(partitions: int, scrapes: int, readers: int) -> None:
    """Measure scrapes of ten clusters alone and beside readers, in turn, and print both."""
    with tempfile.TemporaryDirectory() as folder:
        now = write_clusters(Path(folder), 20, partitions // 2)
        with child(serve, folder) as (pipe, _):
            address = pipe.recv()
            while not _is_ready(address):
                time.sleep(0.2)
            paths = [path for name, path in paths_of(now).items() if "check" not in name and "moment" not in name]
            alone, beside = list[float](), list[float]()
            for _ in range(2):
                alone += _scraped(address, scrapes)
                with child(read_pages, address, paths, readers) as (reading, _):
                    reading.recv()
                    time.sleep(1)
                    beside += _scraped(address, scrapes)
                    reading.send(None)
            print(f"scrapes of {20 * (partitions // 2):,} partitions")
            print(f"  {'alone':22} {spread(alone)}")
            print(f"  {f'beside {readers} readers':22} {spread(beside)}", flush=True)
            pipe.send(None)


def _scraped(address: str, scrapes: int) -> list[float]:
    times = []
    for _ in range(scrapes):
        times.append(seconds_of(address, "/metrics"))
        time.sleep(0.15)  # longer than a body is shared
    return times


def _is_ready(address: str) -> bool:
    try:
        return seconds_of(address, links.cluster(name_of(13))) > 0
    except OSError:
        return False


def main() -> None:
    """Measure one size."""
    arguments = options(__doc__, clusters=100, partitions=1000, requests=100, readers=20)
    measure(arguments.clusters, arguments.partitions, arguments.requests)
    measure_scrapes(arguments.partitions, arguments.requests, arguments.readers)


if __name__ == "__main__":
    main()
