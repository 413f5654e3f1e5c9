"""``isrwatch tables``: size and age of the tables, and the meaning of their columns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import typer

from exporters.answers.source import folder_of
from exporters.read_model.times import SECOND, Clock
from exporters.terminal.columns import column, numbers, text
from exporters.terminal.options import ConfigOption, LocalOption, OutputOption, TablesOption
from exporters.terminal.output import output_of, until_closed
from exporters.terminal.table_layout import SENTENCE, Field
from streaming.contracts.columns import EVENT, Table
from streaming.contracts.state import BROKER_STATE, CLUSTER_STATE, PARTITION_STATE, SOURCE_STATE
from streaming.contracts.tables import TABLES
from streaming.delta.log.definitions import layout_of
from streaming.delta.log.storage import open_table
from streaming.delta.log.table_log import actions_of, committed_at
from streaming.errors import ConfigurationError, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.columns import Column
    from streaming.delta.store.place import Place

    Type = str | tuple[Column, ...] | list[tuple[Column, ...]]

Row = dict[str, Any]
SIZES: Final = ("table", "rows", "files", "bytes", "version", "layout", "age_seconds")
MEANINGS: Final = ("column", "type", "nullable", "meaning")


# Structs that are documented once, under a name of their own.
STRUCTS: Final = {
    "state of a partition": PARTITION_STATE,
    "state of a broker": BROKER_STATE,
    "state of a cluster": CLUSTER_STATE,
    "progress of a source": SOURCE_STATE,
    "event": EVENT,
}


def tables(
    name: Annotated[str | None, typer.Argument(help="Show the columns of this table.")] = None,
    *,
    row_format: OutputOption = None,
    local: LocalOption = False,
    folder: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show the number of rows, size and age of each table; or the columns of one table and their meaning.

    Example: isrwatch tables partition_state
    """
    output = output_of(row_format, Clock(time.time_ns() // 1_000, local))
    unreadable: list[TableUnreadable] = []
    with until_closed():
        if name is not None:
            fields = (column("column"), column("type"), Field("meaning", text("meaning"), wraps=SENTENCE))
            output.print(_columns_of(name), fields, MEANINGS, lambda _: "")
            return
        place = folder_of(folder, config_file)
        rows = [_measured(place, table, output.clock.now, unreadable) for table in TABLES.values()]
        age = Field("last write", text("age_seconds"), is_number=True)
        output.print(rows, (column("table"), *numbers(*SIZES[1:-1]), age), SIZES, lambda _: "")
    if unreadable:
        raise TableUnreadable("; ".join(map(str, unreadable)))


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
    for each in columns:
        yield prefix + each.name, each
        inner = each.type[0] if isinstance(each.type, list) else each.type
        if not isinstance(inner, str) and inner not in STRUCTS.values():
            yield from flat(inner, f"{prefix}{each.name}{'[]' if isinstance(each.type, list) else ''}.")


def _columns_of(name: str) -> list[Row]:
    if name not in TABLES:
        raise ConfigurationError(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
    columns = flat(TABLES[name].columns)
    values = ((path, type_name(column.type), column.nullable, column.comment) for path, column in columns)
    return [dict(zip(MEANINGS, row, strict=True)) for row in values]


def _measured(folder: Place, table: Table, now: int, unreadable: list[TableUnreadable]) -> Row:
    """Measure a table from its log alone, without reading rows; a missing or damaged table has no measures."""
    path = folder / table.name
    try:
        opened = open_table(path)
    except TableUnreadable as error:
        unreadable.append(error)
        opened = None
    if opened is None:
        return {**dict.fromkeys(SIZES), "table": table.name}
    files = pa.table(opened.get_add_actions(flatten=True))
    written = committed_at(path, opened.version(), actions_of(path, opened.version()))
    numbers = (
        pc.sum(files["num_records"]).as_py() or 0,
        files.num_rows,
        pc.sum(files["size_bytes"]).as_py() or 0,
        opened.version(),
        layout_of(opened),
        max(0, now - written) / SECOND,
    )
    return dict(zip(SIZES, (table.name, *numbers), strict=True))
