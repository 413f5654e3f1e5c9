"""The reference of the tables, rendered from their definitions: purpose, keys, columns, types; each column once."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Final

from docs.builder.markdown import code, plain, table
from exporters.terminal.tables_command import STRUCTS, flat, type_name
from streaming.contracts.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.contracts.columns import Column, Table

    Meaning = tuple[str, str, str]

_HEAD: Final = """# Tables

All times are UTC. Types are those of Spark; one that ends with `?` may be null, which is unknown or does not apply.
Rows of a table are replaced unless it is append-only. `isrwatch tables NAME` prints all columns of a table.
"""
_SHARED: Final = """
## Shared columns
"""
SEVERAL: Final = "Shared columns"
_SEVERAL: Final = 3  # tables from which a column stands with those of several; columns from which a list is worth it


def markdown() -> str:
    """Render the reference of every table."""
    holders = holders_of()
    shared = {meaning for meaning, names in holders.items() if len(names) >= _SEVERAL}
    columns = [one for each in TABLES.values() for one in flat(each.columns)]
    first = {_meaning(path, column): (path, column) for path, column in reversed(columns)}
    common = sorted((first[meaning] for meaning in shared), key=columns.index)
    links = ", ".join(f"[`{name}`](#{name})" for name in TABLES)
    tables = [part for each in TABLES.values() for part in _table(each, holders, shared)]
    structs = ["\n## Structs\n", *(f"- *{name}*: {_struct(columns)}." for name, columns in STRUCTS.items())]
    return "\n".join([_HEAD, f"{links}.", _SHARED, *_columns(common), *tables, *structs]) + "\n"


def holders_of() -> dict[Meaning, list[str]]:
    """Give the tables that have a column, by its name, type and meaning."""
    holders: dict[Meaning, list[str]] = defaultdict(list)
    for each in TABLES.values():
        for path, column in flat(each.columns):
            holders[_meaning(path, column)].append(each.name)
    return holders


def _meaning(path: str, column: Column) -> Meaning:
    return path, type_name(column.type), column.comment


def _table(each: Table, holders: dict[Meaning, list[str]], shared: set[Meaning]) -> Iterator[str]:
    yield f"\n## {each.name}\n"
    layout = f" Partitioned by {code(each.partitioned_by)}." if each.partitioned_by else ""
    yield f"{each.comment}. Key: {code(each.key)}.{layout}{' Append-only.' if each.append_only else ''}\n"
    columns = list(flat(each.columns))
    elsewhere: dict[str, list[str]] = defaultdict(list)
    for path, column in columns:
        meaning = _meaning(path, column)
        elsewhere[SEVERAL if meaning in shared else holders[meaning][0]].append(path)
    lists = {place: names for place, names in elsewhere.items() if place == SEVERAL or len(names) >= _SEVERAL}
    lists.pop(each.name, None)
    for place, names in lists.items():
        yield f"{linked(place)}: {code(names)}.\n"
    others = {name for names in lists.values() for name in names}
    own = [(path, column) for path, column in columns if path not in others]
    yield from _columns(own) if own else ()


def linked(place: str) -> str:
    """Link to a table, or to the columns of several."""
    return f"[{place}](#shared-columns)" if place == SEVERAL else f"[`{place}`](#{place})"


def _struct(columns: tuple[Column, ...]) -> str:
    """Say of which table a struct has the columns; they stand there one below the other.

    Raises:
        StopIteration: no table has them all.
    """
    whole = next(each for each in TABLES.values() if all(one in each.columns for one in columns))
    return f"`{columns[0].name}` to `{columns[-1].name}` of {linked(whole.name)}"


def _columns(columns: Iterable[tuple[str, Column]]) -> list[str]:
    """Render a row per column; those of a type and meaning that stand below each other have one."""
    rows = (
        (code(path for path, _ in group), plain(kind), plain(meaning.removesuffix("; null while unknown")))
        for (kind, meaning), group in groupby(columns, lambda one: (_type(one[1]), one[1].comment))
    )
    return table(("column", "type", "meaning"), rows)


def _type(column: Column) -> str:
    return f"{type_name(column.type)}{'?' if column.nullable else ''}"
