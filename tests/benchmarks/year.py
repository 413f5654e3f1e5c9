"""What a year leaves behind: commit, start, memory and disk at its end against the end of the second month.

    python -m tests.benchmarks.year [--days 365] [--second 60] [--partitions 10000] [--history-days 30] ...

``--second`` is the day with which the last one is compared; without it 60, or half of a run that is shorter than that.
Each day of the simulated clock has its incidents (nine of ten of at most 100 partitions, the tenth the loss of a
broker), topics that are created, get a minimum and are deleted again, groups that live for a day, and records that
cannot be read. All rows of a year are written; scaled are the commits: a day is a few of them instead of one per second
or two, so the rounds of maintenance, which count commits, come after every few. Payloads are those of the bus; batches
and tables are the job's own, without Spark, and the readers the exporter's.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from exporters.read_model.reader import TablesReader
from streaming.contracts.codec import encode
from streaming.contracts.events import Cause
from streaming.contracts.observations import (
    BrokerObserved,
    Channel,
    ConfigObserved,
    ConfigOrigin,
    Heartbeat,
    Observation,
    PartitionObserved,
    TopicRemoved,
)
from streaming.contracts.samples import GroupOffsetsObserved
from streaming.contracts.state import SourceLag
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log import maintenance
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.progress import ProgressTable
from streaming.jobs.incidents import IncidentsBatch
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.streams.bus_source import SCHEMA
from tests.benchmarks._cluster import SOURCE, Cluster
from tests.benchmarks._processes import peak
from tests.benchmarks._running import child, timed
from tests.plugins.batches import store_progress

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
BEGAN: Final = 1_735_689_600 * SECOND  # 1 January 2025
LARGEST_OF_MOST: Final = 100
OUTAGE: Final = 30 * SECOND
READER_MINUTES: Final = 0.2
"""Of the clock on the wall: files that were replaced are gone when the disk is measured."""
COMMITS_MEASURED: Final = 9
STARTS_MEASURED: Final = 3
GROWS_FOR_EVER: Final = ("partition_changes", "past_states", "replication_events")
MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What the cluster is, and what a day brings."""

    days: int = 365
    second: int = 60
    partitions: int = 10_000
    brokers: int = 30
    incidents: int = 20
    topics: int = 10
    groups: int = 1_000
    refused: int = 10
    history_days: int = 30
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds, bytes of memory of a process that has just started, and bytes on the disk by table."""

    commit: float
    start: float
    memory: int
    disk: dict[str, int]
    changes: int
    """Of partitions, by the incidents so far."""

    @property
    def on_disk(self) -> int:
        return sum(self.disk.values())


@dataclass
class YearCluster(Cluster):
    """The cluster, by a clock that is set."""

    now: int = BEGAN

    def envelope(self) -> dict[str, Any]:
        times = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), self.now)
        return {**super().envelope(), **times}

    def logged(self) -> dict[str, Any]:
        """Give the envelope of the next record."""
        self.offset += 1
        return self.envelope()


@dataclass
class Year:
    """The job's batches, and what they are given day by day."""

    directory: Path
    size: Size
    position: int = 0
    changes: int = 0
    randomness: random.Random = field(init=False)
    cluster: YearCluster = field(init=False)

    def __post_init__(self) -> None:
        size = self.size
        self.randomness = random.Random(size.seed)
        self.cluster = YearCluster(log=None, partitions=size.partitions, brokers=size.brokers)  # type: ignore[arg-type]
        self.open()
        self.apply(self.cluster.snapshot())
        self.derive()

    def open(self) -> None:
        """Start the queries, as a restart of the job does."""
        policy = RetentionPolicy(self.size.history_days, reader_minutes=READER_MINUTES, clock=lambda: self.cluster.now)
        self.replication = ReplicationBatch(self.directory, policy)
        self.incidents = IncidentsBatch(self.directory, 60.0, 900.0, policy)
        self.offsets = SampleBatch(self.directory, policy)
        self.progress = ProgressTable(self.directory, Channel.REPLICATION, policy)

    def day(self, number: int) -> None:
        """Let a day pass."""
        begin = BEGAN + number * DAY
        moments = [begin + DAY * nth // self.size.incidents + SECOND for nth in range(self.size.incidents)]
        payloads = [payload for moment in moments for payload in self.incident(moment)]
        self.cluster.now = moments[-1] + 3_600 * SECOND
        payloads += map(self.cluster.numbered, self.topics_of(number))
        self.cluster.now = begin + DAY - SECOND
        payloads += [b"no observation"] * self.size.refused
        payloads.append(self.cluster.numbered(Heartbeat(**self.cluster.logged())))
        self.apply(payloads)
        self.offsets.apply(self.rows(map(encode, self.groups_of(number)), "admin:bench"))
        self.derive()

    def incident(self, moment: int) -> Iterator[bytes]:
        """A follower lags on a few partitions; or a broker is lost, and with it all replicas that it has."""
        broker = self.randomness.randrange(self.size.brokers)
        hosted, is_loss = self.cluster.hosted_by(broker), self.randomness.random() < 0.1
        touched = hosted if is_loss else hosted[: self.randomness.randint(1, min(LARGEST_OF_MOST, len(hosted)))]
        cause = (Cause.FENCED if is_loss else Cause.LAG, Cause.EXPAND)
        self.cluster.away = broker
        for is_over in (False, True):
            self.cluster.now = moment + OUTAGE * is_over
            if is_loss:
                seen = BrokerObserved(**self.cluster.logged(), broker=broker, fenced=not is_over)
                yield self.cluster.numbered(seen)
            self.changes += len(touched)
            yield from self.cluster.changes(touched, cause)

    def topics_of(self, number: int) -> Iterator[Observation]:
        """Topics that exist for an hour, with a minimum of their own."""
        names = [(f"short-{number}-{nth}", f"{number:011d}{nth:011d}") for nth in range(self.size.topics)]
        for topic, topic_id in names:
            yield PartitionObserved(
                **self.cluster.logged(), topic_id=topic_id, topic=topic, partition=0, replicas=(0, 1, 2), isr=(0, 1, 2),
                leader=0, leader_epoch=0, partition_epoch=0,
            )  # fmt: skip
            logged = self.cluster.logged()
            yield ConfigObserved(**logged, topic=topic, key=MIN_ISR, value="2", origin=ConfigOrigin.LOG)
        for topic, topic_id in names:
            yield TopicRemoved(**self.cluster.logged(), topic_id=topic_id, topic=topic)

    def groups_of(self, number: int) -> Iterator[Observation]:
        """One group that stays, and those of this day."""
        first, last = (self.size.groups * each // self.size.days for each in (number, number + 1))
        envelope = self.cluster.envelope() | {"source": "admin:bench"}
        del envelope["metadata_offset"]
        for group in ("stays", *(f"short-{nth}" for nth in range(first, last))):
            for partition in range(10):
                yield GroupOffsetsObserved(
                    **envelope, group=group, topic_id="t", topic="orders", partition=partition, committed_offset=number,
                    high_watermark=number,
                )  # fmt: skip

    def rows(self, payloads: Any, source: str = SOURCE) -> pa.Table:
        """Give payloads as rows of the bus."""
        rows = []
        for payload in payloads:
            self.position += 1
            rows.append({"source": source, "position": self.position, "payload": payload, "damage": None})
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def apply(self, payloads: list[bytes]) -> None:
        self.replication.apply(self.rows(payloads))

    def derive(self) -> None:
        """Bring every table up to the change log."""
        self.replication.project()
        sources, version = self.replication.sources()
        self.progress.replace([(source, SourceLag()) for source in sources], version)
        path = self.directory / PARTITION_CHANGES.name
        self.incidents.apply(ChangeReader(path, self.incidents.version).poll(version))

    def measure(self) -> Measured:
        """Measure small commits, starts and what they take, and the disk after a round of maintenance."""
        commits = []
        for nth in range(COMMITS_MEASURED):
            self.cluster.now += SECOND
            payloads = self.cluster.changes([nth, nth + 1])
            commits.append(timed(lambda payloads=payloads: self.apply(payloads)))  # type: ignore[misc]
            self.derive()
        for nth in range(COMMITS_MEASURED):
            if nth > COMMITS_MEASURED - 3:
                time.sleep(READER_MINUTES * 60 + 1)
            self.cluster.now += SECOND
            self.apply(self.cluster.changes([nth, nth + 1]))
            self.derive()
        store_progress(self.directory, self.offsets)
        self.open()
        starts = [started(self.directory, self.size.history_days) for _ in range(STARTS_MEASURED)]
        return Measured(
            statistics.median(commits),
            statistics.median(start for start, _ in starts),
            int(statistics.median(memory for _, memory in starts)),
            disk_of(self.directory),
            self.changes,
        )


def started(directory: Path, history_days: int) -> tuple[float, int]:
    """Start job and exporter on the tables in a process of their own; give the seconds and the peak of its memory."""
    with child(start, directory, history_days) as (pipe, _):
        seconds, memory = pipe.recv()
    return seconds, memory


def start(pipe: Pipe, directory: Path, history_days: int) -> None:
    policy = RetentionPolicy(history_days)
    began = time.perf_counter()
    ReplicationBatch(directory, policy)
    IncidentsBatch(directory, 60.0, 900.0, policy)
    SampleBatch(directory, policy)
    TablesReader(directory).refresh()
    pipe.send((time.perf_counter() - began, peak()))


def disk_of(directory: Path) -> dict[str, int]:
    """Give the bytes of each table, log included."""
    sizes: Counter[str] = Counter()
    for file in directory.rglob("*"):
        if file.is_file() and file.parent != directory:
            sizes[file.relative_to(directory).parts[0]] += file.stat().st_size
    return dict(sizes)


def run(directory: Path, size: Size) -> dict[int, Measured]:
    """Let the year pass; give what was measured at the end of the day to compare with, and of the last one."""
    # A day is about two commits of each table: the rounds that come after 50 of them come after two.
    maintenance.COMMITS_BETWEEN_ROUNDS = 2
    maintenance.SECONDS_BETWEEN_SWEEPS = 0.0
    year, measured = Year(directory, size), {}
    for number in range(size.days):
        year.day(number)
        if number + 1 in (size.second, size.days):
            measured[number + 1] = year.measure()
            print(f"day {number + 1}", file=sys.stderr, flush=True)
    return measured


def table_of(measured: dict[int, Measured], size: Size) -> Iterator[str]:
    """Yield the lines of the result."""
    before, after = measured[size.second], measured[size.days]
    yield f"{size}; two commits a day and table instead of one a second"
    yield f"{'':28}{f'day {size.second}':>12}{f'day {size.days}':>12}{'ratio':>8}"
    lines: list[tuple[str, float, float, float, str]] = [
        ("commit of 2 changes", before.commit, after.commit, 1e3, "ms"),
        ("start of job and exporter", before.start, after.start, 1e3, "ms"),
        ("memory after the start", before.memory, after.memory, 1e-6, "MB"),
        ("disk", before.on_disk, after.on_disk, 1e-6, "MB"),
        *(
            (f"  {name}", before.disk.get(name, 0), after.disk.get(name, 0), 1e-6, "MB")
            for name in sorted(after.disk, key=lambda name: -after.disk[name])
        ),
    ]
    for name, one, other, factor, unit in lines:
        ratio = other / one if one else 0.0
        yield f"{name:28}{one * factor:9.2f} {unit}{other * factor:9.2f} {unit}{ratio:8.2f}"
    yield from growth_of(before, after, size)


def growth_of(before: Measured, after: Measured, size: Size) -> Iterator[str]:
    """Yield what the tables grow by. Days that are deleted meanwhile (``history_days``) make it less."""
    days, changes = size.days - size.second, after.changes - before.changes
    if not days or not changes:
        return
    grown = after.on_disk - before.on_disk
    yield f"growth of the disk: {grown / days / 1e6:.2f} MB a day, of {changes / days:.0f} changes; that is"
    per_incident = grown / days / size.incidents / 1e3
    yield f"{grown / changes / 1e3:.2f} MB for 1,000 changes, {per_incident:.0f} kB for an incident"


def parsed(arguments: list[str] | None = None) -> Size:
    """Return the size of the run.

    Raises:
        SystemExit: an option is wrong.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in ((name, getattr(Size(), name)) for name in Size.__dataclass_fields__):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=None if name == "second" else default)
    values = vars(parser.parse_args(arguments))
    days = values["days"]
    if values["second"] is None:
        values["second"] = min(Size().second, max(1, days // 2))
    if not 1 <= values["second"] <= days:
        parser.error(f"--second {values['second']}: name a day from 1 to --days {days}")
    return Size(**values)


def main() -> None:
    size = parsed()
    with tempfile.TemporaryDirectory() as folder:
        print(*table_of(run(Path(folder), size), size), sep="\n")


if __name__ == "__main__":
    main()
