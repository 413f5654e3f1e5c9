"""The collector of a configuration: a real cluster's metadata log, polling, quorum, broker metrics, and its samples."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import SourceKind
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.agents import agents_from
from streaming.sources.append_times import AppendTimes
from streaming.sources.broker_metrics import MOST_BROKERS, BrokerMetricsSource, client_from
from streaming.sources.collector.collector import Collector
from streaming.sources.collector.listener_watch import ListenerWatch
from streaming.sources.collector.separate import SeparateCollector
from streaming.sources.metadata_log.opening import checkpoint_path, open_metadata_log, open_voters
from streaming.sources.metadata_log.quorum import NoMetadataLog
from streaming.sources.polling.source import AdminSource
from streaming.sources.protocol.addresses import Peers
from streaming.sources.samples.source import open_samples, samples_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from streaming.bus.directory import DirectoryPublisher
    from streaming.contracts.identifiers import ClusterId
    from streaming.settings import Settings
    from streaming.sources.metadata_log.source import MetadataLogSource
    from streaming.sources.source import Source


# A poller becomes the primary source with its next full report once the metadata log falls silent: so it sends many.
POLL_SNAPSHOT_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0  # a controller failover takes two or three


def open_collector(
    settings: Settings,
    bus: Path,
    open_publisher: Callable[[], DirectoryPublisher],
    report: Callable[[str], None],
    admit: Callable[[ClusterId], None] | None = None,
) -> Collector:
    """Create the collector of one cluster, with its samples in a process of their own.

    ``bus`` is the folder of checkpoints; ``open_publisher`` opens the bus for one source, in the other process, too.
    ``admit`` raises an error if the cluster with an id is not to be read.

    Raises:
        ConfigurationError: an address or a client property is wrong.
        ConnectionRefused: only the metadata log is wanted, and it cannot be read.
    """
    peers, name = Peers(), settings.cluster.name
    agents = agents_from(settings.collect.broker_metrics)
    append_times = AppendTimes(agents.by_broker, MOST_BROKERS if agents.pattern else 0)
    sources = open_sources(settings, bus, report, peers, append_times)
    samples = _samples(settings, open_publisher, report, peers, append_times)
    return Collector(sources, open_publisher, cluster=name, report=report, companions=[samples], admit=admit)


def _samples(
    settings: Settings,
    open_publisher: Callable[[], DirectoryPublisher],
    report: Callable[[str], None],
    peers: Peers,
    append_times: AppendTimes,
) -> SeparateCollector:
    return SeparateCollector(
        partial(open_samples, settings, append_times=append_times),
        open_publisher,
        cluster=settings.cluster.name,
        name=samples_name(settings),
        peers=peers,
        report=report,
    )


def open_sources(
    settings: Settings,
    bus: Path,
    report: Callable[[str], None],
    peers: Peers | None = None,
    append_times: AppendTimes | None = None,
) -> list[Source]:
    """Create the sources of one cluster, the primary one first, without the samples.

    ``bus`` is the folder of checkpoints; ``peers`` note what connections see, ``append_times`` what agents say for the
    samples.

    Raises:
        ConfigurationError: an address or a client property is wrong.
        ConnectionRefused: only the metadata log is wanted, and it cannot be read; or the cluster id is not known.
    """
    peers = peers or Peers()
    log = open_log(settings, bus, report, peers)
    end_points = dict if log is None else lambda: log.end_points if log.is_primary else {}
    admin = _admin(settings, bus, report, peers, log)
    watch = ListenerWatch(settings, peers, report=report, end_points=end_points, cluster_id=lambda: admin.cluster_id)
    metrics = _broker_metrics(settings, admin, append_times)
    rest: list[Source] = [admin, open_voters(settings, peers), watch, *metrics]
    return rest if log is None else [log, *rest]


def open_log(
    settings: Settings, bus: Path, report: Callable[[str], None], peers: Peers | None = None
) -> MetadataLogSource | None:
    """Open the metadata log; None when the brokers are polled for good. ``peers`` note what connections see.

    One that cannot be read yet is tried again and again, and the brokers are polled meanwhile.

    Raises:
        IsrwatchError: only the log is wanted, and it cannot be read.
    """
    configured = settings.collect.primary_source
    if configured == "poll":
        return None
    name = f"metadata_log:{settings.collect.collector_name}"
    source = open_metadata_log(settings, path=checkpoint_path(bus, name), report=report, peers=peers)
    try:
        source.connect(seconds=CONNECT_SECONDS)
    except NoMetadataLog as refusal:
        source.close()
        if configured != "auto":
            raise
        report(f"polling the brokers: {refusal}")
        return None
    except ConnectionRefused:
        if configured != "auto":
            source.close()
            raise
    return source


def _admin(
    settings: Settings, bus: Path, report: Callable[[str], None], peers: Peers, log: MetadataLogSource | None
) -> AdminSource:
    """Create the poller, which is the primary source without a log, or while that cannot be read."""
    collect, name = settings.collect, f"admin:{settings.collect.collector_name}"
    return AdminSource(
        bootstrap_servers=settings.cluster.bootstrap_servers,
        client=settings.cluster.client,
        cluster=settings.cluster.name,
        name=name,
        poll_micros=_micros(collect.poll_interval),
        presence_micros=_micros(collect.presence_interval),
        view_micros=_micros(min(collect.offsets_interval, collect.config_interval)),
        config_micros=_micros(collect.config_interval),
        snapshot_micros=_micros(min(collect.snapshot_interval, POLL_SNAPSHOT_SECONDS)),
        source_kind=SourceKind.POLL if log is None else SourceKind.NONE,
        is_primary_current=lambda: log is None or log.is_primary,
        report=report,
        peers=peers,
        epochs=checkpoint_path(bus, name),
        probe_prefix=collect.probe_prefix,
    )


def _broker_metrics(settings: Settings, admin: AdminSource, append_times: AppendTimes | None) -> list[Source]:
    """Create the scraper of JMX exporters, if any; their metrics do not contain the cluster id, which is polled."""
    agents = agents_from(settings.collect.broker_metrics)
    if not agents.are_any:
        return []
    return [
        BrokerMetricsSource(
            agents=agents,
            view=lambda: admin.view,
            client=client_from(settings.collect.broker_metrics_client),
            cluster_id=lambda: admin.cluster_id,
            cluster=settings.cluster.name,
            name=f"broker_metrics:{settings.collect.collector_name}",
            period_micros=_micros(settings.collect.broker_metrics_interval),
            append_times=append_times,
        )
    ]


def _micros(seconds: float) -> Micros:
    return Micros(round(seconds * 1_000_000))


# The names under which clusters are read: two [[cluster]] may lead to one Kafka cluster, and one of them counts.
# Kafka's cluster id says so, and is known only when a broker has answered. The name that comes first in the
# configuration counts, so the same one does after each start. The other one is refused before anything of it is
# published, or as soon as the first one is found to be the same cluster.


class ClusterNames:
    """Notes which cluster each name leads to, in the order of the configuration; for any thread."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._lock = threading.Lock()
        self._ids: dict[str, ClusterId] = {}  # under the lock; a cluster that was rebuilt has another one

    def admit(self, name: str, cluster_id: ClusterId) -> None:
        """Note that a name leads to a cluster.

        Raises:
            ConfigurationError: so does a name that comes before it.
        """
        with self._lock:
            self._ids[name] = cluster_id
            refusal = refusals({each: self._ids[each] for each in self._names if each in self._ids}).get(name)
        if refusal is not None:
            raise ConfigurationError(refusal)


def refusals(ids: Mapping[str, ClusterId]) -> dict[str, str]:
    """Return a sentence for each name whose cluster a name before it has.

    >>> refusals({"a": "x", "b": "y", "c": "x"})
    {'c': 'cluster x is read as [[cluster]] a already: remove c, or correct its bootstrap_servers'}
    """
    first: dict[ClusterId, str] = {}
    for name, cluster_id in ids.items():
        first.setdefault(cluster_id, name)
    return {
        name: f"cluster {cluster_id} is read as [[cluster]] {first[cluster_id]} already: remove {name}, or correct its "
        "bootstrap_servers"
        for name, cluster_id in ids.items()
        if first[cluster_id] != name
    }
