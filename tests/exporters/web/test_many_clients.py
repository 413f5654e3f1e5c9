"""The exporter under clients that mean no good, with 256 descriptors: it goes on, and says so once."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from exporters.read_model.reader import micros_now
from tests.plugins.local_http import free_port, http_json, wait_until

DESCRIPTORS = 256
HALF_OPEN = 500
SCRAPERS = 300
SLOW_READERS = 150
RESPONSES = 20  # more than the kernel buffers
SCRAPE_TIMEOUT = 10.0
PARTITIONS = 400
TAKEN = "all 128 HTTP connections that the limit of open files allows are taken"
GET = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class LimitedExporter:
    """An exporter in a process of its own."""

    def __init__(self, tables: Path) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        export = ["-m", "streaming.commands", "export", "--tables", str(tables), "--web.listen-address", self.address]
        limited = ["bash", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "-", sys.executable, *export]
        self.process = subprocess.Popen(limited, stderr=subprocess.PIPE, text=True)

    def connect(self, clients: ExitStack, sent: bytes = b"") -> socket.socket:
        client = clients.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(30)
        client.connect(("127.0.0.1", self.port))
        client.sendall(sent)
        return client

    def scrape_seconds(self) -> float:
        """Scrape everything as Prometheus does, within its time-out; give how long it took."""
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port), timeout=SCRAPE_TIMEOUT) as client:
            client.sendall(GET % b"/metrics")
            body = bytearray()
            while part := client.recv(1 << 20):
                body += part
        assert body.count(b"\nkafka_topic_partition_leader{") == PARTITIONS
        seconds = time.monotonic() - began
        assert seconds < SCRAPE_TIMEOUT
        return seconds

    def resident_megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6

    def stop(self) -> list[str]:
        self.process.terminate()
        return self.process.communicate(timeout=60)[1].splitlines()


@pytest.fixture
def limited(tables: Any, rows: Any) -> Iterator[LimitedExporter]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    now = micros_now()
    state = rows.state([1, 2], [1, 2], 1)
    tables.commit(
        rows.cluster_row(now),
        rows.source(now),
        *(rows.partition("orders", number, state, now, is_baseline=True) for number in range(PARTITIONS)),
    )
    exporter = LimitedExporter(tables.directory)
    try:
        wait_until(lambda: is_ready(exporter), seconds=60)
        yield exporter
    finally:
        if exporter.process.poll() is None:
            exporter.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_ready(exporter: LimitedExporter) -> bool:
    with suppress(OSError, AssertionError):
        return exporter.scrape_seconds() > 0
    return False


async def scraped(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET % b"/metrics?name[]=kafka_brokers")
    response = await reader.read()
    writer.close()
    return response


async def all_scraped(port: int) -> list[bytes]:
    return await asyncio.gather(*(scraped(port) for _ in range(SCRAPERS)))


def test_it_serves_every_client_whatever_others_do_and_says_so_once_a_minute(limited: LimitedExporter) -> None:
    began = time.monotonic()
    for sent in (b"", b"G"):
        with ExitStack() as clients:
            for _ in range(HALF_OPEN):
                limited.connect(clients, sent)
            print(f"half-open after {sent!r}: {limited.scrape_seconds():.1f} s")
    responses = asyncio.run(all_scraped(limited.port))
    assert {response.partition(b"\r\n")[0] for response in responses} == {b"HTTP/1.1 200 OK"}
    before = limited.resident_megabytes()
    with ExitStack() as clients:
        for _ in range(SLOW_READERS):
            limited.connect(clients, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * RESPONSES)
        seconds = limited.scrape_seconds()
        print(f"slow readers: {seconds:.1f} s, {limited.resident_megabytes() - before:.0f} MB")
    with ExitStack() as clients:
        for _ in range(50):
            client = limited.connect(clients)
            with suppress(OSError):
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * (1 << 20))
        limited.scrape_seconds()
    (cluster,) = http_json(f"http://{limited.address}/api/v1/clusters")["clusters"]
    assert cluster["cluster"] == "main"
    lines = limited.stop()
    assert (limited.process.returncode, lines[-1]) == (0, "stopped")
    logged = [line.partition(" WARNING ")[2].partition(",")[0] for line in lines if " WARNING " in line]
    others = [line for line in logged if not line.startswith(TAKEN)]
    assert {*others} == {"Invalid HTTP request received."}, lines
    assert len(others) <= 1 + (time.monotonic() - began) // 60, lines
    assert 1 <= logged.count(f"{TAKEN}; idle clients") <= 1 + (time.monotonic() - began) // 60, lines
