"""``isrwatch incidents``: one line per incident, or one incident with its evidence."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.incident_archive import IncidentArchive, groups_beyond, is_of, read_names
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.moments import SECOND, Clock, span
from exporters.read_model.recorded_events import COLUMNS
from exporters.read_model.unreadable import UnreadableTables
from exporters.terminal.event_view import event_fields, event_style
from exporters.terminal.incidents import all_events, closed, incident_fields, incident_style, last_observed, suspects
from exporters.terminal.options import ClusterOption, ConfigOption, LocalOption, OutputOption, TablesOption, folder_of
from exporters.terminal.output import Row, RowFormat, RowOutput, machine, output_of, until_closed
from exporters.answers.incidents import said_of_evidence
from streaming.contracts.events import IncidentClass
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.delta.log.queries import open_ours, select, where_in
from streaming.escapes import json_text
from streaming.name_patterns import patterns_of
from streaming.settings import load
from streaming.terminal import print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

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


def incidents(  # noqa: PLR0913 - one parameter per option
    incident: IncidentArgument = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Include closed incidents.")] = False,
    kinds: ClassOption = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Open incidents, and closed ones that changed since then.")
    ] = None,
    cluster: ClusterOption = None,
    row_format: OutputOption = None,
    local: LocalOption = False,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show the open incidents; or one incident with the events that are its evidence.

    Example: isrwatch incidents --since 7d
    """
    output = output_of(row_format, Clock(time.time_ns() // 1_000, local))
    folder = folder_of(tables, config_file)
    changed_since = None if since is None else output.clock.read(since)
    unreadable = UnreadableTables()
    with until_closed():
        observed = last_observed(folder, unreadable)
        names = read_names(folder, unreadable)
        archive = IncidentArchive(folder, lambda: names)
        of_cluster = partial(is_of, patterns_of(*(cluster or ())), names)
        if incident is not None:
            selected = archive.of_id(incident)
            _say_stale(output, [row for row in observed if row["cluster_id"] == selected["cluster_id"]], config_file)
            events = archive.evidence(selected, unreadable)
            groups = list[str]()
            with unreadable.collected():
                offsets = select(open_ours(folder, GROUP_OFFSETS), GROUP_OFFSETS, where_in([selected["cluster_id"]]))
                groups = groups_beyond(selected, offsets.to_pylist())
            related = _Related(archive.explained_by(selected), archive.parts(selected), groups)
            _explain(output, selected, events, related)
            unreadable.raise_if_any()
            return
        _say_stale(output, filter(of_cluster, observed), config_file)
        matching = [
            row
            for row in archive.all(tuple(cluster or ()))
            if (not kinds or row["incident_class"] in kinds)
            and (changed_since is None or row["closed_at"] is None or row["updated_at"] >= changed_since)
        ]
        shown = [row for row in matching if everything or changed_since is not None or row["closed_at"] is None]
        output.print(shown, incident_fields(output.clock), INCIDENT_COLUMNS, incident_style)
        if not shown and output.is_for_people:
            output.say(_none_shown(len(matching)))


def _none_shown(closed: int) -> str:
    return f"no open incidents; {closed} closed, --all shows them" if closed else "no incident matches"


def _say_stale(output: RowOutput, observed: Iterable[Row], config_file: Path | None) -> None:
    stale_after = load(config_file).export.stale_after
    for row in observed:
        age = (output.clock.now - row["newest"]) / SECOND
        if age > stale_after:
            sentence = f"STALE: cluster {row['cluster']} was last observed {span(age)} ago; its incidents are that old"
            output.say(sentence, style="bold red")


class _Related(NamedTuple):
    """Incidents that account for the harm of one, those that became part of it, and groups beyond the end."""

    others: list[str]
    parts: list[str]
    groups: list[str]


def _explain(output: RowOutput, incident: Row, events: list[dict[str, Any]], related: _Related) -> None:
    """Print one incident with its evidence; as JSON one object."""
    clock = output.clock
    if output.format is RowFormat.JSON:
        values = {name: machine(incident[name], name, clock) for name in INCIDENT_COLUMNS}
        event_values = [{name: machine(event[name], name, clock) for name in COLUMNS} for event in events]
        output.console.document([json_text({**values, "evidence": event_values})])
        return
    if output.is_for_people:
        for line in _summary_lines(incident, clock, events, related):
            print_wrapped(output.console, line)
    output.print(events, event_fields(events, clock, is_line=output.is_stream), COLUMNS, event_style)


def _summary_lines(incident: Row, clock: Clock, events: Sequence[Row], related: _Related) -> list[str]:
    peaks = {name: incident[f"{name}_peak"] for name in ("under_replicated", "under_min_isr", "offline")}
    causes = (f"{each['cause']} {each['changes']:,}" for each in incident["causes"] or ())
    lines = {
        "incident": shown_id(incident),
        "includes": ", ".join(related.parts) or None,
        "class": incident["incident_class"],
        "severity": incident["severity"],
        "summary": incident["summary"],
        "meaning": incident["consequence"],
        "groups": "; ".join(related.groups) or None,
        "harm by": ", ".join(related.others) or None,
        "do first": incident["next_step"],
        "opened": clock.iso(incident["opened_at"]),
        "closed": closed(incident, clock),
        "suspects": suspects(incident),
        "topics": ", ".join(incident["topics"] or ()) or None,
        "causes": ", ".join(causes) or None,
        "peak": ", ".join(f"{'?' if count is None else count} {name}" for name, count in peaks.items()),
        "long id": incident["incident_id"],
        "polled": said_of_evidence(events),
        "evidence": all_events(incident, len(events)),
    }
    return [f"{name:9} {text}" for name, text in lines.items() if text is not None]
