"""A path of the JSON API: what it accepts and what it returns, declared once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from starlette.convertors import StringConvertor, register_url_convertor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from exporters.web.api_resource import Schema, View
    from exporters.web.parameters import Parameter, Query


PREFIX: Final = "/api/v1"
Answer = tuple[int, dict[str, Any]]


class _NameConvertor(StringConvertor):
    """Takes whatever a name may hold, a ``/`` and an end of a line included."""

    regex = r"[\s\S]*"


_NAME: Final = "name_in_path"
register_url_convertor(_NAME, _NameConvertor())


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One path.

    Attributes:
        name: the path below ``/api/v1``, with ``{parameters}``.
        summary: one line.
        help: what it returns.
        parameters: everything that a request may give; ``cluster`` is among them, unless it is about one thing.
        of_path: the parameters in the path.
        answer: status and content of the response.
        response: schema of the content.
        statuses: the statuses with such a content, each with its meaning.
        schemas: named schemas that ``response`` refers to.
        no_history: why ``at`` is refused; None where it is a parameter, or there is no moment.
        is_self_dated: ``answer`` takes care of ``at``.
    """

    name: str
    summary: str
    help: str
    parameters: tuple[Parameter, ...]
    of_path: tuple[Parameter, ...] = ()
    answer: Callable[[View, Query], Answer]
    response: Schema
    statuses: Mapping[int, str]
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    no_history: str | None = None
    is_self_dated: bool = False

    @property
    def path(self) -> str:
        """Path of the endpoint."""
        return f"{PREFIX}/{self.name}"

    @property
    def route(self) -> str:
        """The same as a pattern of Starlette: what is in the path may have a ``/`` in it."""
        pattern = f"/{self.name}"
        for parameter in self.of_path:
            pattern = pattern.replace(f"{{{parameter.name}}}", f"{{{parameter.name}:{_NAME}}}")
        return pattern

    @property
    def operation(self) -> str:
        """Name of the operation, of letters, digits and ``_``."""
        return self.name.replace("/", "_").replace("{", "").replace("}", "")


# The OpenAPI 3.1 document, made from the declarations that the requests are answered by.


Document = dict[str, Any]
ERROR: Final[Document] = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "one sentence: what is wrong, and what is allowed"}},
    "required": ["error"],
    "additionalProperties": False,
}
ERRORS: Final = {
    400: "A parameter is unknown or wrong.",
    404: "There is no such cluster, no such incident, or no such path.",
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
        "operationId": endpoint.operation,
        "summary": endpoint.summary,
        "description": endpoint.help,
        "parameters": [
            *({**_parameter(each), "in": "path", "required": True} for each in endpoint.of_path),
            *(_parameter(each) for each in endpoint.parameters),
        ],
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
