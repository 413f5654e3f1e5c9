"""How long the job needs for what came while it was down: it is stopped, the bus is filled, and it is started again.

    python -m tests.benchmarks.catch_up [--partitions 10000] [--minutes 60]

What a collector with the default intervals writes in that time: a full report each five minutes, a heartbeat each five
seconds, and each ten seconds the offsets of every replica. Each ten minutes a broker dies and returns, which changes
every partition that it hosts twice; between them an ISR shrinks and grows each second. A channel has caught up when
everything on the bus is committed. All times count from the start of the program; those of Spark are part of them.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import encode_frame
from streaming.bus.log import WritableLog
from streaming.contracts.observations import Channel, Heartbeat
from streaming.delta.log.commit import applied_position
from streaming.delta.log.queries import plain, query
from streaming.delta.log.storage import open_table
from tests.benchmarks._cluster import SOURCE, Cluster, open_log
from tests.benchmarks._processes import cpu_seconds
from tests.benchmarks._running import installation, options
from tests.benchmarks.storm import BROKER, BROKERS, death_and_return
from tests.plugins.pipeline import Pipeline

SECOND: Final = 1_000_000
SAMPLES: Final = "admin:bench"
TABLES: Final = {Channel.REPLICATION: ("partition_changes", SOURCE), Channel.SAMPLES: ("replica_offsets", SAMPLES)}
HEARTBEAT_SECONDS, OFFSETS_SECONDS, REPORT_SECONDS, DEATH_SECONDS = 5, 10, 300, 600
PATIENCE_SECONDS: Final = 1_800.0


@dataclass
class Backlog:
    """A cluster at a moment of the past that moves on, and what was written of it: records and what they hold."""

    cluster: Cluster
    samples: WritableLog
    now: int
    sampled_at: int = 0
    records: dict[Channel, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    held: dict[Channel, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))

    def second(self, number: int, dice: random.Random, hosted: list[int]) -> None:
        """Write one second."""
        self.now += SECOND
        if number % REPORT_SECONDS == 0:
            self._send(self.cluster.snapshot(), 0)
        if number % DEATH_SECONDS == DEATH_SECONDS // 2:
            self._send(death_and_return(self.cluster, hosted), 2 * len(hosted))
        elif number % HEARTBEAT_SECONDS == 0:
            self._send([self.cluster.numbered(Heartbeat(**self.cluster.envelope()))], 0)
        one = dice.choice(hosted)
        self._send([*self.cluster.changes([one]), *self.cluster.changes([one])], 2)
        if number % OFFSETS_SECONDS == 0:
            self._send_offsets()

    def _send(self, payloads: list[bytes], changes: int) -> None:
        self.cluster.send(payloads)
        self.records[Channel.REPLICATION] += len(payloads)
        self.held[Channel.REPLICATION] += changes

    def _send_offsets(self) -> None:
        self.sampled_at = self.now
        every = range(self.cluster.partitions)
        for payload, samples in self.cluster.offsets(SAMPLES, every, self.records[Channel.SAMPLES]):
            self.samples.append(encode_frame(payload))
            self.records[Channel.SAMPLES] += 1
            self.held[Channel.SAMPLES] += samples


def is_behind(pipeline: Pipeline, reader: DirectoryReader, channel: Channel, sampled_at: int) -> bool:
    """Return whether something of a channel is not committed; samples are by the time of the last ones."""
    name, source = TABLES[channel]
    table = open_table(pipeline.tables / name)
    if table is None:
        return True
    if channel is Channel.REPLICATION:
        return reader.bytes_behind(channel, source, applied_position(table, source))[1] > 0
    newest = plain(query(table, "SELECT max(collected_at) AS newest FROM rows"))["newest"][0].as_py()
    return newest is None or newest < sampled_at


def caught_up(pipeline: Pipeline, sampled_at: int) -> dict[Channel, float]:
    """Wait until each channel has nothing more to apply; give the moments."""
    reader, moments = DirectoryReader(pipeline.bus), dict[Channel, float]()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(moments) < len(TABLES):
        if time.monotonic() > deadline:
            raise SystemExit(f"not caught up after {PATIENCE_SECONDS:.0f} s: {pipeline.programs[-1].text()[-2000:]}")
        for channel in TABLES:
            if channel not in moments and not is_behind(pipeline, reader, channel, sampled_at):
                moments[channel] = time.time()
        time.sleep(0.2)
    return moments


def measure(partitions: int, minutes: int) -> None:
    now = time.time_ns() // 1000
    with ExitStack() as stack:
        pipeline = stack.enter_context(installation())
        log = open_log(pipeline.bus, Channel.REPLICATION, SOURCE)
        samples = open_log(pipeline.bus, Channel.SAMPLES, SAMPLES)
        for each in (log, samples):
            stack.callback(each.close)
        backlog = Backlog(Cluster(log, partitions, BROKERS.get(partitions, 10), away=BROKER), samples, now)
        backlog.now -= minutes * 60 * SECOND
        backlog.cluster.clock = lambda: backlog.now
        hosted, dice = backlog.cluster.hosted_by(BROKER), random.Random(1)
        backlog.second(0, dice, hosted)
        before = pipeline.job()
        caught_up(pipeline, backlog.sampled_at)
        before.stop()
        backlog.records, backlog.held = dict.fromkeys(TABLES, 0), dict.fromkeys(TABLES, 0)
        sizes = ends(pipeline)
        for number in range(1, minutes * 60):
            backlog.second(number, dice, hosted)
        sizes = {channel: end - sizes[channel] for channel, end in ends(pipeline).items()}
        began = time.time()
        job = pipeline.start("restarted", "job", *pipeline.job_arguments())
        pipeline.eventually(lambda: "running" in job.text(), "the job runs", job)
        started = time.time()
        moments = caught_up(pipeline, backlog.sampled_at)
        spent = cpu_seconds(job.pid).total()
    print(f"{partitions:,} partitions, a backlog of {minutes} minutes; the job runs after {started - began:.1f} s")
    for channel, moment in moments.items():
        seconds, what = moment - began, "changes" if channel is Channel.REPLICATION else "samples"
        rate, factor = backlog.records[channel] / seconds, minutes * 60 / seconds
        print(
            f"  {channel:12}{backlog.records[channel]:8,} records of {backlog.held[channel]:10,} {what}, "
            f"{sizes[channel] / 1e6:7.1f} MB, in {seconds:6.1f} s: {rate:8,.0f} records/s, "
            f"{backlog.held[channel] / seconds:10,.0f} {what}/s, {factor:5.0f} x real time"
        )
    print(f"  CPU of the job {spent:.1f} s; load average {os.getloadavg()[0]:.1f}", flush=True)


def ends(pipeline: Pipeline) -> dict[Channel, int]:
    """Give how long the log of each channel is."""
    reader = DirectoryReader(pipeline.bus)
    return {channel: reader.end_positions(channel)[source] for channel, (_, source) in TABLES.items()}


def main() -> None:
    arguments = options(__doc__, partitions=[10_000], minutes=60)
    for partitions in arguments.partitions:
        measure(partitions, arguments.minutes)


if __name__ == "__main__":
    main()
