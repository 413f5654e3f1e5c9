"""HTTP server of a program: its own metrics at ``/metrics``, ``/-/healthy``, and links to both at ``/``."""

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

_INDEX: Final = (
    "<!doctype html><html lang=en><title>isrwatch {program}</title><h1>isrwatch {program}</h1><ul>"
    "<li><a href=/metrics>/metrics</a> metrics of this program itself, for Prometheus"
    "<li><a href=/-/healthy>/-/healthy</a> 200 while {healthy}, else 503</ul></html>"
)
Response = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""


class StatusServer:
    """Serves from its own thread."""

    def __init__(
        self,
        opened: socket.socket,
        registry: CollectorRegistry,
        problems: Callable[[], list[str]],
        *,
        program: str,
        healthy: str,
    ) -> None:
        """Serve on a socket.

        Args:
            opened: a listening socket.
            registry: the metrics of ``/metrics``.
            problems: returns one sentence for each thing that makes the program unhealthy.
            program: the name of the command.
            healthy: what is so while there are no problems.
        """
        self._registry, self._problems = registry, problems
        self._program, self._healthy = program, healthy
        respond = self.respond

        class StatusRequestHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = respond(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of the library
                """Log nothing: scrapes come every few seconds."""

        self._server = ThreadingHTTPServer(opened.getsockname()[:2], StatusRequestHandler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = opened
        threading.Thread(target=self._server.serve_forever, name=f"{program} server", daemon=True).start()

    def respond(self, path: str) -> Response:
        """Return the response to a GET of one path."""
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if path == "/-/healthy":
            problems = self._problems()
            status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
            return status, "text/plain; charset=utf-8", ("\n".join(problems or [self._healthy]) + "\n").encode()
        if path == "/":
            return (
                HTTPStatus.OK,
                "text/html; charset=utf-8",
                _INDEX.format(program=self._program, healthy=self._healthy).encode(),
            )
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"no such page\n"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
