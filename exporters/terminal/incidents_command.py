"""``isrwatch incidents``: one line per incident, or one incident with its evidence, or as its post-mortem."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from exporters.answers.answer import Question
from exporters.answers.incidents import facts, lasted, suspects
from exporters.answers.post_mortem import markdown
from exporters.answers.source import AnswerSource
from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.reader import micros_now
from exporters.read_model.recorded_events import COLUMNS
from exporters.read_model.times import SECOND, Clock
from exporters.terminal.answer_view import print_answer, raise_unreadable
from exporters.terminal.columns import SubjectColumns
from exporters.terminal.options import (
    AsOfOption,
    ClusterOption,
    ConfigOption,
    LocalOption,
    OutputOption,
    ServerOption,
    TablesOption,
    moment_of,
)
from exporters.terminal.output import Row, RowFormat, RowOutput, machine, output_of, until_closed
from exporters.terminal.table_layout import SENTENCE, WORDS, Field
from streaming.contracts.events import PLANNED_CLASSES, IncidentClass
from streaming.errors import ConfigurationError
from streaming.escapes import json_text
from streaming.terminal import print_wrapped

if TYPE_CHECKING:
    from exporters.answers.incidents import IncidentReport

_STYLES: Final = {IncidentClass.UNCLEAN_ELECTION: "bold red", **dict.fromkeys(PLANNED_CLASSES, "")}

IncidentArgument = Annotated[
    str | None,
    typer.Argument(
        help="Show this incident in full: by its short id, such as prod-17, or by the beginning of its long one. The "
        "id of one that was merged into another shows that one."
    ),
]
ClassOption = Annotated[
    list[IncidentClass] | None,
    typer.Option("--class", metavar="CLASS", help=f"Class of incident; may be repeated: {', '.join(IncidentClass)}."),
]
MarkdownOption = Annotated[
    bool, typer.Option("--markdown", help="Print one incident as Markdown, to begin its post-mortem with.")
]


def incidents(  # noqa: PLR0913 - one parameter per option
    incident: IncidentArgument = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Include closed incidents.")] = False,
    kinds: ClassOption = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Open incidents, and those that closed since then.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only those that began by then, open and closed.")
    ] = None,
    cluster: ClusterOption = None,
    as_markdown: MarkdownOption = False,
    as_of: AsOfOption = None,
    row_format: OutputOption = None,
    local: LocalOption = False,
    server: ServerOption = None,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show the open incidents; or one incident with the events that are its evidence.

    Example: isrwatch incidents --since 7d
    """
    if as_markdown and incident is None:
        raise ConfigurationError("--markdown is of one incident; give its id, such as prod-17")
    if as_of is not None and incident is not None:
        raise ConfigurationError("an incident is as it is known today; leave out --as-of, or the id for those of then")
    source, clock = AnswerSource.of(server, tables, config_file), Clock(micros_now(), local)
    with until_closed():
        if incident is not None:
            explained = source.incident(incident)
            output = output_of(row_format, replace(clock, now=explained.now))
            if as_markdown:
                output.console.document(markdown(explained).splitlines())
            else:
                _explain(output, explained)
            raise_unreadable(explained)
            return
        times = {name: (clock.iso(clock.read(text)),) for name, text in (("since", since), ("until", until)) if text}
        filters = {**({"class": tuple(map(str, kinds))} if kinds else {}), **times}
        answer = source.ask(
            "incidents", Question(tuple(cluster or ()), filters, everything, moment_of(as_of, local=local))
        )
        output = output_of(row_format, replace(clock, now=answer.now))
        print_answer(
            output, "incidents", answer, shown=SubjectColumns(lambda _, clock: incident_fields(clock), incident_style)
        )
        raise_unreadable(answer)


def _explain(output: RowOutput, explained: IncidentReport) -> None:
    """Print one incident with its evidence; as JSON one object."""
    clock = output.clock
    if output.format is RowFormat.JSON:
        values = {name: machine(explained.incident[name], name, clock) for name in INCIDENT_COLUMNS}
        events = [{name: machine(event[name], name, clock) for name in COLUMNS} for event in explained.evidence]
        more = {name: machine(value, name, clock) for name, value in explained.document().items() if name != "incident"}
        output.console.document([json_text({**values, **more, "evidence": events})])
        return
    if output.is_for_people:
        if explained.stale is not None:
            output.say(explained.stale, style="bold red")
        for name, text in (facts(explained, clock) | {"evidence": all_events(explained)}).items():
            print_wrapped(output.console, f"{name:9} {text}")
    if output.is_for_people:
        output.print(explained.moments, _moment_fields(clock), (), lambda _: "")
        if not explained.is_whole:
            output.say("and more until its end")
        return
    output.print(explained.evidence, (), COLUMNS, lambda _: "")


def _moment_fields(clock: Clock) -> tuple[Field, ...]:
    """Return the columns of what happened at one moment for one cause."""
    return (
        Field(f"time ({clock.zone})", lambda row: clock.short(row["at"])),
        Field("subject", lambda row: str(row["subject"])),
        Field("what", lambda row: str(row["what"]), wraps=WORDS),
        Field("cause", lambda row: str(row["cause"]), wraps=WORDS, below=1),
    )


def all_events(explained: IncidentReport) -> str:
    """Return how many events are its evidence, and the command that shows every event of its time."""
    clock, incident = Clock(0), explained.incident
    total = incident["evidence_events"]
    since, until = clock.iso(incident["opened_at"]), clock.iso(incident["updated_at"] + SECOND // 1_000)
    options = shlex.join(["--cluster", incident["cluster"], "--since", since, "--until", until, "--limit", "0"])
    return f"{'?' if total is None else f'{total:,}'} events; each of that time: isrwatch events {options} --each"


def incident_fields(clock: Clock) -> tuple[Field, ...]:
    """Return the columns of an incident in a list."""
    return (
        Field("id", shown_id),
        Field(f"opened ({clock.zone})", lambda row: clock.short(row["opened_at"]).partition(".")[0]),
        Field("lasted", lambda row: lasted(row, clock), is_number=True),
        Field("class", lambda row: str(row["incident_class"])),
        Field("suspects", suspects, wraps=WORDS),
        Field("summary", lambda row: str(row["summary"]), wraps=SENTENCE, below=1),
    )


def incident_style(row: Row) -> str:
    """Return the colour of an incident; closed ones are dimmed."""
    return "dim" if row["closed_at"] is not None else _STYLES.get(row["incident_class"], "red")
