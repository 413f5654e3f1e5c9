"""``isrwatch events``: parses options, prints events."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from exporters.answers.answer import Question
from exporters.answers.events import LARGEST_LIMIT, Chosen, key_text
from exporters.answers.source import AnswerSource
from exporters.read_model.reader import micros_now
from exporters.read_model.times import Clock
from exporters.read_model.unreadable import UnreadableTables
from exporters.terminal import options
from exporters.terminal.event_view import BY_MOMENT, EACH, EventRows
from exporters.terminal.follow import EventFollower, ServerFollower
from exporters.terminal.output import RowFormat, RowOutput, output_of, until_closed
from streaming.contracts.events import Cause, EventKind
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporters.answers.answer import Row
    from exporters.answers.server import Server

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
EachOption = Annotated[
    bool | None,
    typer.Option(
        "--each/--by-moment",
        help="One row per event, or one for simultaneous events of partitions with one cause; default: by moment in "
        "tables, each in json and csv.",
    ),
]
_MOST: Final = 2**31 - 1
PartitionOption = Annotated[list[int] | None, typer.Option("--partition", help="Partition number; may be repeated.")]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="End of the time range, in the same formats.")]


def events(  # noqa: PLR0913 - one parameter per option
    *,
    cluster: options.ClusterOption = None,
    topic: options.TopicOption = None,
    partition: PartitionOption = None,
    broker: BrokerOption = None,
    cause: CauseOption = None,
    event: EventOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=0, help="Show the newest N rows; 0 for all.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep following new events until Ctrl-C.")] = False,
    each: EachOption = None,
    as_of: options.AsOfOption = None,
    row_format: options.OutputOption = None,
    local: options.LocalOption = False,
    server: options.ServerOption = None,
    tables: options.TablesOption = None,
    config_file: options.ConfigOption = None,
) -> None:
    """Show recorded events, newest last: ISR changes, leader changes, unclean elections, with their causes.

    Simultaneous events of partitions with one cause share a row; --each shows every event.

    Example: isrwatch events --since 2h --topic 'orders-*' --event isr_shrink
    """
    clock = Clock(micros_now(), local)
    times = {name: clock.iso(clock.read(text)) for name, text in (("since", since), ("until", until)) if text}
    given: dict[str, Any] = {"topic": topic, "partition": partition, "broker": broker, "cause": cause, "event": event}
    filters = {name: tuple(map(str, values)) for name, values in given.items() if values}
    filters |= {name: (text,) for name, text in times.items()}
    question = Question(tuple(cluster or ()), filters, at=options.moment_of(as_of, local=local))
    source = AnswerSource.of(server, tables, config_file)
    output, unreadable = output_of(row_format, clock, streams_in_pipe=True), UnreadableTables()
    most = min(limit, _MOST) or None
    is_each = each if each is not None else output.format in {RowFormat.JSON, RowFormat.CSV}
    shown = EACH if is_each else BY_MOMENT
    if follow and as_of is not None:
        raise ConfigurationError("--follow shows new events and --as-of ends in the past; give one of the two")
    with until_closed():
        if follow:
            _follow(source, question, most, output, shown)
        else:
            _print(shown.newest(partial(recorded, source, question, unreadable), most), output, shown)
    unreadable.raise_if_any()


def recorded(source: AnswerSource, question: Question, unreadable: UnreadableTables, most: int | None) -> Iterable[Row]:
    """Return the newest events that a question selects, oldest first; None is no limit."""
    if source.server is not None:
        return _served(source.server, question, unreadable, most)
    tables = source.tables()
    return Chosen.of(tables, question).newest(tables, most, unreadable)


def _served(server: Server, question: Question, unreadable: UnreadableTables, most: int | None) -> Iterable[Row]:
    """Ask for page after page, from the newest back."""
    pages: list[list[Row]] = []
    while most is None or most > 0:
        limit = LARGEST_LIMIT if most is None else min(most, LARGEST_LIMIT)
        answer = server.answer("events", replace(question, filters={**question.filters, "limit": (str(limit),)}))
        for sentence in answer.unreadable.values():
            unreadable.add(sentence)
        pages.append([*answer.rows])
        if len(answer.rows) < limit:
            break
        most = None if most is None else most - limit
        question = replace(question, filters={**question.filters, "before": (key_text(answer.rows[0]),)})
    return chain.from_iterable(reversed(pages))


def _print(rows: Iterable[Mapping[str, Any]], output: RowOutput, shown: EventRows) -> None:
    is_table = output.is_for_people and not output.is_stream
    listed = list(rows) if is_table else rows  # of anything else, rows are printed as they are read
    fields = shown.fields(listed if is_table else (), output.clock, is_line=output.is_stream)
    output.print(listed, fields, shown.columns, shown.style)
    if is_table and not listed:
        output.say("no recorded event matches")


def _follow(source: AnswerSource, question: Question, limit: int | None, output: RowOutput, shown: EventRows) -> None:
    """Print line by line: the column widths of a table depend on rows that do not exist yet."""
    if source.server is not None:
        newest = partial(recorded, source, question, UnreadableTables())
        follower: EventFollower | ServerFollower = ServerFollower(source.server, question, limit, newest, output.say)
    else:
        tables = source.tables()
        follower = EventFollower(
            tables.folder,
            Chosen.of(tables, question).selection,
            limit,
            lambda gap: output.say(f"{gap}; reading the events again"),
        )
    lines = output.in_lines()
    fields = shown.fields((), output.clock, is_line=True)
    for number, rows in enumerate(follower.forever()):
        lines.print(shown.rows(rows), fields, shown.columns, shown.style, heading=not number)
        lines.console.file.flush()
