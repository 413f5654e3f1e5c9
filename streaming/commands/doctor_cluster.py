"""Checks of ``isrwatch doctor`` against the brokers: it asks once what the collector asks again and again."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import wait
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streaming.commands.doctor_machine import SECONDS, Status, numbered
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import MIN_ISR, ConfigObserved, SourceKind
from streaming.contracts.settings import disagreement
from streaming.errors import ConnectionRefused
from streaming.settings import ControllersSettings
from streaming.sources.collector.opening import refusals
from streaming.sources.metadata_log.opening import bootstrap_of
from streaming.sources.permissions import addressed, grantee_of
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.configs import ConfigsRound, DescribedConfigs
from streaming.sources.polling.metadata import others_denied, several_clusters
from streaming.sources.polling.reassignments import ReassignmentsRound
from streaming.sources.polling.unseen import listener_name, unseen_sentence
from streaming.sources.protocol.addresses import Address, parse_servers
from streaming.sources.protocol.connection import ServiceRefused, dialer
from streaming.sources.protocol.security import from_client
from streaming.sources.source import monotonic, wall_clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming.settings import ClusterSettings, Settings
    from streaming.sources.polling.broker import BrokerReply
    from streaming.sources.polling.view import ClusterView


def bootstrap_servers(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Check names, addresses, TLS and login of each bootstrap server by itself: one that answers hides the others."""
    clusters, refusals = dict[Address, ClusterId](), list[str]()
    for address in parse_servers(settings.cluster.bootstrap_servers):
        its = replace(settings.cluster, bootstrap_servers=str(address), controllers=ControllersSettings())
        try:
            clusters[address] = bootstrap_of(replace(settings, cluster=its)).cluster_id()
        except ConnectionRefused as refusal:
            refusals.append(str(refusal))
    yield from ((Status.OK, f"{address} answers; it is of cluster {each}") for address, each in clusters.items())
    yield from ((Status.WARNING if clusters else Status.PROBLEM, refusal) for refusal in refusals)
    yield from ((Status.PROBLEM, str(several)) for several in [several_clusters(clusters)] if several is not None)


def read_twice(every: Sequence[Settings]) -> dict[str, str]:
    """Return a sentence for the name of each cluster that one before it is, too."""
    ids = dict[str, ClusterId]()
    for settings in every:
        with suppress(ConnectionRefused):  # another check says so
            ids[settings.cluster.name] = bootstrap_of(settings).cluster_id()
    return refusals(ids)


def poll_once(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Read topics and configurations.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    cluster, no_topic = settings.cluster, f"{settings.collect.probe_prefix}topic"
    dial, servers = dialer(from_client(cluster.client)), parse_servers(cluster.bootstrap_servers)
    answer = first_answer(cluster, [no_topic])
    with closing(DescribedConfigs(dial, servers, name="doctor", seconds=SECONDS)) as described:
        yield from _read(described, answer, cluster, no_topic)


def view_of(cluster: ClusterSettings) -> ClusterView:
    """Return what the brokers say of the cluster.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    return first_answer(cluster).view


def first_answer(cluster: ClusterSettings, names: Sequence[str] = ()) -> BrokerReply:
    """Ask each bootstrap server, until one answers; ``names`` are asked for apart from the list of topics.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    connect = ConnectedBrokers(dialer(from_client(cluster.client)), cluster=cluster.name, seconds=SECONDS)
    refusals: list[ConnectionRefused] = []
    for address in parse_servers(cluster.bootstrap_servers):
        try:
            with closing(connect(address)) as broker:
                return broker.answer(names, Micros(monotonic() + int(SECONDS * 1_000_000)))
        except ConnectionRefused as refusal:
            refusals.append(refusal)
    raise next((each for each in refusals if isinstance(each, ServiceRefused)), refusals[0])


def _read(
    described: DescribedConfigs, answer: BrokerReply, cluster: ClusterSettings, no_topic: str
) -> Iterator[tuple[Status, str]]:
    view = answer.view
    yield Status.OK, f"visible: {numbered(len(view.brokers), 'broker')} and {numbered(len(view.topics), 'topic')}"
    yield from ((Status.WARNING, sentence) for sentence in _missing(view))
    if view.unseen:
        yield Status.WARNING, unseen_sentence(view.unseen, _listener_of(view, cluster))
    now = wall_clock()
    configs = ConfigsRound()
    configs.ask(described.at(view), view, now, everything=True)
    wait(configs.pending())
    values = [one for one in configs.take(_envelope(view, cluster), now) if isinstance(one, ConfigObserved)]
    for one in values:
        own = zip(one.brokers or (), one.values or (), strict=True)
        if disputed := disagreement(MIN_ISR, {broker: value for broker, value in own if value >= 0}):
            yield Status.WARNING, f"{disputed}; set it alike, or as the default of the cluster (kafka-configs)"
    values = [one for one in values if one.brokers is None]
    if count := sum(value.key == MIN_ISR for value in values):
        yield Status.OK, f"min.insync.replicas of {numbered(count, 'topic')} can be read"
    yield from ((Status.OK, f"{one.key} of the brokers is {one.value}") for one in values if not one.topic)
    grantee = grantee_of(cluster.bootstrap_servers, cluster.client)
    others = others_denied(view) if no_topic in answer.denied else None
    for refusal in (others, configs.refusal, configs.broker_refusal):
        if refusal is not None:
            yield Status.WARNING, str(addressed(refusal, grantee))


def _listener_of(view: ClusterView, cluster: ClusterSettings) -> str:
    """Return the name of the listener by which the brokers are asked; empty where none says it."""
    for broker, at in view.brokers.items():
        with suppress(ConnectionRefused):
            address = Address(*at)
            with closing(dialer(from_client(cluster.client))(address, response_seconds=SECONDS)) as connection:
                return listener_name(connection, broker, address)
    return ""


def _missing(view: ClusterView) -> Iterator[str]:
    """Name the brokers that have replicas and are not listed: metadata lists those that are up and have its listener.

    Of those that run without it, ISRs usually say so.
    """
    replicas = Counter(each for topic in view.topics.values() for part in topic.values() for each in part.replicas)
    for broker in sorted(replicas.keys() - view.brokers.keys() - view.unseen):
        count = replicas[broker]
        have = f"{numbered(count, 'partition')} {'has' if count == 1 else 'have'} a replica on it"
        yield f"broker {broker} is not among them, and {have}: start it, or reassign them"


def list_reassignments(settings: Settings) -> Iterator[tuple[Status, str]]:
    """List what is being reassigned."""
    cluster = settings.cluster
    asking = ReassignmentsRound(dialer(from_client(cluster.client)), name="doctor", seconds=SECONDS)
    with closing(asking):
        asking.ask(parse_servers(cluster.bootstrap_servers))
        wait(asking.pending())
        listed = asking.take()
    if listed is None:
        refusal = asking.refusal or ConnectionRefused("no broker lists reassignments in time")
        yield Status.WARNING, str(addressed(refusal, grantee_of(cluster.bootstrap_servers, cluster.client)))
    else:
        yield Status.OK, f"reassignments can be listed while the brokers are polled; there are {len(listed)}"


def _envelope(view: ClusterView, cluster: ClusterSettings) -> dict[str, Any]:
    now = wall_clock()
    return {
        "cluster_id": view.cluster_id,
        "cluster": cluster.name,
        "source": "doctor",
        "source_kind": SourceKind.NONE,
        "occurred_not_before": now,
        "occurred_not_after": now,
        "collected_at": now,
    }
