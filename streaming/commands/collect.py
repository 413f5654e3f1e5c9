"""``isrwatch collect``: create the sources of a configuration and write their observations to the bus."""

from __future__ import annotations

import random
import resource
import signal
import socket
import time
import uuid
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from streaming.cluster_settings import each_cluster, filled
from streaming.commands import BootstrapServersOption, ClusterOption, with_bootstrap_servers
from streaming.configuration_file import OPTION_HELP
from streaming.errors import ConfigurationError
from streaming.settings import COLLECTOR_LISTEN, load
from streaming.terminal import print_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from types import FrameType

    from prometheus_client import Metric

    from streaming.bus.directory import DirectoryPublisher
    from streaming.contracts.identifiers import ClusterId
    from streaming.settings import CollectSettings, Settings
    from streaming.sources.collector.collector import Collector, Collectors
    from streaming.sources.collector.shipping import Shipping
    from streaming.sources.source import Source


_ENOUGH_FILES: Final = 65_536
WebConfigFile = Annotated[
    str | None, typer.Option("--web.config.file", help="TLS and logins for --listen; default: collect.web_config_file.")
]


def collect(
    *,
    config: Annotated[Path | None, typer.Option(help=OPTION_HELP)] = None,
    cluster: ClusterOption = None,
    bootstrap_servers: BootstrapServersOption = None,
    bus: Annotated[Path | None, typer.Option(help="Bus directory; default: bus.directory.")] = None,
    simulate: Annotated[
        str | None, typer.Option(metavar="SCENARIO", help="Simulate a cluster instead: a scenario or its file.")
    ] = None,
    speed: Annotated[
        float, typer.Option(help="Speed of a simulation relative to real time, until it is half an hour ahead.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed of a simulation.")] = 1,
    listen: Annotated[
        str | None, typer.Option(help='host:port of /metrics and /-/healthy, "" for none; default: collect.listen.')
    ] = None,
    web_config_file: WebConfigFile = None,
) -> None:
    """Read a Kafka cluster, or several, or a simulated one, and write observations to the bus, until Ctrl-C.

    Follows the KRaft metadata log where it is authorised (ClusterAction on the cluster); otherwise it prints the reason
    and polls the brokers (Describe).

    It can be killed and restarted at any time: with the metadata log no change is missed.

    Example: isrwatch collect --bootstrap-server broker-1:9092
    """
    every = [load(config)] if simulate is not None else each_cluster(config, cluster)
    every = with_bootstrap_servers(every, bootstrap_servers)
    if bus is not None:
        every = [replace(settings, bus=replace(settings.bus, directory=str(bus))) for settings in every]
    settings = every[0]
    directory = Path(settings.bus.directory)
    collector: Collector | Collectors
    if simulate is not None:
        collector = _of_simulation(_simulated(simulate, settings, speed, seed), settings)
    elif len(every) == 1:
        collector = _of_cluster(filled(every)[0])(say)
    else:
        collector = together(every)
    _refuse_written(directory, collector)
    raise_file_limit()
    shipping = _shipping(settings, directory)
    with _status_server(_served(settings.collect, listen, web_config_file), collector, shipping):
        _stop_on_signal(collector)
        collector.start()
        shipping.start()
        say(f"{', '.join(collector.names)}: writing to {directory}; Ctrl-C stops it cleanly")
        _wait(collector, shipping)
    say("stopped; the next start continues here")


def raise_file_limit() -> None:
    """Let this process, and those that it starts, open as many files as they may: each broker takes several."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _ENOUGH_FILES if most == resource.RLIM_INFINITY else min(most, _ENOUGH_FILES)
    if now != resource.RLIM_INFINITY and now < enough:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, most))


def _publisher(settings: Settings) -> Callable[[], DirectoryPublisher]:
    from streaming.bus.directory import DirectoryPublisher

    bus, segment_bytes = settings.bus, settings.advanced.segment_bytes
    return partial(DirectoryPublisher, Path(bus.directory), segment_bytes=segment_bytes, max_bytes=bus.max_bytes)


def _wait(collector: Collector | Collectors, shipping: Shipping | _NoShipping) -> None:
    """Wait for the end of the collector, and ship what it wrote last."""
    try:
        collector.wait()
    finally:
        shipping.stop()


class _NoShipping:
    """Stands for shipping where the directory is the bus."""

    def start(self) -> None:
        """Do nothing."""

    stop = start

    def problems(self) -> list[str]:
        """List nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return nothing."""
        return ()


def _shipping(settings: Settings, directory: Path) -> Shipping | _NoShipping:
    """Return what ships the bus to Kafka, if that is configured."""
    if not settings.bus.kafka.bootstrap_servers:
        return _NoShipping()
    from streaming.secret_values import with_bus_secrets
    from streaming.sources.collector.shipping import Shipping

    say(f"shipping to the bus {settings.bus.kafka.bootstrap_servers}")
    return Shipping(directory, with_bus_secrets(settings.bus.kafka), say)


def _of_simulation(source: Source, settings: Settings) -> Collector:
    from streaming.sources.collector.collector import Collector

    return Collector([source], _publisher(settings), cluster=settings.cluster.name, report=say)


def _of_cluster(
    settings: Settings, admit: Callable[[ClusterId], None] | None = None
) -> Callable[[Callable[[str], None]], Collector]:
    """Return what creates the collector of a cluster; it takes what reports a line."""
    from streaming.sources.collector.opening import open_collector

    return partial(open_collector, settings, Path(settings.bus.directory), _publisher(settings), admit=admit)


def together(every: list[Settings]) -> Collectors:
    """Create the collectors of several clusters; their sources are created later, each cluster's for itself."""
    from streaming.sources.collector.collector import Collectors
    from streaming.sources.collector.opening import ClusterNames

    by_name = {settings.cluster.name: settings for settings in filled(every)}
    admit = ClusterNames([*by_name]).admit
    return Collectors({name: _of_cluster(each, partial(admit, name)) for name, each in by_name.items()}, report=say)


def _served(settings: CollectSettings, listen: str | None, web_config_file: str | None) -> CollectSettings:
    """Apply the options about the collector's own metrics."""
    return replace(
        settings,
        listen=settings.listen if listen is None else listen,
        web_config_file=settings.web_config_file if web_config_file is None else web_config_file,
    )


def _refuse_written(directory: Path, collector: Collector | Collectors) -> None:
    """Refuse a second collector of the same name, before anything says that it runs; say where that is impossible."""
    from streaming.bus.log import NO_LOCKS, refuse_written
    from streaming.locks import has_locks

    refuse_written(directory, collector.names)
    with suppress(OSError):  # what is written next says what the folder lacks
        directory.mkdir(parents=True, exist_ok=True)
        if not has_locks(directory):
            say(f"{directory}: {NO_LOCKS}")


def _status_server(
    settings: CollectSettings, collector: Collector | Collectors, shipping: Shipping | _NoShipping
) -> AbstractContextManager[object]:
    """Serve the collector's own metrics and health, if there is an address."""
    from prometheus_client import CollectorRegistry

    from streaming.sources.collector.metrics import PREFIX, MergedMetrics
    from streaming.web.protection import protection_of
    from streaming.web.status import StatusServer

    protected = protection_of(settings.web_config_file)
    opened = listening(settings.listen) if settings.listen else []
    if not opened:
        return nullcontext()
    registry = CollectorRegistry()
    registry.register(MergedMetrics(lambda: [collector.registry, shipping]))
    server = StatusServer(
        opened,
        registry,
        lambda: [*collector.problems(), *shipping.problems()],
        program="collect",
        prefix=PREFIX,
        healthy="a source reads partition state",
        hangs=collector.hanging,
        protected=protected,
    )
    return closing(server)


def listening(addresses: str) -> list[socket.socket]:
    """Open the sockets of the collector's page; none if its default address is taken, as by another collector.

    Raises:
        ConfigurationError: an address that was chosen is invalid or in use.
    """
    from streaming.runtime.listening import listen_all

    try:
        return listen_all(addresses, "--listen (collect.listen)")
    except ConfigurationError as refusal:
        if addresses != COLLECTOR_LISTEN:
            raise
        say(f"{refusal}; until then this collector has no page, and alerts on it cannot fire")
        return []


def _simulated(scenario: str, settings: Settings, speed: float, seed: int) -> Source:
    """Create a simulated cluster. It starts from scratch each time, so every start has a cluster id of its own."""
    from streaming.contracts.identifiers import ClusterId, topic_id_from_uuid
    from streaming.sources.simulated import SimulatedSource, load_scenario
    from streaming.sources.source import PacedSource, wall_clock

    if speed <= 0:
        raise ConfigurationError(f"--speed is {speed:g}; it must be above 0")
    start = wall_clock()
    identity = random.Random(f"{seed} {start}").getrandbits(128)  # noqa: S311 - an identifier, not a secret
    source = SimulatedSource(
        load_scenario(scenario),
        seed=seed,
        cluster_id=ClusterId(topic_id_from_uuid(uuid.UUID(int=identity))),
        cluster=settings.cluster.name,
        name=f"simulated:{settings.collect.collector_name}",
        epoch=start,
    )
    return PacedSource(source, start=start, speed=speed)


def _stop_on_signal(collector: Collector | Collectors) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        collector.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def say(line: str) -> None:
    """Print a line on stderr, with the time as the exporter's log has it: coloured on a terminal, plain in a pipe."""
    seconds, fraction = divmod(time.time_ns() // 1_000_000, 1_000)
    moment = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))},{fraction:03}"
    print_log(Text.assemble((f"{moment} INFO isrwatch collect: ", "dim"), line))
