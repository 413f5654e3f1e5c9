"""``isrwatch dashboards``: writes the generated files, or checks that they are up to date."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dashboards.render import differing, rendered, write
from streaming.configuration_file import OPTION_HELP
from streaming.errors import ConfigurationError
from streaming.settings import NO_LINKS, check_url, load
from streaming.terminal import Terminal

GENERATED = Path(__file__).parent / "generated"

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Render the boards and the alerting rules from code."
)


@app.callback()
def _dashboards() -> None:
    """Keep the name of the command ``render``: typer drops the name of a single command."""


@app.command()
def render(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = GENERATED,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if the files are out of date.")] = False,
    url: Annotated[
        str | None,
        typer.Option(help="Address of the exporter for links of alerts to its runbook; default: export.url."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help=OPTION_HELP)] = None,
) -> None:
    """Write the boards (Grafana JSON) and the rules, for Prometheus, its operator, Grafana and jsonnet.

    The section [alerts] of the configuration chooses the alerts and their severities.

    Example: isrwatch dashboards render --config isrwatch.toml --output out
    """
    settings = load(config)
    if url is not None:
        settings = replace(settings, export=replace(settings.export, url=_link("--url", url)))
    files = rendered(settings)
    if not check:
        write(output, files)
        Terminal().row(f"{output}: {', '.join(files)}")
        if not settings.export.url and output.resolve() != GENERATED.resolve():
            Terminal(stderr=True).row(NO_LINKS)
        return
    stale = differing(output, files)
    if stale:
        raise ConfigurationError(f"{output}: {', '.join(stale)} not up to date; run: isrwatch dashboards render")
    Terminal().row(f"{output}: up to date")


def _link(option: str, url: str) -> str:
    if url:
        check_url(option, url)
    return url
