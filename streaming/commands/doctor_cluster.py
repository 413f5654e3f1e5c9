"""Checks of ``isrwatch doctor`` against the brokers: it asks once what the collector asks again and again."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import wait
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming.commands.doctor_machine import SECONDS, Status, numbered
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import MIN_ISR, ConfigObserved, SourceKind
from streaming.contracts.sample_blocks import SamplesBlock
from streaming.contracts.samples import (
    GroupObserved,
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
)
from streaming.contracts.settings import disagreement
from streaming.errors import ConnectionRefused
from streaming.sources.collector.listener_watch import throttled_words
from streaming.sources.permissions import PROBE_PREFIX, addressed, grantee_of
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.configs import ConfigsRound, DescribedConfigs
from streaming.sources.polling.metadata import others_denied
from streaming.sources.polling.reassignments import ReassignmentsRound
from streaming.sources.polling.unseen import listener_name, unseen_sentence
from streaming.sources.protocol.addresses import Address, parse_servers
from streaming.sources.protocol.connection import ServiceRefused, dialer
from streaming.sources.protocol.identity import WrongNode
from streaming.sources.protocol.security import from_client
from streaming.sources.samples.groups.spark import CheckpointUnreadable, read_checkpoint
from streaming.sources.samples.source import open_samples
from streaming.sources.source import monotonic, wall_clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming.contracts.observations import Observation
    from streaming.settings import ClusterSettings, Settings
    from streaming.sources.polling.broker import Answer
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.samples.source import SamplesSource


def poll_once(cluster: ClusterSettings, probe_prefix: str = PROBE_PREFIX) -> Iterator[tuple[Status, str]]:
    """Read topics and configurations.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    dial, servers = dialer(from_client(cluster.client)), parse_servers(cluster.bootstrap_servers)
    no_topic = f"{probe_prefix}topic"
    answer = _first_answer(ConnectedBrokers(dial, cluster=cluster.name, seconds=SECONDS), servers, [no_topic])
    with closing(DescribedConfigs(dial, servers, name="doctor", seconds=SECONDS)) as described:
        yield from _read(described, answer, cluster, no_topic)


def view_of(cluster: ClusterSettings) -> ClusterView:
    """Return what the brokers say of the cluster.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    dial, servers = dialer(from_client(cluster.client)), parse_servers(cluster.bootstrap_servers)
    return _first_answer(ConnectedBrokers(dial, cluster=cluster.name, seconds=SECONDS), servers).view


def _first_answer(connect: ConnectedBrokers, servers: Sequence[Address], names: Sequence[str] = ()) -> Answer:
    """Ask each bootstrap server, until one answers; ``names`` are asked for apart from the list of topics."""
    refusals: list[ConnectionRefused] = []
    for address in servers:
        try:
            with closing(connect(address)) as broker:
                return broker.answer(names, Micros(monotonic() + int(SECONDS * 1_000_000)))
        except ConnectionRefused as refusal:
            refusals.append(refusal)
    raise next((each for each in refusals if isinstance(each, ServiceRefused)), refusals[0])


def _read(
    described: DescribedConfigs, answer: Answer, cluster: ClusterSettings, no_topic: str
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


def list_reassignments(cluster: ClusterSettings) -> Iterator[tuple[Status, str]]:
    """List what is being reassigned."""
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


# Checks of samples by ``isrwatch doctor``: it asks once what the collector asks again and again.


_READ: Final[dict[type[Observation], str]] = {
    ReplicaOffsetsObserved: "replicas whose offsets can be read",
    LogDirectoryObserved: "log directories whose size can be read",
    GroupObserved: "groups that are listed",
    GroupOffsetsObserved: "partitions of groups whose owner or committed offset can be read",
    QuorumMemberObserved: "members of the metadata quorum whose log end can be read",
}
"""Text of the count for each kind of sample."""
_QUIET_SECONDS: Final = 1.0
"""A round has ended when nothing has come for so long."""


def samples(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Take one round of samples.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    (source,) = open_samples(settings, lambda _: None)
    began = time.monotonic()
    with closing(source):
        counts, refusals = _one_round(source)
    yield from _checkpoints(settings.collect.spark_checkpoints)
    yield from ((Status.OK, f"{what}: {counts[kind]}") for kind, what in _READ.items() if counts[kind])
    yield from ((Status.WARNING, refusal) for refusal in refusals)
    throttled = {address: peer.throttled_ms / 1_000 for address, peer in source.peers.all().items()}
    shares = {address: seconds / (time.monotonic() - began) for address, seconds in throttled.items() if seconds}
    if shares:
        yield Status.WARNING, throttled_words(shares)
    if not counts and not refusals:
        yield Status.WARNING, f"no broker gave a sample within {SECONDS:g} s"


def _checkpoints(folders: Mapping[str, str]) -> Iterator[tuple[Status, str]]:
    for name, folder in folders.items():
        try:
            partitions = sum(map(len, read_checkpoint(Path(folder)).committed.values()))
            yield Status.OK, f"partitions that the query with the Spark checkpoint {name} has read: {partitions}"
        except CheckpointUnreadable as reason:
            yield Status.WARNING, f"the Spark checkpoint {name} is not read: {reason}"


def _one_round(source: SamplesSource) -> tuple[Counter[type[Observation]], list[str]]:
    """Return how many samples there are of each kind, and what is missing.

    Raises:
        ConnectionRefused: no broker answers.
    """
    counts: Counter[type[Observation]] = Counter()
    refusals: list[str] = []
    last = ends = time.monotonic()
    ends += SECONDS
    while time.monotonic() < ends and not (counts and time.monotonic() - last > _QUIET_SECONDS):
        try:
            arrived = source.poll(wall_clock())
        except WrongNode:  # which the check of listeners names
            continue
        except ServiceRefused as refusal:
            refusals.append(str(refusal))
            continue
        for each in arrived:
            kind, count = (each.sample, len(each)) if isinstance(each, SamplesBlock) else (type(each), 1)
            counts[kind] += count
            last = time.monotonic()
    return counts, refusals
