"""Brokers that run and have no listener of the name that is asked: they are not dead, nor is what they lead offline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest
from kafka.protocol.admin import DescribeQuorumRequest

from streaming.changes.advice.restart_safety import restart_advice
from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.commands.doctor_cluster import poll_once
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Observation, SourceKind
from streaming.settings import ClusterSettings, Settings
from streaming.sources.collector.metrics import CollectorMetrics
from streaming.sources.polling.source import AdminSource
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.source import SamplesSource
from tests.plugins.fake_kafka import KRAFT, FakeKafka
from tests.sources.samples.opened import open_samples, until

PERIOD = Micros(100_000)
PATIENCE_SECONDS = 10.0


@pytest.fixture
def cluster(fake_kafka: Callable[..., FakeKafka], request: pytest.FixtureRequest) -> FakeKafka:
    """Three brokers; broker 3 has no listener of the name that is asked. A proxy may leave out the features."""
    made: FakeKafka = fake_kafka(3, orders=3)
    made.features = {} if getattr(request, "param", "") == "trimmed" else KRAFT
    made.newest[DescribeQuorumRequest.API_KEY] = 0
    made.take_listener_from(3)
    made.configs["1"] = {"advertised.listeners": f"CLIENT://127.0.0.1:1,MONITOR://127.0.0.1:{made.ports[1]}"}
    return made


class Polled:
    """What a poller reports, folded."""

    def __init__(self, cluster: FakeKafka) -> None:
        self.source = AdminSource(
            bootstrap_servers=f"127.0.0.1:{cluster.ports[1]}", client={}, cluster="test", name="admin:a",
            poll_micros=PERIOD, view_micros=PERIOD, config_micros=Micros(600_000_000), source_kind=SourceKind.POLL,
        )  # fmt: skip
        self.state, self.sequence, self.events = ReplicationState(), 0, list[tuple[str, Any]]()

    def until(self, enough: Callable[[ReplicationState], object]) -> ReplicationState:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not enough(self.state):
            assert time.monotonic() < deadline, self.state
            seen: Sequence[Observation] = self.source.poll(Micros(time.time_ns() // 1000))
            folded = fold(self.state, seen)
            self.state.apply(folded.touched)
            changes = folded.changes
            self.events += [(each.event, each.event_broker) for one in changes for each in one.events]
        return self.state


@pytest.fixture
def polled(cluster: FakeKafka) -> Iterator[Polled]:
    it = Polled(cluster)
    with closing(it.source):
        yield it


def brokers(state: ReplicationState) -> dict[int, tuple[bool | None, bool | None]]:
    return {each.broker: (each.is_fenced, each.is_unseen) for each in state.brokers.values()}


def is_whole(state: ReplicationState) -> bool:
    return any(each.has_baseline for each in state.clusters.values())


@pytest.mark.parametrize("cluster", ["whole", "trimmed"], indirect=True)
def test_nothing_is_offline_and_no_broker_down_that_only_cannot_be_seen(polled: Polled) -> None:
    state = polled.until(is_whole)
    assert brokers(state) == {1: (False, None), 2: (False, None), 3: (False, True)}
    assert [(each.leader, each.is_offline, each.is_under_replicated) for each in state.partitions()] == [
        (1, False, False), (2, False, False), (3, False, False),
    ]  # fmt: skip
    (of_cluster,) = state.clusters.values()
    advice = restart_advice(state.brokers.values(), of_cluster, SuspectTally(state.partitions()))
    assert [advice[BrokerId(each)].would_go_offline for each in (1, 2, 3)] == [0, 0, 0]
    unseen = advice[BrokerId(3)]
    assert (unseen.is_safe_to_stop, unseen.restart_order) == (None, None)
    assert unseen.restart_reason.startswith("unknown: it runs and can only be seen in ISRs, as it lacks the listener")


def test_two_leaders_that_cannot_be_seen_are_leaders_all_the_same(cluster: FakeKafka, polled: Polled) -> None:
    cluster.take_listener_from(2, 3)
    state = polled.until(is_whole)
    assert [(each.leader, each.is_offline, each.is_off_preferred_leader) for each in state.partitions()] == [
        (1, False, False), (-2, False, False), (-2, False, False),
    ]  # fmt: skip
    cluster.take_listener_from()
    cluster.view.brokers = [1, 2, 3]
    state = polled.until(lambda now: all(each.leader >= 0 for each in now.partitions()))
    assert [each.leader_changes for each in state.partitions()] == [0, 0, 0]
    assert EventKind.LEADER_CHANGE not in {event for event, _ in polled.events}
    assert EventKind.OFFLINE not in {event for event, _ in polled.events}


def test_a_broker_that_could_not_be_seen_and_dies_is_fenced(cluster: FakeKafka, polled: Polled) -> None:
    polled.until(is_whole)
    for part in cluster.view.topics["orders"].parts:
        part.isr = [1, 2]
        part.leader, part.leader_epoch, part.unseen = part.isr[0], part.leader_epoch + 1, set()
    state = polled.until(lambda now: brokers(now)[3][0])
    assert brokers(state)[3] == (True, None)
    assert (EventKind.FENCED, 3) in polled.events


def test_samples_that_are_missing_are_said_once_with_the_name_of_the_listener(cluster: FakeKafka) -> None:
    said: list[str] = []
    with ExitStack() as stack:
        source: SamplesSource = stack.enter_context(
            closing(
                open_samples(
                    f"127.0.0.1:{cluster.ports[1]}", lambda: [DirectoriesKind(PERIOD)], PERIOD, report=said.append
                )
            )
        )
        metrics = CollectorMetrics([source], "test")
        until(source, lambda seen: len(seen) > 6)
        (sentence,) = said
        assert sentence.startswith("samples:a: broker 3 has no listener MONITOR, by which isrwatch asks the brokers: ")
        assert "its log directories, offsets, groups and transactions are missing" in sentence
        labels = {"cluster": "test", "source": "samples:a"}
        assert metrics.registry.get_sample_value("isrwatch_collector_unseen_brokers", labels) == 1
        cluster.take_listener_from()
        cluster.view.brokers = [1, 2, 3]
        until(source, lambda _: len(said) > 1)
        assert said[1:] == ["samples:a: every broker that runs can be asked again"]
        assert metrics.registry.get_sample_value("isrwatch_collector_unseen_brokers", labels) == 0


def test_doctor_says_that_it_runs_and_cannot_be_seen(cluster: FakeKafka) -> None:
    servers = f"127.0.0.1:{cluster.ports[1]}"
    settings = Settings(cluster=ClusterSettings(name="test", bootstrap_servers=servers))
    sentences = [sentence for _, sentence in poll_once(settings)]
    assert [each for each in sentences if "broker 3" in each] == [
        each for each in sentences if each.startswith("broker 3 has no listener MONITOR, by which isrwatch asks")
    ]
    assert any("broker 3" in each for each in sentences)
    cluster.view.topics["orders"].parts = [part for part in cluster.view.topics["orders"].parts if part.leader != 3]
    for part in cluster.view.topics["orders"].parts:
        part.isr = [1, 2]
    assert any("broker 3 is not among them" in sentence for _, sentence in poll_once(settings))
