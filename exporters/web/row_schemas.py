"""JSON Schema (2020-12, as OpenAPI 3.1 uses it) of rows, from the columns that the tables define."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.columns import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.columns import Table

Schema = dict[str, Any]
COUNTS: Final = "counts"
"""Type of a column that maps names to numbers."""
_INT32: Final = {"type": "integer", "format": "int32"}
_INT64: Final = {"type": "integer", "format": "int64"}
_PLAIN: Final[Mapping[str, Schema]] = {
    "string": {"type": "string"},
    "int": _INT32,
    "long": _INT64,
    "timestamp": _INT64,
    "double": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "int[]": {"type": "array", "items": _INT32},
    "string[]": {"type": "array", "items": {"type": "string"}},
    COUNTS: {"type": "object", "additionalProperties": _INT64},
}


def columns_of(table: Table, names: Iterable[str]) -> tuple[Column, ...]:
    """Return columns of a table, in the order of their names."""
    by_name = {column.name: column for column in table.columns}
    return tuple(by_name[name] for name in names)


def row_schema(columns: Iterable[Column]) -> Schema:
    """Return the schema of an object that has every column, unknown ones as null, and nothing else."""
    properties = {column.name: _schema(column) for column in columns}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _schema(column: Column) -> Schema:
    described = column.comment + ("; UTC microseconds" if column.type == "timestamp" else "")
    schema = _type(column)
    if column.nullable:
        schema = {**schema, "type": [schema["type"], "null"]}
    return {**schema, "description": described}


def _type(column: Column) -> Schema:
    if isinstance(column.type, str):
        return dict(_PLAIN[column.type])
    if isinstance(column.type, list):
        return {"type": "array", "items": row_schema(column.type[0])}
    return row_schema(column.type)
