"""The JSON API: rows of resources, one incident, health, answers about subjects; requests parsed, errors as JSON.

Column names are those of the tables, times UTC microseconds. State that is too old for ``/metrics`` stays readable
here, marked ``is_stale``. What is asked of the past is read from the tables: in threads of its own, of which there are
few, so that scrapes never wait for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount, Route

from exporters.answers.answer import VERSION_HEADER, Question, UnknownName
from exporters.answers.events import LARGEST_LIMIT, LIMIT
from exporters.answers.incidents import report
from exporters.answers.subject import Limits, Tables
from exporters.answers.subjects import ANSWERS
from exporters.read_model.cluster_health import HealthStatus
from exporters.read_model.conditions import OWN_RULES
from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.incident_archive import IncidentUnknown
from exporters.read_model.recorded_events import COLUMNS
from exporters.read_model.snapshot import NO_TABLE
from exporters.web.api_resource import (
    CLUSTER,
    Cursor,
    View,
    clusters_of,
    clusters_then,
    columns_of,
    cursor_of,
    page_of,
    row_schema,
    selection_of,
)
from exporters.web.endpoint import PREFIX, Answer, Endpoint, document_of
from exporters.web.history_resources import HISTORY_RESOURCES, INCIDENT, WORK_COLUMNS, tables_of
from exporters.web.negotiation import AcceptedGzip
from exporters.web.parameters import AT, LARGEST, Parameter, RequestRefused, flag, moment_of, query_of, text
from exporters.web.resources import (
    BROKERS,
    CLUSTERS,
    FRESHNESS,
    GROUP_RESOURCES,
    HEALTH_COLUMNS,
    MAINTENANCE,
    PARAMETERS,
    PARTITIONS,
    STATUS,
    TOPICS,
    health_content,
)
from streaming.contracts.columns import Column, required
from streaming.contracts.tables import INCIDENTS, REPLICATION_EVENTS
from streaming.delta.changes.reader import ChangesRestarted
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.web.responses import JsonResponse, error_response, lines_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from exporters.answers.subjects import Answering
    from exporters.read_model.conditions import Raised
    from exporters.read_model.incident_archive import IncidentArchive
    from exporters.read_model.refresher import Refresher
    from exporters.read_model.snapshot import ReplicationSnapshot
    from exporters.web.api_resource import ApiResource, Schema
    from exporters.web.parameters import Query

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
    required("read_at", "timestamp", "when the exporter last read the tables; of the past the moment that is shown"),
)
_PAGE_COLUMNS: Final = (
    Column("count", "long", "rows that the filters select, on all pages; null where they are not counted"),
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
    if resource.page is not None:
        page = resource.page(view, query, after)
    else:
        page = page_of(resource.matching(view, query), resource.key, query["limit"], after)
    first_version = view.snapshot.version if cursor is None else cursor.version
    remarks = resource.remarks(view, query)
    return {
        **envelope(view),
        "freshness": {
            name: {**view.freshness(cluster), **{flag: holds(cluster) for flag, holds in resource.available.items()}}
            for name, cluster in view.clusters.items()
        },
        **remarks,
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
    return _with(schema, more)


def _with(schema: Schema, more: dict[str, Any]) -> Schema:
    return {**schema, "properties": {**schema["properties"], **more}, "required": [*schema["required"], *more]}


UNREADABLE_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "tables that cannot be read, each with the reason: what comes from them is missing",
    "additionalProperties": {"type": "string"},
}


def _of_resource(resource: ApiResource) -> Endpoint:
    name = f"{''.join(word.title() for word in resource.name.split('_'))}Row"
    return Endpoint(
        name=resource.path or resource.name,
        summary=resource.summary,
        help=resource.help,
        parameters=resource.parameters,
        of_path=resource.of_path,
        answer=lambda view, query: (200, page_response(resource, view, query)),
        response=page_schema(resource, {"$ref": f"#/components/schemas/{name}"}),
        statuses={200: "A page of rows."},
        schemas={name: row_schema(resource.columns)},
        no_history=resource.no_history,
    )


def _health(view: View, query: Query) -> Answer:
    content = {**envelope(view), "now": tables_of(view).now, **health_content(view, query)}
    return (200 if content["status"] is HealthStatus.HEALTHY else 503), content


def _health_schema() -> Schema:
    schema = row_schema((*VERSION_COLUMNS, required("now", "timestamp", "the clock of the server"), STATUS))
    more = {
        "unreadable_tables": UNREADABLE_SCHEMA,
        "clusters": {"type": "array", "items": {"$ref": "#/components/schemas/ClusterHealth"}},
    }
    return _with(schema, more)


HEALTH: Final = Endpoint(
    name="health",
    summary="Health",
    help="Whether the clusters are healthy, with each reason why not and the age of what it rests on. Without fresh "
    "data nothing is healthy, but unknown. 200 is healthy, so that a gate need not read the content; all else is 503. "
    "At a moment of the past it is judged by what has a history: not by sources, nor by samples without conditions.",
    parameters=(*PARAMETERS, AT),
    answer=_health,
    response=_health_schema(),
    statuses={200: "Healthy.", 503: "Unhealthy or unknown; an error: the tables have not been read yet."},
    schemas={"ClusterHealth": row_schema(HEALTH_COLUMNS)},
)


# One incident in full, and the answers that commands print.


_MOMENT_COLUMNS: Final = (
    required("at", "timestamp", "when it happened, at the latest"),
    required("subject", "string", "with what: orders-3, 28 partitions, broker 3"),
    required("what", "string", "what happened"),
    required("cause", "string", 'why, with the evidence; "" for none'),
    required("partitions", "long", "how many partitions it is about"),
    required("events", "long", "how many events it is"),
)
_REPORT_COLUMNS: Final = (
    Column("incident", columns_of(INCIDENTS, INCIDENT_COLUMNS), "the incident", nullable=False),
    required("parts", "string[]", "ids of the incidents that were merged into it"),
    required("explained_by", "string[]", "ids of those that account for the harm within planned work"),
    required("groups", "string[]", "which groups stand beyond the end now, after an unclean election"),
    Column("before", "string", "id of the incident of the cluster that began before it"),
    Column("after", "string", "id of the one that began after it"),
    Column("evidence", [columns_of(REPLICATION_EVENTS, COLUMNS)], "the first events of its evidence", nullable=False),
    Column("moments", [_MOMENT_COLUMNS], "what happened in its time, oldest first", nullable=False),
    required("is_whole", "boolean", "moments leaves nothing out"),
    Column("work", [WORK_COLUMNS], "planned work that was announced for brokers in its time", nullable=False),
    Column(
        "freshness",
        (
            required("name", "string", "display name of the cluster"),
            required("id", "string", "Kafka's cluster id"),
            Column("age", "double", "seconds since the newest observation"),
            FRESHNESS[1],
        ),
        "data age of its cluster; null while that is unknown",
    ),
    Column("url", "string", "its page; null without export.url"),
    required("now", "timestamp", "the clock of the server"),
)
REPORT: Final = Endpoint(
    name="incidents/{incident}",
    summary="One incident",
    help="Everything about one incident: who, why, what it means, what to do first, what happened in its time. One "
    "that was merged into another gives that one.",
    parameters=(),
    of_path=(INCIDENT,),
    answer=lambda view, query: (200, report(tables_of(view), query["incident"], view.url).document()),
    response=_with(row_schema(_REPORT_COLUMNS), {"unreadable": UNREADABLE_SCHEMA}),
    statuses={200: "The incident."},
    no_history="an incident is as it is known today; leave out at",
)
_ANSWER_COLUMNS: Final = (
    required("columns", "string[]", "the keys of every row, in order"),
    Column(
        "sentences",
        [(required("text", "string", "what is said"), required("tone", "string", "plain, note, warning or critical"))],
        "what is said beside the rows: reasons, advice, why there are none",
        nullable=False,
    ),
    Column(
        "clusters",
        [
            (
                required("name", "string", "display name of the cluster"),
                required("id", "string", "Kafka's cluster id"),
                Column("age", "double", "seconds since the newest observation; null before the first"),
                FRESHNESS[1],
            )
        ],
        "the clusters that were asked about",
        nullable=False,
    ),
    required("now", "timestamp", "the clock of the server"),
    Column(
        "as_of",
        (
            required("moment", "timestamp", "moment of the past"),
            Column("version", "long", "version of the changes, if one was asked for"),
        ),
        "what is shown of the past; null: the present",
    ),
    Column("version", "long", "version of the changes up to which it is complete; null where that does not matter"),
    Column("table_id", "string", "id of the partition_changes that has this version; null where that is unknown"),
)
_GONE: Final = "What was committed after the version is not there any more, or too much: begin again."


def _of_answering(name: str, answering: Answering) -> Endpoint:
    rows = {"type": "array", "items": {"type": "object"}, "description": "column to value"}
    filters = (_filter_of(answering, each) for each in answering.filters)
    everything = (flag("all", "Include what is healthy, or over."),) if answering.has_healthy else ()
    cluster = text("cluster", "Name or id of a cluster, or a pattern.", is_repeatable=True)
    moment = (AT_OR_VERSION,) if answering.has_history else ()
    return Endpoint(
        name=f"answers/{name}",
        summary=f"Answer: {name}",
        help=f"{answering.help} What isrwatch {name if name != 'clusters' else 'state'} prints.",
        parameters=(cluster, *filters, *everything, *moment),
        answer=partial(_answer, name),
        response=_with(row_schema(_ANSWER_COLUMNS), {"rows": rows, "unreadable": UNREADABLE_SCHEMA}),
        statuses={200: "The answer.", **({410: _GONE} if "after" in answering.filters else {})},
        no_history=None if answering.has_history else f"of {name} only the newest samples are kept",
        is_self_dated=True,
    )


def _filter_of(answering: Answering, name: str) -> Parameter:
    """Return a filter with the type of its values; a command and this path refuse a wrong one in the same words."""
    help_text = answering.filters[name]
    schema: Schema = {"type": "string"}
    if name in answering.values:
        schema = {"type": "string", "enum": [*answering.values[name]]}
    elif name in answering.numbers:
        schema = {"type": "integer", "minimum": 0, "maximum": LARGEST}
    elif name in _TIMES:
        schema = dict(AT.schema)
    return Parameter(name=name, help=help_text, schema=schema, parse=str, is_repeatable=True)


_TIMES: Final = frozenset({"since", "until"})
AT_OR_VERSION: Final = text("at", f"{AT.help} A number alone is a version of partition_changes.")


def _answer(name: str, view: View, query: Query) -> Answer:
    filters = {each: query[each] for each in ANSWERS[name].filters if query[each]}
    if name == "events":  # without a bound the answer could be larger than the memory
        filters["limit"] = (_bounded(filters.get("limit", ("",))[-1]),)
    values = query.values
    question = Question(values["cluster"], filters, values.get("all", False), values.get("at"))
    return 200, ANSWERS[name].answer(tables_of(view), question).document()


def _bounded(limit: str) -> str:
    if not limit:
        return str(LIMIT)
    is_large = limit.isascii() and limit.isdecimal() and not 0 < int(limit[:20]) <= LARGEST_LIMIT
    return str(LARGEST_LIMIT) if is_large else limit


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    HEALTH,
    *map(_of_resource, RESOURCES),
    REPORT,
    *(_of_answering(name, answering) for name, answering in ANSWERS.items()),
)
"""Every path; one that begins as another stands before it."""


# The routes below ``/api/v1``.


_OPENAPI: Final = "openapi.json"
_API: Final = "/api"
_BELOW: Final = re.compile(rf"^{PREFIX}/(?P<path>[\s\S]*)$")
_THREADS: Final = 4
"""So many requests are answered at a time; the others wait."""
_HEADERS: Final = {VERSION_HEADER: version("isrwatch")}


@dataclass(slots=True, kw_only=True)
class ApiSources:
    """Sources of the API besides the snapshot, and facts of the installation.

    Attributes:
        limits: ages beyond which state and samples do not count.
        archive: every incident; None reads them for each request.
        raised: returns the conditions that are raised at a time.
        url: address of the exporter as others reach it; "" while that is not known.
    """

    limits: Limits
    archive: IncidentArchive | None = None
    raised: Callable[[ReplicationSnapshot, int], Iterable[Raised]] = lambda _snapshot, _now: ()
    url: str = ""


class ApiRoutes:
    """The responses of the JSON API."""

    def __init__(self, refresher: Refresher, clock: Callable[[], int], sources: ApiSources) -> None:
        """Respond from the snapshot of a refresher, and from its tables; ``clock`` gives UTC microseconds."""
        self._refresher, self._clock, self.sources = refresher, clock, sources
        self._past = refresher.past
        self._threads = CapacityLimiter(_THREADS)

    def mounted(self) -> Mount:
        """Assign the paths; a path with a parameter comes behind those that it would take for one."""
        ordered = sorted(ENDPOINTS, key=lambda endpoint: (bool(endpoint.of_path), -endpoint.name.count("/")))
        routes = [Route(each.route, partial(self._apart, each), name=each.operation) for each in ordered]
        compressed = [Middleware(AcceptedGzip)]
        mount = Mount(PREFIX, routes=[Route(f"/{_OPENAPI}", self._openapi), *routes], middleware=compressed)
        mount.path_regex = _BELOW  # a name in a path may have an end of a line
        return mount

    async def _apart(self, endpoint: Endpoint, request: Request) -> Response:
        """Respond in one of the few threads that read tables."""
        return await to_thread.run_sync(self.respond, endpoint, request, limiter=self._threads)

    def respond(self, endpoint: Endpoint, request: Request) -> Response:
        """Respond to a request; 503 before the first snapshot: empty lists would look like a healthy cluster."""
        try:
            query = self._query(endpoint, request)
            if self._refresher.snapshot.version == NO_TABLE:
                return self._error(self._refresher.why_not_ready(), 503)
            status, content = endpoint.answer(self._view(endpoint, query), query)
        except IsrwatchError as error:
            return self._error(str(error), _status_of(error))
        return JsonResponse(content, status, _HEADERS)

    def _query(self, endpoint: Endpoint, request: Request) -> Query:
        given = request.query_params.multi_items()
        if endpoint.no_history is not None and any(name == AT.name for name, _ in given):
            raise RequestRefused(400, f"{endpoint.no_history}: at is refused")
        of_path = [(each.name, request.path_params[each.name]) for each in endpoint.of_path]
        return query_of((*endpoint.of_path, *endpoint.parameters), (*of_path, *given), endpoint.parameters)

    def tables(self, now: int) -> Tables:
        """Return what answers of the present are made from, at a time in UTC microseconds."""
        return Tables(
            folder=self._refresher.tables,
            limits=self.sources.limits,
            now=now,
            snapshot=self._refresher.snapshot,
            unreadable=dict(self._refresher.unreadable),
            archive=self.sources.archive,
            past=self._past,
            raised=self.sources.raised,
        )

    def _view(self, endpoint: Endpoint, query: Query) -> View:
        """Return what one request sees: the present, or the moment that it asks for."""
        snapshot, now, unreadable = self._refresher.snapshot, self._clock(), dict(self._refresher.unreadable)
        sources = self.sources
        names, is_present = query.values.get(CLUSTER.name, ()), query.values.get(AT.name) is None
        clusters = clusters_of(snapshot, names) if is_present and not endpoint.is_self_dated else {}
        present = View(
            snapshot,
            now,
            sources.limits.stale_after,
            clusters,
            unreadable=unreadable,
            tables=self.tables(now),
            raised=self._raised_in,
            url=sources.url,
        )
        if endpoint.is_self_dated or is_present:
            return present
        at = moment_of(query[AT.name], now)
        past, selected = clusters_then(partial(self._past.snapshot, at), snapshot, names)
        # What cannot be read now says nothing of then: without a table that the past needs there is no answer.
        return replace(
            present, snapshot=past, now=at, clusters=selected.clusters, at=at, not_yet=selected.not_yet, unreadable={}
        )

    def _raised_in(self, view: View) -> Iterable[Raised]:
        """Return what is raised; of the past what has a history."""
        every = self.sources.raised(view.snapshot, view.now)
        return every if view.at is None else (each for each in every if each.condition not in OWN_RULES)

    @staticmethod
    def _error(sentence: str, status: int) -> Response:
        response = error_response(sentence, status)
        response.headers.update(_HEADERS)
        return response

    def _openapi(self, request: Request) -> Response:
        """Respond with the description of the API."""
        try:
            query_of((), request.query_params.multi_items())
        except RequestRefused as error:
            return self._error(str(error), error.status)
        return JsonResponse(document_of(ENDPOINTS, version("isrwatch")), headers=_HEADERS)


def _status_of(error: IsrwatchError) -> int:
    """Return the status of a response with an error: what is asked for is wrong, or cannot be read now."""
    match error:
        case RequestRefused():
            return error.status
        case IncidentUnknown() | UnknownName():
            return 404
        case ChangesRestarted():
            return 410
        case ConfigurationError():
            return 400
        case _:
            return 503


def refused(request: Request, error: Exception) -> Response:
    """Respond to a path or a method that is not there: as JSON below ``/api``."""
    if not isinstance(error, HTTPException):
        raise error
    if not request.url.path.startswith(_API):
        return lines_response([error.detail], error.status_code, error.headers)
    paths = ", ".join([*(endpoint.path for endpoint in ENDPOINTS), f"{PREFIX}/{_OPENAPI}"])
    hint = f"the paths are {paths}" if error.status_code == 404 else "use GET or HEAD"  # noqa: PLR2004 - HTTP's own
    response = error_response(f"{error.detail}: {request.method} {request.url.path}; {hint}", error.status_code)
    response.headers.update({**(error.headers or {}), **_HEADERS})
    return response


def failed(request: Request, _: Exception) -> Response:
    """Respond to an error of the exporter, which is logged with its traceback: as JSON below ``/api``."""
    sentence = "a fault of isrwatch export; its log has the traceback"
    if request.url.path.startswith(_API):
        response = error_response(sentence, 500)
        response.headers.update(_HEADERS)
        return response
    return lines_response([sentence], 500)
