"""``isrwatch tables``: size and age of the tables, and the meaning of their columns."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import typer

from exporters.read_model.times import SECOND, Clock
from exporters.terminal.options import ConfigOption, LocalOption, TablesOption, folder_of
from exporters.terminal.output import RowFormat, output_of, until_closed
from exporters.terminal.reference import flat, markdown, type_name
from exporters.terminal.state_view import text
from exporters.terminal.table_layout import SENTENCE, Field
from streaming.contracts.columns import Table
from streaming.contracts.tables import TABLES
from streaming.delta.log.definitions import layout_of
from streaming.delta.log.storage import open_table
from streaming.delta.log.table_log import actions_of, committed_at
from streaming.errors import ConfigurationError, TableUnreadable
from streaming.terminal import Terminal

if TYPE_CHECKING:
    from streaming.delta.store.place import Place

Row = dict[str, Any]
SIZES: Final = ("table", "rows", "files", "bytes", "version", "layout", "age_seconds")
MEANINGS: Final = ("column", "type", "nullable", "meaning")


class TablesFormat(StrEnum):
    """Output format; ``markdown`` is the reference of all tables."""

    TABLE = "table"
    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


def tables(
    name: Annotated[str | None, typer.Argument(help="Show the columns of this table.")] = None,
    *,
    row_format: Annotated[
        TablesFormat | None, typer.Option("--format", help="Output format; markdown: the reference of all tables.")
    ] = None,
    local: LocalOption = False,
    folder: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show the number of rows, size and age of each table; or the columns of one table and their meaning.

    Example: isrwatch tables partition_state
    """
    if row_format is TablesFormat.MARKDOWN:
        Terminal().document(markdown().splitlines())
        return
    output = output_of(
        None if row_format is None else RowFormat(row_format.value), Clock(time.time_ns() // 1_000, local)
    )
    unreadable: list[TableUnreadable] = []
    with until_closed():
        if name is not None:
            fields = (Field("column", text("column")), Field("type", text("type")))
            output.print(
                _columns_of(name), (*fields, Field("meaning", text("meaning"), wraps=SENTENCE)), MEANINGS, lambda _: ""
            )
            return
        place = folder_of(folder, config_file)
        rows = [_measured(place, table, output.clock.now, unreadable) for table in TABLES.values()]
        numbers = (Field(title, text(title), is_number=True) for title in SIZES[1:-1])
        age = Field("last write", text("age_seconds"), is_number=True)
        output.print(rows, (Field("table", text("table")), *numbers, age), SIZES, lambda _: "")
    if unreadable:
        raise TableUnreadable("; ".join(map(str, unreadable)))


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
