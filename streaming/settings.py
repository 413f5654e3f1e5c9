"""Configuration: one TOML file, frozen values, every key checked.

``conf/isrwatch.toml`` is the reference: every key with its default and a comment; a test keeps it equal to this file.
A wrong key, type or value raises :class:`ConfigurationError` with one sentence that names the key and the fix.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints

from streaming.errors import ConfigurationError
from streaming.setting_values import check_folders, check_pattern, check_place, check_seconds, check_telemetry_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")
Place = Annotated[str, "the path of a folder or a file of this machine"]
_LONGEST_LEASE_HOURS: Final = 168
EXPORT_FAMILIES: Final = (
    *("incidents", "topics", "partitions", "replicas", "groups", "quorum", "transactions", "settings"),
    *("reconciliation", "kafka_exporter"),
)
"""The families of metrics that an exporter may leave out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllersSettings:
    """How the controllers are reached, where that is not as the brokers say, and not with the same login.

    ``client`` replaces ``cluster.client`` as a whole; ``addresses`` are by controller id.
    """

    listener: str = ""
    client: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The Kafka cluster to monitor.

    ``client`` holds librdkafka properties, unchanged (security.protocol, sasl.username, ssl.ca.location, ...).
    """

    name: str = "kafka"
    bootstrap_servers: str = ""
    client: dict[str, str] = field(default_factory=dict)
    controllers: ControllersSettings = field(default_factory=ControllersSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """What ``isrwatch collect`` reads, and how often. All intervals are in seconds."""

    collector: str = "collector-1"
    listen: str = ""
    primary_source: str = "auto"
    heartbeat_seconds: float = 5.0
    snapshot_seconds: float = 300.0
    poll_seconds: float = 5.0
    offsets_seconds: float = 10.0
    groups_seconds: float = 10.0
    groups: tuple[str, ...] = ()
    groups_exclude: tuple[str, ...] = ()
    spark_checkpoints: dict[str, Place] = field(default_factory=dict)
    config_seconds: float = 60.0
    quorum_seconds: float = 10.0
    transactions_seconds: float = 30.0
    directories_seconds: float = 30.0
    broker_metrics_seconds: float = 15.0
    broker_metrics: dict[str, str] = field(default_factory=dict)
    broker_metrics_client: dict[str, str] = field(default_factory=dict)
    web_config_file: Place = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """The directory bus."""

    directory: Place = ".isrwatch/bus"
    segment_bytes: int = 64 * 1024 * 1024
    max_bytes: int = 8 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSettings:
    """The Delta tables and their retention.

    ``history_days`` applies to the append-only tables and to closed incidents, 0 keeps all changes and events; files
    that were replaced are kept for ``reader_minutes``, for readers that have opened an older version.
    """

    directory: Place = ".isrwatch/tables"
    history_days: int = 0
    reader_minutes: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The Spark job. An empty ``queries`` runs all of them."""

    queries: tuple[str, ...] = ()
    checkpoint: Place = ".isrwatch/checkpoint"
    trigger_seconds: float = 0.0
    batch_bytes: int = 32 * 1024 * 1024
    projection_seconds: float = 1.0
    incident_gap_seconds: float = 60.0
    incident_rolling_gap_seconds: float = 900.0
    listen: str = "127.0.0.1:9309"
    web_config_file: Place = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The exporter.

    The filters are regular expressions that occur in names of topics or groups, as in kafka_exporter; ``without`` names
    families of metrics.
    """

    listen: str = "127.0.0.1:9308"
    refresh_seconds: float = 0.1
    stale_after_seconds: float = 60.0
    detail_limit: int = 20_000
    topic_filter: str = ".*"
    topic_exclude: str = "^$"
    group_filter: str = ".*"
    group_exclude: str = "^$"
    without: tuple[str, ...] = ()
    telemetry_path: str = "/metrics"
    web_config_file: Place = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Planned work, as ``isrwatch maintenance`` announces it.

    The lease of a running command holds for ``lease_seconds`` after each renewal, and for ``tail_seconds`` after the
    command ended. No lease lasts longer than ``max_hours``.
    """

    max_hours: float = 12.0
    lease_seconds: float = 120.0
    tail_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured."""

    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    collect: CollectSettings = field(default_factory=CollectSettings)
    bus: BusSettings = field(default_factory=BusSettings)
    tables: TablesSettings = field(default_factory=TablesSettings)
    job: JobSettings = field(default_factory=JobSettings)
    export: ExportSettings = field(default_factory=ExportSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)


def load(path: Path | None) -> Settings:
    """Read a configuration file; None gives the defaults.

    Of several clusters (``[[cluster]]``) none is in it: see :mod:`streaming.cluster_settings`.

    Raises:
        ConfigurationError: the file is missing, is not TOML, or has a wrong key or value.
    """
    document = read(path)
    if isinstance(document.get("cluster"), list):
        del document["cluster"]
    return settings_of(document)


def read(path: Path | None) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigurationError: the file is missing, or is not TOML.
    """
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the configuration {path}: {error.strerror}; start from conf/isrwatch.toml"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None


def settings_of(document: Mapping[str, Any]) -> Settings:
    """Check a document of at most one cluster, and return its values.

    Raises:
        ConfigurationError: a key or a value is wrong.
    """
    return _checked(_build(Settings, document, ""))


def _build(cls: type[T], values: Mapping[str, Any], prefix: str) -> T:
    hints = get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        section = f"[{prefix.rstrip('.')}]" if prefix else "the file"
        raise ConfigurationError(f"unknown key {prefix}{unknown[0]}; the keys of {section} are: {', '.join(hints)}")
    return cls(**{name: _value(hints[name], values[name], prefix + name) for name in values})


def _value(hint: Any, value: Any, key: str) -> Any:  # noqa: ANN401 - any value of a TOML file
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigurationError(f"{key} must be a table: write [{key}]")
        return _build(hint, value, f"{key}.")  # type: ignore[arg-type]
    if hint is float and type(value) is int:
        return float(value)
    if hint == dict[str, str]:
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return value
        raise ConfigurationError(f'{key} must be a table of strings, for example "name" = "value"')
    if hint == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigurationError(f'{key} must be a list of strings, for example ["a", "b"]')
    if type(value) is not hint:
        expected = "a number" if hint is float else hint.__name__
        raise ConfigurationError(f"{key} must be {expected}, not {value!r}")
    return value


def _checked(settings: Settings) -> Settings:
    sources, chosen = ("auto", "metadata_log", "poll"), settings.collect.primary_source
    if chosen not in sources:
        raise ConfigurationError(f"collect.primary_source is {chosen!r}; use one of {', '.join(sources)}")
    for name in ("collect", "export", "job", "maintenance"):
        section = getattr(settings, name)
        for item in fields(section):
            if item.name.endswith("_seconds"):
                check_seconds(f"{name}.{item.name}", getattr(section, item.name))
    for key, number, least in (
        ("bus.segment_bytes", settings.bus.segment_bytes, 1024),  # at least one observation
        ("bus.max_bytes", settings.bus.max_bytes, 1024 * 1024),
        ("job.batch_bytes", settings.job.batch_bytes, 1024),
        ("tables.history_days", settings.tables.history_days, 0),
        ("tables.reader_minutes", settings.tables.reader_minutes, 1),
    ):
        if not least <= number < math.inf:  # not "number < least", which no NaN is
            raise ConfigurationError(f"{key} is {number}; it must be at least {least}, and finite")
    check_folders(settings.collect.spark_checkpoints)
    for key, place in places_of(settings):
        check_place(key, place)
    check_telemetry_path("export.telemetry_path", settings.export.telemetry_path)
    _check_series(settings.export)
    hours = settings.maintenance.max_hours
    if not 0 < hours <= _LONGEST_LEASE_HOURS:
        raise ConfigurationError(f"maintenance.max_hours is {hours}; it must be above 0 and at most 168, a week")
    return settings


def places_of(section: Any, prefix: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any part of the settings
    """Yield every setting that is a place, by its key."""
    for name, hint in get_type_hints(type(section), include_extras=True).items():
        key, value = f"{prefix}{name}", getattr(section, name)
        if is_dataclass(value):
            yield from places_of(value, f"{key}.")
        elif hint == Place:
            yield key, value
        elif hint == dict[str, Place]:
            yield from ((f"{key}.{each}", place) for each, place in value.items())


def _check_series(export: ExportSettings) -> None:
    for name in ("topic_filter", "topic_exclude", "group_filter", "group_exclude"):
        check_pattern(f"export.{name}", getattr(export, name))
    unknown = sorted({*export.without} - {*EXPORT_FAMILIES})
    if unknown:
        raise ConfigurationError(f"export.without has {unknown[0]!r}; use some of {', '.join(EXPORT_FAMILIES)}")
