"""HTTP of a program about its work: its own metrics at ``/metrics``, health, links at ``/``.

``/-/healthy`` says whether it does its work, ``/-/ready`` whether it has caught up. ``/-/alive`` is for what restarts a
program by itself, as Kubernetes does: it is 503 only while something hangs, because a restart repairs nothing else.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streaming.web.connections import connection_limit
from streaming.web.http_counts import HTTP_METRICS
from streaming.web.markup import document, link_list, sentence
from streaming.web.responses import lines_response
from streaming.web.server import WebServer, serving

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client import Metric
    from starlette.requests import Request

    from streaming.web.http_counts import HttpCounts
    from streaming.web.protection import Protection

MOST_CONNECTIONS: Final = 64
"""Few ask for it, and the program needs its descriptors."""


class StatusServer:
    """Serves from its own thread."""

    def __init__(  # noqa: PLR0913 - where, what and by whose rules, in the words of three programs
        self,
        opened: Sequence[socket.socket],
        registry: CollectorRegistry,
        problems: Callable[[], list[str]],
        *,
        program: str,
        prefix: str,
        healthy: str | Callable[[], str],
        hangs: Callable[[], list[str]] = list,
        unready: Callable[[], list[str]] | None = None,
        protected: Protection | None = None,
    ) -> None:
        """Serve on sockets.

        Args:
            opened: listening sockets.
            registry: the metrics of ``/metrics``.
            problems: returns one sentence for each thing that makes the program unhealthy.
            program: the name of the command.
            prefix: of the names of its metrics.
            healthy: what is so while there are no problems; a function if that changes.
            hangs: returns one sentence for each problem that a restart solves.
            unready: returns one sentence for each thing that it lacks to be up to date; None: ``problems`` does.
            protected: the web configuration file, as it is now.
        """
        self._registry, self._problems, self._unready = registry, problems, unready or problems
        self._hangs = hangs
        self._program, self._healthy = program, healthy if callable(healthy) else lambda: healthy
        routes = [
            Route("/", self._index),
            Route("/metrics", self._metrics),
            Route("/-/healthy", self._health),
            Route("/healthz", self._health),
            Route("/-/ready", self._ready),
            Route("/-/alive", self._alive),
        ]
        server = WebServer(
            Starlette(routes=routes), opened, protected, most_connections=connection_limit(MOST_CONNECTIONS)
        )
        self._http = CollectorRegistry()
        self._http.register(_HttpFamilies(server.counts, prefix))
        self._serving = ExitStack()
        self._serving.enter_context(serving(server))

    def close(self) -> None:
        """Stop serving."""
        self._serving.close()

    def _metrics(self, _: Request) -> Response:
        exposition = b"".join(map(generate_latest, (self._registry, self._http)))
        return Response(exposition, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _health(self, _: Request) -> Response:
        problems = self._problems()
        return lines_response(problems or [self._healthy()], 503 if problems else 200)

    def _ready(self, _: Request) -> Response:
        lacks = self._unready()
        return lines_response(lacks or [f"isrwatch {self._program} is ready"], 503 if lacks else 200)

    def _alive(self, _: Request) -> Response:
        hanging = self._hangs()
        return lines_response(hanging or [f"isrwatch {self._program} does not hang"], 503 if hanging else 200)

    def _index(self, _: Request) -> Response:
        problems = self._problems()
        links = {
            "/metrics": "metrics of this program itself, for Prometheus",
            "/-/healthy": f"200 while {self._healthy()}, else 503",
            "/-/ready": "200 while it is up to date, else 503",
            "/-/alive": "503 while it hangs, so that a restart helps, else 200",
        }
        state = [sentence(problem, is_good=False) for problem in problems] or [sentence(self._healthy(), is_good=True)]
        return HTMLResponse(document(f"isrwatch {self._program}", *state, link_list(links)))


class _HttpFamilies(Collector):
    """The metrics of a server, as the client library has them."""

    def __init__(self, counts: HttpCounts, prefix: str) -> None:
        self._counts, self._prefix = counts, prefix

    def collect(self) -> Iterator[Metric]:
        """Read the counts."""
        for metric in HTTP_METRICS:
            kind = CounterMetricFamily if metric.name.endswith("_total") else GaugeMetricFamily
            family = kind(f"{self._prefix}{metric.name}", metric.help, labels=metric.labels)
            for labels, value in metric.samples(self._counts):
                family.add_metric(labels, value)
            yield family
