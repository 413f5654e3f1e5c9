"""What the sources of one configuration learn from each other."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.sample_blocks import BrokerMetricsObserved
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.append_times import AppendTimes
from streaming.sources.broker_metrics_names import MAX_LAG
from streaming.sources.opening import open_sources
from streaming.sources.timer import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.plugins.fake_kafka import FakeKafka


LOCAL_TIME = "kafka_network_requestmetrics_localtimems"


class Exporter(BaseHTTPRequestHandler):
    """Has three metrics; each scrape there were 100 more produce requests of 40 ms."""

    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 100
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f'{MAX_LAG}{{clientId="Replica"}} 1.0\n'.encode())
        self.wfile.write(f'{LOCAL_TIME}_count{{request="Produce"}} {self.requests}.0\n'.encode())
        self.wfile.write(f'{LOCAL_TIME}_mean{{request="Produce"}} 40.0\n'.encode())

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def test_metrics_of_brokers_are_of_the_cluster_that_is_polled_also_after_it_was_rebuilt(
    fake_kafka: Callable[[int], FakeKafka], tmp_path: Path
) -> None:
    exporter = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    cluster = fake_kafka(1)
    settings = Settings(
        cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers, name="main"),
        collect=CollectSettings(
            primary_source="poll",
            poll_seconds=0.1,
            broker_metrics={"1": f"http://127.0.0.1:{exporter.server_port}/metrics"},
            broker_metrics_seconds=0.1,
        ),
    )
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
        exporter.shutdown()
        exporter.server_close()
    assert list(dict.fromkeys(seen)) == ["first", "rebuilt"]
    assert append_times.newest(monotonic()) == {1: 40_000}
