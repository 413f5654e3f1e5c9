"""``isrwatch dashboards``: write the generated files, or tell whether they are up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dashboards.alerts import AlertSettings
from dashboards.render import differing, rendered, write
from streaming.errors import ConfigurationError

GENERATED = Path(__file__).parent / "generated"
_DEFAULTS = AlertSettings()

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Dashboard and alert rules, rendered from code.")


@app.callback()
def _dashboards() -> None:
    """Keep ``render`` a command of its own: typer would drop the name of an only command."""


@app.command()
def render(
    output: Annotated[Path, typer.Option(help="Directory to write to.")] = GENERATED,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if the files are not up to date.")
    ] = False,
    runbook_url: Annotated[str, typer.Option(help="Link of the alerts to their runbook.")] = _DEFAULTS.runbook_url,
    dashboard_url: Annotated[str, typer.Option(help="Link of the alerts to the dashboard.")] = _DEFAULTS.dashboard_url,
) -> None:
    """Write the dashboard (Grafana JSON) and the alerts (Prometheus rules)."""
    files = rendered(AlertSettings(runbook_url=runbook_url, dashboard_url=dashboard_url))
    if not check:
        write(output, files)
        typer.echo(f"{output}: {', '.join(files)}")
        return
    stale = differing(output, files)
    if stale:
        raise ConfigurationError(f"{output}: {', '.join(stale)} not up to date; run: isrwatch dashboards render")
    typer.echo(f"{output}: up to date")
