"""``isrwatch export``: parses options and runs the exporter."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from streaming.errors import ConfigurationError
from streaming.settings import load


def export(
    *,
    config_file: Annotated[
        Path | None, typer.Option("--config", "--config.file", help="Configuration file; see conf/isrwatch.toml.")
    ] = None,
    listen_address: Annotated[
        str | None, typer.Option("--web.listen-address", help="host:port to listen on; default: export.listen.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option("--tables", help="Folder of the Delta tables; default: tables.directory.")
    ] = None,
    list_metrics: Annotated[
        bool, typer.Option("--list-metrics", help="Print every metric as a Markdown table and exit.")
    ] = False,
) -> None:
    """Serve the Delta tables to Prometheus and as JSON until Ctrl-C. Needs neither Spark nor Java.

    Paths: /metrics, /metrics/jmx, /clusters/NAME/metrics, /-/healthy, /-/ready, /api/v1/health, and
    /api/v1/openapi.json, which describes the JSON API.

    Example: isrwatch export --config isrwatch.toml
    """
    if list_metrics:
        from exporters.metrics.catalogue import reference

        typer.echo(reference(), nl=False)
        return
    from exporters.web.app import OPTION, serve
    from streaming.runtime.listening import address_of, listen
    from streaming.runtime.memory import return_freed_memory

    return_freed_memory()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = load(config_file)
    exporting = settings.export if listen_address is None else replace(settings.export, listen=listen_address)
    folder = Path(settings.tables.directory) if tables is None else tables
    if folder.is_file():
        raise ConfigurationError(f"{folder} is a file; point tables.directory (--tables) at the folder of the tables")
    opened = listen(exporting.listen, OPTION)
    typer.echo(f"serving {folder} on http://{address_of(opened)}/metrics", err=True)
    serve(folder, exporting, opened, settings.collect)
