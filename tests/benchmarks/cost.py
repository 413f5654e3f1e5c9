"""What `isrwatch run` costs: memory and CPU of its processes, by the number of clusters and of partitions.

    python -m tests.benchmarks.cost [--clusters 1 10 40] [--partitions 1000 10000 100000] [--seconds 60] [--again]
                                    [--write]

Brokers are stand-ins in processes of their own, which speak Kafka's protocol and in which nothing changes; all else is
real: ``isrwatch run`` with a configuration that names them, folders for bus and tables, default intervals, and a scrape
each 15 seconds. The clusters are polled. Partitions are those of all clusters together, of three replicas on six
brokers; there is a consumer group of 25 partitions for each hundred of them. Memory is PSS, which counts what processes
share once. CPU means something on an idle machine only.

For each number of clusters it runs once, and the clusters grow. A cell is measured once all partitions are in the
tables and have been for a while, and is written to ``cost.json`` beside this file; what is there already is left out,
unless ``--again``. ``--write`` renders the table of README.md; without, it is printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from docs.builder.costs import PARTS, README, RESULTS, SIZES, Cell, cells, rows, with_costs
from exporters.read_model.reader import TablesReader
from streaming.errors import IsrwatchError
from tests.benchmarks._processes import cpu_seconds, memory, tree
from tests.benchmarks._running import options
from tests.benchmarks._stand_ins import Brokers, Size, brokers
from tests.plugins.local_http import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PLANNERS_END_SECONDS: Final = 135.0
"""Spark's planners, processes of Python, end after two minutes."""
SETTLING_SECONDS: Final = 40.0, 2_000  # and one more for each so many partitions, whose answers stand-ins compose
LONGEST_START_SECONDS: Final = 600.0
SECONDS_BETWEEN_SCRAPES: Final = 15.0
PARTITIONS_OF_A_GROUP: Final = 25


class RunningMonitor:
    """`isrwatch run` as a process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, tables: Path) -> None:
        self._process, self._port = process, port
        self._tables = TablesReader(tables)

    def parts(self) -> dict[str, int]:
        """Return the processes by the command that they run."""
        named = {}
        for pid in tree(self._process.pid)[1:]:
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if "exporters.running.attached" in words:
                    named[words[words.index("exporters.running.attached") + 1]] = pid
        return named

    def partitions(self) -> int:
        """Count the partitions in the tables."""
        with suppress(IsrwatchError):
            clusters = self._tables.refresh().clusters.values()
            return sum(len(topic.partitions) for each in clusters for topic in each.topics.values())
        return 0

    def wait_for(self, partitions: int) -> None:
        """Wait until the tables have that many partitions.

        Raises:
            TimeoutError: they do not come.
        """
        deadline = time.monotonic() + LONGEST_START_SECONDS
        while (count := self.partitions()) < partitions:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"{count:,} of {partitions:,} partitions are in the tables")
            time.sleep(1)

    def scrape(self) -> None:
        """Do what Prometheus does."""
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/metrics", headers={"Accept-Encoding": "gzip"})
        with suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own
            answer.read()

    def cost(self, seconds: float) -> Cell:
        """Measure for that long."""
        roots = {"run": self._process.pid, **self.parts()}
        below = {name: pid for name, pid in roots.items() if name != "run"}
        before = {name: cpu_seconds(pid).total() for name, pid in roots.items()}
        time.sleep(seconds)
        spent = {name: (cpu_seconds(pid).total() - before[name]) / seconds for name, pid in roots.items()}
        size = {name: memory(pid).total() / 1e6 for name, pid in roots.items()}
        for each in (spent, size):
            each["run"] -= sum(each[name] for name in below)  # all others are below it
        return {name: (round(size[name]), round(max(0.0, spent[name]), 3)) for name in PARTS}


@contextmanager
def monitoring(clusters: list[Brokers]) -> Iterator[RunningMonitor]:
    """Run `isrwatch run` on clusters, with a scraper."""
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder, port = Path(name), free_port()
        config = folder / "isrwatch.toml"
        listens = f'[job]\nlisten = "127.0.0.1:{free_port()}"\n[export]\nlisten = "127.0.0.1:{port}"\n'
        collect = f'[collect]\nlisten = "127.0.0.1:{free_port()}"\nprimary_source = "poll"\n'
        each = (
            f'[[cluster]]\nname = "cluster-{n}"\nbootstrap_servers = "{c.servers}"\n' for n, c in enumerate(clusters)
        )
        config.write_text("".join(each) + collect + listens)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ISRWATCH_")}
        output = stack.enter_context((folder / "output.txt").open("wb"))
        command = [sys.executable, "-m", "streaming.commands", "run", "--config", f"{config}", "--data", f"{folder}"]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        stopped = threading.Event()
        monitor = RunningMonitor(process, port, folder / "tables")

        def scrape() -> None:
            while not stopped.wait(SECONDS_BETWEEN_SCRAPES):
                monitor.scrape()

        threading.Thread(target=scrape, daemon=True).start()
        try:
            yield monitor
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{(folder / 'output.txt').read_text()[-3000:]}") from None
        finally:
            stopped.set()
            process.terminate()
            process.wait(120)


def sized(partitions: int, clusters: int) -> Size:
    """Return the size of each of that many clusters; whole topics, if there are enough."""
    each = partitions // clusters
    return Size(each, max(1, each // 100), min(each, PARTITIONS_OF_A_GROUP))


def measure(clusters: int, sizes: list[int], seconds: float) -> Iterator[tuple[int, Cell]]:
    """Run once with that many clusters, which grow; yield the cost of each size."""
    with ExitStack() as stack:
        begun = [stack.enter_context(brokers(sized(sizes[0], clusters))) for _ in range(clusters)]
        monitor, began = stack.enter_context(monitoring(begun)), time.monotonic()
        for partitions in sizes:
            for cluster in begun:
                cluster.grow(sized(partitions, clusters))
            monitor.wait_for(partitions // clusters * clusters)
            settled_at = time.monotonic() + SETTLING_SECONDS[0] + partitions / SETTLING_SECONDS[1]
            time.sleep(max(settled_at, began + PLANNERS_END_SECONDS) - time.monotonic())
            yield partitions, monitor.cost(seconds)


def main() -> None:
    arguments = options(
        __doc__, clusters=[1, 10, 40], partitions=[1_000, 10_000, 100_000], seconds=60.0, again=False, write=False
    )
    for clusters in arguments.clusters:
        done = {} if arguments.again else cells()
        if missing := [each for each in sorted(arguments.partitions) if (clusters, each) not in done]:
            for partitions, cell in measure(clusters, missing, arguments.seconds):
                measured = {
                    f"{key[0]} {key[1]}": value
                    for key, value in sorted({**cells(), (clusters, partitions): cell}.items())
                }
                RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
                print(f"{clusters} clusters, {partitions:,} partitions: {cell}", flush=True)
    print("\n".join(rows(cells())))
    if arguments.write:
        for page in (README, SIZES):
            page.write_text(with_costs(page.read_text()))


if __name__ == "__main__":
    main()
