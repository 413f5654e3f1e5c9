"""How long a scrape takes beside people who read pages: 20 of them, each with another page every few seconds.

    python -m tests.benchmarks.readers [--partitions 10000] [--readers 20] [--think 5] [--rounds 20] [--scrapes 60]

The exporter and its moving cluster are those of ``tests.benchmarks.exporter``. Rounds without and with readers take
turns on one exporter, so that a change of the machine is in both. Readers go from page to page: all clusters, the
cluster, a topic, a broker, incidents. With ``--think 0`` each asks for the next page at once, which no person does.
"""

from __future__ import annotations

import statistics
import threading
import time
from multiprocessing.connection import Connection
from random import Random
from typing import Final, NamedTuple

from exporters.answers import links
from tests.benchmarks._running import child, options
from tests.benchmarks.exporter import BROKERS, OFFSETS_SECONDS, PARTITIONS_OF_A_TOPIC, _first, scrape, serve

_BETWEEN: Final = 0.03


class Reading(NamedTuple):
    """Readers of pages: how many, and how many seconds each looks at a page, on average."""

    address: str
    readers: int
    think: float
    partitions: int


def read(pipe: Connection, reading: Reading) -> None:
    """Read pages between "go" and "stop", and say how long each took."""
    while pipe.recv():
        is_over, seconds = threading.Event(), list[float]()
        threads = [
            threading.Thread(target=_read_pages, args=(reading, Random(each), is_over, seconds))
            for each in range(reading.readers)
        ]
        for each in threads:
            each.start()
        pipe.recv()
        is_over.set()
        for each in threads:
            each.join()
        pipe.send(seconds)


def _read_pages(reading: Reading, draw: Random, is_over: threading.Event, seconds: list[float]) -> None:
    topics = reading.partitions // PARTITIONS_OF_A_TOPIC
    while not is_over.wait(draw.uniform(0, 2 * reading.think)):
        name = f"topic-{draw.randrange(topics):05}"
        paths = (links.fleet(), links.cluster("bench"), links.topic("bench", name), links.incidents(),
                 links.broker("bench", draw.randint(1, BROKERS)))  # fmt: skip
        seconds.append(scrape(reading.address, draw.choice(paths))[0])


def scraped(address: str, scrapes: int) -> list[float]:
    """Scrape as Prometheus does, one after the other."""
    times = []
    for _ in range(scrapes):
        times.append(scrape(address)[0])
        time.sleep(_BETWEEN)
    return times


def main() -> None:
    """Measure, and print both."""
    given = options(__doc__, partitions=10_000, readers=20, think=5.0, rounds=20, scrapes=60)
    alone, beside, pages = list[float](), list[float](), list[float]()
    with child(serve, given.partitions) as (exporter, _):
        address = exporter.recv()
        while not _first(address):
            time.sleep(0.2)
        time.sleep(2 * OFFSETS_SECONDS)
        with child(read, Reading(address, given.readers, given.think, given.partitions)) as (readers, _):
            for _ in range(given.rounds):
                alone += scraped(address, given.scrapes)
                readers.send(True)
                beside += scraped(address, given.scrapes)
                readers.send(False)
                pages += readers.recv()
            readers.send(False)
        exporter.send(None)
        exporter.recv()
    print(f"{given.partitions:,} partitions, {given.readers} readers, a page of each every {given.think:g} s")
    for what, seconds in (("a scrape", alone), ("beside readers", beside), ("a page", pages)):
        _print(what, seconds)
    p50, p99 = (_percentile(beside, each) / _percentile(alone, each) - 1 for each in (50, 99))
    print(f"  beside readers a scrape takes {p50:+.0%} (p50), {p99:+.0%} (p99)", flush=True)


def _percentile(seconds: list[float], number: int) -> float:
    return statistics.quantiles(seconds, n=100, method="inclusive")[number - 1]


def _print(what: str, seconds: list[float]) -> None:
    cuts = "   ".join(f"p{each} {1000 * _percentile(seconds, each):6.1f} ms" for each in (50, 95, 99))
    print(f"  {what:16} {len(seconds):6,} times   {cuts}   worst {1000 * max(seconds):.1f} ms")


if __name__ == "__main__":
    main()
