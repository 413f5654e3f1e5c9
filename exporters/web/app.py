"""The running exporter: sockets, a thread that refreshes from the tables, and the HTTP server."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from exporters.metrics.exposition import DEFAULT_INTERVALS, Exposition
from exporters.metrics.series_filter import SeriesFilter
from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import Refresher
from exporters.read_model.side_tables import REST_AFTER_ERROR
from exporters.web.scrapes_first import ScrapesFirst
from exporters.web.server import Endpoints, application
from streaming.runtime.listening import address_of, listen_all
from streaming.runtime.memory import collect_seldom
from streaming.web.protection import Protection, protection_of
from streaming.web.server import WebServer
from streaming.web.server import serving as serving_http

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streaming.settings import CollectSettings, ExportSettings

_LOG: Final = logging.getLogger(__name__)
OPTION: Final = "--web.listen-address (export.listen)"
SWITCH_SECONDS: Final = 0.0001
"""After how long a thread of Python has to give way: a scrape passes from thread to thread, and while changes are read
would wait at each step for as long as this, by default 5 ms."""


def serve(
    tables: Path,
    settings: ExportSettings,
    opened: Sequence[socket.socket],
    protected: Protection,
    collect: CollectSettings,
) -> None:
    """Serve until SIGTERM or SIGINT; a second SIGINT does not wait for responses."""
    reader = TablesReader(tables, reads_side_tables_apart=True)
    server, refresher = _parts(reader, settings, opened, protected, collect)
    sys.setswitchinterval(SWITCH_SECONDS)
    # Most of the first snapshot stays, and collections of garbage that look at all of it would delay scrapes.
    refresher.after_first = collect_seldom
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    refresher.start()
    try:
        server.run()
    finally:
        refresher.stop()


@contextmanager
def serving(tables: Path, settings: ExportSettings, *, rest_after_error: float = REST_AFTER_ERROR) -> Iterator[str]:
    """Serve from threads of this process while the context is open.

    Args:
        tables: the folder of the tables.
        settings: where and what to serve.
        rest_after_error: after how many seconds what could not be read is tried again.

    Yields:
        host and port of the first address, as in a URL.
    """
    opened = listen_all(settings.listen, OPTION)
    address = address_of(opened[0])
    reader = TablesReader(tables, reads_side_tables_apart=True, rest_after_error=rest_after_error)
    server, refresher = _parts(reader, settings, opened, protection_of(settings.web_config_file))
    refresher.start()
    try:
        with serving_http(server):
            yield address
    finally:
        refresher.stop()
        refresher.join()


def _parts(
    reader: TablesReader,
    settings: ExportSettings,
    opened: Sequence[socket.socket],
    protected: Protection,
    collect: CollectSettings = DEFAULT_INTERVALS,
) -> tuple[WebServer, Refresher]:
    chosen = SeriesFilter(settings)
    if sentence := chosen.sentence():
        _LOG.info("%s", sentence)
    exposition = Exposition(settings.stale_after_seconds, collect, settings.detail_limit, chosen)
    refresher = Refresher(
        reader,
        settings.refresh_seconds,
        version("isrwatch"),
        lambda snapshot: exposition.prepare(snapshot, micros_now(), in_steps=True).is_complete,
    )
    endpoints = Endpoints(
        refresher, settings.stale_after_seconds, exposition=exposition, telemetry_path=settings.telemetry_path
    )
    server = WebServer(application(endpoints), opened, protected)
    endpoints.http = server.counts
    exposition.give_way = ScrapesFirst(server.counts)
    return server, refresher
