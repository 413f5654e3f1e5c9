"""Checks of ``isrwatch doctor`` against the brokers: it asks once what the collector asks again and again."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import wait
from contextlib import closing
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
from streaming.sources.permissions import addressed, grantee_of
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.configs import ConfigsRound, DescribedConfigs
from streaming.sources.polling.metadata import NO_TOPIC, others_denied
from streaming.sources.polling.reassignments import ReassignmentsRound
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import ServiceRefused, dialer
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
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.samples.source import SamplesSource


def poll_once(cluster: ClusterSettings) -> Iterator[tuple[Status, str]]:
    """Read topics and configurations.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    dial, servers = dialer(from_client(cluster.client)), parse_servers(cluster.bootstrap_servers)
    answer = _first_answer(ConnectedBrokers(dial, cluster=cluster.name, seconds=SECONDS), servers)
    with closing(DescribedConfigs(dial, servers, name="doctor", seconds=SECONDS)) as described:
        yield from _read(described, answer, cluster)


def _first_answer(connect: ConnectedBrokers, servers: Sequence[Address]) -> Answer:
    """Ask each bootstrap server, until one answers."""
    refusals: list[ConnectionRefused] = []
    for address in servers:
        try:
            with closing(connect(address)) as broker:
                return broker.answer([NO_TOPIC], Micros(monotonic() + int(SECONDS * 1_000_000)))
        except ConnectionRefused as refusal:
            refusals.append(refusal)
    raise next((each for each in refusals if isinstance(each, ServiceRefused)), refusals[0])


def _read(described: DescribedConfigs, answer: Answer, cluster: ClusterSettings) -> Iterator[tuple[Status, str]]:
    view = answer.view
    yield Status.OK, f"visible: {numbered(len(view.brokers), 'broker')} and {numbered(len(view.topics), 'topic')}"
    yield from ((Status.WARNING, sentence) for sentence in _missing(view))
    now = wall_clock()
    configs = ConfigsRound()
    configs.ask(described.at(view.brokers), view, now, everything=True)
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
    others = others_denied(view) if NO_TOPIC in answer.denied else None
    for refusal in (others, configs.refusal, configs.broker_refusal):
        if refusal is not None:
            yield Status.WARNING, str(addressed(refusal, grantee))


def _missing(view: ClusterView) -> Iterator[str]:
    """Name the brokers that have replicas and are not listed: metadata lists only those that are up."""
    replicas = Counter(each for topic in view.topics.values() for part in topic.values() for each in part.replicas)
    for broker in sorted(replicas.keys() - view.brokers.keys()):
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
    with closing(source):
        counts, refusals = _one_round(source)
    yield from _checkpoints(settings.collect.spark_checkpoints)
    yield from ((Status.OK, f"{what}: {counts[kind]}") for kind, what in _READ.items() if counts[kind])
    yield from ((Status.WARNING, refusal) for refusal in refusals)
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
        except ServiceRefused as refusal:
            refusals.append(str(refusal))
            continue
        for each in arrived:
            kind, count = (each.sample, len(each)) if isinstance(each, SamplesBlock) else (type(each), 1)
            counts[kind] += count
            last = time.monotonic()
    return counts, refusals
