"""The paths of the JSON API, from the document that the exporter serves at ``/api/v1/openapi.json``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from docs.builder.markdown import plain, table
from exporters.web.endpoints import ENDPOINTS
from exporters.web.openapi import document_of

_HEAD: Final = """# Paths of the JSON API

Made of the same declarations as `/api/v1/openapi.json` of the exporter. What all paths have in common, with examples:
[JSON API](../api.md).
"""
Schema = dict[str, Any]


def api_page() -> str:
    """Render every path with its parameters, its statuses and the columns of its rows."""
    document = document_of(ENDPOINTS, version("isrwatch"))
    schemas = document["components"]["schemas"]
    lines = [_HEAD]
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path]["get"]
        lines += [f"## {endpoint.path}", "", plain(operation["description"]), ""]
        parameters = (
            (f"`{each['name']}`", _type(each["schema"]), plain(each["description"])) for each in operation["parameters"]
        )
        lines += [*table(("parameter", "type", "meaning"), parameters), ""]
        statuses = ((status, plain(each["description"])) for status, each in sorted(operation["responses"].items()))
        lines += [*table(("status", "meaning"), statuses), ""]
        for name in endpoint.schemas:
            lines += [f"### {name}", "", *_columns(schemas[name]), ""]
    return "\n".join(lines)


def _columns(schema: Schema) -> list[str]:
    rows = (
        (f"`{name}`", _type(each), plain(each.get("description", ""))) for name, each in schema["properties"].items()
    )
    return table(("column", "type", "meaning"), rows)


def _type(schema: Schema) -> str:
    """Name the type of a value: its alternatives, of an array that of its items."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kinds = schema.get("type") or [_type(each) for each in schema.get("anyOf", ())]
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    inside = f" of {_type(schema['items'])}" if "items" in schema else ""
    return " or ".join(names) + inside
