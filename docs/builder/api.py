"""The paths of the JSON API, from the document that the exporter serves at ``/api/v1/openapi.json``."""

from __future__ import annotations

import re
from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from docs.builder.markdown import code, plain, table
from exporters.web.api import ENDPOINTS
from exporters.web.endpoint import ERRORS, NOT_READY, document_of
from streaming.contracts.events import Cause, EventKind, IncidentClass
from streaming.contracts.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]
_HEAD: Final = """# Paths of the JSON API

What all paths have in common, with examples: [JSON API](../api.md). `/api/v1/openapi.json` of the exporter describes
the same for programs.

A parameter with `...` may be repeated. Times in rows are UTC microseconds. A column may be null, which is unknown or
does not apply, unless its type ends with `!`.
"""
_ANSWERS: Final = "/api/v1/answers/"
_PRINTED: Final = re.compile(r"What isrwatch (\w+) prints\.")
_MICROSECONDS: Final = "; UTC microseconds"
_ENUMS: Final = {
    frozenset(map(str, Cause)): "a [cause](events.md#causes)",
    frozenset(map(str, EventKind)): "an [event](events.md#events)",
    frozenset(map(str, IncidentClass)): "a [class](events.md#classes-of-incidents)",
}
_SEVERAL: Final = 3  # paths from which a parameter stands at the top; columns from which a table is named


def api_page() -> str:
    """Render every path with its parameters, its statuses and the columns of its rows."""
    document = document_of(ENDPOINTS, version("isrwatch"))
    operations = {each.path: document["paths"][each.path]["get"] for each in ENDPOINTS}
    statuses = {"200": "The answer.", **{str(status): text for status, text in ERRORS.items()}, "503": NOT_READY}
    lines = [_HEAD, "## All paths", "", *table(("status", "meaning"), ((one, plain(t)) for one, t in statuses.items()))]
    common = {is_answer: _common(operations, is_answer) for is_answer in (False, True)}
    lines += ["", "Parameters of several paths:", "", *common[False], "", "Of several answers of commands:", ""]
    lines += [*common[True], ""]
    rendered: dict[str, str] = {}
    for endpoint in ENDPOINTS:
        operation = operations[endpoint.path]
        lines += [f"## {endpoint.path}", "", _purpose(operation["description"]), ""]
        lines += [*_parameters(operation["parameters"], common[endpoint.path.startswith(_ANSWERS)])]
        for status, response in operation["responses"].items():
            text = response["description"]
            if text != statuses.get(status) and text != "A page of rows.":
                lines += [f"{status}: {plain(text)}", ""]
        for name in endpoint.schemas:
            columns = list(_columns(document["components"]["schemas"][name]["properties"]))
            earlier = rendered.setdefault("\n".join(columns), endpoint.path)
            lines += columns if earlier == endpoint.path else [f"Rows as those of `{earlier}`.", ""]
    return "\n".join(lines)


def _common(operations: dict[str, Schema], is_answer: bool) -> list[str]:  # noqa: FBT001 - of a row
    """Describe the parameters that several paths have, most often used ones first."""
    paths = [each for path, each in operations.items() if path.startswith(_ANSWERS) is is_answer]
    counts = Counter(_described(parameter) for each in paths for parameter in each["parameters"])
    return [text for text, count in counts.most_common() if count >= _SEVERAL]


def _purpose(text: str) -> str:
    if printed := _PRINTED.search(text):
        return f"What [isrwatch {printed[1]}](commands.md#isrwatch-{printed[1]}) prints."
    return plain(text)


def _parameters(parameters: list[Schema], common: list[str]) -> Iterator[str]:
    described = {each["name"]: _described(each) for each in parameters}
    brief = [name for name, text in described.items() if text in common]
    own = [text for text in described.values() if text not in common]
    if brief:
        yield from (f"Parameters: {code(brief)}{', and' if own else '.'}", "")
    if own:
        yield from (*own, "")


def _described(parameter: Schema) -> str:
    """Describe a parameter in a line of a list; values that have names of their own are linked."""
    schema = parameter["schema"]
    values = schema.get("items", schema)
    kind, text = _type(values), parameter["description"]
    if "enum" in values:
        kind = _ENUMS.get(frozenset(map(str, values["enum"])), kind)
        text = text.partition(": ")[0].removesuffix(".") + "."
    shown = "" if kind == "string" else f" ({kind})"
    return f"- `{parameter['name']}`{'...' if 'items' in schema else ''}{shown}: {plain(text)}"


def _columns(properties: dict[str, Schema]) -> Iterator[str]:
    """Render the columns of a row: those of a table by its name, and its own."""
    left = {name: _meaning(each) for name, each in properties.items()}
    for each in sorted(TABLES.values(), key=lambda one: -sum(c.comment == left.get(c.name) for c in one.columns)):
        names = [column.name for column in each.columns if column.comment == left.get(column.name)]
        if len(names) < _SEVERAL:
            break
        without = [column.name for column in each.columns if column.name not in names]
        link = f"[{each.name}](tables.md#{each.name})"
        brief = f", without {code(without)}" if without else ""
        yield from (f"Columns of {link}{brief if len(without) < len(names) else f': {code(names)}'}.", "")
        left = {name: meaning for name, meaning in left.items() if name not in names}
    if left:
        rows = ((f"`{name}`", _compact(properties[name]), plain(meaning)) for name, meaning in left.items())
        yield from (*table(("column", "type", "meaning"), rows), "")


def _meaning(schema: Schema) -> str:
    return str(schema.get("description", "")).removesuffix(_MICROSECONDS)


def _compact(schema: Schema) -> str:
    """Name the type of a column; one that is never null ends with an exclamation mark."""
    kinds = _type(schema).split(" or ")
    shown = " or ".join(kind for kind in kinds if kind != "null").replace("array or null", "array")
    shown = shown.replace("null of", "of")
    time = "time" if str(schema.get("description", "")).endswith(_MICROSECONDS) else shown
    return time if "null" in _type(schema) else f"{time}!"


def _type(schema: Schema) -> str:
    """Name the type of a value, by its alternatives; for an array, the type of its items."""
    if "enum" in schema:
        return code(map(str, schema["enum"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kinds = schema.get("type") or [_type(each) for each in schema.get("anyOf", ())]
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    inside = f" of {_type(schema['items'])}" if "items" in schema else ""
    return " or ".join(names) + inside
