"""Listeners whose addresses lead to other nodes: lines, metrics, and what doctor says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.settings import ClusterSettings, CollectSettings, ControllersSettings, Settings
from streaming.sources.collector import listener_watch
from streaming.sources.collector.listener_watch import ListenerWatch
from streaming.sources.protocol.addresses import Peers
from streaming.sources.protocol.identity import DENIED
from tests.plugins.fake_kafka import FakeKafka

Make = Callable[..., FakeKafka]


def settings_of(cluster: FakeKafka, controllers: dict[int, int] | None = None) -> Settings:
    addresses = {str(node): f"127.0.0.1:{port}" for node, port in (controllers or {}).items()}
    of = ClusterSettings(
        name="prod", bootstrap_servers=cluster.bootstrap_servers, controllers=ControllersSettings(addresses=addresses)
    )
    return Settings(cluster=of, collect=CollectSettings(config_interval=0.05))


@pytest.fixture
def cluster(fake_kafka: Make) -> FakeKafka:
    return fake_kafka(3)


@pytest.fixture
def controllers(fake_kafka: Make) -> FakeKafka:
    """Two controllers, 101 and 102, at the ports of its brokers 1 and 2."""
    made = fake_kafka(2)
    made.newest |= {3: -1, 59: 1}  # Metadata, FetchSnapshot
    made.ids = {1: 101, 2: 102}
    return made


def cross(cluster: FakeKafka) -> None:
    cluster.advertised = {1: ("127.0.0.1", cluster.ports[2]), 2: ("127.0.0.1", cluster.ports[1])}


def series(watch: ListenerWatch, name: str) -> dict[str, float]:
    """Return the values of a metric by node."""
    registry = CollectorRegistry()
    registry.register(watch.metrics)
    lines = generate_latest(registry).decode().splitlines()
    of = [line for line in lines if line.startswith(f"isrwatch_collector_{name}{{")]
    return {line.split('node="')[1].split('"')[0]: float(line.rpartition(" ")[2]) for line in of}


def test_a_wrong_broker_is_a_metric_and_its_silence_is_not_that_of_the_node(cluster: FakeKafka) -> None:
    lines: list[str] = []
    cross(cluster)
    watch = ListenerWatch(settings_of(cluster), Peers(), report=lines.append)
    watch.round()
    assert series(watch, "listener_wrong_node") == {"1": 1, "2": 1, "3": 0}
    assert series(watch, "listener_up") == {"3": 1}
    cluster.disconnect(1)  # its port is advertised as that of 2
    watch.round()
    assert series(watch, "listener_wrong_node") == {"1": 1, "2": 1, "3": 0}
    assert series(watch, "listener_up") == {"3": 1}
    (line,) = lines
    assert line.startswith(f"broker 2 at 127.0.0.1:{cluster.ports[1]}, where broker 1 has answered, does not respond")
    cluster.bring_up(1)
    cluster.advertised = {}
    watch.round()
    assert series(watch, "listener_up") == {"1": 1, "2": 1, "3": 1}
    assert series(watch, "listener_wrong_node") == {"1": 0, "2": 0, "3": 0}


def test_who_answers_is_no_number_while_it_is_unknown(cluster: FakeKafka) -> None:
    cluster.denies_broker_configs = True
    watch = ListenerWatch(settings_of(cluster), Peers())
    watch.round()
    assert series(watch, "listener_wrong_node") == {}
    assert series(watch, "listener_up") == {"1": 1, "2": 1, "3": 1}


def test_crossed_controllers_are_named_once_and_their_end_is(cluster: FakeKafka, controllers: FakeKafka) -> None:
    lines: list[str] = []
    ports = {101: controllers.ports[2], 102: controllers.ports[1]}
    watch = ListenerWatch(settings_of(cluster, ports), Peers(), report=lines.append)
    watch.round()
    watch.round()
    assert [line.split(", so ")[0] for line in sorted(lines)] == [
        f"the address of controller 101, 127.0.0.1:{ports[101]}, leads to controller 102",
        f"the address of controller 102, 127.0.0.1:{ports[102]}, leads to controller 101",
    ]
    controllers.ids = {1: 102, 2: 101}
    watch.round()
    assert [line.split(", ")[-1] for line in lines[2:]] == ["leads to that controller again"] * 2


def test_a_broker_at_the_address_of_a_controller_is_named(cluster: FakeKafka) -> None:
    lines: list[str] = []
    ListenerWatch(settings_of(cluster, {101: cluster.ports[2]}), Peers(), report=lines.append).round()
    (line,) = lines
    assert line.startswith(f"the address of controller 101, 127.0.0.1:{cluster.ports[2]}, leads to broker 2, so ")


def test_doctor_names_each_wrong_node_as_a_problem(cluster: FakeKafka, controllers: FakeKafka) -> None:
    cross(cluster)
    found = list(CHECKS["listeners"](settings_of(cluster, {101: controllers.ports[2], 102: controllers.ports[2]})))
    assert [one.split(", so ")[0].split(", ") for status, one in found if status is Status.PROBLEM] == [
        ["the address of broker 1", f"127.0.0.1:{cluster.ports[2]}", "leads to broker 2"],
        ["the address of broker 2", f"127.0.0.1:{cluster.ports[1]}", "leads to broker 1"],
        ["the address of controller 101", f"127.0.0.1:{controllers.ports[2]}", "leads to controller 102"],
    ]
    assert (Status.OK, "of brokers and controllers, 2 listeners led to the node that it is of") in found


def test_doctor_warns_where_a_permission_is_missing_to_know_who_answers(cluster: FakeKafka) -> None:
    cluster.denies_broker_configs = True
    expected = f"it is unknown whether the addresses of broker 1, broker 2, broker 3 lead to them: {DENIED}"
    assert (Status.WARNING, expected) in list(CHECKS["listeners"](settings_of(cluster)))


def test_who_answered_last_is_known_where_a_node_hangs_before_it_says_so_again(
    cluster: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    cross(cluster)
    watch = ListenerWatch(settings_of(cluster), Peers())
    watch.round()
    monkeypatch.setattr(listener_watch, "responders_at", lambda *_: {})
    watch.round()
    assert series(watch, "listener_wrong_node") == {"1": 1, "2": 1, "3": 0}
