"""``isrwatch dashboards``: writes the generated files, or checks that they are up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dashboards.alerts import AlertSettings
from dashboards.render import differing, rendered, write
from streaming.configuration_file import OPTION_HELP
from streaming.errors import ConfigurationError
from streaming.name_patterns import NamePatterns, check_patterns
from streaming.settings import NO_LINKS, check_url, load

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
    url: Annotated[
        str | None,
        typer.Option(help="Address of the exporter for links of alerts to its runbook; default: export.url."),
    ] = None,
    dashboard_url: Annotated[
        str, typer.Option(help="URL of the board of a cluster, for links of alerts; without it they have none.")
    ] = _DEFAULTS.dashboard_url,
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
    config: Annotated[Path | None, typer.Option(help=OPTION_HELP)] = None,
) -> None:
    """Write the boards (Grafana JSON) and the rules, for Prometheus, its operator, Grafana and jsonnet.

    Example: isrwatch dashboards render --output out --url https://isrwatch.example --dashboard-url https://grafana/d/x
    --expect-cluster prod --exclude-topics 'tmp-*' --severity page=critical --severity ticket=warning
    """
    excluded = exclude_topics or ()
    check_patterns("--exclude-topics", excluded)
    settings = AlertSettings(
        url=load(config).export.url if url is None else _link("--url", url),
        dashboard_url=_link("--dashboard-url", dashboard_url),
        severity_names=dict(_severity(each) for each in severity or ()),
        expected_clusters=tuple(expect_cluster or ()),
        excluded_topics=NamePatterns(excluded).included,
    )
    files = rendered(settings)
    if not check:
        write(output, files)
        typer.echo(f"{output}: {', '.join(files)}")
        if not settings.url and output.resolve() != GENERATED.resolve():
            typer.echo(NO_LINKS, err=True)
        return
    stale = differing(output, files)
    if stale:
        raise ConfigurationError(f"{output}: {', '.join(stale)} not up to date; run: isrwatch dashboards render")
    typer.echo(f"{output}: up to date")


def _link(option: str, url: str) -> str:
    if url:
        check_url(option, url)
    return url


def _severity(option: str) -> tuple[str, str]:
    name, _, label = option.partition("=")
    if name not in SEVERITIES or not label:
        raise ConfigurationError(f"--severity {option}: write NAME=LABEL with a name of {', '.join(SEVERITIES)}")
    return name, label
