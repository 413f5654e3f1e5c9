"""What ``isrwatch doctor`` says of Kafka as the bus, on a real broker with an authorizer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from deploy.sandbox import Sandbox
from streaming.bus.kafka.topics import administrator, ensure
from streaming.commands import doctor_bus
from streaming.commands.doctor import findings
from streaming.commands.doctor_machine import Status
from streaming.settings import BusSettings, ClusterSettings, KafkaBusSettings, Settings
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.local_http import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def broker(kafka_single: Sandbox) -> Sandbox:
    return kafka_single


def said(bus: KafkaBusSettings, watched: str = "") -> list[tuple[Status, str]]:
    settings = Settings(cluster=ClusterSettings(bootstrap_servers=watched), bus=BusSettings(kafka=bus))
    return [(each.status, each.sentence) for each in findings([settings]) if each.check == "bus"]


def test_a_bus_that_works_is_ok_and_one_that_is_watched_itself_is_a_warning(broker: Sandbox) -> None:
    bus = bus_settings(broker.bootstrap_servers)
    missing = [f"the topic {name} does not exist yet" for name in (bus.replication_topic, bus.samples_topic)]
    assert [sentence.partition(":")[0] for _, sentence in said(bus)[1:3]] == missing
    ensure(administrator(bus), bus)
    assert said(bus)[:3] == [
        (Status.OK, f"the bus at {broker.bootstrap_servers} answers; it has 1 broker"),
        (Status.OK, f"the topic {bus.replication_topic} of the bus is as configured, with 2 partitions"),
        (Status.OK, f"the topic {bus.samples_topic} of the bus is as configured, with 3 partitions"),
    ]
    assert {status for status, _ in said(bus)} == {Status.OK}
    itself = [each for each in said(bus, watched=broker.bootstrap_servers) if each[0] is not Status.OK]
    sentence = "the cluster kafka is watched and is its own bus: it is silent when it matters"
    assert itself == [(Status.WARNING, f"{sentence}; take other brokers for bus.kafka")]


def test_what_differs_and_what_is_not_allowed_is_named_with_its_fix(broker: Sandbox) -> None:
    bus = bus_settings(broker.bootstrap_servers)
    admin = administrator(bus)
    ensure(admin, bus)
    may_describe = AclBinding(
        ResourceType.TOPIC,
        bus.replication_topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([may_describe])[may_describe].result()
    acl = f"kafka-acls --add --allow-principal User:... --operation Write --topic {bus.replication_topic}"
    not_allowed = f"this login may not write the topic {bus.replication_topic}, which the collector does"

    def warnings() -> list[str]:
        found = said(replace(bus, samples_partitions=9))
        return [sentence for status, sentence in found if status is Status.WARNING]

    # The controller has the permission at once, the broker when it has read of it.
    wait_until(lambda: f"{not_allowed}: {acl}" in warnings(), seconds=30.0)
    assert (
        f"the topic {bus.samples_topic} of the bus differs from the settings: partitions is 3, not 9" in warnings()[0]
    )
    more = replace(bus, replication_factor=3)
    assert (
        Status.PROBLEM,
        "bus.kafka.replication_factor is 3, but the bus has 1 broker: start others, or lower it",
    ) in said(more)


def test_a_bus_that_does_not_answer_is_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_bus, "SECONDS", 1.0)
    (found,) = said(bus_settings("127.0.0.1:1"))
    assert found[0] is Status.PROBLEM
    assert found[1].startswith("the bus at 127.0.0.1:1 does not answer: ")
