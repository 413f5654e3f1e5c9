"""The options that several commands share, and the folder of the tables that they resolve to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exporters.read_model.reader import micros_now
from exporters.read_model.times import Clock, Version, read_moment
from exporters.terminal.output import RowFormat
from streaming.configuration_file import OPTION_HELP
from streaming.name_patterns import check_patterns

ConfigOption = Annotated[Path | None, typer.Option("--config", help=OPTION_HELP)]
TablesOption = Annotated[
    str | None, typer.Option("--tables", help="Folder or URL of the Delta tables; default: tables.directory.")
]


def checked(option: typer.CallbackParam, patterns: list[str] | None) -> list[str] | None:
    """Refuse patterns that are none."""
    check_patterns(option.opts[0], patterns or ())
    return patterns


ClusterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="PATTERN",
        help="Cluster name or id, 'prod-*', or '!test-*' for all others; may be repeated.",
        callback=checked,
    ),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="PATTERN",
        help="Topic name, 'orders-*', or '!tmp-*' for all others; may be repeated.",
        callback=checked,
    ),
]
OutputOption = Annotated[
    RowFormat | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="table, wide (more columns), json (one document) or csv; default: table.",
    ),
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh the output until Ctrl-C.")]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask this exporter instead of reading tables; default: $ISRWATCH_SERVER, or server.url.",
    ),
]
LocalOption = Annotated[bool, typer.Option("--local", help="Show times in the local time zone instead of UTC.")]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="VERSION|TIME",
        help="Show it as of a time: 15m, 10:30, 'yesterday 10:30', 2026-03-01T10:30; or of a version of "
        "partition_changes. Reaches back over tables.history, by default 90 days.",
    ),
]

AsOfTimeOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="Judge a time of the past, by what has a history: 15m, 'yesterday 10:30', 2026-03-01T10:30:00Z.",
    ),
]


def moment_of(as_of: str | None, *, local: bool) -> str | None:
    """Return the value of ``--as-of`` as the program that answers reads it: a time of this machine's zone in UTC."""
    if as_of is None or not local:
        return as_of
    moment = read_moment(as_of, micros_now(), local=True)
    return as_of if isinstance(moment, Version) else Clock(0).iso(moment)
