"""The minimum of every topic, asked for round by round; an administrator's client made by hand."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka.admin import ConfigSource, ResourceType

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import DISKLESS, MIN_ISR
from streaming.sources.polling.configs import ConfigsRound
from streaming.sources.polling.view import ClusterView
from tests.sources.conftest import envelope

if TYPE_CHECKING:
    from collections.abc import Iterable


def viewed(names: Iterable[str]) -> ClusterView:
    return ClusterView(ClusterId("c"), 1, {}, {name: {} for name in names})


class Client:
    """Answers at once, with the minima it was given, and the times of a broker."""

    def __init__(self, minima: dict[str, str], times: dict[str, str] | None = None) -> None:
        self.minima, self.times = minima, times or {}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {resource: Future() for resource in resources}
        for resource, answer in answers.items():
            answer.set_result(self.entries(resource))
        return answers

    def entries(self, resource: Any) -> dict[str, Any]:
        is_broker = resource.restype == ResourceType.BROKER
        values = self.times if is_broker else {"min.insync.replicas": self.minima[resource.name]}
        return {key: SimpleNamespace(value=value) for key, value in values.items()}


def told(asked: ConfigsRound, minima: dict[str, str], *, everything: bool = False) -> list[tuple[str, str | None]]:
    asked.ask(cast("Any", Client(minima)), viewed(minima), Micros(1), everything=everything)
    seen: list[Any] = asked.take(envelope(), Micros(2))
    return [(observed.topic, observed.value) for observed in seen]


def test_only_what_changed_is_reported_and_everything_when_it_is_due() -> None:
    asked = ConfigsRound(1.0)
    assert told(asked, {"orders": "2", "payments": "1"}) == [("orders", "2"), ("payments", "1")]
    assert told(asked, {"orders": "2", "payments": "3"}) == [("payments", "3")]
    assert told(asked, {"orders": "2", "payments": "3"}, everything=True) == [("orders", "2"), ("payments", "3")]


def test_the_times_of_a_broker_are_reported_when_they_change() -> None:
    asked = ConfigsRound(1.0)
    view = ClusterView(ClusterId("c"), 1, {BrokerId(3): ("host", 9092)}, {})

    def reported(times: dict[str, str]) -> list[tuple[str, str, str | None]]:
        client: Any = Client({}, times)
        asked.ask(client, view, Micros(1), everything=False)
        seen: list[Any] = asked.take(envelope(), Micros(2))
        return [(observed.topic, observed.key, observed.value) for observed in seen]

    times = {"replica.lag.time.max.ms": "30000", "broker.session.timeout.ms": "9000"}
    assert reported(times) == [("", key, value) for key, value in times.items()]
    assert reported(times) == []
    assert reported({}) == [], "without an answer the last one holds"


class Inkless(Client):
    """Answers as a broker that knows diskless topics: each topic's own value, or the default of the broker."""

    def __init__(self, own: dict[str, str | None], default: str = "false", key: str = "diskless.enable") -> None:
        self.own, self.default, self.key = own, default, key

    def entries(self, resource: Any) -> dict[str, Any]:
        own = self.own[resource.name]
        source = ConfigSource.STATIC_BROKER_CONFIG if own is None else ConfigSource.DYNAMIC_TOPIC_CONFIG
        return {self.key: SimpleNamespace(value=self.default if own is None else own, source=source.value)}


def flags(asked: ConfigsRound, client: Any, *, everything: bool = False) -> dict[str, str | None]:
    asked.ask(client, viewed(client.own), Micros(1), everything=everything)
    seen: list[Any] = asked.take(envelope(), Micros(2))
    return {observed.topic: observed.value for observed in seen if observed.key == DISKLESS}


def test_a_topic_is_diskless_by_its_own_value_not_by_the_brokers_default_for_new_topics() -> None:
    asked = ConfigsRound(1.0)
    told = {"cold": "true", "__consumer_offsets": None}
    assert flags(asked, Inkless(told, "true")) == told
    assert flags(asked, Inkless(told, "true")) == {}
    assert flags(asked, Inkless({"cold": "false"})) == {"cold": None}
    assert flags(asked, Inkless({"cold": "true"}, key="inkless.enable")) == {"cold": "true"}


def test_of_brokers_that_do_not_know_diskless_topics_nothing_is_reported() -> None:
    client: Any = Client({"orders": "2"})
    client.own = client.minima
    assert flags(ConfigsRound(1.0), client, everything=True) == {}


def unset(asked: ConfigsRound, names: list[str]) -> list[tuple[str, str, str | None]]:
    seen: list[Any] = asked.forget(names, envelope())
    return [(observed.topic, observed.key, observed.value) for observed in seen]


def test_a_topic_that_another_one_replaced_loses_its_values_at_once_not_with_the_next_round() -> None:
    asked = ConfigsRound(1.0)
    told(asked, {"orders": "2", "payments": "1"})
    assert unset(asked, ["orders"]) == [("orders", MIN_ISR, None), ("orders", DISKLESS, None)]
    assert told(asked, {"orders": "2", "payments": "1"}) == [("orders", "2")]


def test_values_are_unset_that_are_only_being_asked_for_again() -> None:
    asked, client = ConfigsRound(1.0), Client({"orders": "2"})
    told(asked, {"orders": "2"})
    asked.ask(cast("Any", client), viewed(client.minima), Micros(1), everything=True)
    assert unset(asked, ["orders"]) == [("orders", MIN_ISR, None), ("orders", DISKLESS, None)]


def test_what_was_asked_of_a_topic_that_another_one_replaced_meanwhile_is_not_reported_of_that_one() -> None:
    asked, client = ConfigsRound(1.0), Client({"orders": "2", "payments": "1"})
    asked.ask(cast("Any", client), viewed(client.minima), Micros(1), everything=False)
    unset(asked, ["orders"])
    assert [(item.topic, item.value) for item in cast("Any", asked.take(envelope(), Micros(2)))] == [("payments", "1")]
    assert told(asked, {"orders": "1", "payments": "1"}) == [("orders", "1")]
