"""``isrwatch events``: options in, rows out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from exporters.history.event_view import event_fields, event_style
from exporters.history.events import COLUMNS, history
from exporters.history.follow import Follower
from exporters.history.moments import Clock
from exporters.history.output import Format, Output, output_of, until_closed
from exporters.history.versions import as_of as version_as_of
from exporters.history.wanted import Wanted
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.errors import ConfigurationError
from streaming.settings import load

ConfigOption = Annotated[Path | None, typer.Option("--config", help="Configuration, see conf/isrwatch.toml.")]
TablesOption = Annotated[Path | None, typer.Option("--tables", help="Folder of the tables, else tables.directory.")]
ClusterOption = Annotated[list[str] | None, typer.Option("--cluster", help="Name or id; may be repeated.")]
TopicOption = Annotated[list[str] | None, typer.Option("--topic", help="Topic, or a pattern: 'orders-*'.")]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="Default: a table on a terminal, lines in a pipe.")
]
LocalOption = Annotated[bool, typer.Option("--local", help="Times of this machine's zone, not UTC.")]
AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", metavar="VERSION|TIME", help="What was known at a version of partition_changes, or then."),
]


def events(  # noqa: PLR0913 - one parameter an option
    *,
    cluster: ClusterOption = None,
    topic: TopicOption = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", help="Partition number.")] = None,
    broker: Annotated[
        list[int] | None, typer.Option("--broker", help="Who left or joined the ISR, leads or led, or is told of.")
    ] = None,
    cause: Annotated[list[Cause] | None, typer.Option("--cause", help="Why.")] = None,
    event: Annotated[list[EventKind] | None, typer.Option("--event", help="What happened.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="15m, 2h, 7d, today, 10:30, 2026-03-01T10:30.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="The same.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="The newest so many; 0 for all.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    as_of: AsOfOption = None,
    form: FormatOption = None,
    local: LocalOption = False,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Tell what happened, newest last: who left or joined an ISR, who leads, what was lost, and why.

    Needs neither Spark nor Java, and disturbs nobody: the job may run.

    Example: isrwatch events --since 2h --topic 'orders-*' --event isr_shrink
    """
    clock = Clock(time.time_ns() // 1_000, local)
    folder = folder_of(tables, config_file)
    wanted = Wanted(
        clusters=tuple(cluster or ()),
        topics=tuple(topic or ()),
        partitions=tuple(partition or ()),
        brokers=tuple(broker or ()),
        causes=tuple(cause or ()),
        events=tuple(event or ()),
        since=None if since is None else clock.read(since),
        until=None if until is None else clock.read(until),
    )
    output = output_of(form, clock)
    if follow and as_of is not None:
        raise ConfigurationError("--follow goes on from now and --as-of ends in the past; give one of the two")
    with until_closed():
        if follow:
            _follow(folder, wanted, limit or None, output)
        else:
            version = None if as_of is None else version_as_of(folder, as_of, clock)
            rows = history(folder, wanted, limit=limit or None, as_of=version)
            output.print(rows, event_fields(clock, output.format, output.console.width), COLUMNS, event_style)


def _follow(folder: Path, wanted: Wanted, limit: int | None, output: Output) -> None:
    """Print line by line: a table would have to know the widths of what is to come."""
    follower = Follower(folder, wanted, limit, lambda gap: output.say(f"{gap}; the history is read anew"))
    lines = output.in_lines()
    fields = event_fields(output.clock, lines.format, lines.console.width)
    for number, rows in enumerate(follower.forever()):
        lines.print(rows, fields, COLUMNS, event_style, heading=not number)
        lines.console.file.flush()


def folder_of(tables: Path | None, config_file: Path | None) -> Path:
    """Find the folder of the tables.

    Raises:
        ConfigurationError: there are none.
    """
    folder = Path(load(config_file).tables.directory) if tables is None else tables
    if not (folder / PARTITION_CHANGES.name / "_delta_log").is_dir():
        raise ConfigurationError(
            f"no tables in {folder}; start isrwatch job, or point tables.directory (--tables) at the folder of the "
            "tables"
        )
    return folder
