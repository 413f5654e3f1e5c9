"""HTTP for the job's own metrics: ``/metrics``, ``/-/healthy``, and a page of links. Knows no query."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

_PAGE: Final = (
    "<!doctype html><html lang=en><title>isrwatch job</title><h1>isrwatch job</h1><ul>"
    "<li><a href=/metrics>/metrics</a> the job's own metrics, for Prometheus"
    "<li><a href=/-/healthy>/-/healthy</a> does every query run</ul></html>"
)
Answer = tuple[HTTPStatus, str, bytes]


class JobPages:
    """Answers from a thread of its own."""

    def __init__(self, opened: socket.socket, registry: CollectorRegistry, ailing: Callable[[], list[str]]) -> None:
        """Serve on a socket.

        Args:
            opened: listens already.
            registry: what ``/metrics`` shows.
            ailing: tells, a sentence each, what does not run.
        """
        self._registry, self._ailing = registry, ailing
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = pages.answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of the library
                """Say nothing: a scrape is no news."""

        self._server = ThreadingHTTPServer(opened.getsockname()[:2], Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = opened
        threading.Thread(target=self._server.serve_forever, name="job pages", daemon=True).start()

    def answer(self, path: str) -> Answer:
        """Give status, content type and body of one page."""
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if path == "/-/healthy":
            ailing = self._ailing()
            status = HTTPStatus.SERVICE_UNAVAILABLE if ailing else HTTPStatus.OK
            return status, "text/plain; charset=utf-8", ("\n".join(ailing or ["every query runs"]) + "\n").encode()
        if path == "/":
            return HTTPStatus.OK, "text/html; charset=utf-8", _PAGE.encode()
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"no such page\n"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
