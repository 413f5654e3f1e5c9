"""Evidence that polling gives of a cluster: each row with request, permission and version, and what is lost without it.

The one definition of it: ``isrwatch doctor`` says these sentences of a cluster that is polled, this table is in
docs/reference/polling.md, and tests/sources/test_permissions_real.py gives each permission alone to a real cluster.
Versions are those of Apache Kafka in which the request appeared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.sources.permissions import (
    DESCRIBE_BROKER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TOPICS,
    Permission,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledEvidence:
    """One thing that polling learns.

    Attributes:
        name: of it, in words.
        request: as Kafka's protocol names it, with the oldest version that carries it, if an older one does not.
        api_key: of the request.
        version: oldest version of the request.
        since: release of Kafka that has this version first.
        needs: permission without which a broker refuses it; None for none.
        otherwise: permission that gives the same by another request, where brokers are older.
        in_zookeeper_mode: whether brokers with ZooKeeper answer it.
        gives: what follows from it.
        without: what is lost without it; the end of a sentence.
    """

    name: str
    request: str
    api_key: int
    version: int
    since: str
    needs: Permission | None
    otherwise: Permission | None = None
    in_zookeeper_mode: bool = True
    gives: str
    without: str


PARTITIONS: Final = PolledEvidence(
    name="partitions",
    request="Metadata 5",
    api_key=3,
    version=5,
    since="1.0",
    needs=DESCRIBE_TOPICS,
    gives="leader, replicas and ISR of every partition, and which brokers are listed",
    without="no partition is seen",
)
LEADER_EPOCHS: Final = PolledEvidence(
    name="leader epochs",
    request="Metadata 7",
    api_key=3,
    version=7,
    since="2.1",
    needs=DESCRIBE_TOPICS,
    gives="that a partition was elected a leader between two polls, even if the leader is the same, and how often",
    without="an election that another one reverses between two polls is not seen",
)
ELIGIBLE_REPLICAS: Final = PolledEvidence(
    name="eligible leader replicas",
    request="DescribeTopicPartitions",
    api_key=75,
    version=0,
    since="3.8",
    needs=DESCRIBE_TOPICS,
    in_zookeeper_mode=False,
    gives="whether a leader from outside the ISR has all acknowledged records (KIP-966)",
    without="an election of an eligible leader replica cannot be distinguished from an unclean one by who was elected",
)
FENCED_BROKERS: Final = PolledEvidence(
    name="fenced brokers",
    request="DescribeCluster 2",
    api_key=60,
    version=2,
    since="4.0",
    needs=None,
    in_zookeeper_mode=False,
    gives="brokers that are registered and that the controller has fenced (KIP-1073)",
    without="a broker that is fenced cannot be distinguished from one that was unregistered: neither is listed",
)
IDENTITY: Final = PolledEvidence(
    name="who answers",
    request="ApiVersions 5",
    api_key=18,
    version=5,
    since="4.4",
    needs=None,
    otherwise=DESCRIBE_BROKER_CONFIGS,
    gives="that it is the broker itself that answers at its address, and no proxy or other broker (KIP-1242)",
    without="only partitions that a broker leads or holds show that it is the one that answers",
)
QUORUM: Final = PolledEvidence(
    name="leader of the quorum",
    request="DescribeQuorum",
    api_key=55,
    version=0,
    since="3.3",
    needs=DESCRIBE_CLUSTER,
    in_zookeeper_mode=False,
    gives="the active controller and its epoch, the voters, and which of them have caught up",
    without="a failover of the controllers is not seen, no restart is called safe for the quorum, and data are old "
    "while half of the brokers do not answer: the others may be cut off from the controllers",
)
REASSIGNMENTS: Final = PolledEvidence(
    name="reassignments",
    request="ListPartitionReassignments",
    api_key=46,
    version=0,
    since="2.4",
    needs=DESCRIBE_CLUSTER,
    in_zookeeper_mode=True,
    gives="which replicas are being added and removed",
    without="a partition that is being moved looks under-replicated (KIP-352)",
)
LOG_ENDS: Final = PolledEvidence(
    name="log ends of all replicas",
    request="ListOffsets with replica id -2",
    api_key=2,
    version=1,
    since="0.10.1",
    needs=DESCRIBE_TOPICS,
    gives="how far each follower is behind, from the follower itself, and whether a log has become shorter",
    without="a slow follower cannot be distinguished from one that is cut off from its leader",
)
EPOCH_ENDS: Final = PolledEvidence(
    name="ends of leader epochs",
    request="OffsetForLeaderEpoch 2",
    api_key=23,
    version=2,
    since="2.1",
    needs=DESCRIBE_TOPICS,
    gives="where the new leader says that the former leader's epoch ended: below a high watermark that was seen, "
    "records are lost (KIP-320)",
    without="an unclean election between two polls shows only while a log end is below a high watermark that was seen",
)
TIMES: Final = PolledEvidence(
    name="times that brokers apply",
    request="DescribeConfigs of brokers",
    api_key=32,
    version=0,
    since="0.11",
    needs=DESCRIBE_BROKER_CONFIGS,
    gives="`replica.lag.time.max.ms` and `broker.session.timeout.ms`, by which causes are distinguished",
    without="the defaults of both are assumed; where a cluster has others, a crash may be taken for lag",
)
MINIMA: Final = PolledEvidence(
    name="min.insync.replicas",
    request="DescribeConfigs of topics",
    api_key=32,
    version=0,
    since="0.11",
    needs=DESCRIBE_TOPIC_CONFIGS,
    gives="which partitions refuse acks=all writes",
    without="it is unknown which partitions are under their min ISR",
)
POLLED_EVIDENCE: Final = (
    PARTITIONS,
    LEADER_EPOCHS,
    ELIGIBLE_REPLICAS,
    FENCED_BROKERS,
    IDENTITY,
    QUORUM,
    REASSIGNMENTS,
    LOG_ENDS,
    EPOCH_ENDS,
    TIMES,
    MINIMA,
)
"""Ordered as in the documentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Evidence that a cluster does not give, and why: a permission that is missing, or brokers that are too old.

    ``is_left_out``: the brokers are newer than the request, so that a proxy leaves it out.
    """

    evidence: PolledEvidence
    missing: Permission | None = None
    is_left_out: bool = False

    def __str__(self) -> str:
        if self.is_left_out:
            why = "as a proxy leaves it out"
        elif self.missing is not None:
            why = f"without {self.missing.operation} on {self.missing.on}"
        else:
            why = f"before Kafka {self.evidence.since}"
            why += "" if self.evidence.in_zookeeper_mode else ", and with ZooKeeper"
        return f"polling lacks {self.evidence.name} ({self.evidence.request}) {why}: {self.evidence.without}"


def losses(missing: Collection[Permission], versions: Sequence[Mapping[int, tuple[int, int]]]) -> Iterator[Loss]:
    """Yield the evidence that polling a cluster lacks.

    ``versions`` has, for each broker, the oldest and newest version of each request by its key.
    """

    def is_supported(each: PolledEvidence) -> bool:
        return all(supported.get(each.api_key, (0, -1))[1] >= each.version for supported in versions)

    newest = max((_release(each.since) for each in POLLED_EVIDENCE if is_supported(each)), default=())
    for each in POLLED_EVIDENCE:
        if is_supported(each):
            if each.needs in missing:
                yield Loss(evidence=each, missing=each.needs)
        elif each.otherwise is None:
            yield Loss(evidence=each, is_left_out=_release(each.since) <= newest)
        elif each.otherwise in missing:
            yield Loss(evidence=each, missing=each.otherwise)


def _release(since: str) -> tuple[int, ...]:
    return tuple(map(int, since.split(".")))
