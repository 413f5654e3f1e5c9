"""An HTTP proxy between a client and a store, with the faults that a network and a busy store have.

A client that gets no answer, or 503, cannot know whether the store has what it sent: "not done" and "done, and the
answer lost" look alike. The proxy makes each of them, for the requests that a test picks; all others pass. Body and
answer are passed on piece by piece, headers as they came: a signature covers some, the address among them. Connections
of the client stay open. To the store each request has a connection of its own, so that none is repeated on the way.
"""

from __future__ import annotations

import http.client
import socket
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from tests.stores.faults import ALWAYS, Fault, Faults, Request

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from tests.stores.faults import Rule
    from tests.stores.store import Store

PIECE: Final = 64 * 1024
STORE_SECONDS: Final = 120.0
HOP: Final = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "expect"}
CONDITIONS: Final = {"if-match", "if-none-match"}
BUSY: Final = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>"
WITHOUT_BODY: Final = {204, 304}


class FaultProxy:
    """A running proxy.

    Attributes:
        store: the bucket as it is reached through the proxy.
        round_trip_seconds: so long each request takes in addition.
    """

    def __init__(self, upstream: Store) -> None:
        self.round_trip_seconds = 0.0
        self._faults = Faults()
        self._server = _Server(self, upstream.port)
        self.store = upstream.behind(self._server.server_port)

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """How many requests came, by method and kind of object (``tests/stores/faults.py``)."""
        return self._faults.counts

    def fault(self, fault: Fault, applies: Callable[[Request], bool], *, times: int = ALWAYS) -> Rule:
        """Give the next requests that ``applies`` picks a fault; ``to`` makes such a predicate of method and path."""
        return self._faults.add(fault, applies, times)

    def release(self) -> None:
        """End all faults: what hangs goes on."""
        self._faults.release()

    def rule_of(self, request: Request) -> Rule | None:
        """Return the rule of a request that came, after a round trip of its network."""
        rule = self._faults.of(request)
        time.sleep(self.round_trip_seconds)
        return rule

    def run(self) -> None:
        """Serve until it is closed."""
        self._server.serve_forever(poll_interval=0.02)

    def close(self) -> list[BaseException]:
        """End all faults and connections, stop, and return what went wrong in the proxy itself."""
        self.release()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        return self._server.errors


@contextmanager
def fault_proxy(store: Store) -> Iterator[FaultProxy]:
    """Run a proxy in front of a store that speaks HTTP, at first without a fault.

    Raises:
        BaseExceptionGroup: something went wrong in the proxy itself, such as a fault that a request cannot have.
    """
    proxy = FaultProxy(store)
    thread = threading.Thread(target=proxy.run, name="fault-proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        errors = proxy.close()
        thread.join()
    if errors:
        raise BaseExceptionGroup("the proxy failed", errors)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy, store_port: int) -> None:
        self.proxy = proxy
        self.store_port = store_port
        self.errors: list[BaseException] = []
        self._clients: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        self._clients.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Close the connections that clients keep open."""
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Keep what went wrong; that a client or the store is gone is no fault of the proxy."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError | http.client.HTTPException):
            self.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def handle_request(self) -> None:
        """Pass a request on, with its fault if it has one."""
        rule = self.server.proxy.rule_of(Request(self.command, self.path))
        fault = rule.fault if rule else None
        body = self._body()
        if rule and fault is Fault.HANGS_BEFORE:
            body = iter(list(body))  # the client may be gone when it is released
            rule.released.wait()
        if fault is Fault.BUSY_BEFORE:
            for _ in body:
                pass  # else it would be taken for the next request
            self._answer_busy()
            return
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.store_port, timeout=STORE_SECONDS)) as store:
            self._send_head(store, conditional=fault is not Fault.UNCONDITIONAL)
            if fault is Fault.UPLOAD_CUT:
                whole = b"".join(body)
                if not whole:
                    raise ValueError(f"{self.command} {self.path} has no body that could be cut")
                self._send_body(store, iter([whole[: len(whole) // 2]]), ends=False)
                self._hang_up()
                return
            self._send_body(store, body)
            answer = store.getresponse()
            if rule and fault is Fault.HANGS_AFTER:
                rule.released.wait()
            if fault is Fault.ANSWER_LOST:
                answer.read()
                self._hang_up()
            elif fault is Fault.BUSY_AFTER:
                answer.read()
                self._answer_busy()
            else:
                self._pass_on(answer, cut=fault is Fault.ANSWER_CUT)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request  # noqa: N815 - http.server calls them so

    def _body(self) -> Iterator[bytes]:
        """Read the body of the request, piece by piece."""
        if not self._chunked():
            yield from self._read(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield from self._read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # a trailer

    def _read(self, left: int) -> Iterator[bytes]:
        while left:
            piece = self.rfile.read1(min(left, PIECE))
            if not piece:
                raise ConnectionAbortedError("the client has gone in the middle of a body")
            left -= len(piece)
            yield piece

    def _chunked(self) -> bool:
        return "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    def _send_head(self, store: http.client.HTTPConnection, *, conditional: bool) -> None:
        left_out = HOP if conditional else HOP | CONDITIONS
        store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in left_out:
                store.putheader(name, value)
        if self._chunked():
            store.putheader("Transfer-Encoding", "chunked")
        store.putheader("Connection", "close")
        store.endheaders()

    def _send_body(self, store: http.client.HTTPConnection, body: Iterator[bytes], *, ends: bool = True) -> None:
        for piece in body:
            store.send(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked() else piece)
        if ends and self._chunked():
            store.send(b"0\r\n\r\n")

    def _pass_on(self, answer: http.client.HTTPResponse, *, cut: bool) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.headers.items():
            if name.lower() not in HOP:
                self.send_header(name, value)
        has_body = self.command != "HEAD" and answer.status not in WITHOUT_BODY
        chunked = has_body and answer.headers.get("Content-Length") is None
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if cut:
            whole = answer.read()
            if not whole:
                raise ValueError(f"the answer to {self.command} {self.path} has no body that could be cut")
            self.wfile.write(whole[: len(whole) // 2])
            self.wfile.flush()
            self._hang_up()
            return
        while has_body and (piece := answer.read1(PIECE)):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _answer_busy(self) -> None:
        self.send_response_only(503)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(BUSY)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(BUSY)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
