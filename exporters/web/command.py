"""``isrwatch export``: parses options and runs the exporter."""

from __future__ import annotations

import inspect
import logging
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from streaming.cluster_settings import each_cluster
from streaming.configuration_file import OPTION_HELP
from streaming.delta.store.place import tables_place
from streaming.errors import ConfigurationError
from streaming.escapes import json_text
from streaming.name_patterns import check_patterns
from streaming.settings import EXPORT_FAMILIES, ExportSettings, Settings, check_telemetry_path, load
from streaming.terminal import LogLines, Terminal, log_to_stderr, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streaming.delta.store.place import Place

# Logs of the exporter, in the levels and formats of Prometheus' own exporters (promslog).


class LogLevel(StrEnum):
    """Below which level nothing is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class LogFormat(StrEnum):
    """Format of a line: for people, or for a collector of logs."""

    TEXT = "text"
    LOGFMT = "logfmt"
    JSON = "json"


_NAMES: Final = {"WARNING": "WARN"}


class _Fields(logging.Formatter):
    """Lines of fields; a subclass writes them."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line, a traceback included."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": _NAMES.get(record.levelname, record.levelname),
            "msg": record.getMessage(),
        }
        if record.exc_info:
            fields["err"] = self.formatException(record.exc_info)
        return self.written(fields)

    def written(self, fields: Mapping[str, str]) -> str:
        """Write the fields of a line."""
        raise NotImplementedError


class _Logfmt(_Fields):
    def written(self, fields: Mapping[str, str]) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


class _Json(_Fields):
    def written(self, fields: Mapping[str, str]) -> str:
        return json_text(fields)


def _quoted(value: str) -> str:
    is_plain = value.isprintable() and not set(' "=') & set(value) and value
    return value if is_plain else json_text(value)


def configure(level: LogLevel, how: LogFormat) -> None:
    """Log to stderr."""
    formatters = {LogFormat.LOGFMT: _Logfmt(), LogFormat.JSON: _Json()}
    log_to_stderr(formatters.get(how) or LogLines("%(asctime)s %(levelname)s %(message)s"), level.upper())


_PATTERNS: Final = {"topic": "topics", "group": "groups"}
"""The options about names, and their keys."""
_PANEL: Final = "What has series"


def with_series_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, which takes them as ``**series``, the options about what has series.

    Those about families of metrics are named as node_exporter's.
    """
    options: dict[str, Any] = {
        option: Annotated[
            list[str] | None,
            typer.Option(
                f"--{option}",
                metavar="PATTERN",
                help=f"{key.title()} with series of their own, 'tmp-*', or '!tmp-*' for all others; may be repeated; "
                f"default: export.{key}.",
                rich_help_panel=_PANEL,
            ),
        ]
        for option, key in _PATTERNS.items()
    }
    for family in EXPORT_FAMILIES:
        text = f"Expose the metrics of the family {family}, or not; default: unless export.disabled has it."
        switch = typer.Option(f"--collector.{family}/--no-collector.{family}", help=text, rich_help_panel=_PANEL)
        options[family] = Annotated[bool | None, switch]
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in options.items()
    ]
    command.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    return command


@with_series_options
def export(
    *,
    config_file: Annotated[Path | None, typer.Option("--config", "--config.file", help=OPTION_HELP)] = None,
    listen_address: Annotated[
        list[str] | None,
        typer.Option("--web.listen-address", help="host:port to listen on, repeatable; default: export.listen."),
    ] = None,
    telemetry_path: Annotated[
        str | None,
        typer.Option(
            "--web.telemetry-path",
            help="Path of the metrics; default: export.telemetry_path. /metrics/jmx and /clusters/NAME/metrics stay.",
        ),
    ] = None,
    web_config_file: Annotated[
        str | None,
        typer.Option(
            "--web.config.file", help="TLS and logins, in the format of exporter-toolkit; see conf/web-config.yml."
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option("--log.level", help="Lowest level that is logged.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option("--log.format", help="Format of the log.")] = LogFormat.TEXT,
    tables: Annotated[
        str | None, typer.Option("--tables", help="Folder or URL of the Delta tables; default: tables.directory.")
    ] = None,
    list_metrics: Annotated[
        bool, typer.Option("--list-metrics", help="Print every metric and exit; in a pipe as Markdown.")
    ] = False,
    **series: Any,  # noqa: ANN401 - of each option its own type
) -> None:
    """Serve the Delta tables to Prometheus and as JSON until Ctrl-C. Needs neither Spark nor Java.

    Paths: /metrics, /metrics/jmx, /clusters/NAME/metrics, /-/healthy (and /healthz), /-/ready, /api/v1/health, and
    /api/v1/openapi.json, which describes the JSON API.

    Example: isrwatch export --config isrwatch.toml
    """
    if list_metrics:
        _list_metrics()
        return
    settings = load(config_file)
    exporting = _overridden(settings.export, listen_address, telemetry_path, web_config_file)
    exporting = _with_series(exporting, series)
    configure(log_level, log_format)
    serve_tables(
        _folder(tables_place(settings, tables)), replace(settings, export=exporting), each_cluster(config_file)
    )


def _folder(tables: Place) -> Place:
    if isinstance(tables, Path) and tables.is_file():
        raise ConfigurationError(f"{tables} is a file; point tables.directory (--tables) at the folder of the tables")
    return tables


def _list_metrics() -> None:
    """Print every metric: on a terminal its name, type and meaning, in a pipe a Markdown table of all that is known."""
    from exporters.metrics.catalogue import CATALOGUE, reference
    from exporters.metrics.jmx_names import JMX_METRICS

    console = Terminal()
    if not console.is_terminal:
        console.document(reference().splitlines())
        return
    for title, metrics in (("At /metrics:", CATALOGUE), ("At /metrics/jmx:", [each.metric for each in JMX_METRICS])):
        console.print(Text(title, style="dim"))
        for metric in metrics:
            print_wrapped(console, Text.assemble((metric.name, "bold"), (f"  {metric.kind}  ", "dim"), metric.help))


def serve_tables(folder: Place, settings: Settings, clusters: Iterable[Settings] = ()) -> None:
    """Serve the tables of a folder until a signal ends it; ``clusters`` are the settings of each one configured."""
    from exporters.web.runbook_commands import Installations
    from exporters.web.server import OPTION, paths_without_login, serve
    from streaming.runtime.listening import address_of, listen_all
    from streaming.runtime.memory import return_freed_memory
    from streaming.web.protection import protection_of

    return_freed_memory()
    exporting = settings.export
    protected = protection_of(exporting.web_config_file, paths_without_login(exporting))
    opened = listen_all(exporting.listen, OPTION)
    scheme = "http" if protected.rules.context is None else "https"
    addresses = ", ".join(f"{scheme}://{address_of(each)}{exporting.telemetry_path}" for each in opened)
    Terminal(stderr=True).row(f"serving {folder} on {addresses}")
    serve(folder, settings, opened, protected, Installations.of(clusters, exporting))
    Terminal(stderr=True).row("stopped")


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


def _with_series(settings: ExportSettings, series: Mapping[str, Any]) -> ExportSettings:
    """Apply the options about what has series."""
    for option in _PATTERNS:
        check_patterns(f"--{option}", series.get(option) or ())
    patterns: dict[str, Any] = {key: tuple(series[option]) for option, key in _PATTERNS.items() if series.get(option)}
    exposed = {family: family not in settings.disabled for family in EXPORT_FAMILIES}
    exposed |= {family: series[family] for family in EXPORT_FAMILIES if series.get(family) is not None}
    disabled = tuple(family for family, is_exposed in exposed.items() if not is_exposed)
    return replace(settings, disabled=disabled, **patterns)
