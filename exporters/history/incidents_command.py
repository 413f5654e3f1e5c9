"""``isrwatch incidents``: what went wrong, one line a thing that happened."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.text import Text

from exporters.history.command import (
    ClusterOption,
    ConfigOption,
    FormatOption,
    LocalOption,
    TablesOption,
    folder_of,
)
from exporters.history.event_view import event_fields, event_style
from exporters.history.events import COLUMNS
from exporters.history.incidents import (
    evidence,
    incident_fields,
    incident_style,
    lasted,
    one_of,
    read_incidents,
    suspects,
)
from exporters.history.moments import Clock
from exporters.history.output import Format, Output, Row, machine, output_of, until_closed
from exporters.incidents import INCIDENT_COLUMNS
from streaming.contracts.incidents import IncidentClass


def incidents(  # noqa: PLR0913 - one parameter an option
    incident: Annotated[str | None, typer.Argument(help="Tell all of this one; the begin of its id is enough.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False,
    kinds: Annotated[list[IncidentClass] | None, typer.Option("--class", help="Of this class.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Open or closed, with a change since then.")] = None,
    cluster: ClusterOption = None,
    form: FormatOption = None,
    local: LocalOption = False,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Tell the incidents, the open ones first; or one with the events that are its evidence.

    Example: isrwatch incidents --since 7d
    """
    output = output_of(form, Clock(time.time_ns() // 1_000, local))
    folder = folder_of(tables, config_file)
    begin = None if since is None else output.clock.read(since)
    known = read_incidents(folder)
    with until_closed():
        if incident is not None:
            one = one_of(known, incident)
            _explain(output, one, evidence(folder, one))
            return
        meant = [
            row
            for row in known
            if row["merged_into"] is None
            and (not kinds or row["incident_class"] in kinds)
            and (not cluster or row["cluster"] in cluster or row["cluster_id"] in cluster)
            and (begin is None or row["updated_at"] >= begin)
        ]
        shown = [row for row in meant if everything or begin is not None or row["closed_at"] is None]
        output.print(shown, incident_fields(output.clock), INCIDENT_COLUMNS, incident_style)
        if not shown and output.is_for_people:
            output.say(f"no incident is open; {len(meant)} are over, --all shows them")


def _explain(output: Output, incident: Row, events: list[dict[str, Any]]) -> None:
    """Tell one incident with its evidence; as JSON one object."""
    clock = output.clock
    if output.format is Format.JSON:
        told = {name: machine(incident[name], name, clock) for name in INCIDENT_COLUMNS}
        proofs = [{name: machine(event[name], name, clock) for name in COLUMNS} for event in events]
        output.console.file.write(json.dumps({**told, "evidence": proofs}, ensure_ascii=False) + "\n")
        return
    if output.is_for_people:
        for line in _told(incident, clock, len(events)):
            output.console.print(Text(line), soft_wrap=True)
    output.print(events, event_fields(clock, output.format, output.console.width), COLUMNS, event_style)


def _told(incident: Row, clock: Clock, shown: int) -> list[str]:
    peaks = {name: incident[f"{name}_peak"] for name in ("under_replicated", "under_min_isr", "offline")}
    causes = (f"{told['cause']} {told['changes']:,}" for told in incident["causes"] or ())
    closed = incident["closed_at"]
    lines = {
        "incident": incident["incident_id"],
        "part of": incident["merged_into"],
        "class": incident["incident_class"],
        "summary": incident["summary"],
        "opened": clock.iso(incident["opened_at"]),
        "closed": "it is open" if closed is None else f"{clock.iso(closed)}, after {lasted(incident, clock)}",
        "suspects": suspects(incident),
        "topics": ", ".join(incident["topics"] or ()) or None,
        "causes": ", ".join(causes) or None,
        "at worst": ", ".join(f"{'?' if count is None else count} {name}" for name, count in peaks.items()),
        "evidence": f"{shown} of {incident['evidence_events']} events",
    }
    return [f"{name:9} {told}" for name, told in lines.items() if told is not None]
