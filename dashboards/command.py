"""``isrwatch dashboards``: writes the generated files, or checks that they are up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dashboards.alerts import AlertSettings
from dashboards.render import differing, rendered, write
from streaming.errors import ConfigurationError
from streaming.setting_values import check_pattern

GENERATED = Path(__file__).parent / "generated"
_DEFAULTS = AlertSettings()

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Render the dashboard and the alerting rules from code."
)


@app.callback()
def _dashboards() -> None:
    """Keep the name of the command ``render``: typer drops the name of a single command."""


@app.command()
def render(  # noqa: PLR0917 - one parameter per option
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = GENERATED,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if the files are out of date.")] = False,
    runbook_url: Annotated[
        str, typer.Option(help="URL of the runbook, for the links of the alerts.")
    ] = _DEFAULTS.runbook_url,
    dashboard_url: Annotated[
        str, typer.Option(help="URL of the dashboard, for the links of the alerts.")
    ] = _DEFAULTS.dashboard_url,
    expect_cluster: Annotated[
        list[str] | None,
        typer.Option(help="Name of a cluster that must be monitored: without fresh data of it, page. May be repeated."),
    ] = None,
    exclude_topics: Annotated[
        str,
        typer.Option(metavar="REGEX", help="Topics whose partitions are in no page, as for a matcher of Prometheus."),
    ] = _DEFAULTS.excluded_topics,
) -> None:
    """Write the dashboard (Grafana JSON) and the alerts (Prometheus rules).

    Example: isrwatch dashboards render --output out --expect-cluster prod --exclude-topics 'tmp-.*'
    """
    check_pattern("--exclude-topics", exclude_topics)
    settings = AlertSettings(
        runbook_url=runbook_url,
        dashboard_url=dashboard_url,
        expected_clusters=tuple(expect_cluster or ()),
        excluded_topics=exclude_topics,
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
