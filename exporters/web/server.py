"""The HTTP routes: ``/metrics``, ``/-/healthy``, ``/-/ready``, the JSON API, and an index page.

Every response is computed from the snapshot in memory: a request never waits for a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from exporters.metrics.compression import gzipped, plain
from exporters.metrics.exposition import CONTENT_TYPE, Exposition, ScrapeRequest
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.reader import micros_now
from exporters.read_model.snapshot import NO_TABLE
from exporters.web.api import JsonApi, query_of
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request as HttpRequest

    from exporters.read_model.refresher import Refresher
    from exporters.web.api import ApiQuery

LINKS: Final = {
    "/metrics": "metrics for Prometheus (?cluster=NAME selects a cluster, ?name[]=METRIC selects metrics)",
    "/api/v1/clusters": "clusters, brokers and sources",
    "/api/v1/partitions?state=under_replicated": "partitions in a given state",
    "/api/v1/events?limit=100": "newest events",
    "/api/v1/incidents": "open incidents with their suspects",
    "/-/healthy": "health check: the exporter refreshes from the tables",
    "/-/ready": "readiness check: the tables have been read",
}
_INDEX: Final = "<!doctype html><html lang=en><title>isrwatch</title><h1>isrwatch</h1><ul>{links}</ul></html>"


class Endpoints:
    """The responses of the exporter."""

    def __init__(
        self,
        refresher: Refresher,
        stale_after_seconds: float,
        clock: Callable[[], int] = micros_now,
        exposition: Exposition | None = None,
    ) -> None:
        """Respond from the snapshot of a refresher.

        Args:
            refresher: reads the tables in the background.
            stale_after_seconds: data age beyond which a cluster's state is not exposed.
            clock: returns the time in UTC microseconds.
            exposition: renders the metrics; by default with the default settings.
        """
        self._refresher = refresher
        self._stale_after = stale_after_seconds
        self._clock = clock
        self._exposition = exposition or Exposition(stale_after_seconds)

    def metrics(self, request: HttpRequest) -> Response:
        """Respond to a scrape.

        503 before the first snapshot: an empty exposition would set ``up`` to 1 and look like a cluster without
        problems.
        """
        snapshot = self._refresher.snapshot
        if snapshot.version == NO_TABLE:
            return PlainTextResponse(self._why_not_ready(), 503)
        cluster = request.query_params.get("cluster")
        clusters = clusters_by_name(snapshot)
        if cluster is not None and cluster not in clusters:
            return PlainTextResponse(f"unknown cluster {cluster}; known: {', '.join(clusters) or 'none yet'}\n", 404)
        selection = ScrapeRequest(cluster, frozenset(request.query_params.getlist("name[]")))
        blocks = self._exposition.render(snapshot, self._refresher.health, self._clock(), selection)
        headers = {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
        if accepts_gzip(request.headers.get("Accept-Encoding", "")):
            return Response(gzipped(blocks), headers={**headers, "Content-Encoding": "gzip"})
        return Response(plain(blocks), headers=headers)

    def healthy(self, _: HttpRequest) -> Response:
        """Respond 200 while the thread that refreshes from the tables runs, else 503."""
        if self._refresher.is_alive():
            return PlainTextResponse("isrwatch export is healthy\n")
        return PlainTextResponse("the thread that reads the tables has ended; restart isrwatch export\n", 503)

    def ready(self, _: HttpRequest) -> Response:
        """Respond 200 once there is a snapshot to serve, with a line per table that is left out of it; else 503."""
        if self._refresher.snapshot.version == NO_TABLE:
            return PlainTextResponse(self._why_not_ready(), 503)
        left_out = (f"without {table}: {why}\n" for table, why in sorted(self._refresher.unreadable.items()))
        return PlainTextResponse("".join(("isrwatch export is ready\n", *left_out)))

    def clusters(self, _: HttpRequest) -> Response:
        """Respond to ``/api/v1/clusters``."""
        return JSONResponse(self._api().clusters())

    def partitions(self, request: HttpRequest) -> Response:
        """Respond to ``/api/v1/partitions``."""
        return self._json(request, JsonApi.partitions)

    def events(self, request: HttpRequest) -> Response:
        """Respond to ``/api/v1/events``."""
        return self._json(request, JsonApi.events)

    def incidents(self, request: HttpRequest) -> Response:
        """Respond to ``/api/v1/incidents``."""
        return self._json(request, JsonApi.incidents)

    def index(self, _: HttpRequest) -> Response:
        """Respond with links to the other paths."""
        links = "".join(f'<li><a href="{path}">{path}</a>: {text}</li>' for path, text in LINKS.items())
        return HTMLResponse(_INDEX.format(links=links))

    def _json(self, request: HttpRequest, content: Callable[[JsonApi, ApiQuery], dict[str, Any]]) -> Response:
        try:
            query = query_of(request.query_params)
        except ConfigurationError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse(content(self._api(), query))

    def _api(self) -> JsonApi:
        return JsonApi(self._refresher.snapshot, self._clock(), self._stale_after)

    def _why_not_ready(self) -> str:
        if self._refresher.last_error is not None:
            return f"the tables cannot be read: {self._refresher.last_error}\n"
        return f"there are no tables in {self._refresher.tables} yet; start isrwatch job\n"


def application(endpoints: Endpoints) -> Starlette:
    """Assign the paths to the endpoints."""
    return Starlette(
        routes=[
            Route("/", endpoints.index),
            Route("/metrics", endpoints.metrics),
            Route("/-/healthy", endpoints.healthy),
            Route("/-/ready", endpoints.ready),
            Route("/api/v1/clusters", endpoints.clusters),
            Route("/api/v1/partitions", endpoints.partitions),
            Route("/api/v1/events", endpoints.events),
            Route("/api/v1/incidents", endpoints.incidents),
        ]
    )


def accepts_gzip(header: str) -> bool:
    """Return whether an ``Accept-Encoding`` header lists gzip (or ``*``) with a weight other than 0 (RFC 9110)."""
    for item in header.lower().split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip() in {"gzip", "*"}:
            weight = parameters.replace(" ", "").removeprefix("q=")
            return not weight or weight.strip("0.") != ""
    return False
