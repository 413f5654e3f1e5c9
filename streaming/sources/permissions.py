"""The permissions of isrwatch's user: what is asked with each, what is missing without it, and the command for it.

The one definition of them: the sources and ``isrwatch doctor`` say these sentences, docs/permissions.md is this table,
and tests/sources/test_permissions_real.py takes each away from a real cluster. The operations are those of Kafka's
StandardAuthorizer (KIP-11; ClusterAction of a Fetch of the metadata log: KIP-595). None of them changes anything.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from streaming.errors import ConnectionRefused
from streaming.sources.protocol.connection import ServiceRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNNAMED: Final = "User:PRINCIPAL"
"""Stands for a principal that only the brokers know: of a certificate or a token."""
_ANONYMOUS: Final = "User:ANONYMOUS"
_CERTIFICATES: Final = frozenset({"ssl.certificate.location", "ssl.certificate.pem"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One operation on one kind of resource.

    Attributes:
        operation: as ``kafka-acls`` spells it.
        on: the resource, in words.
        option: the resource, as an option of ``kafka-acls``.
        requests: what is asked with it.
        without: what is missing without it; the end of a sentence.
    """

    operation: str
    on: str
    option: tuple[str, ...]
    requests: str
    without: str


_CLUSTER: Final = ("--cluster",)
_TOPICS: Final = ("--topic", "*")
_TRANSACTIONAL_IDS: Final = ("--transactional-id", "*")

CLUSTER_ACTION: Final = Permission(
    operation="ClusterAction",
    on="the cluster",
    option=_CLUSTER,
    requests="Fetch and FetchSnapshot of `__cluster_metadata`, at the controllers",
    without='the metadata log cannot be read (collect.primary_source = "poll" does without)',
)
DESCRIBE_CLUSTER: Final = Permission(
    operation="Describe",
    on="the cluster",
    option=_CLUSTER,
    requests="DescribeQuorum, ListPartitionReassignments, DescribeLogDirs",
    without="the controllers' addresses, the voters of their quorum, reassignments and log directories are unknown",
)
DESCRIBE_BROKER_CONFIGS: Final = Permission(
    operation="DescribeConfigs",
    on="the cluster",
    option=_CLUSTER,
    requests="DescribeConfigs of a broker, and of a controller",
    without="throttles are unknown, the defaults of replica.lag.time.max.ms and broker.session.timeout.ms are assumed, "
    "and before Kafka 4.4 it is unknown which broker answers at an address",
)
DESCRIBE_TOPICS: Final = Permission(
    operation="Describe",
    on="the topics",
    option=_TOPICS,
    requests="Metadata, DescribeTopicPartitions, ListOffsets (of followers, too), OffsetForLeaderEpoch",
    without="Kafka leaves them out: no offsets, no min.insync.replicas that only brokers set, and no sign of them "
    "while brokers are polled",
)
DESCRIBE_TOPIC_CONFIGS: Final = Permission(
    operation="DescribeConfigs",
    on="the topics",
    option=_TOPICS,
    requests="DescribeConfigs of the topics",
    without="min.insync.replicas is unknown unless the metadata log has it, and so is durability; diskless topics are "
    "not recognised while brokers are polled",
)
DESCRIBE_GROUPS: Final = Permission(
    operation="Describe",
    on="the groups",
    option=("--group", "*"),
    requests="ListGroups, DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe, StreamsGroupDescribe, "
    "OffsetFetch, DescribeShareGroupOffsets",
    without="Kafka leaves groups out, or their members and committed offsets: no lag",
)
DESCRIBE_TRANSACTIONAL_IDS: Final = Permission(
    operation="Describe",
    on="the transactional ids",
    option=_TRANSACTIONAL_IDS,
    requests="ListTransactions, DescribeTransactions",
    without="neither open nor committed transactions are listed, so none is found to hang",
)
READ_TOPICS: Final = Permission(
    operation="Read",
    on="the topics",
    option=_TOPICS,
    requests="DescribeProducers, of partitions whose last stable offset does not move, or where a group stands still",
    without="it is unknown which transaction holds the last stable offset of a partition, and whether it hangs; and "
    "where transactions are written, whether a group that stands still has anything to read",
)
PERMISSIONS: Final = (
    CLUSTER_ACTION,
    DESCRIBE_CLUSTER,
    DESCRIBE_BROKER_CONFIGS,
    DESCRIBE_TOPICS,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_TRANSACTIONAL_IDS,
)
"""Permissions that are always used, ordered as in the documentation."""
EXTRA_PERMISSIONS: Final = (READ_TOPICS,)
"""Those that give more than isrwatch needs, and are used rarely: Read gives the records, and Describe with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grantee:
    """Principal that lacks a permission, and where it is granted."""

    servers: str = "broker-1:9092"
    principal: str = UNNAMED
    has_login: bool = True

    def command(self, permission: Permission) -> str:
        """Return the command that grants a permission, for a shell.

        Where isrwatch has to log in, an administrator has to, too: with the login in ``admin.properties``.
        """
        login = ("--command-config", "admin.properties") if self.has_login else ()
        return shlex.join(
            (
                *("kafka-acls", "--bootstrap-server", self.servers, *login),
                *("--add", "--allow-principal", self.principal),
                *("--operation", permission.operation, *permission.option),
            )
        )


ANYBODY: Final = Grantee()


def grantee_of(servers: str, client: Mapping[str, str]) -> Grantee:
    """Return the user that brokers see with these librdkafka properties.

    A broker may map names to others (``ssl.principal.mapping.rules`` and the like); it logs the principal it denies.
    """
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    is_named = "sasl.username" in client if protocol.startswith("SASL") else not _CERTIFICATES & client.keys()
    name = f"User:{client['sasl.username']}" if protocol.startswith("SASL") and is_named else _ANONYMOUS
    return Grantee(servers=servers, principal=name if is_named else UNNAMED, has_login=protocol != "PLAINTEXT")


class PermissionDenied(ServiceRefused):
    """Kafka denies a permission: the sentence says what is missing, and the command that grants it.

    ``on`` is the resource, where it is narrower than that of the permission.
    """

    def __init__(self, permission: Permission, grantee: Grantee = ANYBODY, *, on: str = "") -> None:
        super().__init__(
            f"this user lacks {permission.operation} on {on or permission.on}: {permission.without}; "
            f"grant it by: {grantee.command(permission)}"
        )
        self.permission, self.on = permission, on


def addressed(refusal: ConnectionRefused, grantee: Grantee) -> ConnectionRefused:
    """Return a refusal with the command for one user, if it is a missing permission."""
    return (
        PermissionDenied(refusal.permission, grantee, on=refusal.on)
        if isinstance(refusal, PermissionDenied)
        else refusal
    )


# Refusals of a cluster, as one sentence with the address or the permission, and the fix.


class MissingPermissions:
    """Missing permissions, each raised once, and again if it was there meanwhile."""

    def __init__(self, grantee: Grantee) -> None:
        self._grantee = grantee
        self._raised: set[str] = set()

    def raise_new(self, refusals: Iterable[ConnectionRefused | None]) -> None:
        """Raise the first of what is missing now that was not raised yet.

        Raises:
            ConnectionRefused: there is one.
        """
        missing = {str(each): each for each in refusals if each is not None}
        self._raised &= missing.keys()
        for sentence, each in missing.items():
            if sentence not in self._raised:
                self._raised.add(sentence)
                raise addressed(each, self._grantee)


# Names that are asked for on purpose, to see whether others may be hidden. A broker logs each one that it denies.


PROBE_PREFIX: Final = "__isrwatch_no_"
"""Beginning of the names, unless ``collect.probe_prefix`` has another one; they end with what they name."""
MOST_REFUSALS: Final = 10
SELDOM_MICROS: Final = 3_600_000_000


class Probe:
    """One name that may be denied: after ten refusals it is asked for once per hour, or when permissions change.

    Thread-safe. Times are monotonic microseconds.

    Attributes:
        name: of a topic, a group, or a transactional id.
        is_denied: the last answer.
    """

    def __init__(self, name: str) -> None:
        self.name, self.is_denied = name, False
        self.refusals, self._due = 0, 0
        self._lock = Lock()

    def take_due(self, now: int) -> bool:
        """Return whether it is to be asked for now."""
        with self._lock:
            if self.refusals < MOST_REFUSALS:
                return True
            is_due = now >= self._due
            if is_due:
                self._due = now + SELDOM_MICROS
            return is_due

    def note(self, now: int, *, is_denied: bool) -> None:
        """Note an answer."""
        with self._lock:
            self.is_denied = is_denied
            self.refusals = self.refusals + 1 if is_denied else 0
            if self.refusals == MOST_REFUSALS:
                self._due = now + SELDOM_MICROS

    def expire(self) -> None:
        """Ask for it at the next opportunity: another answer about permissions has changed."""
        self._due = 0


def unanswered(servers: str, reason: object) -> ConnectionRefused:
    """Return the refusal of a cluster of which no broker answers."""
    return ConnectionRefused(
        f"no broker answers at {servers}: {reason}; check cluster.bootstrap_servers and security.protocol under "
        "[cluster.client]"
    )
