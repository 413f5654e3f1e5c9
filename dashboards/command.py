"""``isrwatch dashboards``: writes the generated files, or checks that they are up to date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from dashboards.alerts import AlertSettings
from dashboards.render import differing, rendered, write
from streaming.errors import ConfigurationError
from streaming.name_patterns import NamePatterns, check_patterns

SEVERITIES = ("page", "ticket", "info")
GENERATED = Path(__file__).parent / "generated"
_DEFAULTS = AlertSettings()

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Render the boards and the alerting rules from code."
)


@app.callback()
def _dashboards() -> None:
    """Keep the name of the command ``render``: typer drops the name of a single command."""


@app.command()
def render(  # noqa: PLR0917 - one parameter per option
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = GENERATED,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if the files are out of date.")] = False,
    runbook_url: Annotated[
        str | None, typer.Option(help="URL of the runbook, for the links of the alerts; required with --output.")
    ] = None,
    dashboard_url: Annotated[
        str | None,
        typer.Option(help="URL of the board of a cluster, for the links of the alerts; required with --output."),
    ] = None,
    expect_cluster: Annotated[
        list[str] | None,
        typer.Option(help="Name of a cluster that must be monitored: without fresh data of it, page. May be repeated."),
    ] = None,
    exclude_topics: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Topics whose partitions are in no page, 'tmp-*'. May be repeated."),
    ] = None,
    severity: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LABEL", help="What page, ticket or info are called in the label, on boards, too."),
    ] = None,
) -> None:
    """Write the boards (Grafana JSON) and the rules, for Prometheus, its operator, Grafana and jsonnet.

    Example: isrwatch dashboards render --output out --runbook-url https://wiki/kafka --dashboard-url https://grafana/d/x
    --expect-cluster prod --exclude-topics 'tmp-*' --severity page=critical --severity ticket=warning
    """
    excluded = exclude_topics or ()
    check_patterns("--exclude-topics", excluded)
    settings = AlertSettings(
        runbook_url=_link("--runbook-url", runbook_url, output) or _DEFAULTS.runbook_url,
        dashboard_url=_link("--dashboard-url", dashboard_url, output) or _DEFAULTS.dashboard_url,
        severity_names=dict(_severity(each) for each in severity or ()),
        expected_clusters=tuple(expect_cluster or ()),
        excluded_topics=NamePatterns(excluded).included,
    )
    files = rendered(settings)
    if not check:
        write(output, files)
        typer.echo(f"{output}: {', '.join(files)}")
        return
    stale = differing(output, files)
    if stale:
        raise ConfigurationError(f"{output}: {', '.join(stale)} not up to date; run: isrwatch dashboards render")
    typer.echo(f"{output}: up to date")


def _link(option: str, url: str | None, output: Path) -> str | None:
    """Check that the link of an alert can be opened from any machine.

    Raises:
        ConfigurationError: it is not absolute, or is missing where files are rendered for use.
    """
    if url is None and output.resolve() == GENERATED.resolve():
        return None
    if url is None or not re.match(r"https?://[^/]", url):
        reason = "is required with --output" if url is None else f"{url} is not absolute"
        raise ConfigurationError(f"{option} {reason}: the alerts link to it, so name it with https://")
    return url


def _severity(option: str) -> tuple[str, str]:
    name, _, label = option.partition("=")
    if name not in SEVERITIES or not label:
        raise ConfigurationError(f"--severity {option}: write NAME=LABEL with a name of {', '.join(SEVERITIES)}")
    return name, label
