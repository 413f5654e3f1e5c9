"""``isrwatch tables``: what the tables mean, and how large and how old they are."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import typer
from deltalake import DeltaTable

from exporters.history.command import ConfigOption, LocalOption, TablesOption, folder_of
from exporters.history.moments import SECOND, Clock
from exporters.history.output import Field, Format, output_of, until_closed
from exporters.history.reference import flat, markdown, type_name
from exporters.history.state_view import text
from exporters.history.versions import committed_at
from streaming.contracts.columns import Table
from streaming.contracts.tables import TABLES
from streaming.errors import ConfigurationError

Row = dict[str, Any]
SIZES: Final = ("table", "rows", "files", "bytes", "version", "age_seconds")
MEANINGS: Final = ("column", "type", "nullable", "meaning")


class TablesFormat(StrEnum):
    """How it is printed."""

    TABLE = "table"
    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


def tables(
    name: Annotated[str | None, typer.Argument(help="Explain the columns of this table.")] = None,
    *,
    form: Annotated[TablesFormat | None, typer.Option("--format", help="markdown: the reference of all.")] = None,
    local: LocalOption = False,
    folder: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Tell how many rows each table has, how large it is, and how long ago it was written; or what its columns mean.

    Example: isrwatch tables partition_state
    """
    if form is TablesFormat.MARKDOWN:
        typer.echo(markdown(), nl=False)
        return
    output = output_of(None if form is None else Format(form.value), Clock(time.time_ns() // 1_000, local))
    with until_closed():
        if name is not None:
            fields = (Field("column", text("column"), is_whole=True), Field("type", text("type")))
            output.print(_explained(name), (*fields, Field("meaning", text("meaning"))), MEANINGS, lambda _: "")
            return
        place = folder_of(folder, config_file)
        rows = [_measured(place, table, output.clock.now) for table in TABLES.values()]
        numbers = (Field(title, text(title), is_number=True) for title in SIZES[1:-1])
        age = Field("written before", text("age_seconds"), is_number=True)
        output.print(rows, (Field("table", text("table")), *numbers, age), SIZES, lambda _: "")


def _explained(name: str) -> list[Row]:
    if name not in TABLES:
        raise ConfigurationError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    told = flat(TABLES[name].columns)
    values = ((path, type_name(it.type), it.nullable, it.comment) for path, it in told)
    return [dict(zip(MEANINGS, row, strict=True)) for row in values]


def _measured(folder: Path, table: Table, now: int) -> Row:
    """Measure a table from its log alone; one that does not exist has nothing that is known."""
    path = folder / table.name
    if not DeltaTable.is_deltatable(str(path)):
        return {**dict.fromkeys(SIZES), "table": table.name}
    opened = DeltaTable(str(path))
    files = pa.table(opened.get_add_actions(flatten=True))
    written = committed_at(path, opened.version())
    numbers = (
        pc.sum(files["num_records"]).as_py() or 0,
        files.num_rows,
        pc.sum(files["size_bytes"]).as_py() or 0,
        opened.version(),
        max(0, now - written) / SECOND,
    )
    return dict(zip(SIZES, (table.name, *numbers), strict=True))
