"""``isrwatch export``: parses options and runs the exporter."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from streaming.errors import ConfigurationError
from streaming.settings import CollectSettings, ExportSettings, check_telemetry_path, load


def export(
    *,
    config_file: Annotated[
        Path | None, typer.Option("--config", "--config.file", help="Configuration file; see conf/isrwatch.toml.")
    ] = None,
    listen_address: Annotated[
        list[str] | None,
        typer.Option("--web.listen-address", help="host:port to listen on, repeatable; default: export.listen."),
    ] = None,
    telemetry_path: Annotated[
        str | None,
        typer.Option("--web.telemetry-path", help="Path of the metrics; default: export.telemetry_path."),
    ] = None,
    web_config_file: Annotated[
        str | None,
        typer.Option(
            "--web.config.file", help="TLS and logins, in the format of exporter-toolkit; see conf/web-config.yml."
        ),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option("--tables", help="Folder of the Delta tables; default: tables.directory.")
    ] = None,
    list_metrics: Annotated[
        bool, typer.Option("--list-metrics", help="Print every metric as a Markdown table and exit.")
    ] = False,
) -> None:
    """Serve the Delta tables to Prometheus and as JSON until Ctrl-C. Needs neither Spark nor Java.

    Paths: /metrics, /metrics/jmx, /clusters/NAME/metrics, /-/healthy (and /healthz), /-/ready, /api/v1/health, and
    /api/v1/openapi.json, which describes the JSON API.

    Example: isrwatch export --config isrwatch.toml
    """
    if list_metrics:
        from exporters.metrics.catalogue import reference

        typer.echo(reference(), nl=False)
        return
    settings = load(config_file)
    exporting = _overridden(settings.export, listen_address, telemetry_path, web_config_file)
    folder = Path(settings.tables.directory) if tables is None else tables
    if folder.is_file():
        raise ConfigurationError(f"{folder} is a file; point tables.directory (--tables) at the folder of the tables")
    _serve(folder, exporting, settings.collect)


def _serve(folder: Path, exporting: ExportSettings, collect: CollectSettings) -> None:
    from exporters.web.app import OPTION, serve
    from streaming.runtime.listening import address_of, listen_all
    from streaming.runtime.memory import return_freed_memory
    from streaming.web.protection import protection_of

    return_freed_memory()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    protected = protection_of(exporting.web_config_file)
    opened = listen_all(exporting.listen, OPTION)
    scheme = "http" if protected.rules.context is None else "https"
    addresses = ", ".join(f"{scheme}://{address_of(each)}{exporting.telemetry_path}" for each in opened)
    typer.echo(f"serving {folder} on {addresses}", err=True)
    serve(folder, exporting, opened, protected, collect)


def _overridden(
    settings: ExportSettings, addresses: list[str] | None, telemetry_path: str | None, web_config_file: str | None
) -> ExportSettings:
    """Apply the options, which override the configuration file."""
    if addresses:
        settings = replace(settings, listen=",".join(addresses))
    if web_config_file is not None:
        settings = replace(settings, web_config_file=web_config_file)
    if telemetry_path is not None:
        check_telemetry_path("--web.telemetry-path", telemetry_path)
        settings = replace(settings, telemetry_path=telemetry_path)
    return settings
