"""A collector in another process publishes there; its lines, metrics and counts come back; it ends with this one.

And what the sources of one configuration learn from each other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.exposition import generate_latest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.contracts.codec import decode
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.sample_blocks import BrokerMetricsObserved, BrokerSpeedsObserved
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources import source
from streaming.sources.append_times import AppendTimes
from streaming.sources.broker_metrics import MAX_LAG
from streaming.sources.collector import opening
from streaming.sources.collector.collector import Collector
from streaming.sources.collector.opening import open_collector, open_sources
from streaming.sources.collector.separate import SeparateCollector
from streaming.sources.protocol.addresses import Peers
from streaming.sources.source import monotonic
from tests.blocks import speeds_of
from tests.sources.apart import NAME, NODE, open_after_a_failure, open_counting, open_hurried
from tests.sources.conftest import answer
from tests.sources.scripted import Scripted, heartbeat
from tests.sources.test_collector import running
from tests.sources.test_collectors import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from http.server import BaseHTTPRequestHandler

    from streaming.sources.source import Source
    from tests.plugins.fake_kafka import FakeKafka

    Start = Callable[..., tuple[Collector, Peers, list[str]]]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PAUSES", (0.01,))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(open_sources: Callable[..., Sequence[Source]]) -> tuple[Collector, Peers, list[str]]:
            peers, lines = Peers(), list[str]()
            publisher = partial(DirectoryPublisher, tmp_path / "bus", segment_bytes=1 << 20)
            apart = SeparateCollector(open_sources, publisher, cluster="c", name=NAME, peers=peers, report=lines.append)
            main = Scripted("admin:a", [heartbeat("admin:a", 1)])
            collector = Collector([main], publisher, cluster="c", report=lines.append, companions=[apart])
            stack.enter_context(running(collector))
            return collector, peers, lines

        yield started


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_it_publishes_and_reports_in_a_process_of_its_own(start: Start, tmp_path: Path) -> None:
    collector, peers, lines = start(partial(open_counting, tmp_path / "pid"))
    assert collector.names == ["admin:a", NAME]
    observed = f'observations_total{{cluster="c",source="{NAME}"}} 2.0'
    until(lambda: observed in generate_latest(collector.registry).decode())
    page = generate_latest(collector.registry).decode()
    assert page.count("# TYPE isrwatch_collector_source_up gauge") == 1
    assert f'source_up{{cluster="c",source="{NAME}"}} 1.0' in page
    assert 'source_up{cluster="c",source="admin:a"} 1.0' in page
    assert page == generate_latest(collector.registry).decode()  # nothing is added up at a scrape
    assert peers.at(NODE).requests == 3
    assert lines == ["opened"]
    pid = int((tmp_path / "pid").read_text())
    assert pid != os.getpid()
    collector.stop()
    collector.wait()
    assert not is_alive(pid)
    reader = DirectoryReader(tmp_path / "bus")
    assert sorted(reader.logs(Channel.REPLICATION)) == ["admin:a", NAME]


def test_a_process_that_ends_again_and_again_is_started_later_each_time_until_it_has_run_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "PAUSES", (1.0, 2.0, 5.0))
    pauses, long = source.RestartPauses(), source.STABLE_SECONDS + 1
    assert [pauses.after(seconds) for seconds in (0, 0, 0, 0, long, 0)] == [1.0, 2.0, 5.0, 5.0, 1.0, 2.0]


def test_what_ends_it_is_said_and_it_is_started_again(start: Start, tmp_path: Path) -> None:
    collector, peers, lines = start(partial(open_after_a_failure, tmp_path / "marker"))
    until(lambda: "opened" in lines)
    assert lines == [f"{NAME}: ssl.ca.location is missing; starting it again in 0.01 s", "opened"]
    until(lambda: peers.at(NODE).requests)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    until(lambda: lines[2:])
    assert lines[2] == f"{NAME}: its process ended with code -9; starting it again in 0.01 s"
    until(lambda: peers.at(NODE).requests == 6)
    assert collector.is_running


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """However that ended."""
    program = f"""
import time
from functools import partial
from pathlib import Path
from streaming.bus.directory import DirectoryPublisher
from streaming.sources.protocol.addresses import Peers
from streaming.sources.collector.separate import SeparateCollector
from tests.sources.apart import NAME, open_counting

if __name__ == "__main__":
    folder = Path({str(tmp_path)!r})
    SeparateCollector(
        partial(open_counting, folder / "pid"), partial(DirectoryPublisher, folder / "bus", segment_bytes=1 << 20),
        cluster="c", name=NAME, peers=Peers(), report=print,
    ).start()
    time.sleep(600)
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    with subprocess.Popen([sys.executable, script], env={**os.environ, "PYTHONPATH": str(Path.cwd())}) as parent:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        child = int((tmp_path / "pid").read_text())
        assert is_alive(child)
        parent.kill()
    until(lambda: not is_alive(child))


LOCAL_TIME = "kafka_network_requestmetrics_localtimems"


@pytest.fixture
def exporter(serve: Callable[..., str]) -> str:
    """The address of one with three metrics; each scrape there were 100 more produce requests of 40 ms."""
    requests = count(100, 100)
    produce = f'{LOCAL_TIME}_mean{{request="Produce"}} 40.0\n{LOCAL_TIME}_count{{request="Produce"}}'

    def handle(request: BaseHTTPRequestHandler) -> None:
        answer(f'{MAX_LAG}{{clientId="Replica"}} 1.0\n{produce} {next(requests)}.0\n')(request)

    return serve(handle)


def settings_of(cluster: FakeKafka, exporter: str) -> Settings:
    seconds = {"poll_interval": 0.1, "broker_metrics_interval": 0.1, "offsets_interval": 1.0}
    return Settings(
        cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers, name="main"),
        collect=CollectSettings(primary_source="poll", broker_metrics={"1": exporter}, **seconds),
    )


def test_metrics_of_brokers_are_of_the_cluster_that_is_polled_also_after_it_was_rebuilt(
    fake_kafka: Callable[..., FakeKafka], exporter: str, tmp_path: Path
) -> None:
    cluster = fake_kafka(1)
    settings = settings_of(cluster, exporter)
    append_times = AppendTimes([BrokerId(1)])
    sources = open_sources(settings, tmp_path, lambda _: None, append_times=append_times)
    seen: list[str] = []
    try:
        for cluster_id in ("first", "rebuilt"):
            cluster.cluster_id, deadline = cluster_id, time.monotonic() + 20
            while cluster_id not in seen or not append_times.newest(monotonic()):
                assert time.monotonic() < deadline
                found = [item for source in sources for item in source.poll(Micros(time.time_ns() // 1000))]
                seen += [item.cluster_id for item in found if isinstance(item, BrokerMetricsObserved)]
    finally:
        for source in sources:
            source.close()
    assert list(dict.fromkeys(seen)) == ["first", "rebuilt"]
    assert append_times.newest(monotonic()) == {1: 40_000}


def test_what_agents_say_of_appends_is_in_the_rounds_that_another_process_publishes(
    fake_kafka: Callable[..., FakeKafka], exporter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "open_samples", open_hurried)
    cluster, bus = fake_kafka(2, orders=2), tmp_path / "bus"
    publisher = partial(DirectoryPublisher, bus, segment_bytes=1 << 20)
    collector = open_collector(settings_of(cluster, exporter), bus, publisher, print)
    collector.start()
    found: list[dict[int, int | None]] = []
    deadline = time.monotonic() + 120
    try:
        while not found:
            assert time.monotonic() < deadline
            time.sleep(0.2)
            reader = DirectoryReader(bus)
            for source, end in reader.end_positions(Channel.SAMPLES).items():
                for frame in reader.read(Channel.SAMPLES, source, 0, end):
                    block = decode(frame.payload) if isinstance(frame, BusFrame) else None
                    if isinstance(block, BrokerSpeedsObserved):
                        found.append({broker: each.append_micros for broker, each in speeds_of(block).items()})
    finally:
        collector.stop()
        collector.wait()
    assert found[-1] == {1: 40_000, 2: None}
