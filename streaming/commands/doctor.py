"""``isrwatch doctor``: check a configuration, and everything that it needs, before or while isrwatch runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from streaming.cluster_settings import each_cluster, filled
from streaming.commands.cluster_options import BootstrapServersOption, ClusterOption, with_bootstrap_servers
from streaming.commands.doctor_checks import findings, secrets
from streaming.commands.doctor_findings import Finding, Status, numbered
from streaming.word_wrap import print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable

_STYLE: Final = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red", Status.SKIPPED: "dim"}


def doctor(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file (see conf/isrwatch.toml).")] = None,
    cluster: ClusterOption = None,
    bootstrap_servers: BootstrapServersOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per finding and line.")] = False,
) -> None:
    """Check a configuration and what it needs: brokers, permissions, clocks, folders, tables, Java, ports, TLS.

    Every finding is one sentence, with the fix. It changes nothing, and prints no password. The exit code is 1 if there
    is a problem; a warning is none.

    Examples:
    isrwatch doctor --config isrwatch.toml

    isrwatch doctor --bootstrap-servers broker-1:9092

    isrwatch doctor --config isrwatch.toml --json | jq 'select(.status == "problem")'
    """
    every = with_bootstrap_servers(each_cluster(config, cluster), bootstrap_servers)
    checked = chain(secrets(every, config), findings(filled(every)))
    worst = _print_json(checked) if as_json else _print(checked)
    if worst:
        raise typer.Exit(1)


def _print_json(checked: Iterable[Finding]) -> bool:
    """Print each finding as it comes; return whether there is a problem."""
    has_problem = False
    for finding in checked:
        has_problem |= finding.status is Status.PROBLEM
        typer.echo(json.dumps(asdict(finding)))
    return has_problem


def _print(checked: Iterable[Finding]) -> bool:
    console = Console()
    counts = dict.fromkeys(Status, 0)
    for finding in checked:
        counts[finding.status] += 1
        status = Text(f"{finding.status:8}", _STYLE[finding.status])
        about = f"{finding.cluster}: " if finding.cluster else ""
        print_wrapped(console, Text.assemble(status, f"{finding.check:15}", (about, "bold"), finding.sentence))
    problems, warnings = numbered(counts[Status.PROBLEM], "problem"), numbered(counts[Status.WARNING], "warning")
    console.print(f"{problems}, {warnings}, {counts[Status.OK]} ok")
    return counts[Status.PROBLEM] > 0
