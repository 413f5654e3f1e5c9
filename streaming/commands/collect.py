"""``isrwatch collect``: create the sources of a configuration and write their observations to the bus."""

from __future__ import annotations

import random
import signal
import uuid
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from streaming import settings as configuration
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.secret_values import with_secrets

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import FrameType

    from streaming.contracts.identifiers import ClusterId, Micros
    from streaming.contracts.observations import SourceKind
    from streaming.settings import Settings
    from streaming.sources.collector import Collector
    from streaming.sources.metadata_log.source import MetadataLogSource
    from streaming.sources.source import Source

# When the metadata log falls silent, a poller becomes the primary source with its next full report: so it sends many.
POLL_SNAPSHOT_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0  # a controller failover takes two or three


def collect(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file (see conf/isrwatch.toml).")] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Bootstrap servers as host:port,host:port; default: cluster.bootstrap_servers.")
    ] = None,
    bus: Annotated[Path | None, typer.Option(help="Bus directory; default: bus.directory.")] = None,
    simulate: Annotated[
        str | None,
        typer.Option(metavar="SCENARIO", help="Simulate a cluster instead: a scenario or its file."),
    ] = None,
    speed: Annotated[
        float, typer.Option(help="Speed of a simulation relative to real time, until it is half an hour ahead.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed of a simulation.")] = 1,
    listen: Annotated[
        str | None, typer.Option(help='host:port of /metrics and /-/healthy, "" for none; default: collect.listen.')
    ] = None,
) -> None:
    """Read a Kafka cluster, or a simulated one, and write observations to the bus, until Ctrl-C.

    Follows the KRaft metadata log where it is authorised (ClusterAction on the cluster); otherwise it prints the reason
    and polls the brokers (Describe).

    It can be killed and restarted at any time: with the metadata log no change is missed.

    Example: isrwatch collect --bootstrap-servers broker-1:9092
    """
    from streaming.bus.directory import DirectoryPublisher
    from streaming.sources.collector import Collector

    settings = _overridden(configuration.load(config), bootstrap_servers, bus)
    settings = with_secrets(settings) if simulate is None else settings
    directory = Path(settings.bus.directory)
    sources = [_simulated(simulate, settings, speed, seed)] if simulate is not None else _observing(settings, directory)
    collector = Collector(
        sources,
        lambda: DirectoryPublisher(
            directory, segment_bytes=settings.bus.segment_bytes, max_bytes=settings.bus.max_bytes
        ),
        cluster=settings.cluster.name,
        report=_say,
    )
    with _status_server(settings.collect.listen if listen is None else listen, collector):
        _stop_on_signal(collector)
        collector.start()
        _say(f"{', '.join(source.name for source in sources)}: writing to {directory}; Ctrl-C stops it cleanly")
        collector.wait()
    _say("stopped; the next start continues here")


def _status_server(address: str, collector: Collector) -> AbstractContextManager[object]:
    """Serve the collector's own metrics and health, if there is an address."""
    from streaming.runtime.listening import listen
    from streaming.runtime.status_server import StatusServer

    if not address:
        return nullcontext()
    opened, metrics = listen(address, "--listen (collect.listen)"), collector.metrics
    healthy = "a source reads partition state"
    return closing(StatusServer(opened, metrics.registry, metrics.problems, program="collect", healthy=healthy))


def _overridden(settings: Settings, bootstrap_servers: str | None, bus: Path | None) -> Settings:
    """Apply the options, which override the configuration file."""
    if bootstrap_servers is not None:
        settings = replace(settings, cluster=replace(settings.cluster, bootstrap_servers=bootstrap_servers))
    if bus is not None:
        settings = replace(settings, bus=replace(settings.bus, directory=str(bus)))
    return settings


def _simulated(scenario: str, settings: Settings, speed: float, seed: int) -> Source:
    """Create a simulated cluster. It starts from scratch each time, so every start has a cluster id of its own."""
    from streaming.contracts.identifiers import ClusterId, topic_id_from_uuid
    from streaming.sources.metadata_log.source import wall_clock
    from streaming.sources.pace import Paced
    from streaming.sources.simulated import SimulatedSource, load_scenario

    if speed <= 0:
        raise ConfigurationError(f"--speed is {speed:g}; it must be above 0")
    start = wall_clock()
    identity = random.Random(f"{seed} {start}").getrandbits(128)  # noqa: S311 - an identifier, not a secret
    source = SimulatedSource(
        load_scenario(scenario),
        seed=seed,
        cluster_id=ClusterId(topic_id_from_uuid(uuid.UUID(int=identity))),
        cluster=settings.cluster.name,
        name=f"simulated:{settings.collect.collector}",
        epoch=start,
    )
    return Paced(source, start=start, speed=speed)


def _observing(settings: Settings, bus: Path) -> list[Source]:
    """Create the sources for a real cluster, the primary one first."""
    from streaming.contracts.observations import SourceKind
    from streaming.sources.metadata_log.voters import open_voters

    log = _metadata_log(settings, bus)
    if log is None:
        return [_admin(settings, SourceKind.POLL), *_broker_metrics(settings, None)]
    admin = _admin(settings, SourceKind.NONE, is_primary_current=lambda: log.is_primary)
    return [log, admin, open_voters(settings), *_broker_metrics(settings, log.cluster_id)]


def _metadata_log(settings: Settings, bus: Path) -> MetadataLogSource | None:
    """Open the metadata log; None when the brokers are polled for good.

    One that cannot be read yet is tried again and again, and the brokers are polled meanwhile.

    Raises:
        IsrwatchError: only the log is wanted, and it cannot be read.
    """
    from streaming.sources.metadata_log.opening import checkpoint_path, open_metadata_log
    from streaming.sources.protocol.tls import Unsupported

    configured = settings.collect.primary_source
    if configured == "poll":
        return None
    name = f"metadata_log:{settings.collect.collector}"
    try:
        source = open_metadata_log(settings, path=checkpoint_path(bus, name), report=_say)
    except Unsupported as refusal:
        if configured != "auto":
            raise
        _say(f"polling the brokers, because the metadata log cannot be read: {refusal}")
        return None
    try:
        source.connect(seconds=CONNECT_SECONDS)
    except ConnectionRefused:
        if configured != "auto":
            source.close()
            raise
    return source


def _admin(
    settings: Settings, source_kind: SourceKind, is_primary_current: Callable[[], bool] = lambda: True
) -> Source:
    from streaming.sources.admin import AdminSource

    collect = settings.collect
    return AdminSource(
        bootstrap_servers=settings.cluster.bootstrap_servers,
        client=settings.cluster.client,
        cluster=settings.cluster.name,
        name=f"admin:{collect.collector}",
        poll_micros=_micros(collect.poll_seconds),
        offsets_micros=_micros(collect.offsets_seconds),
        config_micros=_micros(collect.config_seconds),
        snapshot_micros=_micros(min(collect.snapshot_seconds, POLL_SNAPSHOT_SECONDS)),
        source_kind=source_kind,
        is_primary_current=is_primary_current,
        report=_say,
    )


def _broker_metrics(settings: Settings, cluster_id: ClusterId | None) -> list[Source]:
    """Create the scraper of JMX exporters, if any; their metrics do not contain the cluster id."""
    from streaming.sources.broker_metrics import BrokerMetricsSource, endpoints_from

    endpoints = endpoints_from(settings.collect.broker_metrics)
    if not endpoints:
        return []
    return [
        BrokerMetricsSource(
            endpoints=endpoints,
            cluster_id=cluster_id or _cluster_id(settings),
            cluster=settings.cluster.name,
            name=f"broker_metrics:{settings.collect.collector}",
            period_micros=_micros(settings.collect.broker_metrics_seconds),
        )
    ]


def _cluster_id(settings: Settings) -> ClusterId:
    """Read the cluster id with librdkafka, which supports every configured login."""
    from confluent_kafka import KafkaException

    from streaming.contracts.identifiers import ClusterId
    from streaming.sources.admin_clients import new_client

    servers = settings.cluster.bootstrap_servers
    client = new_client({**settings.cluster.client, "bootstrap.servers": servers, "log_level": "2"})
    try:
        cluster_id = client.list_topics(timeout=CONNECT_SECONDS).cluster_id
    except KafkaException as failure:
        raise ConnectionRefused(f"no broker of cluster.bootstrap_servers ({servers}) responds: {failure}") from None
    return ClusterId(cluster_id or settings.cluster.name)


def _micros(seconds: float) -> Micros:
    from streaming.contracts.identifiers import Micros

    return Micros(round(seconds * 1_000_000))


def _stop_on_signal(collector: Collector) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        collector.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def _say(line: str) -> None:
    """Print a line on stderr: coloured on a terminal, plain in a pipe."""
    Console(stderr=True).print(Text.assemble(("isrwatch collect: ", "dim"), line), soft_wrap=True)
