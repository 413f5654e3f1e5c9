"""The page that draws a board, its boards and a Prometheus under one address; collects what the page reports."""

from __future__ import annotations

import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "dashboards/pictures"
BOARDS: Final = ROOT / "dashboards/generated"


class _Handler(SimpleHTTPRequestHandler):
    """Serves files of the page and the boards; everything below ``/api/`` is asked of Prometheus."""

    def __init__(self, *request: object, prometheus: str, problems: queue.Queue[list[str]]) -> None:
        self._prometheus, self._problems = prometheus, problems
        super().__init__(*request, directory=str(PAGE))  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        name = path.partition("?")[0]
        return str(BOARDS / Path(name).name) if name.startswith("/boards/") else super().translate_path(path)

    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            self._ask(None)
        else:
            super().do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/problems":
            self._problems.put(json.loads(body))
            self._answer(204, b"")
        else:
            self._ask(body)

    def _ask(self, body: bytes | None) -> None:
        request = urllib.request.Request(self._prometheus + self.path, data=body)  # noqa: S310 - our own 127.0.0.1
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                self._answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:  # a query that fails is answered, too: the page reports it
            self._answer(200, error.read())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


@contextmanager
def serving(prometheus: str) -> Iterator[tuple[str, queue.Queue[list[str]]]]:
    """Serve on a free port of 127.0.0.1: give the address, and the lists of problems as pages report them."""
    problems: queue.Queue[list[str]] = queue.Queue()
    handler = partial(_Handler, prometheus=prometheus, problems=problems)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", problems
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
