"""``isrwatch events``: parses options, prints events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from exporters.terminal.event_filter import EventFilter
from exporters.terminal.event_view import event_fields, event_style
from exporters.terminal.events import COLUMNS, history
from exporters.terminal.follow import EventFollower
from exporters.terminal.options import (
    AsOfOption,
    ClusterOption,
    ConfigOption,
    FormatOption,
    LocalOption,
    TablesOption,
    TopicOption,
    folder_of,
)
from exporters.terminal.output import Row, RowFormat, RowOutput, output_of, until_closed
from exporters.terminal.time_parsing import Clock
from exporters.terminal.unreadable import Unreadable
from exporters.terminal.versions import as_of as version_as_of
from streaming.contracts.events import Cause, EventKind
from streaming.errors import ConfigurationError

BrokerOption = Annotated[
    list[int] | None,
    typer.Option("--broker", help="Broker that left or joined the ISR, led or leads, or is the subject."),
]
# The values stand in the help, which is wrapped between words; in the metavar they would be cut within.
CauseOption = Annotated[
    list[Cause] | None,
    typer.Option("--cause", metavar="CAUSE", help=f"Cause of the event; may be repeated: {', '.join(Cause)}."),
]
EventOption = Annotated[
    list[EventKind] | None,
    typer.Option("--event", metavar="EVENT", help=f"Kind of event; may be repeated: {', '.join(EventKind)}."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Start of the time range: 15m, 2h, 7d, today, 10:30, 'yesterday 10:30', 2026-03-01T10:30."
    ),
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="End of the time range, in the same formats.")]


def events(  # noqa: PLR0913 - one parameter per option
    *,
    cluster: ClusterOption = None,
    topic: TopicOption = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", help="Partition number; may be repeated.")
    ] = None,
    broker: BrokerOption = None,
    cause: CauseOption = None,
    event: EventOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=0, help="Show the newest N; 0 for all.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep following new events until Ctrl-C.")] = False,
    as_of: AsOfOption = None,
    row_format: FormatOption = None,
    local: LocalOption = False,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show recorded events, newest last: ISR changes, leader changes, unclean elections, with their causes.

    Needs neither Spark nor Java. Reads without locks: the job may run meanwhile.

    Example: isrwatch events --since 2h --topic 'orders-*' --event isr_shrink
    """
    clock = Clock(time.time_ns() // 1_000, local)
    folder = folder_of(tables, config_file)
    selection = EventFilter(
        clusters=tuple(cluster or ()),
        topics=tuple(topic or ()),
        partitions=tuple(partition or ()),
        brokers=tuple(broker or ()),
        causes=tuple(cause or ()),
        events=tuple(event or ()),
        since=None if since is None else clock.read(since),
        until=None if until is None else clock.read(until),
    )
    output, unreadable = output_of(row_format, clock), Unreadable()
    if follow and as_of is not None:
        raise ConfigurationError("--follow shows new events and --as-of ends in the past; give one of the two")
    with until_closed():
        if follow:
            _follow(folder, selection, limit or None, output)
        else:
            version = None if as_of is None else version_as_of(folder, as_of, clock)
            _print(history(folder, selection, unreadable, limit=limit or None, as_of=version), output)
    unreadable.raise_if_any()


def _print(rows: Iterator[Row], output: RowOutput) -> None:
    first = list(islice(rows, 1))
    fields = event_fields(output.clock, output.format, output.console.width)
    output.print(chain(first, rows), fields, COLUMNS, event_style)
    if not first and output.format is RowFormat.TABLE:
        output.say("no recorded event matches")


def _follow(folder: Path, selection: EventFilter, limit: int | None, output: RowOutput) -> None:
    """Print line by line: the column widths of a table depend on rows that do not exist yet."""
    follower = EventFollower(folder, selection, limit, lambda gap: output.say(f"{gap}; reading the events again"))
    lines = output.in_lines()
    fields = event_fields(output.clock, lines.format, lines.console.width)
    for number, rows in enumerate(follower.forever()):
        lines.print(rows, fields, COLUMNS, event_style, heading=not number)
        lines.console.file.flush()
