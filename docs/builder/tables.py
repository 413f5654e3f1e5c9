"""The reference of the tables, rendered from their definitions: purpose, keys, columns, types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.terminal.tables_command import STRUCTS, flat, type_name
from streaming.contracts.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.columns import Column, Table

_HEAD: Final = """# Tables

Rendered from the definitions in `streaming/contracts` by `python -m docs.builder references`.
All times are UTC. A column that is not marked "always" may be null: null is unknown, or does not apply.
"""


def markdown() -> str:
    """Render the reference of every table."""
    tables = [part for table in TABLES.values() for part in _table(table)]
    structs = [part for name, columns in STRUCTS.items() for part in (f"\n## Struct: {name}\n", *_columns(columns))]
    return "\n".join([_HEAD, *_contents(), *tables, *structs]) + "\n"


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
