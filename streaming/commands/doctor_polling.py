"""What ``isrwatch doctor`` learns from the brokers: it asks once what the collector asks again and again."""

from __future__ import annotations

from concurrent.futures import wait
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from streaming.commands.doctor_findings import SECONDS, Status, numbered
from streaming.contracts.observations import MIN_ISR, ConfigObserved, SourceKind
from streaming.contracts.sample_blocks import BrokerOffsetsObserved
from streaming.errors import ConnectionRefused
from streaming.sources.address import parse_servers
from streaming.sources.admin_clients import AdminClients, new_client
from streaming.sources.admin_configs import ConfigsRound
from streaming.sources.admin_offsets import OffsetsRound
from streaming.sources.admin_reassignments import ReassignmentsRound, dialer_of
from streaming.sources.admin_refusals import ClientErrors
from streaming.sources.admin_topic_ids import TopicIds
from streaming.sources.admin_view import read_view
from streaming.sources.metadata_log.source import wall_clock
from streaming.sources.permissions import addressed, grantee_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

    from streaming.settings import ClusterSettings
    from streaming.sources.admin_view import ClusterView


def poll_once(cluster: ClusterSettings) -> Iterator[tuple[Status, str]]:
    """Read topics, offsets and configurations.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: librdkafka refuses a property.
    """
    errors = ClientErrors(cluster.bootstrap_servers)
    properties = {**cluster.client, "log_level": "2", "error_cb": errors}
    clients = AdminClients(lambda servers: new_client({**properties, "bootstrap.servers": servers}))
    with closing(clients):
        client = clients.made(cluster.bootstrap_servers)
        try:
            yield from _read(client, cluster)
        except KafkaException as failure:
            client.poll(0)  # runs error_cb with the errors that explain the failure
            raise errors.refusal(failure) from None


def _read(client: AdminClient, cluster: ClusterSettings) -> Iterator[tuple[Status, str]]:
    view = read_view(client, cluster=cluster.name, seconds=SECONDS)
    yield Status.OK, f"visible: {numbered(len(view.brokers), 'broker')} and {numbered(len(view.topics), 'topic')}"
    ids, offsets, configs = TopicIds(SECONDS), OffsetsRound(SECONDS), ConfigsRound(SECONDS)
    ids.ask(client, view.topics, everything=True)
    _wait(ids.pending)
    ids.take(view.cluster_id)
    view = replace(view, topics={name: view.topics[name] for name in ids.by_name}, topic_ids=ids.by_name)

    now = wall_clock()
    offsets.ask(client, view, now)
    configs.ask(client, view, now, everything=True)
    _wait(lambda: [*offsets.pending(), *configs.pending()])
    envelope = _envelope(view, cluster)
    blocks = [one for one in offsets.take(view, envelope, now) if isinstance(one, BrokerOffsetsObserved)]
    values = [one for one in configs.take(envelope, now) if isinstance(one, ConfigObserved)]
    if count := sum(len(block.partition_by_sample) for block in blocks):
        yield Status.OK, f"offsets of {numbered(count, 'partition')} can be read"
    if count := sum(value.key == MIN_ISR for value in values):
        yield Status.OK, f"min.insync.replicas of {numbered(count, 'topic')} can be read"
    yield from ((Status.OK, f"{one.key} of the brokers is {one.value}") for one in values if not one.topic)
    grantee = grantee_of(cluster.bootstrap_servers, cluster.client)
    for refusal in (ids.others_refusal, offsets.refusal, configs.refusal, configs.broker_refusal):
        if refusal is not None:
            yield Status.WARNING, str(addressed(refusal, grantee))


def list_reassignments(cluster: ClusterSettings) -> Iterator[tuple[Status, str]]:
    """List what is being reassigned."""
    asking = ReassignmentsRound(dialer_of(cluster.client), name="doctor", seconds=SECONDS)
    with closing(asking):
        asking.ask(parse_servers(cluster.bootstrap_servers))
        wait(asking.pending())
        listed = asking.take()
    if listed is None:
        refusal = asking.refusal or ConnectionRefused("no broker lists reassignments in time")
        yield Status.WARNING, str(addressed(refusal, grantee_of(cluster.bootstrap_servers, cluster.client)))
    else:
        yield Status.OK, f"reassignments can be listed while the brokers are polled; there are {len(listed)}"


def _wait(pending: Callable[[], list[Future[Any]]]) -> None:
    while outstanding := pending():
        wait(outstanding)


def _envelope(view: ClusterView, cluster: ClusterSettings) -> dict[str, Any]:
    now = wall_clock()
    return {
        "cluster_id": view.cluster_id,
        "cluster": cluster.name,
        "source": "doctor",
        "authority": SourceKind.NONE,
        "occurred_not_before": now,
        "occurred_not_after": now,
        "collected_at": now,
    }
