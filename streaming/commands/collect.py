"""``isrwatch collect``: sources in, bus out. Chooses the sources that a configuration asks for and runs them."""

from __future__ import annotations

import random
import signal
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from streaming import settings as configuration
from streaming.errors import ConfigurationError, ConnectionRefused

if TYPE_CHECKING:
    from types import FrameType

    from streaming.contracts.identifiers import ClusterId, Micros
    from streaming.contracts.observations import Authority
    from streaming.errors import IsrwatchError
    from streaming.settings import Settings
    from streaming.sources.collector import Collector
    from streaming.sources.metadata_log.source import MetadataLogSource
    from streaming.sources.source import Source

# Whoever takes over from a silent log begins with a snapshot, so a poller offers one often.
POLL_SNAPSHOT_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 10.0  # a controller fail-over takes two or three


def collect(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file (see conf/isrwatch.toml).")] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Brokers as host:port,host:port; default: cluster.bootstrap_servers.")
    ] = None,
    bus: Annotated[Path | None, typer.Option(help="Directory of the bus; default: bus.directory.")] = None,
    simulate: Annotated[
        str | None, typer.Option(metavar="SCENARIO", help="Simulate a cluster instead: a scenario's name or file.")
    ] = None,
    speed: Annotated[float, typer.Option(help="How much faster than real time a simulation runs.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of a simulation.")] = 1,
) -> None:
    """Read a Kafka cluster (or simulate one) and write what it sees to the bus, until Ctrl-C.

    Follows the KRaft metadata log, which needs ClusterAction on the cluster; where it may not, it says why and polls
    the brokers, which needs Describe.

    Kill it at any moment and start it again: where the metadata log is read, nothing is missed.

    Example: isrwatch collect --bootstrap-servers broker-1:9092
    """
    from streaming.bus.directory import DirectoryPublisher
    from streaming.sources.collector import Collector

    settings = _overridden(configuration.load(config), bootstrap_servers, bus)
    directory = Path(settings.bus.directory)
    sources = [_simulated(simulate, settings, speed, seed)] if simulate is not None else _observing(settings, directory)
    collector = Collector(
        sources, lambda: DirectoryPublisher(directory, segment_bytes=settings.bus.segment_bytes), report=_say
    )
    _stop_on_signal(collector)
    collector.start()
    _say(f"{', '.join(source.name for source in sources)}: writing to {directory}; Ctrl-C stops cleanly")
    collector.wait()
    _say("stopped; the next start goes on from here")


def _overridden(settings: Settings, bootstrap_servers: str | None, bus: Path | None) -> Settings:
    """Let options win over the configuration file."""
    if bootstrap_servers is not None:
        settings = replace(settings, cluster=replace(settings.cluster, bootstrap_servers=bootstrap_servers))
    if bus is not None:
        settings = replace(settings, bus=replace(settings.bus, directory=str(bus)))
    return settings


def _simulated(scenario: str, settings: Settings, speed: float, seed: int) -> Source:
    """Make a simulated cluster. Each start is another cluster, as it begins anew: its id says so."""
    from streaming.contracts.identifiers import ClusterId, topic_id_from_uuid
    from streaming.sources.metadata_log.source import wall_clock
    from streaming.sources.pace import Paced
    from streaming.sources.simulated import SimulatedSource, load_scenario

    if speed <= 0:
        raise ConfigurationError(f"--speed is {speed:g}; it must be above 0")
    start = wall_clock()
    identity = random.Random(f"{seed} {start}").getrandbits(128)  # noqa: S311 - a name, not a secret
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
    """Make the sources for a real cluster: who orders its partitions, and who adds to that."""
    from streaming.contracts.observations import Authority

    log = _metadata_log(settings, bus)
    if log is None:
        return [_admin(settings, Authority.POLL), *_broker_metrics(settings, None)]
    return [log, _admin(settings, Authority.NONE), *_broker_metrics(settings, log.cluster_id)]


def _metadata_log(settings: Settings, bus: Path) -> MetadataLogSource | None:
    """Open the metadata log, or tell why the brokers are polled instead."""
    from streaming.sources.metadata_log.security import UnsupportedMechanism
    from streaming.sources.metadata_log.source import checkpoint_path, open_metadata_log

    wanted = settings.collect.authority
    if wanted == "poll":
        return None
    name = f"metadata_log:{settings.collect.collector}"
    try:
        source = open_metadata_log(settings, path=checkpoint_path(bus, name), report=_say)
    except UnsupportedMechanism as refusal:
        _fall_back(wanted, refusal)
        return None
    try:
        source.connect(seconds=PATIENCE_SECONDS)
    except ConnectionRefused as refusal:
        source.close()
        _fall_back(wanted, refusal)
        return None
    return source


def _fall_back(wanted: str, refusal: IsrwatchError) -> None:
    """Tell why there is no metadata log; whoever insists on it gets the refusal."""
    if wanted != "auto":
        raise refusal
    _say(f"polling the brokers, because the metadata log cannot be read: {refusal}")


def _admin(settings: Settings, authority: Authority) -> Source:
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
        authority=authority,
    )


def _broker_metrics(settings: Settings, cluster_id: ClusterId | None) -> list[Source]:
    """Make the scraper of JMX exporters, where there are any; an exporter does not tell which cluster it is of."""
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
    """Ask the brokers, by the client that can log in wherever librdkafka can."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from streaming.contracts.identifiers import ClusterId

    servers = settings.cluster.bootstrap_servers
    client = AdminClient({**settings.cluster.client, "bootstrap.servers": servers, "log_level": "2"})
    try:
        found = client.list_topics(timeout=PATIENCE_SECONDS).cluster_id
    except KafkaException as failure:
        raise ConnectionRefused(f"no broker of cluster.bootstrap_servers ({servers}) answers: {failure}") from None
    return ClusterId(found or settings.cluster.name)


def _micros(seconds: float) -> Micros:
    from streaming.contracts.identifiers import Micros

    return Micros(round(seconds * 1_000_000))


def _stop_on_signal(collector: Collector) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        collector.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def _say(line: str) -> None:
    """Tell people one fact: coloured on a terminal, plain in a pipe."""
    Console(stderr=True).print(Text.assemble(("isrwatch collect: ", "dim"), line), soft_wrap=True)
