"""The HTTP routes: ``/metrics`` and its variants, ``/-/healthy`` (``/healthz``), ``/-/ready``, JSON API, and an index.

Every response is computed from the snapshot in memory: a request never waits for a table.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from exporters.metrics.compression import gzipped, plain
from exporters.metrics.exporter_metrics import metrics_path
from exporters.metrics.exposition import Exposition
from exporters.metrics.headings import OPENMETRICS, TEXT
from exporters.metrics.jmx_exposition import JmxExposition
from exporters.metrics.kafka_exporter_names import DROP_IN_METRICS
from exporters.metrics.scrape_request import ScrapeRequest
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.reader import micros_now
from exporters.read_model.snapshot import NO_TABLE
from exporters.web.api_resource import View
from exporters.web.api_routes import ApiRoutes, failed, refused
from exporters.web.landing import landing
from exporters.web.negotiation import accepts_gzip, prefers_openmetrics
from exporters.web.scrape_bodies import ScrapeBodies
from streaming.web.http_counts import HttpCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request as HttpRequest

    from exporters.metrics.compression import Block
    from exporters.read_model.refresher import Refresher
    from exporters.read_model.snapshot import ReplicationSnapshot

METRICS: Final = "/metrics"
_ENDED: Final = "the thread that reads the tables has ended; restart isrwatch export"
_METRICS_LINK: Final = "metrics for Prometheus (?cluster=NAME selects a cluster, ?name[]=METRIC selects metrics)"
LINKS: Final = {
    "/metrics/jmx": "metrics under the names of Kafka's MBeans, for dashboards of JMX agents",
    "/api/v1/health": "whether the clusters are healthy, and why not",
    "/api/v1/clusters": "clusters, brokers and sources",
    "/api/v1/partitions?state=under_replicated": "partitions in a given state",
    "/api/v1/events?limit=100": "newest events",
    "/api/v1/incidents": "open incidents with their suspects",
    "/api/v1/openapi.json": "description of the JSON API (OpenAPI)",
    "/-/healthy": "health check: the exporter refreshes from the tables",
    "/-/ready": "readiness check: the tables have been read",
}
_DROP_INS: Final = frozenset(metric.name for metric in DROP_IN_METRICS)
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
        """Respond from the snapshot of a refresher.

        Args:
            refresher: reads the tables in the background.
            stale_after_seconds: data age beyond which a cluster's state is not exposed.
            clock: returns the time in UTC microseconds.
            exposition: renders the metrics; by default with the default settings.
            telemetry_path: the path of the metrics.
        """
        self.telemetry_path = telemetry_path
        self._refresher = refresher
        self._stale_after = stale_after_seconds
        self._clock = clock
        self._exposition = exposition or Exposition(stale_after_seconds)
        self.api = ApiRoutes(refresher, stale_after_seconds, clock)
        self._jmx_exposition = JmxExposition(stale_after_seconds, self._exposition.oldest, self._exposition.chosen)
        self._bodies = ScrapeBodies(clock)
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
            return PlainTextResponse(f"{self._refresher.why_not_ready()}\n", 503)
        cluster = request.path_params.get("cluster", request.query_params.get("cluster"))
        clusters = clusters_by_name(snapshot)
        if cluster is not None and cluster not in clusters:
            return PlainTextResponse(f"unknown cluster {cluster}; known: {', '.join(clusters) or 'none yet'}\n", 404)
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
        """Respond 200 while the thread that refreshes from the tables runs, else 503."""
        if self._refresher.is_alive():
            return PlainTextResponse("isrwatch export is healthy\n")
        return PlainTextResponse(f"{_ENDED}\n", 503)

    def ready(self, _: HttpRequest) -> Response:
        """Respond 200 once there is a snapshot to serve, with a line for each thing that it lacks; else 503."""
        if self._refresher.snapshot.version == NO_TABLE:
            return PlainTextResponse(f"{self._refresher.why_not_ready()}\n", 503)
        return PlainTextResponse("".join(f"{line}\n" for line in ("isrwatch export is ready", *self._left_out())))

    def index(self, _: HttpRequest) -> Response:
        """Respond with the state of everything in short, and links to the other paths."""
        links = {self.telemetry_path: _METRICS_LINK, **LINKS}
        snapshot, unreadable = self._refresher.snapshot, self._refresher.unreadable
        view = View(snapshot, self._clock(), self._stale_after, clusters_by_name(snapshot), unreadable)
        return HTMLResponse(landing(view, list(self._problems()), links))

    def _problems(self) -> Iterator[str]:
        if not self._refresher.is_alive():
            yield _ENDED
        if self._refresher.snapshot.version == NO_TABLE:
            yield self._refresher.why_not_ready()
        yield from self._left_out()

    def _left_out(self) -> Iterator[str]:
        """Yield a line for each thing that is missing from the snapshot."""
        yield from (f"without {table}: {why}" for table, why in sorted(self._refresher.unreadable.items()))
        if self._refresher.unshown is not None:
            yield f"without what was read last, which cannot be shown: {self._refresher.unshown}"


def application(endpoints: Endpoints) -> Starlette:
    """Assign the paths to the endpoints."""
    return Starlette(
        routes=[
            Route("/", endpoints.index),
            Route(endpoints.telemetry_path, endpoints.metrics),
            Route("/metrics/jmx", endpoints.jmx_metrics),
            Route("/clusters/{cluster:path}/metrics", endpoints.drop_in_metrics),
            Route("/-/healthy", endpoints.healthy),
            Route("/healthz", endpoints.healthy),
            Route("/-/ready", endpoints.ready),
            endpoints.api.mounted(),
        ],
        exception_handlers={HTTPException: refused, Exception: failed},
    )
