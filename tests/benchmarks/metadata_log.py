"""How late a record of the metadata log is on the bus, beside samples of many partitions; storms; and the cost at rest.

    python -m tests.benchmarks.metadata_log [--partitions 10000] [--changes 300] [--storms 10] [--seconds 60]

Controller and brokers are stand-ins in processes of their own. The collector is that of ``isrwatch collect``, onto a
bus that is flushed to the disk. Measured from the moment at which the controller answers the Fetch with a record until
the observation of it is on the bus, for single changes at random moments: without samples, with samples at their
default intervals, and with every kind of sample four times a minute. A storm is one record batch with a change of each
of 10,000 partitions. At rest nothing changes, and the controller appends two empty records a second, as Kafka's does.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.blocks import PartitionsChanged
from streaming.contracts.observations import PartitionObserved, SnapshotEnd, SourceKind
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.collector.collector import Collector
from streaming.sources.collector.opening import open_collector, open_sources
from tests.benchmarks._controller import Controller, controller
from tests.benchmarks._processes import cpu_seconds, memory
from tests.benchmarks._running import child, options, spread
from tests.benchmarks._stand_ins import Size, brokers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection as Pipe

    from streaming.contracts.observations import Observation

STORM: Final = 10_000
GROUPS: Final = (300, 100)
OFTEN: Final = CollectSettings(**dict.fromkeys(
    ("offsets_seconds", "groups_seconds", "directories_seconds", "quorum_seconds", "transactions_seconds"), 4.0
))  # fmt: skip
SETTLING_SECONDS: Final = 15.0  # by which each kind of sample was asked for


class Noting(DirectoryPublisher):
    """Writes down when changes were on the bus, and how old they were then, in milliseconds."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "bus", segment_bytes=64 << 20)
        self._notes, self._ready = directory / "notes", directory / "ready"

    def publish(self, observations: Sequence[Observation]) -> None:
        super().publish(observations)
        now = time.time() * 1000
        if any(isinstance(each, SnapshotEnd) and each.authority is SourceKind.METADATA_LOG for each in observations):
            self._ready.touch()
        changes = [each for each in observations if isinstance(each, (PartitionObserved, PartitionsChanged))]
        changed = sum(len(each.partitions) if isinstance(each, PartitionsChanged) else 1 for each in changes)
        if changes and changes[-1].cause is not None:
            with self._notes.open("a") as notes:
                notes.write(f"{now - changes[-1].occurred_not_after / 1000:.3f} {changed}\n")


def collect(pipe: Pipe, settings: Settings, directory: Path, has_samples: bool) -> None:  # noqa: FBT001 - in a process
    """Collect until the pipe ends."""
    publisher = partial(Noting, directory)
    if has_samples:
        collector = open_collector(settings, directory / "bus", publisher, print)
    else:
        sources = open_sources(settings, directory / "bus", lambda _: None)
        collector = Collector(sources, publisher, cluster=settings.cluster.name)
    collector.start()
    pipe.send(None)
    pipe.poll(None)
    collector.stop()
    collector.wait()


class Running:
    """A collector in its process."""

    def __init__(self, pid: int, directory: Path) -> None:
        self.pid, self._directory = pid, directory
        self._seen = 0

    def delays(self, changes: int) -> list[float]:
        """Wait until so many changes are on the bus; give the seconds that each publication of them was late."""
        notes, until = self._directory / "notes", time.monotonic() + 60
        while True:
            lines = [line.split() for line in notes.read_text().splitlines()[self._seen :]] if notes.exists() else []
            if sum(int(count) for _, count in lines) >= changes:
                self._seen += len(lines)
                return [float(late) / 1000 for late, _ in lines]
            if time.monotonic() > until:
                found = sum(int(count) for _, count in lines)
                raise SystemExit(f"of {changes} changes only {found} are on the bus")
            time.sleep(0.01)

    def cpu(self) -> float:
        """Give the CPU seconds of the process that reads the log, without those of the samples."""
        return cpu_seconds(self.pid)["driver"]


@contextmanager
def collecting(servers: str, samples: CollectSettings | None) -> Iterator[Running]:
    """Run a collector, with samples or without any; the log was read before."""
    settings = Settings(cluster=ClusterSettings(bootstrap_servers=servers), collect=samples or CollectSettings())
    with (
        tempfile.TemporaryDirectory() as directory,
        child(collect, settings, Path(directory), samples is not None) as (pipe, pid),
    ):
        pipe.recv()
        while not (Path(directory) / "ready").exists():
            time.sleep(0.1)
        time.sleep(SETTLING_SECONDS)
        yield Running(pid, Path(directory))


def storms(of: Controller, collector: Running, count: int) -> None:
    """Raise storms one after the other, and print how late the last change of each was, and their CPU."""
    late, used = [], []
    for _ in range(count):
        before = collector.cpu()
        of.change(STORM)
        late.append(collector.delays(STORM)[-1])
        time.sleep(1.0)
        used.append(collector.cpu() - before)
    print(
        f"  storm of {STORM:,} records   median {statistics.median(late):6.3f} s, worst {max(late):.3f} s; "
        f"CPU of the process that reads the log {statistics.median(used):.2f} s",
        flush=True,
    )


def measure(partitions: int, changes: int, count: int, seconds: float) -> None:
    """Measure one cluster, and print it."""
    print(f"{partitions:,} partitions", flush=True)
    with controller(partitions) as log, brokers(Size(partitions, *GROUPS, controller=log.port)) as cluster:
        for name, samples in (("without samples", None), ("with samples", CollectSettings()), ("often", OFTEN)):
            with collecting(cluster.servers, samples) as collector:
                if samples is None:
                    before = collector.cpu()
                    time.sleep(seconds)
                    share = (collector.cpu() - before) / seconds
                    size = memory(collector.pid)["driver"] / 1e6
                    print(f"  at rest, {name}   {share:.2%} of a core, {size:.0f} MB (PSS)", flush=True)
                log.flap(changes, 0.1)
                print(
                    f"  single changes, {name:16} {spread(collector.delays(changes))}",
                    flush=True,
                )
                if samples is not OFTEN:
                    storms(log, collector, count)


def main() -> None:
    arguments = options(__doc__, partitions=[10_000], changes=300, storms=10, seconds=60.0)
    for partitions in arguments.partitions:
        measure(partitions, arguments.changes, arguments.storms, arguments.seconds)


if __name__ == "__main__":
    main()
