"""Check of ``isrwatch doctor`` of what a cluster lets a monitor learn, by its metadata log or by polling, and how sure.

Each permission is tried once by one request that needs it; what a missing one, or a version, costs is said by
:mod:`streaming.sources.evidence`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_cluster import first_answer
from streaming.commands.doctor_log import is_log_read
from streaming.commands.doctor_machine import SECONDS, Status, numbered
from streaming.errors import ConnectionRefused
from streaming.sources.evidence import POLLED_EVIDENCE, losses
from streaming.sources.metadata_log.quorum import quorum_of
from streaming.sources.permissions import (
    ANYBODY,
    DESCRIBE_BROKER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TOPICS,
    PermissionDenied,
    grantee_of,
)
from streaming.sources.polling.reassignments import listed
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.config_messages import Resource, describe_configs
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client
from streaming.sources.services import service_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId
    from streaming.settings import Settings
    from streaming.sources.evidence import Loss
    from streaming.sources.permissions import Grantee, Permission
    from streaming.sources.polling.broker import BrokerReply
    from streaming.sources.protocol.connection import Connection, Dial
    from streaming.sources.services import Service

_AT_ONCE: Final = 16
_DENIED: Final = frozenset({29, 31})  # of a topic, of the cluster
_READ: Final = "the metadata log is read, so no permission and no version of polling costs anything: causes are proven"


def profile(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Say which service it is, whether the log is read or brokers are polled, and what is lost by that.

    Raises:
        ConnectionRefused: no broker answers.
        ConfigurationError: a property is wrong.
    """
    cluster, no_topic = settings.cluster, f"{settings.collect.probe_prefix}topic"
    answer = first_answer(cluster, [no_topic])
    service = service_of(host for host, _ in answer.view.brokers.values())
    if service is not None:
        yield Status.OK, f"the brokers have names of {service.name}: {service.document} has its permissions"
    if is_log_read(settings):
        yield Status.OK, _READ
        return
    configured = settings.collect.primary_source
    if configured == "metadata_log":
        yield Status.SKIPPED, f'collect.primary_source is "{configured}": the brokers are not polled in its place'
        return
    why = 'collect.primary_source is "poll"' if configured == "poll" else "the metadata log cannot be read"
    every = f"every {settings.collect.poll_interval:g} s"
    yield Status.OK, f"{why}, so the brokers are polled, {every}: causes are inferred, not proven"
    yield from ((Status.WARNING, sentence) for sentence in _shared_addresses(answer.view.brokers))
    dial = dialer(from_client(cluster.client))
    versions = _versions(dial, answer)
    if not versions:
        yield (
            Status.SKIPPED,
            "no broker responds at the address that it advertises, so what polling can learn is unknown",
        )
        return
    grantee = grantee_of(cluster.bootstrap_servers, cluster.client)
    lost = [_with_fix(each, service, grantee) for each in losses(_missing(dial, answer, no_topic), versions)]
    yield from ((Status.WARNING, sentence) for sentence in lost)
    count = len(POLLED_EVIDENCE) - len(lost)
    yield Status.OK, f"of what polling can learn, {numbered(count, 'thing')} of {len(POLLED_EVIDENCE)} can be asked for"


def _with_fix(loss: Loss, service: Service | None, grantee: Grantee) -> str:
    """Say what is lost, and how a permission that is missing is granted: as the service writes it, or by a command."""
    if loss.missing is None:
        return str(loss)
    if service is None:
        return f"{loss}; grant it by: {grantee.command(loss.missing)}"
    granted = service.grants.get(loss.missing)
    return f"{loss}; {f'grant {granted}' if granted else 'none is documented that gives it'}: see {service.document}"


def _shared_addresses(brokers: Mapping[BrokerId, tuple[str, int]]) -> Iterator[str]:
    """Name the addresses that several brokers advertise: a proxy answers there."""
    for at in dict.fromkeys(brokers.values()):
        sharing = sorted(broker for broker, other in brokers.items() if other == at)
        if len(sharing) > 1:
            yield (
                f"brokers {', '.join(map(str, sharing))} advertise one address, {Address(*at)}: whether connections "
                "there are accepted or refused says nothing of any of them, so a crash and a hang look alike"
            )


def _versions(dial: Dial, answer: BrokerReply) -> Sequence[dict[int, tuple[int, int]]]:
    """Ask each broker which requests it supports; one that does not respond is left out, which other checks say."""

    def ask(at: tuple[str, int]) -> dict[int, tuple[int, int]] | None:
        with suppress(ConnectionRefused), closing(dial(Address(*at), response_seconds=SECONDS)) as connection:
            return connection.versions
        return None

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="versions") as threads:
        return [each for each in threads.map(ask, answer.view.brokers.values()) if each is not None]


def _missing(dial: Dial, answer: BrokerReply, no_topic: str) -> frozenset[Permission]:
    """Try each permission by a request that needs it; of topics one that is visible, else one that is none."""
    view = answer.view
    missing = {DESCRIBE_TOPICS} if no_topic in answer.denied and not view.topics else set()
    for broker, at in view.brokers.items():
        with suppress(ConnectionRefused), closing(dial(Address(*at), response_seconds=SECONDS)) as connection:
            if _is_cluster_denied(connection):
                missing.add(DESCRIBE_CLUSTER)
            if _is_denied(connection, Resource.BROKER, str(broker)):
                missing.add(DESCRIBE_BROKER_CONFIGS)
            if _is_denied(connection, Resource.TOPIC, min(view.topics, default=no_topic)):
                missing.add(DESCRIBE_TOPIC_CONFIGS)
            return frozenset(missing)
    return frozenset(missing)


def _is_cluster_denied(connection: Connection) -> bool:
    """Ask for reassignments, and for the quorum where brokers are too old for those."""
    try:
        listed(connection, SECONDS)
    except PermissionDenied:
        return True
    except ConnectionRefused:
        with suppress(ConnectionRefused):
            quorum_of(connection, None, ANYBODY)
    return False


def _is_denied(connection: Connection, kind: Resource, name: str) -> bool:
    described = describe_configs(connection, kind, [name], ["node.id"]).get(name)
    return described is None or described.error in _DENIED
