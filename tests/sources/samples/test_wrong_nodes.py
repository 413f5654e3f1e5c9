"""Samples of addresses that lead to other brokers: nothing is booked under the id of a broker that did not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Observation
from streaming.contracts.samples import BrokerSpeedObserved, LogDirectoryObserved, ReplicaOffsetsObserved
from streaming.contracts.settings import BrokerSettingsObserved
from streaming.errors import ConnectionRefused
from streaming.sources.protocol.identity import WrongNode
from streaming.sources.samples import kind
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.kind import Kind
from streaming.sources.samples.offsets import OffsetsKind
from streaming.sources.samples.settings import SettingsKind
from streaming.sources.samples.source import SamplesSource
from streaming.sources.samples.speed import SpeedKind
from tests.plugins.fake_kafka import FakeKafka
from tests.sources.samples.opened import open_samples, until

Make = Callable[..., FakeKafka]
OTHER_CLUSTER = "zzzzzzzzzzzzzzzzzzzzzg"
PERIOD = Micros(200_000)


def kinds() -> list[Kind]:
    directories = DirectoriesKind(PERIOD)
    offsets = OffsetsKind(PERIOD, directories)
    return [SpeedKind(PERIOD, offsets), directories, offsets, SettingsKind(PERIOD)]


@pytest.fixture
def cluster(fake_kafka: Make) -> FakeKafka:
    return fake_kafka(3, orders=3)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def source(cluster: FakeKafka, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[SamplesSource]:
    monkeypatch.setattr(kind, "WRONG_MICROS", Micros(300_000))
    source = open_samples(cluster.bootstrap_servers, kinds, PERIOD, report=lines.append)
    yield source
    source.close()


def brokers(found: list[Observation], sample: type[Observation]) -> set[int]:
    return {each.broker for each in found if isinstance(each, sample)}  # type: ignore[attr-defined]


def of_each_kind(found: list[Observation]) -> list[set[int]]:
    kinds = LogDirectoryObserved, ReplicaOffsetsObserved, BrokerSpeedObserved, BrokerSettingsObserved
    return [brokers(found, sample) for sample in kinds]


def at(cluster: FakeKafka, broker: int) -> tuple[str, int]:
    return "127.0.0.1", cluster.ports[broker]


def cross(cluster: FakeKafka, one: int, other: int) -> None:
    cluster.advertised |= {one: at(cluster, other), other: at(cluster, one)}


def sentences(refused: list[ConnectionRefused]) -> list[str]:
    return [str(each).split(", so ")[0] for each in refused if isinstance(each, WrongNode)]


@pytest.mark.parametrize("newest", [4, 5])
def test_of_crossed_addresses_both_are_named_once_and_nothing_is_booked(
    cluster: FakeKafka, source: SamplesSource, lines: list[str], newest: int
) -> None:
    cluster.newest[ApiVersionsRequest.API_KEY] = newest
    cross(cluster, 1, 2)
    refused: list[ConnectionRefused] = []
    found = until(source, lambda seen: len(sentences(refused)) > 1 and all(of_each_kind(seen)), refused)
    found += until(source, lambda seen: len(seen) > 20, refused)
    assert of_each_kind(found) == [{3}] * 4
    (_, one), (_, two) = at(cluster, 1), at(cluster, 2)
    assert sorted(sentences(refused)) == [
        f"the address of broker 1, 127.0.0.1:{two}, leads to broker 2",
        f"the address of broker 2, 127.0.0.1:{one}, leads to broker 1",
    ]
    cluster.advertised.clear()
    until(source, lambda seen: of_each_kind(seen) == [{1, 2, 3}] * 4, refused)
    ends = [line for line in lines if line.endswith("leads to that broker again")]
    assert len(ends) == len(set(ends)) == 2


def test_of_a_load_balancer_only_the_broker_behind_it_is_sampled(cluster: FakeKafka, source: SamplesSource) -> None:
    cluster.advertised = dict.fromkeys((1, 2, 3), at(cluster, 2))
    refused: list[ConnectionRefused] = []
    found = until(source, lambda seen: len(sentences(refused)) > 1 and all(of_each_kind(seen)), refused)
    assert of_each_kind(found) == [{2}] * 4


def test_an_address_that_is_another_broker_s_after_a_break_gives_no_more_samples(
    cluster: FakeKafka, source: SamplesSource
) -> None:
    until(source, lambda seen: of_each_kind(seen) == [{1, 2, 3}] * 4)
    cluster.disconnect(1)
    cluster.ids[1] = 2
    cluster.bring_up(1)
    refused: list[ConnectionRefused] = []
    until(source, lambda _: sentences(refused), refused)
    until(source, lambda seen: len(seen) > 20, refused)  # a round is compared when it is over
    assert of_each_kind(until(source, lambda seen: len(seen) > 40, refused)) == [{2, 3}] * 4


def test_a_connection_that_is_kept_is_given_up_when_another_broker_answers_on_it(
    cluster: FakeKafka, source: SamplesSource
) -> None:
    until(source, lambda seen: of_each_kind(seen) == [{1, 2, 3}] * 4)
    cluster.ids[1] = 2  # behind a proxy that keeps our side open
    refused: list[ConnectionRefused] = []
    until(source, lambda _: sentences(refused), refused)
    until(source, lambda seen: len(seen) > 20, refused)  # a round is compared when it is over
    assert of_each_kind(until(source, lambda seen: len(seen) > 40, refused)) == [{2, 3}] * 4


def test_a_port_of_another_cluster_gives_no_samples_and_no_view(cluster: FakeKafka, source: SamplesSource) -> None:
    until(source, lambda seen: of_each_kind(seen) == [{1, 2, 3}] * 4)
    cluster.disconnect(1)
    cluster.cluster_ids[1] = OTHER_CLUSTER
    cluster.bring_up(1)
    refused: list[ConnectionRefused] = []
    until(source, lambda _: sentences(refused), refused)
    assert sentences(refused)[0].endswith(f"leads to broker 1 of another cluster, {OTHER_CLUSTER}")
    until(source, lambda seen: len(seen) > 20, refused)  # a round is compared when it is over
    found = until(source, lambda seen: len(seen) > 40, refused)
    assert {each.cluster_id for each in found} == {cluster.cluster_id}
    assert of_each_kind(found) == [{2, 3}] * 4


def test_it_is_asked_once_per_connection_who_answers(cluster: FakeKafka, source: SamplesSource) -> None:
    cluster.newest[ApiVersionsRequest.API_KEY] = 5
    until(source, lambda seen: len(seen) > 100)
    assert sorted(broker for broker, _ in cluster.identities) == [1, 2, 3]


def test_without_the_permission_all_is_sampled_and_the_permission_is_named(
    cluster: FakeKafka, source: SamplesSource
) -> None:
    cluster.denies_broker_configs = True
    refused: list[ConnectionRefused] = []
    found = until(source, lambda seen: refused and of_each_kind(seen)[:3] == [{1, 2, 3}] * 3, refused)
    assert not brokers(found, BrokerSettingsObserved)
    assert "before Kafka 4.4 it is unknown which broker answers at an address" in str(refused[0])
