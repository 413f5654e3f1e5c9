"""The routes below ``/api/v1``: requests parsed, responses and errors as JSON, compressed where that is accepted."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from exporters.read_model.snapshot import NO_TABLE
from exporters.web.api_resource import CLUSTER, View, clusters_of
from exporters.web.endpoints import ENDPOINTS, PREFIX
from exporters.web.negotiation import AcceptedGzip
from exporters.web.openapi import document_of
from exporters.web.parameters import RequestRefused, query_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from exporters.read_model.refresher import Refresher
    from exporters.web.endpoints import Endpoint

_OPENAPI: Final = "openapi.json"
_API: Final = "/api"


class ApiRoutes:
    """The responses of the JSON API."""

    def __init__(self, refresher: Refresher, stale_after_seconds: float, clock: Callable[[], int]) -> None:
        """Respond from the snapshot of a refresher.

        Args:
            refresher: reads the tables in the background.
            stale_after_seconds: data age beyond which a cluster is marked stale.
            clock: returns the time in UTC microseconds.
        """
        self._refresher = refresher
        self._stale_after = stale_after_seconds
        self._clock = clock

    def mounted(self) -> Mount:
        """Assign the paths."""
        routes = [Route(f"/{endpoint.name}", partial(self.respond, endpoint)) for endpoint in ENDPOINTS]
        compressed = [Middleware(AcceptedGzip)]
        return Mount(PREFIX, routes=[*routes, Route(f"/{_OPENAPI}", self._openapi)], middleware=compressed)

    def respond(self, endpoint: Endpoint, request: Request) -> Response:
        """Respond to a request; 503 before the first snapshot: empty lists would look like a healthy cluster."""
        snapshot = self._refresher.snapshot
        try:
            query = query_of(endpoint.parameters, request.query_params.multi_items())
            if snapshot.version == NO_TABLE:
                return error_response(self._refresher.why_not_ready(), 503)
            clusters = clusters_of(snapshot, query[CLUSTER.name])
            view = View(snapshot, self._clock(), self._stale_after, clusters, self._refresher.unreadable)
            status, content = endpoint.answer(view, query)
        except RequestRefused as error:
            return error_response(str(error), error.status)
        return JSONResponse(content, status)

    def _openapi(self, request: Request) -> Response:
        """Respond with the description of the API."""
        try:
            query_of((), request.query_params.multi_items())
        except RequestRefused as error:
            return error_response(str(error), error.status)
        return JSONResponse(document_of(ENDPOINTS, version("isrwatch")))


def error_response(sentence: str, status: int) -> JSONResponse:
    """Return an error of the API."""
    return JSONResponse({"error": sentence}, status)


def refused(request: Request, error: Exception) -> Response:
    """Respond to a path or a method that is not there: as JSON below ``/api``."""
    if not isinstance(error, HTTPException):
        raise error
    if not request.url.path.startswith(_API):
        return PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)
    paths = ", ".join([*(endpoint.path for endpoint in ENDPOINTS), f"{PREFIX}/{_OPENAPI}"])
    hint = f"the paths are {paths}" if error.status_code == 404 else "use GET or HEAD"  # noqa: PLR2004 - HTTP's own
    response = error_response(f"{error.detail}: {request.method} {request.url.path}; {hint}", error.status_code)
    response.headers.update(error.headers or {})
    return response


def failed(request: Request, _: Exception) -> Response:
    """Respond to an error of the exporter, which is logged with its traceback: as JSON below ``/api``."""
    sentence = "a fault of isrwatch export; its log has the traceback"
    if request.url.path.startswith(_API):
        return error_response(sentence, 500)
    return PlainTextResponse(f"{sentence}\n", 500)
