"""The options that several commands share, and the folder of the tables that they resolve to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from exporters.terminal.output import RowFormat
from streaming.configuration_file import OPTION_HELP
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log.storage import is_table, reading
from streaming.delta.store.place import tables_place
from streaming.errors import ConfigurationError
from streaming.name_patterns import check_patterns, is_exclusion, patterns_of
from streaming.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.delta.store.place import Place

_LISTED: Final = 10

ConfigOption = Annotated[Path | None, typer.Option("--config", help=OPTION_HELP)]
TablesOption = Annotated[
    str | None, typer.Option("--tables", help="Folder or URL of the Delta tables; default: tables.directory.")
]


def _checked(option: typer.CallbackParam, patterns: list[str] | None) -> list[str] | None:
    check_patterns(option.opts[0], patterns or ())
    return patterns


ClusterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="PATTERN",
        help="Cluster name or id, 'prod-*', or '!test-*' for all others; may be repeated.",
        callback=_checked,
    ),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="PATTERN",
        help="Topic name, 'orders-*', or '!tmp-*' for all others; may be repeated.",
        callback=_checked,
    ),
]
FormatOption = Annotated[
    RowFormat | None, typer.Option("--format", help="Output format; default: table, of events in a pipe: lines.")
]
LocalOption = Annotated[bool, typer.Option("--local", help="Show times in the local time zone instead of UTC.")]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="VERSION|TIME",
        help="Show what the tables contained at a version of partition_changes, or at a time: 15m, 10:30, "
        "'yesterday 10:30', 2026-03-01T10:30. Reaches back over tables.history, by default 90 days.",
    ),
]


def refuse_unknown(given: Iterable[str] | None, existing: Iterable[str], what: str) -> None:
    """Refuse a name that nothing has: an empty answer would look like a healthy one.

    Args:
        given: patterns; one that leaves out may leave out nothing.
        existing: every name there is.
        what: they are names of, in the singular.

    Raises:
        ConfigurationError: a name, or a pattern, fits nothing; the sentence lists the first of what there is.
    """
    names = sorted(set(existing))
    for pattern in given or ():
        if not is_exclusion(pattern) and not any(map(patterns_of(pattern), names)):
            listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
            raise ConfigurationError(f"unknown {what} {pattern}; known: {listed or 'none'}")


def folder_of(tables: str | None, config_file: Path | None) -> Place:
    """Return the folder of the tables: the option's, else the configuration's.

    Raises:
        ConfigurationError: the folder contains no tables.
        TableUnreadable: it cannot be looked into.
    """
    folder = tables_place(load(config_file), tables)
    path = folder / PARTITION_CHANGES.name
    with reading(str(path)):
        is_there = is_table(path)
    if not is_there:
        raise ConfigurationError(
            f"no tables in {folder}; start isrwatch job, or point tables.directory (--tables) at the folder of the "
            "tables"
        )
    return folder
