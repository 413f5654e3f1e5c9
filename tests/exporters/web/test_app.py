"""The exporter over real HTTP, on a free port."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from exporters.metrics.exporter_metrics import PROCESS_METRICS
from exporters.metrics.exposition import Exposition
from exporters.metrics.kafka_exporter_names import DROP_IN_METRICS
from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import Refresher
from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.web.negotiation import prefers_openmetrics
from exporters.web.server import OPTION, Endpoints, serving
from streaming.errors import ConfigurationError
from streaming.movement import STILL_SECONDS, Motion
from streaming.runtime.listening import listen, listen_all
from streaming.settings import ExportSettings
from streaming.web.server import SECURITY_HEADERS
from tests.exporters.conftest import Rows, Tables
from tests.plugins.local_http import free_port, wait_until

REQUEST = Request({"type": "http"})
SETTINGS = ExportSettings(listen="127.0.0.1:0", refresh_interval=0.02)


def ask(address: str, path: str, **headers: str) -> tuple[int, Any, bytes]:
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def write_observed(tables: Tables, rows: Rows) -> None:
    """Write a cluster that was observed just now."""
    now = micros_now()
    shrink = {"event_id": "e1", "event": "isr_shrink", "event_broker": 2, "detail": None}
    tables.commit(
        rows.cluster_row(now),
        rows.broker(1, now),
        rows.partition("orders", 0, rows.state([1, 2], [1, 2], 1), now, is_baseline=True),
        rows.source(now),
    )
    tables.commit(rows.partition("orders", 1, rows.state([1, 2], [1], 1), now, events=[shrink], left_isr=[2]))


@pytest.fixture
def live_cluster(tables: Tables, rows: Rows) -> Tables:
    """A cluster that was observed just now."""
    write_observed(tables, rows)
    return tables


@contextmanager
def served(directory: Path, settings: ExportSettings = SETTINGS) -> Iterator[str]:
    with serving(directory, settings) as address:
        wait_until(lambda: ask(address, "/-/ready")[0] == 200)
        yield address


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of a cluster that nobody changes, and that stays fresh until the last test has asked."""
    tables = Tables(tmp_path_factory.mktemp("observed") / "tables")
    write_observed(tables, Rows())
    with served(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        yield address


@pytest.fixture
def own_address(live_cluster: Tables) -> Iterator[str]:
    """A server of tables that the test may change."""
    with served(live_cluster.directory) as address:
        yield address


def test_before_the_tables_are_there_a_scrape_is_refused_with_the_reason(tables: Any, rows: Any) -> None:
    why = f"there are no tables in {tables.directory} yet"
    with serving(tables.directory, SETTINGS) as address:
        for path in ("/metrics", "/-/ready"):
            status, _, body = ask(address, path)
            assert (status, body.decode()) == (503, f"{why}; start isrwatch job\n")
        assert why in ask(address, "/")[2].decode()
        assert ask(address, "/-/healthy")[0] == 200
        tables.commit(rows.cluster_row(), rows.source(rows.start))
        wait_until(lambda: b"kafka_replication_cluster_info" in ask(address, "/metrics")[2])
        assert ask(address, "/-/ready")[0] == 200


def test_a_scrape_is_text_and_gzip_where_it_is_accepted(address: str) -> None:
    _, headers, body = ask(address, "/metrics?name[]=kafka_brokers")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "Content-Encoding" not in headers
    for accepted in ("gzip", "deflate, gzip;q=1.0", "*", "*;q=0, gzip", "GZIP;Q=0.5"):
        _, headers, zipped = ask(address, "/metrics?name[]=kafka_brokers", **{"Accept-Encoding": accepted})
        assert headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(zipped) == body
    for refused in ("gzip;q=0", "gzip; q=0.0", "br", "*, gzip;q=0", "gzip;q=x", "identity;q=0"):
        _, headers, plain = ask(address, "/metrics?name[]=kafka_brokers", **{"Accept-Encoding": refused})
        assert ("Content-Encoding" not in headers, plain) == (True, body)


def test_an_unknown_cluster_is_refused_by_name(address: str) -> None:
    status, _, body = ask(address, "/metrics?cluster=nobody")
    assert (status, body) == (404, b"unknown cluster nobody; known: main\n")
    assert ask(address, "/metrics?cluster=main")[0] == 200


def test_several_clusters_each_have_the_names_of_kafka_exporter_at_a_path_of_their_own(
    own_address: str, live_cluster: Any, other_rows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    shown = 'kafka_replication_exporter_drop_in_names{cluster="main",path="/clusters/main/metrics"}'
    assert f"{shown} 1" in ask(own_address, "/metrics")[2].decode()
    now = micros_now()
    other_rows.cluster = "the/second 2"
    state = other_rows.state([1], [1], 1, min_isr=1)
    live_cluster.commit(
        other_rows.cluster_row(now), other_rows.partition("bills", 0, state, now), other_rows.source(now)
    )
    wait_until(lambda: f"{shown} 0" in ask(own_address, "/metrics")[2].decode())
    together = ask(own_address, "/metrics")[2].decode()
    path = "/clusters/the%2Fsecond%202/metrics"
    assert f'kafka_replication_exporter_drop_in_names{{cluster="the/second 2",path="{path}"}} 0' in together
    assert "kafka_topic_partitions{" not in together
    for each, topic in (("/clusters/main/metrics", '{topic="orders"} 2'), (path, '{topic="bills"} 1')):
        body = ask(own_address, f"{each}?name[]=kafka_topic_partitions")[2]
        assert body.decode().splitlines()[2:] == [f"kafka_topic_partitions{topic}"]
    alone = ask(own_address, "/clusters/main/metrics")[2].decode()
    # Nothing else: what is at /metrics would be there twice for who scrapes both.
    assert {line.split("{")[0].split()[0] for line in alone.splitlines() if line[0] != "#"} <= {
        metric.name for metric in DROP_IN_METRICS
    }
    assert ask(own_address, "/clusters/main/metrics?name[]=kafka_replication_build_info")[2] == b""
    assert ask(own_address, "/clusters/nobody/metrics")[0] == 404
    said = [each.message for each in caplog.records if each.name == "exporters.web.server"]
    assert [each.partition("kafka_exporter")[2] for each in said] == [
        f", which have no label for the cluster, are only at /clusters/main/metrics, {path}"
    ]


def test_the_names_of_mbeans_are_at_a_path_of_their_own(address: str) -> None:
    body = ask(address, "/metrics/jmx")[2].decode()
    assert 'kafka_server_replicamanager_underreplicatedpartitions{kafka_cluster="main",instance="1"} 1' in body
    assert "kafka_replication_" not in body
    assert ask(address, "/metrics/jmx?cluster=nobody")[0] == 404


def test_requests_are_counted_by_the_pattern_of_their_path(own_address: str) -> None:
    for path in ("/clusters/main/metrics", "/clusters/nobody/metrics", "/api/v1/clusters", "/wp-login.php", "/a/b"):
        ask(own_address, path)
    text = ask(own_address, "/metrics")[2].decode()
    for handler, code, times in (
        ("/clusters/{cluster:path}/metrics", 200, 1), ("/clusters/{cluster:path}/metrics", 404, 1),
        ("/api/v1/clusters", 200, 1), ("/api/v1/events", 200, 0), ("other", 404, 2),
    ):  # fmt: skip
        assert f'_exporter_http_requests_total{{handler="{handler}",code="{code}"}} {times}\n' in text
    (seconds,) = re.findall(r'_request_duration_seconds_total{handler="/api/v1/clusters"} (\S+)', text)
    assert 0 < float(seconds) < 30


def test_every_response_has_the_security_headers(address: str) -> None:
    for path in ("/", "/metrics", "/healthz", "/api/v1/clusters", "/runbook", "/runbook/IsrwatchBlind", "/nowhere"):
        headers = ask(address, path)[1]
        assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
    style = ask(address, "/")[2].partition(b"<style>")[2].partition(b"</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in SECURITY_HEADERS["Content-Security-Policy"]


def test_it_listens_on_several_addresses_and_serves_the_metrics_at_the_path_of_choice(live_cluster: Any) -> None:
    ports = [free_port(), free_port()]
    listen_on = ", ".join(f"127.0.0.1:{port}" for port in ports)
    with serving(live_cluster.directory, replace(SETTINGS, listen=listen_on, telemetry_path="/probe/all")):
        for port in ports:
            other = f"127.0.0.1:{port}"
            wait_until(lambda server=other: ask(server, "/-/ready")[0] == 200)
            assert b"kafka_replication_cluster_info" in ask(other, "/probe/all")[2]
            assert ask(other, "/metrics")[0] == 404
            assert [ask(other, path)[0] for path in ("/metrics/jmx", "/clusters/main/metrics")] == [200, 200]
            assert ask(other, "/healthz")[2] == ask(other, "/-/healthy")[2] != b""
            assert b'href="./probe/all"' in ask(other, "/")[2]


def test_of_several_addresses_none_stays_open_when_one_is_taken(address: str) -> None:
    port = free_port()
    with pytest.raises(ConfigurationError, match=f"cannot listen on {address}: .*; choose another address"):
        listen_all(f"127.0.0.1:{port},{address}", OPTION)
    listen(f"127.0.0.1:{port}", OPTION).close()


@pytest.mark.parametrize("address", ["9308", "host:", "host:port", "host:70000", ""])
def test_an_address_that_is_none_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write host:port, for example 127\.0\.0\.1:9308"):
        listen(address, OPTION)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    if not socket.has_ipv6:
        pytest.fail("this machine has no IPv6; the loopback address is needed")
    opened = listen("[::1]:0", OPTION)
    try:
        assert opened.family == socket.AF_INET6
    finally:
        opened.close()


def test_tables_that_become_unreadable_are_counted_and_the_last_snapshot_is_kept(live_cluster: Any) -> None:
    refresher = Refresher(TablesReader(live_cluster.directory), 0.01, "1.2.3")
    refresher.refresh_once()
    good = refresher.snapshot
    log = live_cluster.directory / "partition_changes" / "_delta_log"
    (log / f"{good.version + 1:020}.json").write_text("{ not a commit", encoding="utf-8")
    refresher.refresh_once()
    refresher.refresh_once()
    assert refresher.snapshot is good
    assert refresher.health.refresh_errors == 2
    assert "Json error" in (refresher.last_error or "")
    (log / f"{good.version + 1:020}.json").unlink()
    refresher.refresh_once()
    assert refresher.last_error is None


def test_a_snapshot_that_cannot_be_rendered_is_counted_and_the_next_one_is_shown(
    live_cluster: Any, rows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    exposition, is_mended = Exposition(60.0), threading.Event()

    def prepare(snapshot: ReplicationSnapshot) -> bool:
        if snapshot.version == 3 and not is_mended.is_set():
            raise ValueError("cannot convert float NaN to integer")
        return exposition.prepare(snapshot, micros_now()).is_complete

    reader = TablesReader(live_cluster.directory, rest_after_error=0.05)
    refresher = Refresher(reader, 0.01, "1.2.3", prepare)
    endpoints = Endpoints(refresher, 60.0, exposition=exposition)
    refresher.start()
    try:
        wait_until(lambda: refresher.snapshot.version == 2)
        live_cluster.commit(rows.partition("orders", 1, rows.state([1, 2], [1, 2], 1), micros_now()))
        wait_until(lambda: refresher.health.refresh_errors >= 2)
        assert (refresher.snapshot.version, asyncio.run(endpoints.healthy(REQUEST)).status_code) == (2, 200)
        assert "ValueError: cannot convert float NaN to integer" in (refresher.last_error or "")
        left_out = "without what was read last, which cannot be shown: ValueError: cannot convert float NaN to integer"
        assert endpoints.ready(REQUEST).body.decode() == f"isrwatch export is ready\n{left_out}\n"
        assert list(endpoints.problems()) == [left_out]
        (logged,) = [each for each in caplog.records if each.exc_info]
        assert "the last state is served" in logged.getMessage()
        is_mended.set()
        wait_until(lambda: (refresher.snapshot.version, refresher.last_error, refresher.unshown) == (3, None, None))
        assert endpoints.ready(REQUEST).body == b"isrwatch export is ready\n"
    finally:
        refresher.stop()
        refresher.join()


def test_an_exporter_that_stopped_reading_is_not_healthy(live_cluster: Any) -> None:
    refresher = Refresher(TablesReader(live_cluster.directory), 0.01, "1.2.3")
    endpoints = Endpoints(refresher, 60.0)
    refresher.start()
    assert asyncio.run(endpoints.healthy(REQUEST)).status_code == 200
    refresher.stop()
    refresher.join()
    assert asyncio.run(endpoints.healthy(REQUEST)).status_code == 503


def test_an_exporter_whose_refresh_hangs_is_not_healthy_until_it_ends(
    live_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, hanging, hangs, released = 1000.0, threading.Event(), threading.Event(), threading.Event()

    class Hanging(TablesReader):
        def refresh(self) -> ReplicationSnapshot:
            if hanging.is_set():
                hangs.set()
                released.wait(30)
            return super().refresh()

    monkeypatch.setattr("exporters.read_model.refresher.Motion", lambda: Motion(lambda: now))
    refresher = Refresher(Hanging(live_cluster.directory), 0.01, "1.2.3")
    endpoints = Endpoints(refresher, 60.0)
    refresher.start()
    try:
        wait_until(lambda: refresher.snapshot.version == 2)
        hanging.set()
        assert hangs.wait(30)
        now += STILL_SECONDS + 1
        wait_until(lambda: asyncio.run(endpoints.healthy(REQUEST)).status_code == 503)
        text = asyncio.run(endpoints.healthy(REQUEST)).body.decode()
        assert text == f"reading the tables in {live_cluster.directory} hangs: no file was read for 61 s\n"
        released.set()
        wait_until(lambda: asyncio.run(endpoints.healthy(REQUEST)).status_code == 200)
    finally:
        released.set()
        refresher.stop()
        refresher.join()


def test_the_exporter_has_the_metrics_of_its_process(address: str) -> None:
    text = ask(address, "/metrics")[2].decode()
    shown = {line.split()[0] for line in text.splitlines() if line.startswith("process_")}
    assert shown == {metric.name for metric in PROCESS_METRICS}


@pytest.mark.parametrize("path", ["/metrics", "/metrics/jmx", "/clusters/main/metrics"])
def test_who_asks_for_openmetrics_gets_it_and_everybody_else_text(address: str, path: str) -> None:
    asked = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3"}
    _, headers, body = ask(address, path, **asked)
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert body.endswith(b"# EOF\n")
    for other in ({}, {"Accept": "application/openmetrics-text;version=next"}):
        _, headers, body = ask(address, path, **other)
        assert (headers["Content-Type"], b"# EOF" in body) == ("text/plain; version=0.0.4; charset=utf-8", False)
    assert headers["Vary"] == "Accept, Accept-Encoding"


OPENMETRICS = "application/openmetrics-text"
# What Prometheus sends: 2.55, in short 3.0, and 3.0 with scrape_protocols that begin with the text format.
PROMETHEUS = [
    f"{OPENMETRICS};version=1.0.0;q=0.5,{OPENMETRICS};version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*",
    f"text/plain;version=0.0.4;q=0.6,{OPENMETRICS};version=1.0.0;q=0.5,*/*;q=0.2",
]


@pytest.mark.parametrize(
    "header", [*PROMETHEUS[:2], OPENMETRICS, f'{OPENMETRICS}; Version="1.0.0"', f"x, {OPENMETRICS}"]
)
def test_who_prefers_openmetrics_gets_it(header: str) -> None:
    assert prefers_openmetrics([header])
    assert prefers_openmetrics(["image/png", header])


@pytest.mark.parametrize(
    "header",
    [
        PROMETHEUS[2],
        f"{OPENMETRICS};q=0",
        f"{OPENMETRICS};version=2.0.0",
        f"{OPENMETRICS};version=next",
        f"{OPENMETRICS};q=much",
        "text/plain;version=abc",
        'text/plain;version="1.0.0"',
        "*/*",
        ";;=,;q",
        "",
    ],
)
def test_everybody_else_gets_text(header: str) -> None:
    assert not prefers_openmetrics([header])
