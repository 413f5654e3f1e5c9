"""The HTTP routes: ``/metrics`` and its variants, ``/-/healthy`` (``/healthz``), ``/-/ready``, JSON API, and an index.

Every response is computed from the snapshot in memory: a request never waits for a table.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from exporters.answers.subject import Limits
from exporters.metrics.compression import gzipped, plain
from exporters.metrics.exporter_metrics import metrics_path
from exporters.metrics.exposition import Exposition
from exporters.metrics.jmx_exposition import JmxExposition
from exporters.metrics.kafka_exporter_names import DROP_IN_METRICS
from exporters.metrics.prepared import ScrapeRequest
from exporters.metrics.series_filter import SeriesFilter
from exporters.metrics.text import OPENMETRICS, TEXT
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.conditions import ConditionSettings, raised
from exporters.read_model.incident_archive import LOOK_SECONDS, IncidentArchive
from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import Refresher
from exporters.read_model.side_tables import REST_AFTER_ERROR
from exporters.read_model.snapshot import NO_TABLE
from exporters.web.api import ApiRoutes, ApiSources, failed, refused
from exporters.web.bodies import SharedBodies
from exporters.web.negotiation import accepts_gzip, prefers_openmetrics
from exporters.web.pages.page import PageSettings
from exporters.web.pages.routes import PageRoutes
from exporters.web.runbook import PATH
from exporters.web.runbook_commands import Installations
from exporters.web.runbook_page import runbook_list, runbook_section
from streaming.runtime.listening import address_of, listen_all
from streaming.runtime.memory import collect_seldom
from streaming.settings import NO_LINKS, Settings
from streaming.web.http_counts import HttpCounts
from streaming.web.protection import Protection, protection_of
from streaming.web.responses import lines_response
from streaming.web.server import WebServer
from streaming.web.server import serving as serving_http

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection, Iterator, Sequence

    from starlette.requests import Request as HttpRequest

    from exporters.metrics.compression import Block
    from exporters.read_model.conditions import Raised
    from exporters.read_model.snapshot import ReplicationSnapshot
    from streaming.delta.store.place import Place
    from streaming.settings import ExportSettings

METRICS: Final = "/metrics"
OF_MBEANS: Final = "/metrics/jmx"
OF_A_CLUSTER: Final = "/clusters/{cluster:path}/metrics"
OTHER_METRICS: Final = (OF_MBEANS, OF_A_CLUSTER)
"""The paths of metrics besides the one that the configuration may set."""
_ENDED: Final = "the thread that reads the tables has ended; restart isrwatch export"
_DROP_INS: Final = frozenset(metric.name for metric in DROP_IN_METRICS)
_ADDRESSES: Final = 3
"""Addresses of brokers that are enough to begin with."""
_NOTHING: Final = frozenset({""})  # no metric has this name; an empty set would select every one
_LOG: Final = logging.getLogger(__name__)


class Endpoints:
    """The responses of the exporter."""

    def __init__(
        self,
        refresher: Refresher,
        stale_after_seconds: float,
        clock: Callable[[], int] = micros_now,
        exposition: Exposition | None = None,
        telemetry_path: str = METRICS,
    ) -> None:
        """Respond from the snapshot of a refresher; metrics are rendered with the default settings by default."""
        self.telemetry_path = telemetry_path
        self.installations = Installations()  # what the configuration says of clusters
        self._refresher = refresher
        self._stale_after = stale_after_seconds
        self._clock = clock
        self._exposition = exposition or Exposition(stale_after_seconds)
        settings = PageSettings(
            stale_after=stale_after_seconds, conditions=self._exposition.conditions, metrics_path=telemetry_path
        )
        self.archive = IncidentArchive(refresher.tables, self._names, look_seconds=LOOK_SECONDS)
        limits = Limits(
            stale_after=stale_after_seconds,
            oldest_ages=self._exposition.oldest,
            poll_intervals={},
            conditions=self._exposition.conditions,
        )
        sources = ApiSources(limits=limits, archive=self.archive, raised=self._raised)
        self.api = ApiRoutes(refresher, clock, sources)
        self.pages = PageRoutes(refresher, clock, settings, self.problems, self.archive, self.api.tables)
        self._jmx_exposition = JmxExposition(stale_after_seconds, self._exposition.oldest, self._exposition.chosen)
        self._bodies = SharedBodies(clock)
        self.http = HttpCounts()  # replaced by those of the server
        self._without_drop_ins: tuple[str, ...] = ()

    async def metrics(self, request: HttpRequest) -> Response:
        """Respond to a scrape.

        503 before the first snapshot: an empty exposition would set ``up`` to 1 and look like a cluster without
        problems.
        """
        return self._scraped(request, self._render)

    def drop_in_metrics(self, request: HttpRequest) -> Response:
        """Respond with the names of kafka_exporter alone, of one cluster: the others are at ``/metrics``."""
        return self._scraped(request, self._render_drop_ins)

    def jmx_metrics(self, request: HttpRequest) -> Response:
        """Respond to a scrape under the names of Kafka's MBeans, of every cluster."""
        return self._scraped(request, self._jmx_exposition.render)

    def _render(self, snapshot: ReplicationSnapshot, now: int, selection: ScrapeRequest) -> list[Block]:
        clusters = tuple(clusters_by_name(snapshot))
        if selection.cluster is None and len(clusters) > 1 and clusters != self._without_drop_ins:
            self._without_drop_ins = clusters
            _LOG.warning(
                "/metrics has several clusters, so the names of kafka_exporter, which have no label for the cluster, "
                "are only at %s",
                ", ".join(map(metrics_path, clusters)),
            )
        health = replace(self._refresher.health, http=self.http)
        return self._exposition.render(snapshot, health, now, selection)

    def _render_drop_ins(self, snapshot: ReplicationSnapshot, now: int, selection: ScrapeRequest) -> list[Block]:
        names = _DROP_INS & (selection.names or _DROP_INS)
        selection = replace(selection, names=names or _NOTHING)
        return self._exposition.render(snapshot, self._refresher.health, now, selection)

    def _scraped(
        self, request: HttpRequest, render: Callable[[ReplicationSnapshot, int, ScrapeRequest], list[Block]]
    ) -> Response:
        """Respond with what is rendered of the cluster that the path, or else a parameter, names."""
        snapshot = self._refresher.snapshot
        if snapshot.version == NO_TABLE:
            return lines_response([self._refresher.why_not_ready()], 503)
        cluster = request.path_params.get("cluster", request.query_params.get("cluster"))
        clusters = clusters_by_name(snapshot)
        if cluster is not None and cluster not in clusters:
            return lines_response([f"unknown cluster {cluster}; known: {', '.join(clusters) or 'none yet'}"], 404)
        is_openmetrics = prefers_openmetrics(request.headers.getlist("Accept"))
        names = frozenset(request.query_params.getlist("name[]"))
        selection = ScrapeRequest(cluster, names, is_openmetrics=is_openmetrics)
        headers = {"Content-Type": OPENMETRICS if is_openmetrics else TEXT, "Vary": "Accept, Accept-Encoding"}
        is_zipped = accepts_gzip(request.headers.getlist("Accept-Encoding"))
        if is_zipped:
            headers["Content-Encoding"] = "gzip"
        put_together = gzipped if is_zipped else plain
        asked = (render, selection, is_zipped)
        body = self._bodies.shared(asked, snapshot, lambda now: put_together(render(snapshot, now, selection)))
        return Response(body, headers=headers)

    async def healthy(self, _: HttpRequest) -> Response:
        """Respond 200 while the thread that refreshes from the tables runs and does not hang, else 503."""
        problem = self._refresher.hangs() if self._refresher.is_alive() else _ENDED
        if problem is None:
            return lines_response(["isrwatch export is healthy"])
        return lines_response([problem], 503)

    def ready(self, _: HttpRequest) -> Response:
        """Respond 200 once there is a snapshot to serve, with a line for each thing that it lacks; else 503."""
        if self._refresher.snapshot.version == NO_TABLE:
            return lines_response([self._refresher.why_not_ready()], 503)
        return lines_response(["isrwatch export is ready", *self._left_out()])

    def _raised(self, snapshot: ReplicationSnapshot, now: int) -> list[Raised]:
        every = self._refresher.snapshot.clusters.values()
        inputs = self._exposition.condition_inputs(every, self._refresher.health, now)
        return raised(clusters_by_name(snapshot), inputs)

    def advertised(self, cluster_name: str) -> str:
        """Return the addresses that a few brokers of a cluster advertise first; "" if none is known."""
        cluster = clusters_by_name(self._refresher.snapshot).get(cluster_name)
        brokers = () if cluster is None else sorted(cluster.brokers.values(), key=lambda each: each.broker)
        up = [each for each in brokers if each.host and each.port and each.is_registered and not each.is_fenced]
        return ",".join(f"{_bracketed(each.host or '')}:{each.port}" for each in up[:_ADDRESSES])

    def _names(self) -> dict[str, str]:
        return {cluster_id: each.name for cluster_id, each in self._refresher.snapshot.clusters.items()}

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the exporter, and what it could not read."""
        if not self._refresher.is_alive():
            yield _ENDED
        if (hanging := self._refresher.hangs()) is not None:
            yield hanging
        if self._refresher.snapshot.version == NO_TABLE:
            yield self._refresher.why_not_ready()
        yield from self._left_out()

    def _left_out(self) -> Iterator[str]:
        """Yield a line for each thing that is missing from the snapshot."""
        yield from (f"without {table}: {why}" for table, why in sorted(self._refresher.unreadable.items()))
        if self._refresher.unshown is not None:
            yield f"without what was read last, which cannot be shown: {self._refresher.unshown}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def application(endpoints: Endpoints) -> Starlette:
    """Assign the paths to the endpoints."""
    assigned = Starlette(
        routes=[
            *endpoints.pages.routes(),
            Route(endpoints.telemetry_path, endpoints.metrics),
            Route(OF_MBEANS, endpoints.jmx_metrics),
            Route(OF_A_CLUSTER, endpoints.drop_in_metrics),
            Route(PATH, runbook_list),
            Route(f"{PATH}/{{name}}", runbook_section),
            Route("/-/healthy", endpoints.healthy),
            Route("/healthz", endpoints.healthy),
            Route("/-/ready", endpoints.ready),
            endpoints.api.mounted(),
        ],
        exception_handlers={HTTPException: refused, Exception: failed},
    )
    assigned.state.installations = replace(endpoints.installations, advertised=endpoints.advertised)
    return assigned


def paths_without_login(settings: ExportSettings) -> tuple[str, ...]:
    """Return the paths of routes that need no login: none, or metrics and health checks."""
    of_metrics = (settings.telemetry_path, "/metrics/jmx", "/clusters/{cluster:path}/metrics")
    return (*of_metrics, "/-/healthy", "/healthz", "/-/ready") if settings.metrics_without_login else ()


# The running exporter: sockets, a thread that refreshes from the tables, and the HTTP server.


OPTION: Final = "--web.listen-address (export.listen)"
SWITCH_SECONDS: Final = 0.0001
"""After how long a thread of Python has to give way: a scrape passes from thread to thread, and while changes are read
would wait at each step for as long as this, by default 5 ms."""


def serve(
    tables: Place,
    settings: Settings,
    opened: Sequence[socket.socket],
    protected: Protection,
    installations: Installations,
) -> None:
    """Serve until SIGTERM or SIGINT; a second SIGINT does not wait for responses."""
    reader = TablesReader(tables, reads_side_tables_apart=True)
    server, refresher = _parts(reader, settings, opened, protected, installations)
    if not settings.export.url:
        _LOG.info("%s", NO_LINKS)
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
def serving(tables: Place, settings: ExportSettings, *, rest_after_error: float = REST_AFTER_ERROR) -> Iterator[str]:
    """Serve from threads of this process while the context is open; yield host and port of the first address."""
    opened = listen_all(settings.listen, OPTION)
    address = address_of(opened[0])
    reader = TablesReader(tables, reads_side_tables_apart=True, rest_after_error=rest_after_error)
    protected = protection_of(settings.web_config_file, paths_without_login(settings))
    server, refresher = _parts(reader, Settings(export=settings), opened, protected, Installations.of((), settings))
    refresher.start()
    try:
        with serving_http(server):
            yield address
    finally:
        refresher.stop()
        refresher.join()


def _parts(
    reader: TablesReader,
    configured: Settings,
    opened: Sequence[socket.socket],
    protected: Protection,
    installations: Installations,
) -> tuple[WebServer, Refresher]:
    settings, conditions = configured.export, ConditionSettings.of(configured.alerts)
    chosen = SeriesFilter(settings)
    if sentence := chosen.sentence():
        _LOG.info("%s", sentence)
    exposition = Exposition(settings.stale_after, configured.collect, settings.detail_limit, chosen, conditions)
    refresher = Refresher(
        reader,
        settings.refresh_interval,
        version("isrwatch"),
        lambda snapshot: exposition.prepare(snapshot, micros_now(), in_steps=True).is_complete,
    )
    endpoints = Endpoints(
        refresher, settings.stale_after, exposition=exposition, telemetry_path=settings.telemetry_path
    )
    endpoints.installations = installations
    sources = endpoints.api.sources
    sources.url, sources.limits = settings.url, replace(sources.limits, poll_intervals=installations.poll_intervals)
    server = WebServer(application(endpoints), opened, protected)
    endpoints.http = server.counts
    exposition.give_way = ScrapePriority(server.counts)
    endpoints.pages.give_way = ScrapePriority(server.counts, (settings.telemetry_path, *OTHER_METRICS))
    return server, refresher


# Requests before what is prepared for later ones: two threads of Python share one processor.


LONGEST_SECONDS: Final = 0.02
"""The longest wait, and the least time between two: a client that reads slowly holds up no more than half the work."""
ARRIVAL_SECONDS: Final = 0.005
"""For how long a client that has connected is expected to send its request."""
_LOOK_SECONDS: Final = 0.0005


class ScrapePriority:
    """Called by a thread that prepares responses, often: waits while a request is being responded to."""

    def __init__(self, counts: HttpCounts, handlers: Collection[str] = ()) -> None:
        """Give way to the requests of one server: to those of some handlers, or of all."""
        self._counts, self._handlers = counts, handlers
        self._not_before = 0.0

    def __call__(self) -> None:
        """Wait, if there is a request, and the last wait was not just now."""
        now = time.monotonic()
        if not self._is_busy(now) or now < self._not_before:
            return
        end = now + LONGEST_SECONDS
        while self._is_busy(now) and now < end:
            time.sleep(_LOOK_SECONDS)
            now = time.monotonic()
        self._not_before = now + LONGEST_SECONDS

    def _is_busy(self, now: float) -> bool:
        if self._handlers:
            return any(self._counts.in_flight_by[each] > 0 for each in self._handlers)
        return self._counts.in_flight > 0 or now - self._counts.arrived_at < ARRIVAL_SECONDS
