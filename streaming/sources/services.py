"""Services that run Kafka for others: the permissions that each can grant, as it writes them, and how to know it.

docs/msk.md and the pages of the others say the same in their own syntax, and tests/sources/test_permissions_real.py
gives a real cluster the permissions of each. Of none is it known that it lets a monitor read the metadata log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.sources.permissions import (
    DESCRIBE_BROKER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TOPICS,
    DESCRIBE_TRANSACTIONAL_IDS,
    Permission,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service.

    Attributes:
        name: of it.
        document: its page in the documentation.
        hosts: what the host names of its brokers look like.
        grants: the permissions that it can give a monitor, as it writes them.
        why_no_log: why the metadata log is out of reach; the end of a sentence.
    """

    name: str
    document: str
    hosts: re.Pattern[str]
    grants: Mapping[Permission, str]
    why_no_log: str


MSK: Final = Service(
    name="Amazon MSK",
    document="docs/msk.md",
    hosts=re.compile(r"\.kafka(-serverless)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$"),
    grants={
        DESCRIBE_CLUSTER: "kafka-cluster:DescribeCluster",
        DESCRIBE_BROKER_CONFIGS: "kafka-cluster:DescribeClusterDynamicConfiguration",
        DESCRIBE_TOPICS: "kafka-cluster:DescribeTopic",
        DESCRIBE_TOPIC_CONFIGS: "kafka-cluster:DescribeTopicDynamicConfiguration",
        DESCRIBE_GROUPS: "kafka-cluster:DescribeGroup",
        DESCRIBE_TRANSACTIONAL_IDS: "kafka-cluster:DescribeTransactionalId",
    },
    why_no_log="no IAM action permits it",
)
CONFLUENT_CLOUD: Final = Service(
    name="Confluent Cloud",
    document="docs/confluent-cloud.md",
    hosts=re.compile(r"\.confluent\.cloud$"),
    grants={
        DESCRIBE_CLUSTER: "describe --cluster-scope",
        DESCRIBE_TOPICS: "describe --topic '*'",
        DESCRIBE_TOPIC_CONFIGS: "describe-configs --topic '*'",
        DESCRIBE_GROUPS: "describe --consumer-group '*'",
        DESCRIBE_TRANSACTIONAL_IDS: "describe --transactional-id '*'",
    },
    why_no_log="ClusterAction is not among its operations",
)
AIVEN: Final = Service(
    name="Aiven for Apache Kafka",
    document="docs/aiven.md",
    hosts=re.compile(r"\.aivencloud\.com$"),
    grants={
        DESCRIBE_CLUSTER: "Describe --cluster",
        DESCRIBE_BROKER_CONFIGS: "DescribeConfigs --cluster",
        DESCRIBE_TOPICS: "Describe --topic '*'",
        DESCRIBE_TOPIC_CONFIGS: "DescribeConfigs --topic '*'",
        DESCRIBE_GROUPS: "Describe --group '*'",
        DESCRIBE_TRANSACTIONAL_IDS: "Describe --transactional-id '*'",
    },
    why_no_log="no page says that clients reach the controllers; ClusterAction can be granted: try it",
)
STRIMZI: Final = Service(
    name="Strimzi",
    document="docs/strimzi.md",
    hosts=re.compile(r"-kafka-brokers\.[a-z0-9-]+\.svc(\.[a-z0-9.-]+)?$"),
    grants={
        DESCRIBE_CLUSTER: "cluster: Describe",
        DESCRIBE_BROKER_CONFIGS: "cluster: DescribeConfigs",
        DESCRIBE_TOPICS: "topic: Describe",
        DESCRIBE_TOPIC_CONFIGS: "topic: DescribeConfigs",
        DESCRIBE_GROUPS: "group: Describe",
        DESCRIBE_TRANSACTIONAL_IDS: "transactionalId: Describe",
    },
    why_no_log="the network policy of the operator opens the controllers' port to its own pods alone",
)
SERVICES: Final = (MSK, CONFLUENT_CLOUD, AIVEN, STRIMZI)


def service_of(hosts: Iterable[str]) -> Service | None:
    """Return the service that brokers are of, by their host names; None unless all of them look like it."""
    every = list(hosts)
    return next((each for each in SERVICES if every and all(each.hosts.search(host) for host in every)), None)
