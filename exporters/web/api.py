"""The responses of the JSON API about a snapshot: rows of a resource, a page at a time, and what these rest on.

Column names are those of the tables, times UTC microseconds. State that is too old for ``/metrics`` stays readable
here, marked ``is_stale``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount, Route

from exporters.read_model.cluster_health import HealthStatus
from exporters.read_model.snapshot import NO_TABLE
from exporters.web.api_resource import CLUSTER, Cursor, View, clusters_of, cursor_of, page_of, row_schema, selection_of
from exporters.web.negotiation import AcceptedGzip
from exporters.web.parameters import RequestRefused, query_of
from exporters.web.resources import (
    BROKERS,
    CLUSTERS,
    FRESHNESS,
    GROUP_RESOURCES,
    HEALTH_COLUMNS,
    HISTORY_RESOURCES,
    MAINTENANCE,
    PARAMETERS,
    PARTITIONS,
    STATUS,
    TOPICS,
    health_content,
)
from streaming.contracts.columns import Column, required
from streaming.web.responses import JsonResponse, error_response, lines_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from exporters.read_model.refresher import Refresher
    from exporters.web.api_resource import ApiResource, Schema
    from exporters.web.parameters import Parameter, Query

RESOURCES: Final[tuple[ApiResource, ...]] = (
    CLUSTERS,
    BROKERS,
    TOPICS,
    PARTITIONS,
    *GROUP_RESOURCES,
    *HISTORY_RESOURCES,
    MAINTENANCE,
)
VERSION_COLUMNS: Final = (
    required("table_version", "long", "version of partition_changes that the response shows"),
    required("read_at", "timestamp", "when the exporter last read the tables"),
)
_PAGE_COLUMNS: Final = (
    required("count", "long", "rows that the filters select, on all pages"),
    required("is_truncated", "boolean", "more rows follow behind those of this page"),
    Column("next_cursor", "string", "gives the next page; null on the last one"),
    required("has_changed", "boolean", "the change log has another version than at the first page"),
)


def page_response(resource: ApiResource, view: View, query: Query) -> dict[str, Any]:
    """Return one page of a resource.

    Raises:
        RequestRefused: the cursor is not of this request.
    """
    selection = selection_of(resource.name, query.values)
    cursor = None if query["cursor"] is None else cursor_of(query["cursor"], selection, resource.key_types)
    after = None if cursor is None else cursor.key
    page = page_of(resource.matching(view, query), resource.key, query["limit"], after)
    first_version = view.snapshot.version if cursor is None else cursor.version
    return {
        **envelope(view),
        "freshness": {
            name: {**view.freshness(cluster), **{flag: holds(cluster) for flag, holds in resource.available.items()}}
            for name, cluster in view.clusters.items()
        },
        **resource.remarks(view),
        "count": page.count,
        "is_truncated": page.has_more,
        "next_cursor": None if page.last is None else Cursor(first_version, page.last).encoded(selection),
        "has_changed": first_version != view.snapshot.version,
        resource.name: [resource.full_row(view, item) for item in page.rows],
    }


def envelope(view: View) -> dict[str, Any]:
    """Return what every response begins with: the version that it shows, and what is missing from it."""
    return {
        "table_version": view.snapshot.version,
        "read_at": view.snapshot.read_at,
        "unreadable_tables": dict(view.unreadable),
    }


def page_schema(resource: ApiResource, row: Schema) -> Schema:
    """Return the schema of a page, whose rows have a schema."""
    flags = (
        required(flag, "boolean", "the tables of these rows are there and can be read") for flag in resource.available
    )
    schema = row_schema((*VERSION_COLUMNS, *resource.remark_columns, *_PAGE_COLUMNS))
    more = {
        "unreadable_tables": UNREADABLE_SCHEMA,
        "freshness": {
            "type": "object",
            "description": "data age of each selected cluster",
            "additionalProperties": row_schema((*FRESHNESS, *flags)),
        },
        resource.name: {"type": "array", "items": row},
    }
    return {**schema, "properties": {**schema["properties"], **more}, "required": [*schema["required"], *more]}


UNREADABLE_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "tables that cannot be read, each with the reason: what comes from them is missing",
    "additionalProperties": {"type": "string"},
}


# Every path of the JSON API: what it accepts and what it returns, declared once.


PREFIX: Final = "/api/v1"
Answer = tuple[int, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One path.

    Attributes:
        name: of the operation.
        summary: one line.
        help: what it returns.
        parameters: everything that a request may give; ``cluster`` is among them.
        answer: status and content of the response.
        response: schema of the content.
        statuses: the statuses with such a content, each with its meaning.
        schemas: named schemas that ``response`` refers to.
    """

    name: str
    summary: str
    help: str
    parameters: tuple[Parameter, ...]
    answer: Callable[[View, Query], Answer]
    response: Schema
    statuses: Mapping[int, str]
    schemas: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Path of the endpoint."""
        return f"{PREFIX}/{self.name}"


def _of_resource(resource: ApiResource) -> Endpoint:
    name = f"{''.join(word.title() for word in resource.name.split('_'))}Row"
    return Endpoint(
        name=resource.name,
        summary=resource.summary,
        help=resource.help,
        parameters=resource.parameters,
        answer=lambda view, query: (200, page_response(resource, view, query)),
        response=page_schema(resource, {"$ref": f"#/components/schemas/{name}"}),
        statuses={200: "A page of rows."},
        schemas={name: row_schema(resource.columns)},
    )


def _health(view: View, query: Query) -> Answer:
    content = {**envelope(view), **health_content(view, query)}
    return (200 if content["status"] is HealthStatus.HEALTHY else 503), content


def _health_schema() -> Schema:
    schema = row_schema((*VERSION_COLUMNS, STATUS))
    more = {
        "unreadable_tables": UNREADABLE_SCHEMA,
        "clusters": {"type": "array", "items": {"$ref": "#/components/schemas/ClusterHealth"}},
    }
    return {**schema, "properties": {**schema["properties"], **more}, "required": [*schema["required"], *more]}


HEALTH: Final = Endpoint(
    name="health",
    summary="Health",
    help="Whether the clusters are healthy, with each reason why not and the age of what it rests on. Without fresh "
    "data nothing is healthy, but unknown. 200 is healthy, so that a gate need not read the content; all else is 503.",
    parameters=PARAMETERS,
    answer=_health,
    response=_health_schema(),
    statuses={200: "Healthy.", 503: "Unhealthy or unknown; an error: the tables have not been read yet."},
    schemas={"ClusterHealth": row_schema(HEALTH_COLUMNS)},
)
ENDPOINTS: Final[tuple[Endpoint, ...]] = (HEALTH, *map(_of_resource, RESOURCES))


# The OpenAPI 3.1 document of the JSON API, made from the declarations that the requests are answered by.


Document = dict[str, Any]
ERROR: Final[Document] = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "one sentence: what is wrong, and what is allowed"}},
    "required": ["error"],
    "additionalProperties": False,
}
ERRORS: Final = {
    400: "A parameter is unknown or wrong.",
    404: "There is no such cluster, or no such path.",
    405: "The method is not GET or HEAD.",
    500: "A fault of the exporter.",
}
NOT_READY: Final = "The exporter has not read the tables yet."


def document_of(endpoints: Iterable[Endpoint], version: str) -> Document:
    """Return the OpenAPI document of the endpoints below ``/api/v1``."""
    described = list(endpoints)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "isrwatch",
            "version": version,
            "description": "The replication of Kafka clusters, from the Delta tables of isrwatch. Times are UTC "
            "microseconds, unknown values are null.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {endpoint.path: {"get": _operation(endpoint)} for endpoint in described},
        "components": {"schemas": {"Error": ERROR, **_merged(described)}},
    }


def _merged(endpoints: list[Endpoint]) -> Document:
    return {name: schema for endpoint in endpoints for name, schema in endpoint.schemas.items()}


def _operation(endpoint: Endpoint) -> Document:
    refused = {"anyOf": [endpoint.response, _ref("Error")]}
    statuses = {
        str(status): _response(text, endpoint.response if status == 200 else refused)  # noqa: PLR2004 - HTTP's own
        for status, text in endpoint.statuses.items()
    }
    errors = {str(status): _response(text, _ref("Error")) for status, text in ERRORS.items()}
    not_ready = {} if "503" in statuses else {"503": _response(NOT_READY, _ref("Error"))}
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": endpoint.help,
        "parameters": [_parameter(parameter) for parameter in endpoint.parameters],
        "responses": {**statuses, **errors, **not_ready},
    }


def _response(text: str, schema: Document) -> Document:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(parameter: Parameter) -> Document:
    schema = dict(parameter.schema)
    if parameter.is_repeatable:
        schema = {"type": "array", "items": schema}
    elif parameter.default is not None:
        schema["default"] = parameter.default
    return {"name": parameter.name, "in": "query", "description": parameter.help, "schema": schema}


# The routes below ``/api/v1``: requests parsed, responses and errors as JSON, compressed where that is accepted.


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
        return JsonResponse(content, status)

    def _openapi(self, request: Request) -> Response:
        """Respond with the description of the API."""
        try:
            query_of((), request.query_params.multi_items())
        except RequestRefused as error:
            return error_response(str(error), error.status)
        return JsonResponse(document_of(ENDPOINTS, version("isrwatch")))


def refused(request: Request, error: Exception) -> Response:
    """Respond to a path or a method that is not there: as JSON below ``/api``."""
    if not isinstance(error, HTTPException):
        raise error
    if not request.url.path.startswith(_API):
        return lines_response([error.detail], error.status_code, error.headers)
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
    return lines_response([sentence], 500)
