"""Configuration: one TOML file, frozen values, every key checked.

``conf/isrwatch.toml`` is the reference: every key with its default and a comment; a test keeps it equal to this file.
A wrong key, type or value raises :class:`ConfigurationError` with one sentence that names the key and the fix.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")
Place = Annotated[str, "the path of a folder or a file of this machine"]
TablesPlace = Annotated[str, "the path of a folder of this machine, or the URL of one in a store"]
_LONGEST_LEASE_HOURS: Final = 168
EXPORT_FAMILIES: Final = (
    *("incidents", "topics", "partitions", "replicas", "groups", "quorum", "transactions", "settings"),
    *("reconciliation", "kafka_exporter"),
)
"""The families of metrics that an exporter may leave out."""


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

    ``client`` holds properties, as librdkafka spells them (security.protocol, sasl.username, ssl.ca.location, ...).
    """

    name: str = "kafka"
    bootstrap_servers: str = ""
    client: dict[str, str] = field(default_factory=dict)
    controllers: ControllersSettings = field(default_factory=ControllersSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """Inputs of ``isrwatch collect``, and their intervals in seconds."""

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
class KafkaBusSettings:
    """Kafka as the bus, between collectors and job; without ``bootstrap_servers`` the directory alone is the bus.

    ``client`` holds librdkafka properties; one that begins with ``spark.`` is a property of Kafka's Java clients, for
    the job alone. Retention is of each partition.
    """

    bootstrap_servers: str = ""
    replication_topic: str = "isrwatch.replication"
    replication_partitions: int = 6
    replication_retention_hours: float = 168.0
    replication_retention_bytes: int = 8 * 1024 * 1024 * 1024
    samples_topic: str = "isrwatch.samples"
    samples_partitions: int = 12
    samples_retention_hours: float = 6.0
    samples_retention_bytes: int = 1024 * 1024 * 1024
    replication_factor: int = 3
    min_insync_replicas: int = 2
    client: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """The directory bus, and Kafka behind it."""

    directory: Place = ".isrwatch/bus"
    segment_bytes: int = 64 * 1024 * 1024
    max_bytes: int = 8 * 1024 * 1024 * 1024
    kafka: KafkaBusSettings = field(default_factory=KafkaBusSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSettings:
    """The Delta tables and their retention.

    ``history_days`` applies to the append-only tables and to closed incidents, 0 keeps all changes and events; files
    that were replaced are kept for ``reader_minutes``, for readers that have opened an older version. ``storage`` are
    the options of the store, if ``directory`` is a URL.
    """

    directory: TablesPlace = ".isrwatch/tables"
    history_days: int = 0
    reader_minutes: float = 10.0
    storage: dict[str, str] = field(default_factory=dict)


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


NO_LINKS: Final = (
    "export.url is not set, so alerts carry no link to the runbook; set it to the address at which others reach "
    "isrwatch export, then render the rules again: isrwatch dashboards render"
)
"""The sentence of every command that would use the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The exporter.

    ``url`` is its address as others reach it, for links; "" makes none. The filters are regular expressions that occur
    in names of topics or groups, as in kafka_exporter; ``without`` names families of metrics.
    """

    listen: str = "127.0.0.1:9308"
    url: str = ""
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
    _check_kafka_bus(settings.bus.kafka)
    check_folders(settings.collect.spark_checkpoints)
    for key, place in places_of(settings):
        check_place(key, place)
    check_telemetry_path("export.telemetry_path", settings.export.telemetry_path)
    if settings.export.url:
        check_url("export.url", settings.export.url)
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


def _check_kafka_bus(bus: KafkaBusSettings) -> None:
    for item in fields(bus):
        value = getattr(bus, item.name)
        if item.name.endswith(("_partitions", "_factor", "_replicas", "_hours", "_bytes")) and not 0 < value < math.inf:
            raise ConfigurationError(f"bus.kafka.{item.name} is {value}; it must be above 0, and finite")
        if item.name.endswith("_topic") and not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value):
            raise ConfigurationError(f"bus.kafka.{item.name} is {value!r}; use letters, digits, '.', '_' and '-'")
    if bus.min_insync_replicas > bus.replication_factor:
        raise ConfigurationError(
            f"bus.kafka.min_insync_replicas is {bus.min_insync_replicas}, but there are only "
            f"{bus.replication_factor} replicas (bus.kafka.replication_factor): no record could be written"
        )
    if bus.replication_topic == bus.samples_topic:
        raise ConfigurationError(f"bus.kafka.samples_topic is {bus.samples_topic!r}, too; each topic needs a name")


def _check_series(export: ExportSettings) -> None:
    for name in ("topic_filter", "topic_exclude", "group_filter", "group_exclude"):
        check_pattern(f"export.{name}", getattr(export, name))
    unknown = sorted({*export.without} - {*EXPORT_FAMILIES})
    if unknown:
        raise ConfigurationError(f"export.without has {unknown[0]!r}; use some of {', '.join(EXPORT_FAMILIES)}")


# Rules for single values of the configuration, and for options in their place; each sentence names the key.


_WITH_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/")


def check_pattern(key: str, pattern: str) -> None:
    """Refuse a regular expression that is none, or that is obviously meant as a pattern of file names.

    Raises:
        ConfigurationError: it is; the sentence names the key.
    """
    as_expression = re.sub(r"(?<!\.)\*", ".*", pattern)
    if as_expression != pattern and re.fullmatch(r"[\w.*?|^$-]+", pattern):
        raise ConfigurationError(
            f"{key} is {pattern!r}, but it is a regular expression, in which * repeats the character before it: write "
            f"{as_expression!r}, or put that character in brackets"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{key} {pattern!r} is no regular expression: {error}") from None


def check_telemetry_path(key: str, path: str) -> None:
    """Refuse a path that is none, or that of something else.

    Raises:
        ConfigurationError: it does; the sentence names the key.
    """
    if not re.fullmatch(r"/[\w.~/-]+", path, re.ASCII) or path.startswith(
        ("/-/", "/api/", "/healthz", "/clusters/", "/metrics/", "/runbook")
    ):
        raise ConfigurationError(f"{key} is {path!r}; write a path that nothing else has, for example /metrics")


def check_url(key: str, url: str) -> None:
    """Refuse an address that a link in a notification cannot begin with.

    Raises:
        ConfigurationError: it is refused; the sentence names the key.
    """
    if not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w.~%/-]*)?", url, re.ASCII):
        raise ConfigurationError(
            f"{key} is {url!r}; write an absolute address, for example https://isrwatch.example, without ? and #"
        )


def check_seconds(key: str, value: float) -> None:
    """Refuse a time that is no time to wait."""
    may_be_zero = key == "job.trigger_seconds"  # Spark starts the next micro-batch at once
    if not (0 < value < math.inf or (value == 0 and may_be_zero)):
        bound = "0 or more" if may_be_zero else "above 0"
        raise ConfigurationError(f"{key} is {value}; it must be {bound}, and finite")


def check_place(key: str, place: str) -> None:
    """Refuse a place that is named by a scheme (``s3://bucket/tables``): it would become a local folder ``s3:``.

    Args:
        key: the setting or the option that names it.
        place: of a folder or a file. A ``Path`` has one slash less than what was written.

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


# Values of the configuration that stand elsewhere: in the environment, or in a file that only its owner may read.
#
# ``${NAME}`` anywhere in a value is replaced by an environment variable, and ``$${NAME}`` is the text ``${NAME}``; a
# value that is ``file:PATH`` is replaced by the content of the file, without the end of its last line. Only what is
# about to connect to Kafka asks for them: the exporter needs no secret, and the job none but that of the bus.


_VARIABLE: Final = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE: Final = "file:"
_SECRETS: Final = re.compile(r"password|secret|account_key|sas_|jaas|token|user\.info|\.pem$|oauthbearer\.config$")
_LOGIN: Final = re.compile(r"https?://[^/@]+:[^/@]+@")


def with_secrets(settings: Settings, environment: Mapping[str, str] = os.environ) -> Settings:
    """Return a configuration with the values of ``[cluster]``, of its exporters and of the bus as they are.

    Raises:
        ConfigurationError: a variable is not set, or a file cannot be read; no sentence holds a value.
    """
    cluster, controllers, collect = settings.cluster, settings.cluster.controllers, settings.collect
    filled = {
        key: {name: _filled(value, f"{key} {name}", environment) for name, value in table.items()}
        for key, table in _tables(settings).items()
    }
    controllers = replace(controllers, client=filled["cluster.controllers.client"])
    servers = _filled(cluster.bootstrap_servers, "cluster.bootstrap_servers", environment)
    cluster = replace(cluster, bootstrap_servers=servers, client=filled["cluster.client"], controllers=controllers)
    exporters, login = filled["collect.broker_metrics"], filled["collect.broker_metrics_client"]
    collect = replace(collect, broker_metrics=exporters, broker_metrics_client=login)
    bus = replace(settings.bus, kafka=with_bus_secrets(settings.bus.kafka, environment))
    return replace(settings, cluster=cluster, collect=collect, bus=bus)


def with_bus_secrets(bus: KafkaBusSettings, environment: Mapping[str, str] = os.environ) -> KafkaBusSettings:
    """Return the settings of the bus with the values of ``[bus.kafka.client]`` as they are.

    Raises:
        ConfigurationError: a variable is not set, or a file cannot be read; no sentence holds a value.
    """
    servers = _filled(bus.bootstrap_servers, "bus.kafka.bootstrap_servers", environment)
    client = {name: _filled(value, f"bus.kafka.client {name}", environment) for name, value in bus.client.items()}
    return replace(bus, bootstrap_servers=servers, client=client)


def storage_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the options of the store of the tables as they are.

    Raises:
        ConfigurationError: a variable is not set, or a file cannot be read; no sentence holds a value.
    """
    options = settings.tables.storage.items()
    return {name: _filled(value, f"tables.storage {name}", environment) for name, value in options}


def written_secrets(settings: Settings) -> list[str]:
    """Return the keys whose secret stands in the configuration file itself."""
    return [
        f"{key} {name}"
        for key, table in _tables(settings).items()
        for name, value in table.items()
        if (_SECRETS.search(name) or _LOGIN.match(value)) and not _stands_elsewhere(value)
    ]


def _tables(settings: Settings) -> dict[str, dict[str, str]]:
    return {
        "cluster.client": settings.cluster.client,
        "cluster.controllers.client": settings.cluster.controllers.client,
        "collect.broker_metrics": settings.collect.broker_metrics,
        "collect.broker_metrics_client": settings.collect.broker_metrics_client,
        "tables.storage": settings.tables.storage,
        "bus.kafka.client": settings.bus.kafka.client,
    }


def _stands_elsewhere(value: str) -> bool:
    return value.startswith(_FILE) or any(not escape for escape, _ in _VARIABLE.findall(value))


def _filled(value: str, key: str, environment: Mapping[str, str]) -> str:
    if value.startswith(_FILE):
        return _content(value.removeprefix(_FILE), key)

    def variable(match: re.Match[str]) -> str:
        escape, name = match.groups()
        if escape:
            return match[0][1:]
        if name not in environment:
            raise ConfigurationError(
                f"{key} refers to ${{{name}}}, which the environment does not have; set it, or write $${{{name}}} for "
                "that text itself"
            )
        return environment[name]

    return _VARIABLE.sub(variable, value)


def _content(path: str, key: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigurationError(f"{key} refers to the file {path}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{key} refers to the file {path}, which is not text in UTF-8") from None
