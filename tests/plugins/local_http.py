"""Tiny HTTP servers on free ports of 127.0.0.1, and how to wait for something."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.stores.serving import free_port as free_port  # noqa: PLC0414 - programs without pytest use it, too

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

PATIENCE_SECONDS = 90.0


def wait_until(condition: Callable[[], T], *, seconds: float = PATIENCE_SECONDS, what: str = "") -> T:
    """Ask until the answer is true, and give it; the last answer is in the failure."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {what or condition}; last answer: {answer!r}")
        time.sleep(0.1)
    return answer


def http_json(url: str) -> Any:
    """GET a JSON document; an API's own error text is part of the failure."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own 127.0.0.1
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error.code} {error.read().decode()}") from None


@dataclass
class Webhook:
    """Collects what an Alertmanager sends."""

    url: str
    notifications: list[dict[str, Any]] = field(default_factory=list)

    def alerts(self, name: str, status: str = "firing", **labels: str) -> list[dict[str, Any]]:
        """List the alerts of a name that were notified with a status and these labels."""
        wanted = {"alertname": name, **labels}.items()
        return [
            alert
            for notification in list(self.notifications)
            for alert in notification["alerts"]
            if alert["status"] == status and wanted <= alert["labels"].items()
        ]


@dataclass
class Exposition:
    """A tiny exporter; a test rewrites ``text``, or sets ``status`` to make it fail."""

    address: str
    text: str
    status: int = 200


class _Quiet(BaseHTTPRequestHandler):
    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output quiet."""


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port; give host:port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving_exposition(text: str) -> Iterator[Exposition]:
    """Serve exposition text at /metrics."""
    exposition = Exposition(address="", text=text)

    class Handler(_Quiet):
        def do_GET(self) -> None:
            self.answer(exposition.status, exposition.text.encode())

    with _served(Handler) as exposition.address:
        yield exposition


@contextmanager
def collecting_webhook() -> Iterator[Webhook]:
    """Serve a receiver of notifications."""
    hook = Webhook(url="")

    class Handler(_Quiet):
        def do_POST(self) -> None:
            hook.notifications.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(200, b"")

    with _served(Handler) as address:
        hook.url = f"http://{address}/"
        yield hook
