"""What a round of samples costs the collector: CPU, memory, requests and bytes; beside the ways of other exporters.

    python -m tests.benchmarks.sampling [--partitions 1000 10000 50000] [--rounds 5]

Brokers are stand-ins in a process of their own, which speak Kafka's protocol and answer a repeated question from
memory. Every kind of sample is asked for once a round. Beside it, with our own connections and encoding: one request
for each partition and offset, as exporters do that ask leaders partition by partition; and one for each broker and
offset, of leaders only. Then with a broker that is dead, and with one that hangs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.codec import encode
from streaming.contracts.sample_blocks import SamplesBlock
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.address import Address
from streaming.sources.admin_broker import ConnectedBrokers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.peers import Peers
from streaming.sources.protocol.security import Security
from streaming.sources.samples.listed_offsets import HIGH_WATERMARK, LOG_START, list_offsets
from streaming.sources.samples.offsets import hosted_by
from streaming.sources.samples.opening import open_samples
from streaming.sources.timer import wall_clock
from tests.benchmarks._processes import memory
from tests.plugins.fake_kafka import FakeKafka

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection as Pipe

    from streaming.sources.samples.source import SamplesSource

ROUND_SECONDS: Final = 4.0
KINDS: Final = ("offsets", "groups")
BROKERS: Final = 6
PARTITIONS_OF_A_TOPIC: Final = 50
_CORRELATION: Final = slice(4, 8)  # of a request; of a response, behind its size, the same


class Remembering(FakeKafka):
    """Answers a question that was put before with the same bytes."""

    def __init__(self, brokers: int) -> None:
        self._given: dict[tuple[int, bytes], bytes] = {}
        super().__init__(brokers)

    def _answered(self, broker: int, data: bytes) -> bytes:
        question = broker, data[:4] + data[8:]
        if question not in self._given:
            self._given[question] = super()._answered(broker, data)
            self.requests.clear()
        given = self._given[question]
        return given[:4] + data[_CORRELATION] + given[8:]


def serve(pipe: Pipe, partitions: int) -> None:
    """Run the brokers until the pipe ends; each message is a broker and what becomes of it."""
    cluster = Remembering(BROKERS)
    for topic in range(-(-partitions // PARTITIONS_OF_A_TOPIC)):
        count = min(PARTITIONS_OF_A_TOPIC, partitions - topic * PARTITIONS_OF_A_TOPIC)
        cluster.create_topic(f"orders-{topic:05d}", partitions=count, replicas=3)
        for part in cluster.view.topics[f"orders-{topic:05d}"].parts:
            part.ends = dict.fromkeys(part.replicas, 1_000_000)
    pipe.send(dict(cluster.ports))
    while True:
        try:
            broker, what = pipe.recv()
        except EOFError:
            break
        {"dead": cluster.disconnect, "hung": lambda each: cluster.hang(each, 3_600_000)}[what](broker)
        pipe.send(None)
    cluster.close()


class Round(NamedTuple):
    """What a round cost, on average."""

    cpu_seconds: float
    requests: float
    received_bytes: float
    written_bytes: float = 0
    samples: float = 0

    def __str__(self) -> str:
        return (
            f"{self.cpu_seconds:7.3f} CPU s {self.requests:9,.0f} requests {self.received_bytes / 1e6:7.2f} MB in "
            f"{self.written_bytes / 1e6:7.2f} MB to the bus {self.samples:10,.0f} samples"
        )


class Meter:
    """Measures what happens between two moments, of this process and of its connections."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._before = self._now()

    def _now(self) -> tuple[float, int, int]:
        peers = self._peers.all().values()
        return time.process_time(), sum(each.requests for each in peers), sum(each.received_bytes for each in peers)

    def round(self, rounds: int, written: Counter[str]) -> Round:
        cpu, requests, received = (now - before for now, before in zip(self._now(), self._before, strict=True))
        counts = (cpu, requests, received, written["bytes"], written["samples"])
        return Round(*(count / rounds for count in counts))


def sampled(servers: str, collect: CollectSettings, seconds: float, warm: float) -> tuple[Round, float]:
    """Take samples for so long, after a time in which everything was asked once; return also the cores used."""
    settings = Settings(cluster=ClusterSettings(bootstrap_servers=servers), collect=collect)
    (source,) = open_samples(settings, print)
    taken(source, warm)
    meter, began, used = Meter(source.peers), time.monotonic(), time.process_time()
    written = taken(source, seconds)
    cores = (time.process_time() - used) / (time.monotonic() - began)
    source.close()
    return meter.round(max(1, round(seconds / collect.offsets_seconds)), written), cores


def taken(source: SamplesSource, seconds: float) -> Counter[str]:
    """Take samples, and encode them as the bus has them."""
    written: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for observed in source.poll(wall_clock()):
            written["bytes"] += len(encode(observed))
            written["samples"] += len(observed) if isinstance(observed, SamplesBlock) else 1
    return written


def of_others(ports: Mapping[int, int], *, by_partition: bool) -> Round:
    """Ask the leaders for the first and the last offset of each partition, as others do."""
    peers = Peers()
    dial = dialer(Security(), peers)
    connections = {broker: dial(Address("127.0.0.1", port), response_seconds=60.0) for broker, port in ports.items()}
    meter = Meter(peers)
    view = ConnectedBrokers(dial, cluster="bench", seconds=60.0).view(connections[min(connections)])
    for broker, hosted in hosted_by(view).items():
        for spec in (LOG_START, HIGH_WATERMARK):
            asked = [{topic: [number]} for topic, numbers in hosted.led.items() for number in numbers]
            for partitions in asked if by_partition else [hosted.led]:
                list_offsets(connections[broker], spec, partitions)
    return meter.round(1, Counter())


def measure(partitions: int, rounds: int) -> None:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, partitions), daemon=True)
    process.start()
    theirs.close()
    ports = ours.recv()
    servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    every = {f"{kind}_seconds": ROUND_SECONDS for kind in KINDS}
    collect = CollectSettings(config_seconds=ROUND_SECONDS, **every)
    warm = 2 * ROUND_SECONDS + partitions / 1_000  # the stand-ins compose each answer once
    print(f"{partitions:,} partitions of 3 replicas, {BROKERS} brokers", flush=True)
    for by_partition, name in ((True, "one request a partition"), (False, "one request a broker")):
        of_others(ports, by_partition=by_partition)
        print(f"  {name:24}{of_others(ports, by_partition=by_partition)}", flush=True)
    whole, _ = sampled(servers, collect, rounds * ROUND_SECONDS, warm)
    print(f"  {'all samples':24}{whole}; {memory(os.getpid())['driver'] / 1e6:.0f} MB (PSS)", flush=True)
    _, cores = sampled(servers, CollectSettings(), 60.0, 35.0)
    print(f"  {'default intervals':24}{cores:7.3f} cores", flush=True)
    for broker, what in ((BROKERS, "dead"), (BROKERS - 1, "hung")):
        ours.send((broker, what))
        ours.recv()
        harmed, _ = sampled(servers, collect, rounds * ROUND_SECONDS, warm)
        print(f"  {'one broker ' + what:24}{harmed}", flush=True)
    ours.close()
    process.join(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 10_000, 50_000])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for partitions in arguments.partitions:
        measure(partitions, arguments.rounds)


if __name__ == "__main__":
    main()
