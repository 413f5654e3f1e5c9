"""How long a client may take, with real sockets: nobody holds a connection without using it."""

from __future__ import annotations

import logging
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from streaming.runtime import listening
from streaming.runtime.listening import listen
from streaming.web.connections import MOST_CONNECTIONS, TimeLimits, connection_limit
from streaming.web.http_counts import Refusal
from streaming.web.server import PART_BYTES, RepeatFilter, WebServer, serving
from tests.plugins.local_http import wait_until

SHORT = TimeLimits(request=0.3, reader=0.8, idle=0.8, request_at_limit=0.05, reader_at_limit=0.3)
PATIENT = TimeLimits(request=60.0, reader=60.0, idle=60.0, request_at_limit=0.05, reader_at_limit=60.0)
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = bytes(range(256)) * 64 * 1024 + b"the end"  # 16 MiB: more than kernels buffer

MEDIUM = BODY[-48 * 1024 :]  # is written at once, though a kernel that may buffer little does not take it all


class Server:
    """A server of three paths: a short one, a larger, and a large one; and clients of it."""

    def __init__(self, limits: TimeLimits, most: int, sent_buffer: int) -> None:
        texts = {"/": "short", "/medium": MEDIUM, "/large": BODY}
        routes = [Route(path, lambda _, text=text: PlainTextResponse(text)) for path, text in texts.items()]
        opened = listen("127.0.0.1:0", "--listen")
        if sent_buffer:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sent_buffer)
        self.address: tuple[str, int] = opened.getsockname()
        self.program = WebServer(Starlette(routes=routes), [opened], limits=limits, most_connections=most)
        self.clients = ExitStack()

    def client(self, sent: bytes = b"", buffered: int = 4096) -> socket.socket:
        client = self.clients.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffered)
        client.settimeout(20)
        client.connect(self.address)
        client.sendall(sent)
        return client


@contextmanager
def server(limits: TimeLimits, most: int = 100, sent_buffer: int = 0) -> Iterator[Server]:
    started = Server(limits, most, sent_buffer)
    with serving(started.program), started.clients:
        yield started


def received(client: socket.socket, until: bytes = b"") -> bytes:
    """Everything up to a text, or to the end of the connection."""
    data = bytearray()
    with suppress(ConnectionResetError):
        while not (until and data.endswith(until)) and (part := client.recv(1 << 20)):
            data += part
    return bytes(data)


def seconds_until_closed(client: socket.socket) -> float:
    began = time.monotonic()
    received(client)
    return time.monotonic() - began


def test_a_client_that_sends_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "SILENT_SECONDS", 1)
    with server(SHORT) as web:
        assert 0.2 < seconds_until_closed(web.client(b"G")) < 5
        assert seconds_until_closed(web.client()) < 11  # the kernel keeps it to itself at first


def test_a_client_that_sends_its_request_a_byte_at_a_time_is_disconnected() -> None:
    with server(SHORT) as web:
        client = web.client()
        began = time.monotonic()
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 - the loop ends with the connection
            while time.monotonic() - began < 20:
                client.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < 5


def test_a_client_that_begins_another_request_after_a_response_is_disconnected_too() -> None:
    with server(SHORT) as web:
        client = web.client(REQUEST)
        received(client, until=b"short")
        client.sendall(b"G")
        assert 0.2 < seconds_until_closed(client) < 5


def test_an_idle_client_is_disconnected_and_one_that_asks_in_time_is_not() -> None:
    with server(SHORT) as web:
        client = web.client(REQUEST)
        for _ in range(3):
            assert received(client, until=b"short").startswith(b"HTTP/1.1 200")
            time.sleep(0.4)
            client.sendall(REQUEST)
        received(client, until=b"short")
        assert 0.5 < seconds_until_closed(client) < 5


def test_a_client_that_does_not_read_is_disconnected_and_one_that_reads_gets_all() -> None:
    request = REQUEST.replace(b"/ ", b"/large ", 1)
    with server(SHORT) as web:
        slow = web.client(request)
        reader = web.client(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), buffered=1 << 20)
        head, _, body = received(reader).partition(b"\r\n\r\n")
        assert (f"content-length: {len(BODY)}".encode() in head, body == BODY) == (True, True)
        wait_until(lambda: web.program.counts.refused[Refusal.SLOW], seconds=20)
        assert len(received(slow)) < len(BODY)


def test_a_client_that_asks_again_and_again_and_does_not_read_is_disconnected_too() -> None:
    with server(SHORT, sent_buffer=4096) as web:
        web.client(REQUEST.replace(b"/ ", b"/medium ", 1) * 20)
        wait_until(lambda: web.program.counts.refused[Refusal.SLOW], seconds=20)


def test_a_slow_client_holds_a_part_of_the_response_and_not_all_of_it() -> None:
    with server(PATIENT) as web:
        web.client(REQUEST.replace(b"/ ", b"/large ", 1))
        connections = web.program._connections

        def held() -> int:
            return sum(each.transport.get_write_buffer_size() for each in connections if each.phase == "reader")

        assert wait_until(held, seconds=20) <= 3 * PART_BYTES


def test_nothing_is_sent_or_logged_after_a_client_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    request = REQUEST.replace(b"/ ", b"/large ", 1)
    with server(PATIENT) as web:
        for _ in range(20):
            client = web.client(request, buffered=1 << 20)
            client.recv(1 << 16)
            client.close()
        wait_until(lambda: web.program.counts.in_flight == 0, seconds=20)
    assert caplog.records == []


def test_at_the_limit_clients_without_a_request_give_way_to_those_with_one() -> None:
    with server(PATIENT, most=4) as web:
        half_open = [web.client(b"G") for _ in range(12)]
        assert received(web.client(REQUEST), until=b"short").startswith(b"HTTP/1.1 200")
        assert web.program.counts.refused[Refusal.LIMIT] >= 13 - 4
        assert sum(seconds_until_closed(client) < 1 for client in half_open[:8]) == 8


def test_at_the_limit_idle_clients_give_way_first() -> None:
    with server(PATIENT, most=2) as web:
        idle = web.client(REQUEST)
        received(idle, until=b"short")
        half_open = web.client(b"G")
        assert received(web.client(REQUEST), until=b"short").startswith(b"HTTP/1.1 200")
        assert received(idle) == b""
        half_open.sendall(REQUEST[1:])
        assert received(half_open, until=b"short").startswith(b"HTTP/1.1 200")


def test_at_the_limit_others_wait_until_a_response_was_read() -> None:
    with server(PATIENT, most=1) as web:
        reader = web.client(REQUEST.replace(b"/ ", b"/large ", 1))
        wait_until(lambda: web.program.counts.in_flight, seconds=20)
        waiting = web.client(REQUEST)
        waiting.settimeout(0.5)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        assert received(reader, until=b"the end").endswith(BODY)
        waiting.settimeout(20)
        assert received(waiting, until=b"short").startswith(b"HTTP/1.1 200")


def test_at_the_limit_nobody_loses_the_end_of_a_response_that_is_sent_and_not_yet_read() -> None:
    with server(PATIENT, most=1, sent_buffer=4096) as web:
        reader = web.client(REQUEST.replace(b"/ ", b"/medium ", 1))
        wait_until(lambda: web.program.counts.requests["/medium", "200"], seconds=20)
        waiting = web.client(REQUEST)
        waiting.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        assert received(reader, until=b"the end").endswith(MEDIUM)
        waiting.settimeout(20)
        assert received(waiting, until=b"short").startswith(b"HTTP/1.1 200")


def test_a_header_that_is_too_long_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with server(SHORT) as web:
        for _ in range(5):
            client = web.client()
            with suppress(OSError):
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 100_000)
            assert received(client)[:12] in {b"HTTP/1.1 400", b""}  # b"": what was not read resets the connection
    assert [record.getMessage() for record in caplog.records].count("Invalid HTTP request received.") == 1


def test_the_server_stops_with_clients_that_sent_nothing() -> None:
    began = time.monotonic()
    with server(PATIENT) as web:
        web.client()
        received(web.client(REQUEST), until=b"short")
    assert time.monotonic() - began < 10
    assert threading.active_count() < 50


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(256, 128), (1024, 768), (resource.RLIM_INFINITY, MOST_CONNECTIONS), (1_000_000, MOST_CONNECTIONS), (1, 1)],
)
def test_descriptors_are_left_for_what_the_program_is_there_for(
    descriptors: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert connection_limit() == connections


def test_a_line_is_logged_once_a_minute_and_then_with_how_often_it_was_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    once = RepeatFilter(lambda: now)
    logger = logging.getLogger("tests.once")
    logger.addFilter(once)
    for second in range(150):
        now = float(second)
        logger.warning("client %d sends nonsense", second)
        once.log_left_out()
    logger.warning("another line")
    assert [record.getMessage() for record in caplog.records] == [
        "client 0 sends nonsense",
        "client 60 sends nonsense",
        "client 120 sends nonsense",
        "another line",
    ]
    now = 300.0
    once.log_left_out()
    once.log_left_out()
    assert caplog.records[-1].getMessage() == "client 149 sends nonsense (29 times more within a minute)"


PROGRAM = """
import sys
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from streaming.runtime.listening import listen
from streaming.web.server import WebServer
opened = listen(f"127.0.0.1:0", "--listen")
print(opened.getsockname()[1], flush=True)
routes = [Route("/", lambda _: PlainTextResponse("short"))]
WebServer(Starlette(routes=routes), [opened], most_connections=1000).run()
"""


def test_a_process_that_is_out_of_descriptors_says_so_once_and_goes_on_when_there_are_some(tmp_path: Path) -> None:
    command = ["bash", "-c", 'ulimit -n 48; exec "$0" -c "$1"', sys.executable, PROGRAM]
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        program: Any = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        address = ("127.0.0.1", int(program.stdout.readline()))
        with ExitStack() as clients:
            for _ in range(100):
                clients.enter_context(socket.create_connection(address)).sendall(b"G")
            wait_until(errors.read_text, what="a line that says so")
            time.sleep(0.3)  # it tries to accept the next one twenty times a second
        with socket.create_connection(address, timeout=20) as client:
            client.sendall(REQUEST)
            assert received(client, until=b"short").startswith(b"HTTP/1.1 200")
    finally:
        program.terminate()
        program.communicate(timeout=30)
    assert errors.read_text().splitlines() == [
        "no HTTP connection can be accepted: Too many open files; raise the limit of open files"
    ]
