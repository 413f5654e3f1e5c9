"""The running exporter: a socket, a thread that refreshes from the tables, and uvicorn."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import uvicorn

from exporters.metrics.exposition import DEFAULT_INTERVALS, Exposition
from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import Refresher
from exporters.web.server import Endpoints, application
from streaming.runtime.listening import address_of, listen_all
from streaming.web.middleware import Secured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streaming.settings import CollectSettings, ExportSettings

OPTION: Final = "--web.listen-address"
STOP_SECONDS: Final = 2
START_SECONDS: Final = 30


def serve(tables: Path, settings: ExportSettings, opened: Sequence[socket.socket], collect: CollectSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    server, refresher = _parts(tables, settings, collect)
    refresher.start()
    try:
        server.run(sockets=list(opened))
    finally:
        refresher.stop()


@contextmanager
def serving(tables: Path, settings: ExportSettings) -> Iterator[str]:
    """Serve from threads of this process while the context is open.

    Yields:
        host and port of the first address, as in a URL.
    """
    opened = listen_all(settings.listen, OPTION)
    server, refresher = _parts(tables, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": opened}, name="http", daemon=True)
    refresher.start()
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield address_of(opened[0])
    finally:
        server.should_exit = True
        refresher.stop()
        thread.join()
        refresher.join()
        for each in opened:
            each.close()


def _parts(
    tables: Path, settings: ExportSettings, collect: CollectSettings = DEFAULT_INTERVALS
) -> tuple[uvicorn.Server, Refresher]:
    exposition = Exposition(settings.stale_after_seconds, collect, settings.detail_limit)
    refresher = Refresher(
        TablesReader(tables),
        settings.refresh_seconds,
        version("isrwatch"),
        lambda snapshot: exposition.prepare(snapshot, micros_now()),
    )
    endpoints = Endpoints(
        refresher, settings.stale_after_seconds, exposition=exposition, telemetry_path=settings.telemetry_path
    )
    config = uvicorn.Config(
        Secured(application(endpoints)),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return uvicorn.Server(config), refresher


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    if not server.started:
        raise AssertionError("the HTTP server did not start")
