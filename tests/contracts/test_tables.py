"""The definitions of the tables: every change of them is a diff somebody reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from streaming.contracts.columns import Column, Table
from streaming.contracts.tables import TABLES


def lines(columns: tuple[Column, ...], depth: int = 0) -> Iterator[str]:
    for column in columns:
        inner = column.type[0] if isinstance(column.type, list) else column.type
        plain = inner if isinstance(inner, str) else "struct[]" if isinstance(column.type, list) else "struct"
        required = "" if column.nullable else " required"
        yield f"{'  ' * depth}{column.name} {plain}{required}: {column.comment}"
        if not isinstance(inner, str):
            yield from lines(inner, depth + 1)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_columns_are_as_they_were_agreed(table: Table, golden: Callable[[str, str], None]) -> None:
    head = (
        f"{table.name}: {table.comment}\nkey {', '.join(table.key)}; partitioned by {', '.join(table.partitioned_by)}"
    )
    golden(f"tables/{table.name}.txt", "\n".join([head, *lines(table.columns)]) + "\n")


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_key_and_partitioning_are_columns_and_no_column_stands_twice(table: Table) -> None:
    names = table.column_names()
    assert len(names) == len(set(names))
    assert {*table.key, *table.partitioned_by} <= set(names)
