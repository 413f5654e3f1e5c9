"""HTTP: ``/metrics``, ``/-/healthy``, ``/-/ready``, the JSON API, and a page of links. Every answer is from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from exporters.api import Answers, query_of
from exporters.compression import gzipped, plain
from exporters.exposition import CONTENT_TYPE, Exposition, Request
from exporters.reader import micros_now
from exporters.snapshot import NO_TABLE
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request as HttpRequest

    from exporters.api import Query
    from exporters.refresher import Refresher

LINKS: Final = {
    "/metrics": "metrics, for Prometheus (?cluster=NAME for one cluster, ?name[]=METRIC for some metrics)",
    "/api/v1/clusters": "clusters, brokers and sources",
    "/api/v1/partitions?state=under_replicated": "partitions in a state",
    "/api/v1/events?limit=100": "newest events",
    "/api/v1/incidents": "open incidents, with the suspects",
    "/-/healthy": "is the exporter alive",
    "/-/ready": "has it read the tables",
}
_PAGE: Final = "<!doctype html><html lang=en><title>isrwatch</title><h1>isrwatch</h1><ul>{links}</ul></html>"


class Pages:
    """The answers of the exporter."""

    def __init__(self, refresher: Refresher, stale_after_seconds: float, clock: Callable[[], int] = micros_now) -> None:
        """Answer from what a refresher has read.

        Args:
            refresher: reads the tables in the background.
            stale_after_seconds: age of our sight beyond which a cluster's state is not shown.
            clock: gives the time in UTC microseconds.
        """
        self._refresher = refresher
        self._stale_after = stale_after_seconds
        self._clock = clock
        self._exposition = Exposition(stale_after_seconds)

    def metrics(self, request: HttpRequest) -> Response:
        """Answer a scrape; 503 before the first snapshot, so that ``up`` is 0 instead of a page without alarms."""
        snapshot = self._refresher.snapshot
        if snapshot.version == NO_TABLE:
            return PlainTextResponse(self._why_not_ready(), 503)
        cluster = request.query_params.get("cluster")
        known = snapshot.by_name()
        if cluster is not None and cluster not in known:
            told = ", ".join(known) or "none yet"
            return PlainTextResponse(f"cluster {cluster} is not known; known: {told}\n", 404)
        wanted = Request(cluster, frozenset(request.query_params.getlist("name[]")))
        blocks = self._exposition.page(snapshot, self._refresher.health, self._clock(), wanted)
        headers = {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
        if accepts_gzip(request.headers.get("Accept-Encoding", "")):
            return Response(gzipped(blocks), headers={**headers, "Content-Encoding": "gzip"})
        return Response(plain(blocks), headers=headers)

    def healthy(self, _: HttpRequest) -> Response:
        """Tell whether the tables are still being looked at."""
        if self._refresher.is_alive():
            return PlainTextResponse("isrwatch export is healthy\n")
        return PlainTextResponse("the thread that reads the tables has ended; restart isrwatch export\n", 503)

    def ready(self, _: HttpRequest) -> Response:
        """Tell whether there is a snapshot to serve."""
        if self._refresher.snapshot.version == NO_TABLE:
            return PlainTextResponse(self._why_not_ready(), 503)
        return PlainTextResponse("isrwatch export is ready\n")

    def clusters(self, _: HttpRequest) -> Response:
        """Answer ``/api/v1/clusters``."""
        return JSONResponse(self._answers().clusters())

    def partitions(self, request: HttpRequest) -> Response:
        """Answer ``/api/v1/partitions``."""
        return self._answer(request, Answers.partitions)

    def events(self, request: HttpRequest) -> Response:
        """Answer ``/api/v1/events``."""
        return self._answer(request, Answers.events)

    def incidents(self, request: HttpRequest) -> Response:
        """Answer ``/api/v1/incidents``."""
        return self._answer(request, Answers.incidents)

    def index(self, _: HttpRequest) -> Response:
        """Answer with links."""
        links = "".join(f'<li><a href="{path}">{path}</a>: {text}</li>' for path, text in LINKS.items())
        return HTMLResponse(_PAGE.format(links=links))

    def _answer(self, request: HttpRequest, tell: Callable[[Answers, Query], dict[str, Any]]) -> Response:
        try:
            query = query_of(request.query_params)
        except ConfigurationError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse(tell(self._answers(), query))

    def _answers(self) -> Answers:
        return Answers(self._refresher.snapshot, self._clock(), self._stale_after)

    def _why_not_ready(self) -> str:
        if self._refresher.last_error is not None:
            return f"the tables cannot be read: {self._refresher.last_error}\n"
        return f"there are no tables in {self._refresher.tables} yet; start isrwatch job\n"


def application(pages: Pages) -> Starlette:
    """Route the answers."""
    return Starlette(
        routes=[
            Route("/", pages.index),
            Route("/metrics", pages.metrics),
            Route("/-/healthy", pages.healthy),
            Route("/-/ready", pages.ready),
            Route("/api/v1/clusters", pages.clusters),
            Route("/api/v1/partitions", pages.partitions),
            Route("/api/v1/events", pages.events),
            Route("/api/v1/incidents", pages.incidents),
        ]
    )


def accepts_gzip(header: str) -> bool:
    """Read an ``Accept-Encoding`` header: is gzip named, and not with a weight of 0."""
    for item in header.lower().split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip() in {"gzip", "*"}:
            weight = parameters.replace(" ", "").removeprefix("q=")
            return not weight or weight.strip("0.") != ""
    return False
