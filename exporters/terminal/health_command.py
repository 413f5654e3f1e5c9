"""``isrwatch health``: whether the clusters are healthy, as an exit code, in words, or as JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from exporters.answers.source import folder_of, server_of
from exporters.read_model.cluster_health import IGNORABLE, HealthBasis, HealthStatus, document_of
from exporters.read_model.health_reasons import BLIND, SEVERITIES, HealthSeverity
from exporters.read_model.reader import micros_now
from exporters.read_model.times import SECOND, Clock, Version, read_moment, span
from exporters.terminal.health_gate import HealthReader, Look, ServerHealthReader, WaitLimits
from exporters.terminal.options import (
    AsOfTimeOption,
    ClusterOption,
    ConfigOption,
    LocalOption,
    OutputOption,
    ServerOption,
    TablesOption,
    moment_of,
)
from exporters.terminal.output import RowFormat, machine, until_closed
from streaming.delta.store.place import tables_place
from streaming.durations import duration_text, seconds_of
from streaming.errors import ConfigurationError
from streaming.escapes import json_text
from streaming.settings import load
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.cluster_health import ClusterHealth
    from exporters.read_model.health_reasons import HealthReason

EXIT_CODES: Final = {HealthStatus.HEALTHY: 0, HealthStatus.UNHEALTHY: 1, HealthStatus.UNKNOWN: 3}
_INTERRUPTED: Final = 130
_LARGEST_AGE: Final = 24_000 * 86_400.0
_WITHOUT: Final = "no_controller and primary_source_lost have no history and are left out"
_STYLES: Final = {
    HealthStatus.HEALTHY: "green",
    HealthStatus.UNHEALTHY: "bold red",
    HealthStatus.UNKNOWN: "bold yellow",
    HealthSeverity.CRITICAL: "red",
    HealthSeverity.WARNING: "yellow",
    HealthSeverity.PLANNED: "dim",
    HealthSeverity.UNKNOWN: "yellow",
}


def health(  # noqa: PLR0913 - one parameter per option
    *,
    wait: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Wait until healthy, at most this long: 30s, 10m.")
    ] = None,
    settle: Annotated[
        str, typer.Option(metavar="DURATION", help="With --wait: for how long it must have been healthy.")
    ] = "10s",
    max_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Older data is unknown; default: export.stale_after.")
    ] = None,
    allow_planned: Annotated[
        bool, typer.Option("--allow-planned", help="Do not count what announced work explains.")
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help=f"Do not count a condition; may be repeated: {', '.join(IGNORABLE)}."),
    ] = None,
    cluster: ClusterOption = None,
    as_of: AsOfTimeOption = None,
    row_format: OutputOption = None,
    local: LocalOption = False,
    server: ServerOption = None,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show whether the clusters are healthy, every reason why not, and the age of the data.

    Exit code: 0 healthy, 1 unhealthy, 2 a wrong option or configuration, 3 unknown, as with stale data. With --wait
    this is a gate for rolling restarts: data from before its start does not count. With --as-of the codes are those
    of that time; 2 also means that the time is not recorded.

    Example: isrwatch health --wait 10m && echo next broker
    """
    if row_format not in {None, RowFormat.TABLE, RowFormat.JSON}:
        raise ConfigurationError(f"health has no rows for -o {row_format}; use table or json")
    age = None if max_age is None else _age(max_age)
    max_seconds, ignored = age or load(config_file).export.stale_after, _ignorable(ignore or [])
    basis = HealthBasis(max_age_seconds=max_seconds, allows_planned=allow_planned, ignored=ignored)
    names, at = tuple(cluster or ()), _moment(as_of, wait, local=local)
    if (asked := server_of(server, tables, config_file)) is not None:
        reader: HealthReader | ServerHealthReader = ServerHealthReader(asked, names, basis, age, at)
    else:  # a gate waits for tables that are not there yet
        folder = tables_place(load(config_file), tables) if wait else folder_of(tables, config_file)
        reader = HealthReader(folder, names, basis, None if at is None else Clock(micros_now()).read(at))
    look = _looked(reader) if wait is None else _waited(wait, settle, reader)
    with until_closed():
        _print(look, reader.basis, Clock(micros_now(), local), as_json=row_format is RowFormat.JSON)
    raise typer.Exit(EXIT_CODES[look.status])


def _age(max_age: str) -> float:
    """Return the age of the option: one that a server takes as well."""
    age = seconds_of("--max-age", max_age)
    if not 0 < age < _LARGEST_AGE:
        raise ConfigurationError(f"--max-age is {max_age!r}; use a duration from 1ms to {duration_text(_LARGEST_AGE)}")
    return age


def _moment(as_of: str | None, wait: str | None, *, local: bool) -> str | None:
    """Return the time that is judged, as the program that answers reads it."""
    if as_of is None:
        return None
    if wait is not None:
        raise ConfigurationError("--wait waits for what comes, and --as-of judges the past; give one of them")
    if isinstance(read_moment(as_of, micros_now(), local=local), Version):
        raise ConfigurationError(
            f"--as-of is {as_of!r}: health is that of a time, not of a version; write for example 2026-03-01T10:30:00Z"
        )
    return moment_of(as_of, local=local)


def _looked(reader: HealthReader | ServerHealthReader) -> Look:
    look = reader.look()
    if look.missing:
        there = ", ".join(reader.names()) or "none"
        raise ConfigurationError(f"unknown cluster {look.missing[0]}; known: {there}")
    return look


def _ignorable(ignored: list[str]) -> frozenset[str]:
    for condition in ignored:
        if condition in BLIND:
            raise ConfigurationError(f"{condition} cannot be ignored: without data nothing is healthy")
        if condition not in SEVERITIES:
            raise ConfigurationError(f"--ignore {condition} is no condition of health: {', '.join(IGNORABLE)}")
    return frozenset(ignored)


def _waited(wait: str, settle: str, reader: HealthReader | ServerHealthReader) -> Look:
    """Wait; each change of what it waits for is a line on stderr."""
    seconds, settle_seconds = seconds_of("--wait", wait), seconds_of("--settle", settle)
    if settle_seconds > seconds:
        raise ConfigurationError("--settle is longer than --wait: it could never pass")
    reader.begin()
    reported: list[str] = []

    def report(look: Look, left: float) -> None:
        waits_for = _waits_for(look, reader.basis)
        if waits_for not in reported[-1:]:
            reported.append(waits_for)
            Terminal(stderr=True).row(f"waiting for {span(left)} at most: {waits_for}")

    waiting = WaitLimits(seconds=seconds, settle_seconds=settle_seconds, clock=time.monotonic, sleep=time.sleep)
    try:
        return waiting.until_healthy(reader.look, report)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _waits_for(look: Look, basis: HealthBasis) -> str:
    if look.health.status is HealthStatus.HEALTHY:
        return "healthy, to settle"
    reasons = [
        f"{reason.condition} of {each.cluster}"
        for each in look.health.clusters
        for reason in each.reasons
        if basis.counts(reason)
    ]
    missing = [f"no data of {name}" for name in look.missing]
    return ", ".join([*reasons, *missing]) or "there are no tables yet"


def _print(look: Look, basis: HealthBasis, clock: Clock, *, as_json: bool) -> None:
    if as_json:
        Terminal().document([json_text(machine(_document(look, basis), "", clock))])
        return
    console = Terminal()
    if look.as_of is not None:
        print_wrapped(console, Text(f"as of {clock.iso(look.as_of)}; {_WITHOUT}", style="dim"))
    for line in _lines(look, basis):
        print_wrapped(console, line)


def _document(look: Look, basis: HealthBasis) -> dict[str, Any]:
    return {
        "as_of": look.as_of,
        "unreadable_tables": look.unreadable,
        "missing_clusters": look.missing,
        **document_of(look.health, basis),
        "status": look.status,
    }


def _lines(look: Look, basis: HealthBasis) -> Iterator[Text]:
    for cluster in look.health.clusters:
        yield _cluster_line(cluster, look.before)
        for reason in cluster.reasons:
            yield _reason_line(reason, cluster, look.before, counts=basis.counts(reason))
    for name in look.missing:
        yield Text(f"unknown: cluster {name} has not been observed", style=_STYLES[HealthStatus.UNKNOWN])
    if not look.health.clusters and not look.missing:
        none = "no cluster had been observed by then"
        none = none if look.as_of is not None else "no cluster has been observed; start isrwatch job and collect"
        why = "; ".join(look.unreadable.values()) or none
        yield Text(f"unknown: {why}", style=_STYLES[HealthStatus.UNKNOWN])
    if look.status is not look.health.status:
        yield Text("unknown: healthy, but not for as long as --settle asks", style=_STYLES[look.status])


def _cluster_line(cluster: ClusterHealth, before: str) -> Text:
    age = "" if cluster.age_seconds is None else f", observed {span(cluster.age_seconds)} {before}"
    return Text(f"{cluster.status}: cluster {cluster.cluster}{age}", style=_STYLES[cluster.status])


def _reason_line(reason: HealthReason, cluster: ClusterHealth, before: str, *, counts: bool) -> Text:
    until = None if reason.condition in BLIND else cluster.observed_until  # of those the age says for how long
    lasting = "" if reason.since is None or until is None else f" for {span(max(0, until - reason.since) / SECOND)}"
    old = reason.age_seconds is not None and reason.age_seconds != cluster.age_seconds
    age = f" (as of {span(reason.age_seconds or 0)} {before})" if old else ""
    more = f" and {reason.more:,} more" if reason.more else ""
    label = reason.severity if counts else f"{reason.severity}, not counted"
    explained = f" ({', '.join(reason.incidents)})" if reason.incidents else ""
    sentence = f"  {label}: {reason.condition} {reason.count:,}{lasting}{age}: {reason.summary}: "
    return Text(
        sentence + ", ".join(reason.examples) + more + explained, style=_STYLES[reason.severity] if counts else "dim"
    )
