"""What the sources of one configuration learn from each other."""

from __future__ import annotations

import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.contracts.codec import decode
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.sample_blocks import BrokerMetricsObserved, BrokerSpeedsObserved
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.broker_metrics import MAX_LAG, AppendTimes
from streaming.sources.collector.opening import open_collector, open_sources
from streaming.sources.source import monotonic
from tests.blocks import speeds_of
from tests.sources.conftest import answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from tests.plugins.fake_kafka import FakeKafka


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
    seconds = {"poll_seconds": 0.1, "broker_metrics_seconds": 0.1, "offsets_seconds": 1.0}
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
    fake_kafka: Callable[..., FakeKafka], exporter: str, tmp_path: Path
) -> None:
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
            for source, end in reader.end_positions(Channel.OFFSETS).items():
                for frame in reader.read(Channel.OFFSETS, source, 0, end):
                    block = decode(frame.payload) if isinstance(frame, BusFrame) else None
                    if isinstance(block, BrokerSpeedsObserved):
                        found.append({broker: each.append_micros for broker, each in speeds_of(block).items()})
    finally:
        collector.stop()
        collector.wait()
    assert found[-1] == {1: 40_000, 2: None}
