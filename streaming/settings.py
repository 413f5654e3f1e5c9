"""Configuration: one TOML file, frozen values, every key checked.

``conf/isrwatch.toml`` is the reference: every key with its default and a comment; a test keeps it equal to this file.
A wrong key, type or value raises :class:`ConfigurationError` with one sentence that names the key and the fix.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints

from streaming.alert_settings import AlertChange, AlertsSettings, changes_of, check_alerts
from streaming.configuration_file import file_to_read, overridden, read
from streaming.durations import FOREVER, duration_text, seconds_of
from streaming.errors import ConfigurationError
from streaming.name_patterns import check_patterns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")
Place = Annotated[str, "the path of a folder or a file of this machine"]
TablesPlace = Annotated[str, "the path of a folder of this machine, or the URL of one in a store"]
Url = Annotated[str, "the absolute address of a program, to which a path is added"]
Duration = Annotated[float, "seconds; in the file a duration with its unit, such as 30m"]
_DAY: Final = 86_400.0
COLLECTOR_LISTEN: Final = "127.0.0.1:9310"
_LONGEST_LEASE: Final = 7 * _DAY
EXPORT_FAMILIES: Final = (
    *("incidents", "topics", "partitions", "replicas", "groups", "quorum", "transactions", "settings"),
    *("reconciliation", "kafka_exporter"),
)
"""The families of metrics that an exporter may leave out."""
PLATFORMS: Final = ("bare metal", "strimzi", "msk", "confluent cloud", "aiven")
"""Platforms of clusters; commands to copy differ by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllersSettings:
    """Access to the controllers, where it is not as the brokers say, and not with the same login.

    ``client`` replaces ``cluster.client`` as a whole; ``addresses`` are by controller id.
    """

    listener: str = ""
    client: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The Kafka cluster to monitor.

    ``client`` holds properties, as librdkafka spells them (security.protocol, sasl.username, ssl.ca.location, ...);
    ``client_file`` is a properties file of Kafka's own tools, with more of them. ``platform`` is one of ``PLATFORMS``,
    or "" for unknown.
    """

    name: str = "kafka"
    bootstrap_servers: str = ""
    platform: str = ""
    client_file: Place = ""
    client: dict[str, str] = field(default_factory=dict)
    controllers: ControllersSettings = field(default_factory=ControllersSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """Inputs of ``isrwatch collect``, and their intervals."""

    collector: str = ""
    listen: str = COLLECTOR_LISTEN
    primary_source: str = "auto"
    heartbeat_interval: Duration = 5.0
    snapshot_interval: Duration = 300.0
    poll_interval: Duration = 5.0
    presence_interval: Duration = 1.0
    offsets_interval: Duration = 10.0
    groups_interval: Duration = 10.0
    groups: tuple[str, ...] = ()
    probe_prefix: str = "__isrwatch_no_"
    spark_checkpoints: dict[str, Place] = field(default_factory=dict)
    config_interval: Duration = 60.0
    quorum_interval: Duration = 10.0
    transactions_interval: Duration = 30.0
    directories_interval: Duration = 30.0
    broker_metrics_interval: Duration = 15.0
    broker_metrics: dict[str, str] = field(default_factory=dict)
    broker_metrics_client: dict[str, str] = field(default_factory=dict)
    web_config_file: Place = ""

    @property
    def collector_name(self) -> str:
        """Name of the collector: that of the machine, where it has none of its own."""
        return self.collector or socket.gethostname()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBusSettings:
    """Kafka as the bus, between collectors and job; without ``bootstrap_servers`` the directory alone is the bus.

    ``client`` holds librdkafka properties; one that begins with ``spark.`` is a property of Kafka's Java clients, for
    the job alone. Retention is of each partition.
    """

    bootstrap_servers: str = ""
    replication_topic: str = "isrwatch.replication"
    replication_partitions: int = 6
    replication_retention: Duration = 7 * _DAY
    replication_retention_bytes: int = 8 * 1024 * 1024 * 1024
    samples_topic: str = "isrwatch.samples"
    samples_partitions: int = 12
    samples_retention: Duration = 6 * 3_600.0
    samples_retention_bytes: int = 1024 * 1024 * 1024
    replication_factor: int = 3
    min_insync_replicas: int = 2
    client: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """The directory bus, and Kafka behind it."""

    directory: Place = ".isrwatch/bus"
    max_bytes: int = 8 * 1024 * 1024 * 1024
    kafka: KafkaBusSettings = field(default_factory=KafkaBusSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSettings:
    """The Delta tables and their retention.

    ``history`` applies to the append-only tables and to closed incidents. ``storage`` are the options of the store, if
    ``directory`` is a URL.
    """

    directory: TablesPlace = ".isrwatch/tables"
    history: Duration = 90 * _DAY
    storage: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The Spark job. An empty ``queries`` runs all of them. ``lease`` is a standby's patience with the active one."""

    queries: tuple[str, ...] = ()
    checkpoint: Place = ".isrwatch/checkpoint"
    lease: Duration = 15.0
    incident_gap: Duration = 60.0
    incident_rolling_gap: Duration = 900.0
    listen: str = "127.0.0.1:9309"
    web_config_file: Place = ""


NO_LINKS: Final = (
    "export.url is not set, so alerts and boards carry no link to pages of incidents and to the runbook; set it to the "
    "address at which others reach isrwatch export, then render them again: isrwatch dashboards render"
)
"""The sentence of every command that would use the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The exporter.

    ``url`` is its address as others reach it, and ``alertmanager_url`` that of Alertmanager, for links; "" makes none.
    ``topics`` and ``groups`` are patterns of the names that have series of their own; ``disabled`` names families of
    metrics. ``metrics_without_login`` leaves the logins of ``web_config_file`` to pages and the JSON API.
    """

    listen: str = "127.0.0.1:9308"
    url: Url = ""
    alertmanager_url: Url = ""
    refresh_interval: Duration = 0.1
    stale_after: Duration = 60.0
    detail_limit: int = 20_000
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    telemetry_path: str = "/metrics"
    web_config_file: Place = ""
    metrics_without_login: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The exporter that commands ask instead of reading tables; "" reads tables.

    Without ``user`` the login is that of ``~/.netrc``. ``timeout`` is of each wait for more of an answer.
    """

    url: Url = ""
    user: str = ""
    password: str = ""
    ca_file: Place = ""
    certificate_file: Place = ""
    key_file: Place = ""
    timeout: Duration = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Planned work, as ``isrwatch maintenance`` announces it. No lease lasts longer than ``max_duration``."""

    max_duration: Duration = 12 * 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvancedSettings:
    """Keys that suit nearly every installation as they are.

    A segment of the bus is closed at ``segment_bytes``. Replaced files of the tables stay for ``reader_time``, for
    readers that have opened an older version. The query of replication takes batches of ``batch_bytes``, one in
    ``trigger_interval``; what is derived is brought up to date in ``projection_interval``. The lease of a running
    command holds for ``maintenance_lease`` after each renewal, and for ``maintenance_tail`` after its end.
    """

    segment_bytes: int = 64 * 1024 * 1024
    reader_time: Duration = 600.0
    trigger_interval: Duration = 0.0
    batch_bytes: int = 32 * 1024 * 1024
    projection_interval: Duration = 1.0
    maintenance_lease: Duration = 120.0
    maintenance_tail: Duration = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured."""

    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    collect: CollectSettings = field(default_factory=CollectSettings)
    bus: BusSettings = field(default_factory=BusSettings)
    tables: TablesSettings = field(default_factory=TablesSettings)
    job: JobSettings = field(default_factory=JobSettings)
    export: ExportSettings = field(default_factory=ExportSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    alerts: AlertsSettings = field(default_factory=AlertsSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    advanced: AdvancedSettings = field(default_factory=AdvancedSettings)


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the configuration; see :mod:`streaming.configuration_file` for where it is.

    Of several clusters (``[[cluster]]``) none is in it: see :mod:`streaming.cluster_settings`.

    Raises:
        ConfigurationError: the file is missing, is not TOML, or has a wrong key or value, as may a variable.
    """
    document = document_of(path, environment)
    if isinstance(document.get("cluster"), list):
        del document["cluster"]
    return settings_of(document)


def document_of(path: Path | None, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the unchecked configuration: the file with the overrides of the environment.

    Raises:
        ConfigurationError: the file is missing, is not TOML, or a variable names no key.
    """
    return overridden(read(file_to_read(path, environment)), Settings, environment)


def settings_of(document: Mapping[str, Any]) -> Settings:
    """Check a document of at most one cluster, and return its values.

    Raises:
        ConfigurationError: a key or a value is wrong.
    """
    return _checked(_build(Settings, document, ""))


def _build(cls: type[T], values: Mapping[str, Any], prefix: str) -> T:
    hints = _hints(cls)  # type: ignore[arg-type] # a class is hashable
    unknown = sorted(set(values) - set(hints))
    if unknown:
        section = f"[{prefix.rstrip('.')}]" if prefix else "the file"
        key = f"{prefix}{unknown[0]}{_meant(unknown[0], hints)}"
        raise ConfigurationError(f"unknown key {key}; the keys of {section} are: {', '.join(hints)}")
    return cls(**{name: _value(hints[name], values[name], prefix + name) for name in values})


def _meant(name: str, hints: Mapping[str, Any]) -> str:
    """Say which key was probably meant: one that is spelled alike, or one of that name in another section."""
    if near := get_close_matches(name, hints, n=1):
        return f" (did you mean {near[0]}?)"
    others = (section for section, hint in _hints(Settings).items() if name in _hints(hint))
    return next((f" (it is a key of [{section}])" for section in others), "")


# Each command reads the settings: the types of the keys are evaluated once in a process.
@cache
def _annotated(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the type of each key: a duration as ``Duration``, everything else without its annotation."""
    plain, annotated = get_type_hints(cls), _annotated(cls)
    return {name: Duration if annotated[name] == Duration else hint for name, hint in plain.items()}


def _value(hint: Any, value: Any, key: str) -> Any:  # noqa: ANN401 - any value of a TOML file
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigurationError(f"{key} must be a table: write [{key}]")
        return _build(hint, value, f"{key}.")  # type: ignore[arg-type]
    if hint is Duration:
        return math.inf if value == FOREVER and _MOST.get(key) == math.inf else seconds_of(key, value)
    if hint == dict[str, AlertChange]:
        return changes_of(key, value)
    if hint == dict[str, str]:
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return value
        raise ConfigurationError(f'{key} must be a table of strings, for example "name" = "value"')
    if hint == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigurationError(f'{key} must be a list of strings, for example ["a", "b"]')
    if type(value) is not hint:
        written = f"; write {json.dumps(','.join(map(str, value)))}" if hint is str and isinstance(value, list) else ""
        raise ConfigurationError(f"{key} must be {_KINDS.get(hint, hint.__name__)}, not {value!r}{written}")
    return value


_KINDS: Final[Mapping[type, str]] = {
    str: "a string in quotes", int: "a whole number", float: "a number", bool: "true or false",
}  # fmt: skip


_PROBE_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


def _checked(settings: Settings) -> Settings:
    for key, chosen, choices in (
        ("collect.primary_source", settings.collect.primary_source, ("auto", "metadata_log", "poll")),
        ("cluster.platform", settings.cluster.platform or PLATFORMS[0], PLATFORMS),
    ):
        if chosen not in choices:
            raise ConfigurationError(f"{key} is {chosen!r}; use one of {', '.join(choices)}")
    for key, seconds in durations_of(settings):
        check_duration(key, seconds)
    for key, number, least in (
        ("bus.max_bytes", settings.bus.max_bytes, 1024 * 1024),
        ("advanced.segment_bytes", settings.advanced.segment_bytes, 1024),  # at least one observation
        ("advanced.batch_bytes", settings.advanced.batch_bytes, 1024),
    ):
        if number < least:
            raise ConfigurationError(f"{key} is {number}; it must be at least {least}")
    _check_kafka_bus(settings.bus.kafka)
    check_folders(settings.collect.spark_checkpoints)
    if not _PROBE_PREFIX.fullmatch(settings.collect.probe_prefix):
        raise ConfigurationError(
            f"collect.probe_prefix is {settings.collect.probe_prefix!r}; write 1 to 200 letters, digits, dots, "
            "underscores and hyphens, with which no existing topic or group begins"
        )
    for key, place in places_of(settings):
        check_place(key, place)
    check_telemetry_path("export.telemetry_path", settings.export.telemetry_path)
    for key, patterns in (
        ("collect.groups", settings.collect.groups),
        ("export.topics", settings.export.topics),
        ("export.groups", settings.export.groups),
    ):
        check_patterns(key, patterns)
    _check_urls(settings)
    _check_series(settings.export)
    check_alerts(settings.alerts)
    return settings


def places_of(section: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any part of the settings
    """Yield every setting that is a place, by its key."""
    for key, hint, value in _leaves(section):
        if hint == Place:
            yield key, value
        elif hint == dict[str, Place]:
            yield from ((f"{key}.{each}", place) for each, place in value.items())


def durations_of(section: Any) -> Iterator[tuple[str, float]]:  # noqa: ANN401 - any part of the settings
    """Yield every setting that is a duration, by its key, in seconds."""
    return ((key, value) for key, hint, value in _leaves(section) if hint == Duration)


def _leaves(section: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any part of them
    for name, hint in _annotated(type(section)).items():  # type: ignore[arg-type] # a class is hashable
        key, value = f"{prefix}{name}", getattr(section, name)
        if is_dataclass(value):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, hint, value


def _check_kafka_bus(bus: KafkaBusSettings) -> None:
    for item in fields(bus):
        value = getattr(bus, item.name)
        if item.name.endswith(("_partitions", "_factor", "_replicas", "_bytes")) and value < 1:
            raise ConfigurationError(f"bus.kafka.{item.name} is {value}; it must be above 0")
        if item.name.endswith("_topic") and not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value):
            raise ConfigurationError(f"bus.kafka.{item.name} is {value!r}; use letters, digits, '.', '_' and '-'")
    if bus.min_insync_replicas > bus.replication_factor:
        raise ConfigurationError(
            f"bus.kafka.min_insync_replicas is {bus.min_insync_replicas}, but there are only "
            f"{bus.replication_factor} replicas (bus.kafka.replication_factor): no record could be written"
        )
    if bus.replication_topic == bus.samples_topic:
        raise ConfigurationError(f"bus.kafka.samples_topic is {bus.samples_topic!r}, too; each topic needs a name")


def _check_urls(settings: Settings) -> None:
    for key, hint, value in _leaves(settings):
        if hint == Url and value:
            check_url(key, value)


def _check_series(export: ExportSettings) -> None:
    unknown = sorted({*export.disabled} - {*EXPORT_FAMILIES})
    if unknown:
        raise ConfigurationError(f"export.disabled has {unknown[0]!r}; use some of {', '.join(EXPORT_FAMILIES)}")


# Rules for single values of the configuration, and for options in their place; each sentence names the key.


_WITH_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/")


def check_telemetry_path(key: str, path: str) -> None:
    """Refuse a path that is none, or that of something else.

    Raises:
        ConfigurationError: it does; the sentence names the key.
    """
    if not re.fullmatch(r"/[\w.~/-]+", path, re.ASCII) or path.startswith(
        ("/-/", "/api/", "/healthz", "/clusters/", "/metrics/", "/runbook")
    ):
        raise ConfigurationError(f"{key} is {path!r}; write a path that nothing else has, for example /metrics")


_LEAST: Final = {
    "tables.history": _DAY, "job.lease": 1.0, "advanced.reader_time": 60.0, "advanced.trigger_interval": 0.0,
}  # fmt: skip
_MOST: Final = {"tables.history": math.inf, "job.lease": 3_600.0, "maintenance.max_duration": _LONGEST_LEASE}
_SHORTEST, _LONGEST = 0.001, 3_650 * _DAY


def check_url(key: str, url: str) -> None:
    """Refuse an address that a link in a notification cannot begin with.

    Raises:
        ConfigurationError: it is refused; the sentence names the key.
    """
    if not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w.~%/-]*)?", url, re.ASCII):
        raise ConfigurationError(
            f"{key} is {url!r}; write an absolute address, for example https://isrwatch.example, without ? and #"
        )


def check_duration(key: str, seconds: float) -> None:
    """Refuse a duration that is shorter or longer than its key allows.

    Raises:
        ConfigurationError: it does; the sentence names the key and the bound.
    """
    least, most = _LEAST.get(key, _SHORTEST), _MOST.get(key, _LONGEST)
    if not least <= seconds <= most:
        bound = f"at least {duration_text(least)}" if seconds < least else f"at most {duration_text(most)}"
        raise ConfigurationError(f"{key} is {duration_text(seconds)}; it must be {bound}")


def check_place(key: str, place: str) -> None:
    """Refuse a place that is named by a scheme (``s3://bucket/tables``): it would become a local folder ``s3:``.

    A ``Path`` has one slash less than what was written.

    Raises:
        ConfigurationError: it has a scheme; the sentence names the key and what to write instead.
    """
    if written := _WITH_SCHEME.match(place):
        scheme = written["scheme"]
        is_local = scheme.lower() == "file"
        fix = (
            "write the path alone" if is_local else "mount the place on this machine, and write the path of its folder"
        )
        raise ConfigurationError(f"{key} begins with {scheme}:/, but it must be a path of this machine: {fix}")


def check_folders(folders: Mapping[str, str]) -> None:
    """Refuse folders of checkpoints that have no name, or no path."""
    for name, folder in folders.items():
        if not name or not folder:
            raise ConfigurationError(
                f"collect.spark_checkpoints: {name!r} = {folder!r} must be a name and the path of a folder"
            )
