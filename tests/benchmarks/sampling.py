"""What a round of samples costs: CPU, memory, requests, bytes and time; beside the ways of other exporters.

    python -m tests.benchmarks.sampling [--sizes 1000:300:10 10000:300:100:50] [--rounds 3] [--polled]

Brokers are stand-ins in a process of their own, which speak Kafka's protocol and answer a repeated question from
memory. Sizes are partitions, groups, partitions of a group and, if not 6, brokers. The collector runs as ``isrwatch
collect`` runs it: in its own process, onto a bus. It asks for what other exporters ask for: log start and high
watermark of each partition, log directories, groups and their committed offsets; then for every kind of sample once a
round; then at the intervals that are the default. Beside it, with our connections and encoding, and without anything
made of the answers:

- one request a partition: what exporters send that ask each leader for each partition and offset, and each coordinator
  for each group
- one request a broker: what exporters send that put all partitions of a leader, and all groups of a coordinator, into
  one request

Then every kind of sample while a broker is dead, and while one hangs. CPU, requests and bytes are those of a round.
How long a round takes, from its first question to its last answer, means something on an idle machine only.

At last all of a collector that polls the cluster, at the intervals that are the default (``--polled``: only this): at
rest, while a broker fails, is away and comes back, and while one hangs. Requests and bytes are those of a second, and
of the broker that is asked most.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.contracts.codec import decode
from streaming.contracts.observations import Channel, Observation
from streaming.contracts.sample_blocks import BrokerOffsetsObserved, BrokerSpeedsObserved, SamplesBlock
from streaming.settings import BusSettings, ClusterSettings, CollectSettings, Settings
from streaming.sources.collector.opening import open_collector
from streaming.sources.collector.separate import SeparateCollector
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.protocol.addresses import Address, Peers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.offset_messages import HIGH_WATERMARK, LOG_START, list_offsets
from streaming.sources.protocol.security import Security
from streaming.sources.samples.directories import describe_directories
from streaming.sources.samples.groups.blocks import committed_offsets
from streaming.sources.samples.groups.described import describe_groups, list_groups
from streaming.sources.samples.offsets import hosted_by
from streaming.sources.samples.source import open_samples, samples_name
from tests.benchmarks._processes import cpu_seconds, memory
from tests.benchmarks._running import child, options
from tests.benchmarks._stand_ins import Size, brokers

SECONDS_OF_A_ROUND: Final = 4.0, 5_000  # and one more for each so many partitions, which the stand-ins need
DEFAULT_INTERVALS_SECONDS: Final = 60.0  # in which each kind has come once
SIZES: Final = ("1000:300:10", "10000:300:10", "10000:300:100", "50000:300:100")
ALL_KINDS: Final = ("offsets", "groups", "directories", "quorum", "transactions", "config")
AS_OTHERS: Final = ALL_KINDS[:3]
NEVER_SECONDS: Final = 86_400.0
_AT_ONCE: Final = 500_000  # microseconds, within which the questions of one moment are put


class Round(NamedTuple):
    """What a round cost, on average; ``wall_seconds`` is that of the median."""

    cpu_seconds: float
    requests: float
    sent_bytes: float
    received_bytes: float
    wall_seconds: float
    written_bytes: float = 0
    samples: float = 0

    def __str__(self) -> str:
        written = f" {self.written_bytes / 1e6:7.2f} MB to the bus {self.samples:9,.0f} samples" if self.samples else ""
        return (
            f"{self.cpu_seconds:7.3f} CPU s {self.requests:8,.0f} requests {self.sent_bytes / 1e6:6.2f} MB out "
            f"{self.received_bytes / 1e6:6.2f} MB in {self.wall_seconds:7.2f} s wall{written}"
        )


def counted(peers: Peers) -> Counter[str]:
    total: Counter[str] = Counter()
    for counts in peers.counts().values():
        total.update(counts)
    return total


class Running:
    """A collector of samples in its process, and its bus."""

    def __init__(self, servers: str, collect: CollectSettings, bus: Path) -> None:
        self._round_seconds = collect.offsets_interval
        settings = Settings(cluster=ClusterSettings(bootstrap_servers=servers), collect=collect)
        self.peers, self._bus = Peers(), bus
        self._collector = SeparateCollector(
            partial(open_samples, settings),
            partial(DirectoryPublisher, bus, segment_bytes=settings.advanced.segment_bytes),
            cluster="bench",
            name=(name := samples_name(settings)),
            peers=self.peers,
            report=lambda line: print(f"    {line}", flush=True),
        )
        self._collector.start()
        while not (found := [each.pid for each in multiprocessing.active_children() if each.name == name]):
            time.sleep(0.01)
        self.pid: int = found[0]  # type: ignore[assignment] - it has started

    def rounds(self, count: int) -> Round:
        """Measure that many rounds."""
        began, counts, used = time.time(), counted(self.peers), cpu_seconds(self.pid).total()
        time.sleep(count * self._round_seconds)
        used = cpu_seconds(self.pid).total() - used
        counts = Counter({name: more - counts[name] for name, more in counted(self.peers).items()})
        written, ours = self._written_since(began)
        walls = sorted(walls_of(ours))
        return Round(
            cpu_seconds=used / count,
            requests=counts["requests"] / count,
            sent_bytes=counts["sent_bytes"] / count,
            received_bytes=counts["received_bytes"] / count,
            wall_seconds=walls[len(walls) // 2] if walls else 0.0,
            written_bytes=written / count,
            samples=sum(len(each) if isinstance(each, SamplesBlock) else 1 for each in ours) / count,
        )

    def cores(self, seconds: float) -> float:
        used = cpu_seconds(self.pid).total()
        time.sleep(seconds)
        return (cpu_seconds(self.pid).total() - used) / seconds

    def megabytes(self) -> float:
        return memory(self.pid).total() / 1e6

    def stop(self) -> None:
        self._collector.stop()
        self._collector.wait()

    def _written_since(self, moment: float) -> tuple[int, list[Observation]]:
        reader, size, found = DirectoryReader(self._bus), 0, list[Any]()
        for channel in Channel:
            for source, end in reader.end_positions(channel).items():
                for frame in reader.read(channel, source, 0, end):
                    if isinstance(frame, BusFrame):
                        observed = decode(frame.payload)
                        if observed.collected_at > moment * 1e6:
                            size, found = size + len(frame.payload), [*found, observed]
        return size, found


def walls_of(observed: list[Observation]) -> Iterator[float]:
    """Give the seconds of each round, from the question to the leaders, with which it begins, to its last answer."""
    # Requests that measure the speed of a broker are spread over the round.
    observed = [each for each in observed if not isinstance(each, BrokerSpeedsObserved)]
    blocks = (each for each in observed if isinstance(each, BrokerOffsetsObserved))
    of_leaders = (each for each in blocks if "high_watermark" in each.arrays)
    asked = sorted({each.occurred_not_before for each in of_leaders})
    starts = [at for before, at in pairwise([0, *asked]) if at - before > _AT_ONCE]
    for start, after in pairwise([*starts, 1 << 62]):
        window = range(start - _AT_ONCE, after - _AT_ONCE)
        answers = (each.collected_at for each in observed if each.occurred_not_before in window)
        yield (max(answers) - start) / 1e6


@contextmanager
def running(servers: str, collect: CollectSettings, warm: float) -> Iterator[Running]:
    """Run a collector, after a time in which everything was asked once."""
    with tempfile.TemporaryDirectory() as directory:
        collector = Running(servers, collect, Path(directory))
        time.sleep(warm)
        yield collector
        collector.stop()


def each_round(kinds: tuple[str, ...], round_seconds: float) -> CollectSettings:
    """Ask for these kinds once a round."""
    seconds = {f"{kind}_interval": round_seconds if kind in kinds else NEVER_SECONDS for kind in ALL_KINDS}
    return CollectSettings(**seconds)  # type: ignore[arg-type]


def of_others(ports: Mapping[int, int], *, one_by_one: bool) -> Round:
    """Ask for what others ask for, in their way."""
    peers = Peers()
    dial = dialer(Security(), peers)
    connections = {broker: dial(Address("127.0.0.1", port), response_seconds=60.0) for broker, port in ports.items()}
    before, used, began = counted(peers), time.process_time(), time.monotonic()
    view = ConnectedBrokers(dial, cluster="bench", seconds=60.0).view(connections[min(connections)])
    for broker, hosted in hosted_by(view).items():
        connection = connections[broker]
        for spec in (LOG_START, HIGH_WATERMARK):
            for asked in _each(hosted.led) if one_by_one else [hosted.led]:
                list_offsets(connection, spec, asked)
        if not one_by_one:
            describe_directories(connection)
        groups = list_groups(connection)
        describe_groups(connection, groups)
        for names in [[group] for group in groups] if one_by_one else [list(groups)]:
            committed_offsets(connection, names)
    used, wall = time.process_time() - used, time.monotonic() - began
    counts = Counter({name: more - before[name] for name, more in counted(peers).items()})
    for connection in connections.values():
        connection.close()
    return Round(used, counts["requests"], counts["sent_bytes"], counts["received_bytes"], wall)


def _each(led: Mapping[str, list[int]]) -> list[dict[str, list[int]]]:
    return [{topic: [number]} for topic, numbers in led.items() for number in numbers]


def measure(size: Size, rounds: int) -> None:
    """Measure one cluster, and print a table of it."""
    print(size, flush=True)
    round_seconds = SECONDS_OF_A_ROUND[0] + size.partitions / SECONDS_OF_A_ROUND[1]
    warm = 2 * round_seconds + (size.partitions + size.groups * size.partitions_of_a_group) / 2_000

    def show(what: str, cost: object) -> None:
        print(f"  {what:26}{cost}", flush=True)

    with brokers(size) as cluster:
        for one_by_one, name in ((True, "one request a partition"), (False, "one request a broker")):
            of_others(cluster.ports, one_by_one=one_by_one)  # the stand-ins compose each answer once
            show(name, of_others(cluster.ports, one_by_one=one_by_one))
        with running(cluster.servers, each_round(AS_OTHERS, round_seconds), warm) as collector:
            show("what they ask, by us", collector.rounds(rounds))
        with running(cluster.servers, each_round(ALL_KINDS, round_seconds), warm) as collector:
            show("every kind of sample", collector.rounds(rounds))
            for how, again in (("dead", "back"), ("hung", "awake")):
                cluster.harm(how, size.brokers)
                time.sleep(2 * round_seconds)
                show(f"  one broker {how}", collector.rounds(rounds))
                cluster.harm(again, size.brokers)
                time.sleep(3 * round_seconds)
        with running(cluster.servers, CollectSettings(), warm) as collector:
            cores = collector.cores(DEFAULT_INTERVALS_SECONDS)
            show("default intervals", f"{cores:7.3f} cores {collector.megabytes():5.0f} MB (PSS)")


class Load(NamedTuple):
    """What a second of polling costs: all brokers, and the one that is asked most.

    ``of_one`` are requests, bytes that it gets, and bytes that it sends.
    """

    cores: float
    requests: float
    of_one: tuple[float, float, float]
    megabytes: float

    def __str__(self) -> str:
        requests, received, sent = self.of_one
        return (
            f"{self.cores:7.3f} cores {self.requests:6.1f} requests/s; of a broker at most {requests:5.2f} requests/s "
            f"{received / 1e3:6.2f} kB/s in {sent / 1e3:7.2f} kB/s out; {self.megabytes:4.0f} MB (PSS)"
        )


def collect(pipe: Pipe, settings: Settings) -> None:
    """Run a collector until the pipe ends; each message asks for what was counted so far, by broker."""
    bus = Path(settings.bus.directory)
    publisher = partial(DirectoryPublisher, bus, segment_bytes=settings.advanced.segment_bytes)
    collector = open_collector(settings, bus, publisher, lambda line: print(f"    {line}", flush=True))
    collector.start()
    while True:
        try:
            pipe.recv()
        except EOFError:
            break
        pipe.send(connections_of(collector.registry))
    collector.stop()
    collector.wait()


def connections_of(registry: CollectorRegistry) -> dict[str, Counter[str]]:
    """Give what the metrics of connections count, by node."""
    found: dict[str, Counter[str]] = {}
    for metric in registry.collect():
        for sample in metric.samples:
            _, is_counted, name = sample.name.partition("_connection_")
            if is_counted and name in COUNTED:
                found.setdefault(sample.labels["node"], Counter())[name] += int(sample.value)
    return found


COUNTED: Final = ("requests_total", "sent_bytes_total", "received_bytes_total")


class Polling:
    """A collector that polls, in its process."""

    def __init__(self, pipe: Pipe, pid: int) -> None:
        self._pipe, self._pid = pipe, pid

    def load(self, seconds: float) -> Load:
        """Measure for that long."""
        used, before, began = cpu_seconds(self._pid).total(), self._counted(), time.monotonic()
        time.sleep(seconds)
        used, after = cpu_seconds(self._pid).total() - used, self._counted()
        passed = time.monotonic() - began
        more = {node: counts - before.get(node, Counter()) for node, counts in after.items()}
        requests, sent, received = (max(each[name] for each in more.values()) / passed for name in COUNTED)
        total = sum(each[COUNTED[0]] for each in more.values()) / passed
        return Load(used / passed, total, (requests, sent, received), memory(self._pid).total() / 1e6)

    def _counted(self) -> dict[str, Counter[str]]:
        self._pipe.send(None)
        counted: dict[str, Counter[str]] = self._pipe.recv()
        return counted


def measure_polling(size: Size, seconds: float) -> None:
    """Measure a collector of one cluster that is polled, at rest and while something happens."""
    print(f"{size}, polled", flush=True)
    with tempfile.TemporaryDirectory() as directory, brokers(size) as cluster:
        settings = Settings(
            cluster=ClusterSettings(name="bench", bootstrap_servers=cluster.servers),
            collect=CollectSettings(primary_source="poll"),
            bus=BusSettings(directory=directory),
        )
        with child(collect, settings) as (pipe, pid):
            polling = Polling(pipe, pid)
            time.sleep(seconds / 2 + size.partitions / 1_000)
            print(f"  {'quiet':26}{polling.load(seconds)}", flush=True)
            for harm, healing, what in (("failed", "returned", "a broker fails"), ("hung", "awake", "a broker hangs")):
                cluster.harm(harm, size.brokers)
                print(f"  {what:26}{polling.load(seconds / 2)}", flush=True)
                cluster.harm(healing, size.brokers)
                print(f"  {'  and is back':26}{polling.load(seconds / 2)}", flush=True)
                time.sleep(seconds / 2)


def main() -> None:
    arguments = options(__doc__, sizes=[*SIZES], rounds=3, polled=False)
    for each in arguments.sizes:
        size = Size(*map(int, each.split(":")))
        if not arguments.polled:
            measure(size, arguments.rounds)
        measure_polling(size, DEFAULT_INTERVALS_SECONDS)


if __name__ == "__main__":
    main()
