"""Every path of the JSON API: what it accepts and what it returns, declared once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.cluster_health import HealthStatus
from exporters.web.api import RESOURCES, UNREADABLE_SCHEMA, VERSION_COLUMNS, envelope, page_response, page_schema
from exporters.web.health_response import CLUSTER_COLUMNS, PARAMETERS, STATUS, health_content
from exporters.web.row_schemas import row_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporters.web.api_resource import ApiResource, View
    from exporters.web.parameters import Parameter, Query
    from exporters.web.row_schemas import Schema

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
        """Where it is."""
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
    schemas={"ClusterHealth": row_schema(CLUSTER_COLUMNS)},
)
ENDPOINTS: Final[tuple[Endpoint, ...]] = (HEALTH, *map(_of_resource, RESOURCES))
