"""``isrwatch collect``: sources in, bus out. Chooses the sources that a configuration asks for and runs them."""

from __future__ import annotations

import random
import signal
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from streaming import settings as configuration
from streaming.errors import ConfigurationError, ConnectionRefused

if TYPE_CHECKING:
    from types import FrameType

    from streaming.settings import Settings
    from streaming.sources.collector import Collector
    from streaming.sources.source import Source


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
    """Make the sources for a real cluster; the first is the authority."""
    return [_metadata_log(settings, bus)]


def _metadata_log(settings: Settings, bus: Path) -> Source:
    from streaming.sources.metadata_log.source import checkpoint_path, open_metadata_log

    name = f"metadata_log:{settings.collect.collector}"
    source = open_metadata_log(settings, path=checkpoint_path(bus, name), report=_say)
    try:
        source.connect()
    except ConnectionRefused:
        source.close()
        raise
    return source


def _stop_on_signal(collector: Collector) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        collector.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def _say(line: str) -> None:
    """Tell people one fact: coloured on a terminal, plain in a pipe."""
    Console(stderr=True).print(Text.assemble(("isrwatch collect: ", "dim"), line), soft_wrap=True)
