"""The OpenAPI 3.1 document of the JSON API, made from the declarations that the requests are answered by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporters.web.endpoint import Endpoint
    from exporters.web.parameters import Parameter

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
