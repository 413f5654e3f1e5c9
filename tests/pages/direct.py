"""The exporter without sockets: its ASGI application is called as the HTTP server calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

from exporters.metrics.exposition import Exposition
from exporters.read_model.refresher import Refresher
from exporters.web.runbook_commands import Installations
from exporters.web.server import Endpoints, application
from streaming.web.protection import Protection
from streaming.web.server import SecuredApplication
from tests.exporters.conftest import restless

STALE_AFTER = 3_600.0


class Direct(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class DirectExporter:
    """An exporter that has read its tables once. A context manager."""

    def __init__(self, tables: Path, installations: Installations | None = None) -> None:
        refresher = Refresher(restless(tables), 1.0, "1")
        refresher.refresh_once()
        endpoints = Endpoints(refresher, STALE_AFTER, exposition=Exposition(STALE_AFTER))
        endpoints.installations = installations or Installations()
        routed = application(endpoints)
        self._application = SecuredApplication(routed, routed.routes, Protection())
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.close()

    def ask(self, target: str, method: str = "GET", headers: Sequence[tuple[bytes, bytes]] = ()) -> Direct:
        """Ask for a path with its query, as it is sent: in ASCII, percent-encoded or not.

        Raises:
            Exception: whatever the application raises; a server would respond with 500.
        """
        return self._runner.run(self._asked(target, method, headers))

    async def _asked(self, target: str, method: str, headers: Sequence[tuple[bytes, bytes]]) -> Direct:
        path, _, query = target.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path), "raw_path": path.encode("ascii"), "query_string": query.encode("ascii"),
            "root_path": "", "headers": [(b"host", b"127.0.0.1"), *headers], "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 9308), "state": {},
        }  # fmt: skip
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        start = next(each for each in sent if each["type"] == "http.response.start")
        body = b"".join(bytes(each.get("body", b"")) for each in sent if each["type"] == "http.response.body")
        return Direct(
            start["status"], {name.decode().lower(): value.decode() for name, value in start["headers"]}, body
        )
