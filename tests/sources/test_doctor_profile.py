"""``isrwatch doctor``: which service a cluster is of, whether it would be polled, and what is lost by that."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import DescribeQuorumRequest, ListPartitionReassignmentsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from streaming.commands import doctor_log
from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.commands.doctor_profile import _with_fix
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.evidence import FENCED_BROKERS, IDENTITY, LOG_ENDS, POLLED_EVIDENCE, QUORUM, TIMES, losses
from streaming.sources.permissions import DESCRIBE_BROKER_CONFIGS, DESCRIBE_TOPICS, PERMISSIONS, Grantee
from streaming.sources.services import AIVEN, CONFLUENT_CLOUD, MSK, SERVICES, STRIMZI, service_of
from tests.plugins.fake_kafka import FakeKafka

POLLED = 'collect.primary_source is "poll", so the brokers are polled, every {} s: causes are inferred, not proven'
NEWEST = {each.api_key: (0, 99) for each in POLLED_EVIDENCE}
OF_3_6 = {**NEWEST, 18: (0, 3), 23: (0, 4), 55: (0, 1), 60: (0, 0), 75: (0, -1)}
IN_ZOOKEEPER_MODE = {key: versions for key, versions in OF_3_6.items() if key not in {55, 75}}


def profile_of(cluster: FakeKafka, **collect: Any) -> list[tuple[Status, str]]:
    settings = Settings(
        cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers), collect=CollectSettings(**collect)
    )
    return list(CHECKS["profile"](settings))


def lost(*versions: dict[int, tuple[int, int]], missing: Any = ()) -> set[str]:
    return {each.evidence.name for each in losses(missing, versions)}


def test_a_cluster_of_the_newest_kafka_with_all_permissions_loses_nothing() -> None:
    assert lost(NEWEST) == set()


def test_what_older_brokers_and_zookeeper_do_not_have_is_lost() -> None:
    old = {"eligible leader replicas", "fenced brokers"}
    assert lost(OF_3_6) == old  # who answers there, their configurations say
    assert lost(IN_ZOOKEEPER_MODE) == old | {"leader of the quorum"}
    assert lost(NEWEST, OF_3_6) == old, "the oldest broker decides"


def test_an_older_broker_says_who_it_is_to_those_who_may_read_its_configuration_alone() -> None:
    own = {TIMES.name, IDENTITY.name}
    assert lost(NEWEST, missing={DESCRIBE_BROKER_CONFIGS}) == own - {IDENTITY.name}
    assert lost(OF_3_6, missing={DESCRIBE_BROKER_CONFIGS}) - lost(OF_3_6) == own


def test_a_loss_names_the_permission_or_the_version_and_what_cannot_be_told() -> None:
    (topics, *_) = (each for each in losses({DESCRIBE_TOPICS}, [NEWEST]) if each.evidence is LOG_ENDS)
    assert str(topics) == (
        "polling lacks log ends of all replicas (ListOffsets with replica id -2) without Describe on the topics: "
        "a slow follower cannot be distinguished from one that is cut off from its leader"
    )
    (quorum,) = (each for each in losses((), [IN_ZOOKEEPER_MODE]) if each.evidence is QUORUM)
    assert str(quorum).startswith(
        "polling lacks leader of the quorum (DescribeQuorum) before Kafka 3.3, and with ZooKeeper: a failover"
    )


def test_a_request_that_a_proxy_leaves_out_is_not_blamed_on_the_version() -> None:
    (reassignments,) = losses((), [{**NEWEST, 46: (0, -1)}])
    assert str(reassignments) == (
        "polling lacks reassignments (ListPartitionReassignments) as a proxy leaves it out: a partition that is being "
        "moved looks under-replicated (KIP-352)"
    )


@pytest.mark.parametrize("request_type", [DescribeQuorumRequest, ListPartitionReassignmentsRequest, ListOffsetsRequest])
def test_each_request_has_its_own_number(request_type: Any) -> None:
    """That of AlterPartitionReassignments, which proxies for reading leave out, is the one before."""
    name = request_type.__name__.removesuffix("Request")
    assert {each.api_key for each in POLLED_EVIDENCE if each.request.startswith(name)} == {request_type.API_KEY}


@pytest.mark.parametrize(
    ("host", "service"),
    [
        ("b-1.prod.a1b2c3.c3.kafka.eu-west-1.amazonaws.com", MSK),
        ("b-2.prod.a1b2c3.c3.kafka.cn-north-1.amazonaws.com.cn", MSK),
        ("boot-x1.c2.kafka-serverless.us-east-1.amazonaws.com", MSK),
        ("b3-pkc-12345.eu-central-1.aws.confluent.cloud", CONFLUENT_CLOUD),
        ("kafka-1a2b3c-project.aivencloud.com", AIVEN),
        ("prod-kafka-0.prod-kafka-brokers.kafka.svc", STRIMZI),
        ("prod-pool-0.prod-kafka-brokers.kafka.svc.cluster.local", STRIMZI),
        ("broker-1.example.com", None),
        ("kafka.eu-west-1.amazonaws.com.example.com", None),
    ],
)
def test_a_service_is_known_by_the_names_of_its_brokers(host: str, service: Any) -> None:
    assert service_of([host, host]) is service
    assert service_of([host, "127.0.0.1"]) is None


def test_no_names_are_those_of_no_service() -> None:
    assert service_of([]) is None


def test_no_service_grants_the_metadata_log_and_all_grant_what_shows_partitions() -> None:
    assert [each.name for each in SERVICES if not each.grants.keys() < set(PERMISSIONS)] == []
    assert [each.name for each in SERVICES if DESCRIBE_TOPICS not in each.grants] == []


def test_a_cluster_that_is_polled_by_choice_is_told_what_its_brokers_do_not_have(
    fake_kafka: Callable[[int], FakeKafka],
) -> None:
    cluster = fake_kafka(2)
    cluster.create_topic("orders", partitions=1, replicas=2)
    cluster.newest[FENCED_BROKERS.api_key] = FENCED_BROKERS.version - 1
    mode, *rest, last = profile_of(cluster, primary_source="poll", poll_interval=7)
    assert mode == (Status.OK, POLLED.format(7))
    sentences = [sentence for _, sentence in rest]
    assert [sentence for sentence in sentences if sentence.startswith("polling lacks fenced brokers")] != []
    assert [sentence for sentence in sentences if "eligible" in sentence] == []
    assert last[0] is Status.OK


def test_nothing_is_said_of_polls_where_only_the_log_is_wanted(
    fake_kafka: Callable[[int], FakeKafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_log, "SECONDS", 0.1)
    sentence = 'collect.primary_source is "metadata_log": the brokers are not polled in its place'
    assert profile_of(fake_kafka(1), primary_source="metadata_log") == [(Status.SKIPPED, sentence)]


def test_without_the_configurations_of_brokers_the_times_are_lost(fake_kafka: Callable[[int], FakeKafka]) -> None:
    cluster = fake_kafka(1)
    before = profile_of(cluster, primary_source="poll")
    cluster.denies_broker_configs = True
    added = {sentence for _, sentence in profile_of(cluster, primary_source="poll")[:-1]} - {each for _, each in before}
    assert [sentence for sentence in added if sentence.startswith(f"polling lacks {TIMES.name}")] != []


def test_a_loss_ends_with_the_fix_as_the_service_writes_it_or_as_a_command() -> None:
    (times,) = losses({DESCRIBE_BROKER_CONFIGS}, [NEWEST])
    grantee = Grantee(servers="b:9092", principal="User:me", has_login=False)
    services = (MSK, CONFLUENT_CLOUD, None)
    assert [_with_fix(times, service, grantee).removeprefix(f"{times}; ") for service in services] == [
        "grant kafka-cluster:DescribeClusterDynamicConfiguration: see docs/msk.md",
        "none is documented that gives it: see docs/confluent-cloud.md",
        f"grant it by: {grantee.command(DESCRIBE_BROKER_CONFIGS)}",
    ]
    (old, *_) = losses((), [OF_3_6])
    assert _with_fix(old, None, grantee) == str(old)


def test_the_command_for_the_listeners_of_brokers_is_for_the_user_and_the_addresses_of_the_configuration(
    fake_kafka: Callable[[int], FakeKafka],
) -> None:
    cluster = fake_kafka(1)
    cluster.denies_broker_configs = True
    settings = Settings(cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers))
    (unseen,) = (sentence for _, sentence in CHECKS["listeners"](settings) if sentence.startswith("unseen"))
    grantee = Grantee(servers=cluster.bootstrap_servers, principal="User:ANONYMOUS", has_login=False)
    assert unseen.endswith(grantee.command(DESCRIBE_BROKER_CONFIGS))


def test_brokers_that_share_an_address_are_named_with_what_cannot_be_known_then(
    fake_kafka: Callable[[int], FakeKafka],
) -> None:
    cluster = fake_kafka(3)
    cluster.advertised = dict.fromkeys((1, 2), ("127.0.0.1", cluster.ports[1]))
    said = [sentence for status, sentence in profile_of(cluster, primary_source="poll") if status is Status.WARNING]
    assert said[0] == (
        f"brokers 1, 2 advertise one address, 127.0.0.1:{cluster.ports[1]}: whether connections there are accepted or "
        "refused says nothing of any of them, so a crash and a hang look alike"
    )
    assert not [sentence for sentence in said[1:] if "one address" in sentence]


def test_brokers_of_a_service_that_cannot_be_reached_are_named_and_nothing_is_claimed_of_them(
    fake_kafka: Callable[[int], FakeKafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = socket.getaddrinfo

    def only_here(host: Any, *rest: Any, **how: Any) -> Any:
        if host != "127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return asked(host, *rest, **how)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    cluster = fake_kafka(1)
    cluster.advertised = {1: ("b-1.prod.c3.kafka.eu-west-1.amazonaws.com", 1)}
    assert profile_of(cluster, primary_source="poll") == [
        (Status.OK, "the brokers have names of Amazon MSK: docs/msk.md has its permissions"),
        (Status.OK, POLLED.format(5)),
        (Status.SKIPPED, "no broker responds at the address that it advertises, so what polling can learn is unknown"),
    ]
