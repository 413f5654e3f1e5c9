"""``isrwatch events``: parses options, prints events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from exporters.read_model.event_filter import EventFilter
from exporters.read_model.recorded_events import history
from exporters.read_model.times import Clock
from exporters.read_model.unreadable import UnreadableTables
from exporters.read_model.versions import as_of as version_as_of
from exporters.terminal.event_rows import BY_MOMENT, EACH, EventRows
from exporters.terminal.follow import EventFollower
from exporters.terminal.options import (
    AsOfOption,
    ClusterOption,
    ConfigOption,
    LocalOption,
    OutputOption,
    TablesOption,
    TopicOption,
    folder_of,
)
from exporters.terminal.output import Row, RowOutput, output_of, until_closed
from streaming.contracts.events import Cause, EventKind
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from streaming.delta.store.place import Place

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
ByMomentOption = Annotated[
    bool, typer.Option("--by-moment", help="One row for what happened to many partitions at once, for the same cause.")
]
PartitionOption = Annotated[list[int] | None, typer.Option("--partition", help="Partition number; may be repeated.")]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="End of the time range, in the same formats.")]


def events(  # noqa: PLR0913 - one parameter per option
    *,
    cluster: ClusterOption = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    broker: BrokerOption = None,
    cause: CauseOption = None,
    event: EventOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=0, help="Show the newest N; 0 for all.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep following new events until Ctrl-C.")] = False,
    by_moment: ByMomentOption = False,
    as_of: AsOfOption = None,
    row_format: OutputOption = None,
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
    output, unreadable = output_of(row_format, clock, streams_in_pipe=True), UnreadableTables()
    if follow and as_of is not None:
        raise ConfigurationError("--follow shows new events and --as-of ends in the past; give one of the two")
    with until_closed():
        shown = BY_MOMENT if by_moment else EACH
        if follow:
            _follow(folder, selection, limit or None, output, shown)
        else:
            version = None if as_of is None else version_as_of(folder, as_of, clock)
            read = partial(_read, folder, selection, unreadable, version)
            _print(shown.newest(read, limit or None), output, shown)
    unreadable.raise_if_any()


def _read(
    folder: Place, selection: EventFilter, unreadable: UnreadableTables, version: int | None, most: int | None
) -> Iterable[Row]:
    return history(folder, selection, unreadable, limit=most, as_of=version)


def _print(rows: Iterable[Row], output: RowOutput, shown: EventRows) -> None:
    is_table = output.is_for_people and not output.is_stream
    listed = list(rows) if is_table else rows  # of anything else, rows are printed as they are read
    fields = shown.fields(listed if is_table else (), output.clock, is_line=output.is_stream)
    output.print(listed, fields, shown.columns, shown.style)
    if is_table and not listed:
        output.say("no recorded event matches")


def _follow(folder: Place, selection: EventFilter, limit: int | None, output: RowOutput, shown: EventRows) -> None:
    """Print line by line: the column widths of a table depend on rows that do not exist yet."""
    follower = EventFollower(folder, selection, limit, lambda gap: output.say(f"{gap}; reading the events again"))
    lines = output.in_lines()
    fields = shown.fields((), output.clock, is_line=True)
    for number, rows in enumerate(follower.forever()):
        lines.print(shown.rows(rows), fields, shown.columns, shown.style, heading=not number)
        lines.console.file.flush()
