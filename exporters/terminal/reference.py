"""The reference of the tables, rendered from their definitions: purpose, keys, columns, types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.columns import EVENT
from streaming.contracts.state import BROKER_STATE, CLUSTER_STATE, PARTITION_STATE, SOURCE_STATE
from streaming.contracts.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.columns import Column, Table

    Type = str | tuple[Column, ...] | list[tuple[Column, ...]]

# Structs that are documented once, under a name of their own.
STRUCTS: Final = {
    "state of a partition": PARTITION_STATE,
    "state of a broker": BROKER_STATE,
    "state of a cluster": CLUSTER_STATE,
    "progress of a source": SOURCE_STATE,
    "event": EVENT,
}
_HEAD: Final = """# Tables

Rendered from the definitions in `streaming/contracts` by `isrwatch tables --format markdown`.
All times are UTC. A column that is not marked "always" may be null: null is unknown, or does not apply.
"""


def markdown() -> str:
    """Render the reference of every table."""
    tables = [part for table in TABLES.values() for part in _table(table)]
    structs = [part for name, columns in STRUCTS.items() for part in (f"\n## Struct: {name}\n", *_columns(columns))]
    return "\n".join([_HEAD, *_contents(), *tables, *structs]) + "\n"


def type_name(plain: Type) -> str:
    """Return the SQL name of a type.

    >>> type_name("int[]")
    'array<int>'
    """
    if isinstance(plain, str):
        return f"array<{plain.removesuffix('[]')}>" if plain.endswith("[]") else plain
    if isinstance(plain, list):
        return f"array<{type_name(plain[0])}>"
    return next((f"struct: {name}" for name, columns in STRUCTS.items() if columns == plain), "struct")


def flat(columns: tuple[Column, ...], prefix: str = "") -> Iterator[tuple[str, Column]]:
    """Yield each column with its path, and after it the fields of its struct unless ``STRUCTS`` has it."""
    for column in columns:
        yield prefix + column.name, column
        inner = column.type[0] if isinstance(column.type, list) else column.type
        if not isinstance(inner, str) and inner not in STRUCTS.values():
            yield from flat(inner, f"{prefix}{column.name}{'[]' if isinstance(column.type, list) else ''}.")


def _contents() -> Iterator[str]:
    yield "| table | content |"
    yield "|---|---|"
    for table in TABLES.values():
        yield f"| [`{table.name}`](#{table.name}) | {table.comment} |"


def _table(table: Table) -> Iterator[str]:
    yield f"\n## {table.name}\n"
    yield f"{table.comment}.\n"
    yield f"- key: {_names(table.key)}"
    if table.partitioned_by:
        yield f"- partitioned by {_names(table.partitioned_by)}"
    yield "- append only: rows are never changed\n" if table.append_only else "- rows are replaced\n"
    yield from _columns(table.columns)


def _columns(columns: tuple[Column, ...]) -> Iterator[str]:
    yield "| column | type | | meaning |"
    yield "|---|---|---|---|"
    for name, column in flat(columns):
        always = "" if column.nullable else "always"
        yield f"| `{name}` | {type_name(column.type)} | {always} | {column.comment} |"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
