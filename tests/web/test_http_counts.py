"""What a server counts of requests and connections, over real ones."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from streaming.runtime.listening import listen
from streaming.web.connections import TimeLimits
from streaming.web.http_counts import Refusal
from streaming.web.protection import Protection
from streaming.web.server import WebServer, serving
from tests.plugins.certificates import make_certificate
from tests.plugins.local_http import wait_until

SHORT = TimeLimits(request=1.0, reader=1.0, idle=60.0, request_at_limit=0.05, reader_at_limit=0.3)
SLOW_SECONDS = 0.2
FROM_THE_START = {(path, code): 0 for path in ("/", "/of/{name}", "/fault", "/api/things", "other")
                  for code in ("200", "500")}  # fmt: skip


class Served:
    """A server and its counts."""

    def __init__(self, protected: Protection | None, most: int) -> None:
        self.going_on, self.may_end = threading.Event(), threading.Event()
        routes = [
            Route("/", self._slow),
            Route("/of/{name}", lambda _: PlainTextResponse("a")),
            Route("/fault", self._fault),
            Mount("/api", routes=[Route("/things", lambda _: PlainTextResponse("b"))]),
        ]
        opened = listen("127.0.0.1:0", "--listen")
        self.address: tuple[str, int] = opened.getsockname()
        self.program = WebServer(Starlette(routes=routes), [opened], protected, limits=SHORT, most_connections=most)
        self.counts = self.program.counts
        self.clients = ExitStack()

    def _slow(self, _: Request) -> PlainTextResponse:
        self.going_on.set()
        self.may_end.wait(20)
        return PlainTextResponse("slow")

    def _fault(self, _: Request) -> PlainTextResponse:
        raise ValueError("a fault of the application")

    def client(self, sent: bytes = b"") -> socket.socket:
        client = self.clients.enter_context(socket.create_connection(self.address, timeout=20))
        client.sendall(sent)
        return client

    def idle(self) -> socket.socket:
        """A client that has read its response, and may ask again."""
        client = self.client(b"GET /of/a HTTP/1.1\r\nHost: x\r\n\r\n")
        response = b""
        while not response.endswith(b"\r\n\r\na"):
            response += client.recv(1 << 16)
        return client

    def ask(self, path: str, method: str = "GET") -> bytes:
        """The response of a connection that ends with it."""
        client = self.client(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@contextmanager
def served(protected: Protection | None = None, most: int = 100) -> Iterator[Served]:
    started = Served(protected, most)
    with serving(started.program), started.clients:
        yield started


def test_requests_are_counted_by_the_pattern_of_their_path_and_by_status() -> None:
    with served() as web:
        assert web.counts.requests == FROM_THE_START
        for path in ("/of/a", "/of/b?c=d", "/api/things", "/nowhere", "/of/a/b", "/api/nothing"):
            web.ask(path)
        assert web.ask("/of/a", "POST").startswith(b"HTTP/1.1 405")
        assert web.ask("/fault").startswith(b"HTTP/1.1 500")
        wait_until(lambda: web.counts.in_flight == 0)
        assert web.counts.requests == FROM_THE_START | {
            ("/of/{name}", "200"): 2,
            ("/of/{name}", "405"): 1,
            ("/api/things", "200"): 1,
            ("/fault", "500"): 1,
            ("other", "404"): 3,
        }


def test_a_request_is_in_flight_until_its_response_has_ended_and_its_time_is_added_up() -> None:
    with served() as web:
        client = web.client(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert web.going_on.wait(20)
        assert (web.counts.in_flight, web.counts.seconds["/"]) == (1, 0)
        threading.Event().wait(SLOW_SECONDS)
        web.may_end.set()
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        wait_until(lambda: web.counts.in_flight == 0)
        assert SLOW_SECONDS <= web.counts.seconds["/"] < 20
        assert web.counts.requests["/", "200"] == 1


def test_what_is_no_http_is_counted_without_a_path() -> None:
    with served() as web:
        assert web.client(b"\x16\x03\x01 no http\r\n\r\n").recv(1 << 16).startswith(b"HTTP/1.1 400")
        assert web.counts.requests["other", "400"] == 1


def test_a_request_without_a_login_is_counted_where_it_was_refused(tmp_path: Path) -> None:
    web_config = tmp_path / "web.yml"
    web_config.write_text("basic_auth_users: {me: $2y$04$PTGfq2o8T0Lq0Ja3oFKlV.bDZNIuhrfBoGAPCLlBTCEzVjJHdcoIC}")
    with served(Protection(web_config)) as web:
        assert web.ask("/of/a").startswith(b"HTTP/1.1 401")
        assert web.counts.requests["/of/{name}", "401"] == 1


def test_a_client_that_sends_no_request_is_refused_and_one_that_is_idle_is_not() -> None:
    with served() as web:
        idle = web.idle()
        silent = web.client(b"G")
        assert silent.recv(1) == b""
        assert web.counts.refused == {Refusal.SLOW: 1}
        idle.sendall(b"GET /of/a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_clients_that_give_way_to_others_are_refused_unless_they_are_idle() -> None:
    with served(most=1) as web:
        idle = web.idle()
        half_open = web.client(b"G")
        assert idle.recv(1 << 16) == b""
        assert web.ask("/of/b").startswith(b"HTTP/1.1 200")
        with suppress(ConnectionResetError):
            assert half_open.recv(1) == b""
        assert web.counts.refused == {Refusal.LIMIT: 1}


@pytest.mark.parametrize("names", ["", "  client_allowed_sans: [somebody.else]\n"], ids=["none", "not_allowed"])
def test_a_client_without_a_certificate_or_a_right_one_is_refused(names: str, tmp_path: Path) -> None:
    make_certificate(tmp_path, "authority")
    make_certificate(tmp_path, "server", signed_by="authority")
    make_certificate(tmp_path, "client", signed_by="authority")
    web_config = tmp_path / "web.yml"
    web_config.write_text(
        "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  client_ca_file: authority.crt\n"
        f"  client_auth_type: RequireAndVerifyClientCert\n{names}"
    )
    with served(Protection(web_config)) as web:
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.crt"))
        if names:
            context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
        with suppress(OSError), context.wrap_socket(web.client(), server_hostname="127.0.0.1") as client:
            client.sendall(b"GET /of/a HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1 << 16) == b""
        wait_until(lambda: web.counts.refused == {Refusal.TLS: 1})
        assert web.counts.requests == FROM_THE_START
