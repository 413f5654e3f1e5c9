"""What is asked beside polled metadata.

Reassignments: what a view shows of them, and what is not known. And the minimum of every topic, round by round, of an
describer made by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import DISKLESS, MIN_ISR, Observation, SnapshotReason, SourceKind
from streaming.contracts.state import PartitionState
from streaming.errors import ConnectionRefused
from streaming.sources.polling.configs import ConfigsRound, Described
from streaming.sources.polling.reassignments import ReassignmentsRound
from streaming.sources.polling.view import ClusterView, PartitionView, Reassignment, has_same_members, snapshot, steps
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.config_messages import DescribedValue, Resource, ResourceConfig
from tests.changes.conftest import START, Story
from tests.sources.conftest import envelope

STATIC, OF_TOPIC = 4, 1
"""Where a value comes from, as Kafka numbers it: the configuration of the broker, that of the topic."""
SERVERS = [Address("a", 1), Address("b", 1)]


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def view_of(replicas: Sequence[int], isr: Sequence[int]) -> ClusterView:
    parts = {0: PartitionView(brokers(*replicas), brokers(*isr), BrokerId(isr[0]))}
    return ClusterView(ClusterId("c"), 1, {}, {"orders": parts}, {"orders": TopicId("t")})


@pytest.mark.parametrize(
    ("replicas", "isr", "listed", "seen"),
    [
        ([1, 2], [1, 2], ([3], [2]), ([], [])),  # it began after the metadata was read
        ([1, 3, 2], [1, 2], ([3], [2]), ([3], [2])),
        ([1, 3, 2], [1, 2, 3], ([3], [2]), ([3], [2])),
        ([1, 3], [1, 3], ([3], [2]), ([], [])),  # it ended before
        ([1, 2], [1, 2], ([3], []), ([], [])),
        ([1, 2, 3], [1, 2], ([3], []), ([3], [])),
        ([1, 2, 3], [1, 2, 3], ([3], []), ([], [])),
        ([1, 2], [1, 2], ([], [2]), ([], [2])),
        ([1], [1], ([], [2]), ([], [])),
    ],
)
def test_a_view_shows_the_part_of_a_reassignment_that_it_was_read_in(
    replicas: list[int], isr: list[int], listed: tuple[list[int], list[int]], seen: tuple[list[int], list[int]]
) -> None:
    adding, removing = listed
    orders = Reassignment(brokers(*adding), brokers(*removing))
    view = view_of(replicas, isr).with_reassignments({("orders", 0): orders, ("deleted", 7): orders})
    assert view.topics["orders"][0].reassignment == (brokers(*seen[0]), brokers(*seen[1]))
    assert view.topics.keys() == {"orders"}


class Kafka:
    """Answers ListPartitionReassignments; each connection is of one of the servers."""

    def __init__(self) -> None:
        self.listed: dict[int, Reassignment] = {}
        self.error = 0
        self.hangs = threading.Event()
        self.dialled: list[Address] = []

    def __call__(self, address: Address, *, response_seconds: float) -> Any:  # noqa: ARG002 - the signature of Dial
        self.dialled.append(address)
        return SimpleNamespace(address=address, newest=lambda *asked: asked[1], call=self._call, close=list)

    def _call(self, _: Any, __: Any, read: Any) -> Any:
        if self.hangs.is_set():
            raise ConnectionRefused("did not respond in time")
        partitions = [
            SimpleNamespace(partition_index=number, adding_replicas=[*each.adding], removing_replicas=[*each.removing])
            for number, each in self.listed.items()
        ]
        topics = [SimpleNamespace(name="orders", partitions=partitions)]
        return read(SimpleNamespace(error_code=self.error, topics=topics))


def taken(asking: ReassignmentsRound) -> dict[tuple[str, int], Reassignment] | None:
    asking.ask(SERVERS)
    wait(asking.pending())
    return asking.take()


def test_one_that_ended_between_the_metadata_and_the_list_still_counts_once() -> None:
    kafka = Kafka()
    kafka.listed = {0: (move := Reassignment(brokers(3), brokers(2)))}
    with closing(ReassignmentsRound(kafka, name="t", seconds=1)) as asking:
        found = [taken(asking)]
        kafka.listed = {}
        found += [taken(asking), taken(asking)]
    assert found == [{("orders", 0): move}, {("orders", 0): move}, {}]
    assert len(kafka.dialled) == 1


def test_while_nobody_lists_them_it_is_unknown_and_the_next_broker_is_asked() -> None:
    kafka = Kafka()
    with closing(ReassignmentsRound(kafka, name="t", seconds=1)) as asking:
        found = [taken(asking)]
        kafka.hangs.set()
        found += [taken(asking), taken(asking)]
        kafka.hangs.clear()
        found += [taken(asking)]
    assert found == [{}, None, None, {}]
    assert len(set(kafka.dialled)) == len(SERVERS)
    assert asking.refusal is None


def test_an_answer_to_an_earlier_view_says_nothing_of_a_later_one() -> None:
    kafka, answers = Kafka(), threading.Event()

    def dial(address: Address, *, response_seconds: float) -> Any:
        answers.wait(60)
        return kafka(address, response_seconds=response_seconds)

    asking = ReassignmentsRound(dial, name="t", seconds=30)
    asking.ask(SERVERS)
    assert asking.take() is None
    asking.ask(SERVERS)
    answers.set()
    wait(asking.pending())

    assert [asking.take(), taken(asking)] == [None, {}]
    asking.close()


def test_a_broker_that_hangs_delays_one_view_for_a_second_and_no_other() -> None:
    kafka, answers = Kafka(), threading.Event()
    asking = ReassignmentsRound(lambda *_, **__: answers.wait(60) and kafka, name="t", seconds=30)  # type: ignore[arg-type,return-value]
    asking.ask(SERVERS)
    try:
        assert wait(asking.pending(), timeout=1.2).not_done
        assert asking.pending() == []
        assert asking.take() is None
        asking.ask(SERVERS)
        assert asking.pending() == []
    finally:
        answers.set()
        asking.close()


def test_what_is_missing_to_list_them_is_said() -> None:
    kafka = Kafka()
    kafka.error = 31
    asking = ReassignmentsRound(kafka, name="t", seconds=1)
    assert taken(asking) is None
    asking.close()
    sentence = "lacks Describe on the cluster: .* reassignments .*; grant it by: kafka-acls "
    with pytest.raises(ConnectionRefused, match=sentence):
        raise asking.refusal or AssertionError


def partition_after(*reports: Sequence[Observation]) -> PartitionState:
    state = ReplicationState()
    for report in reports:
        state.apply(fold(state, report).touched)
    (partition,) = state.partitions()
    return partition


def at(second: int) -> dict[str, Any]:
    return envelope(START + second * 1_000_000)


def full_report(before: ClusterView | None, view: ClusterView, second: int) -> list[Observation]:
    return snapshot(before, view, at(second), snapshot_id="s", reason=SnapshotReason.START)


MOVING = view_of([1, 3, 2], [1, 2])
LISTED = {("orders", 0): Reassignment(brokers(3), brokers(2))}


def test_what_was_unknown_and_is_known_now_is_a_full_report() -> None:
    known = MOVING.with_reassignments(LISTED)
    assert not has_same_members(MOVING, known)
    assert has_same_members(known, MOVING)
    assert steps(MOVING, known, at(2)) == steps(known, MOVING, at(2)) == []
    partition = partition_after(full_report(None, MOVING, 1), full_report(MOVING, known, 2))
    assert (partition.adding_replicas, partition.removing_replicas) == ((3,), (2,))
    assert not partition.is_under_replicated


def test_a_poll_that_does_not_know_them_does_not_end_one_that_a_poll_has_reported() -> None:
    known, unknown = MOVING.with_reassignments(LISTED), view_of([1, 3, 2], [1])
    partition = partition_after(full_report(None, known, 1), steps(known, unknown, at(2)))
    assert (partition.adding_replicas, partition.isr) == ((3,), (1,))
    over = view_of([1, 3], [1, 3]).with_reassignments({})
    ended = partition_after(full_report(None, known, 1), steps(known, over, at(2)))
    assert (ended.adding_replicas, ended.removing_replicas) == ((), ())


def test_a_poll_ends_a_reassignment_that_the_log_had_reported_and_that_was_cancelled_meanwhile() -> None:
    story = Story()
    fields = {"replicas": (1, 3, 2), "isr": (1, 2), "adding_replicas": (3,), "removing_replicas": (2,)}
    story.snapshot([{"topic_id": "t", **fields}])
    poll = {"replicas": (1, 2), "isr": (1, 2), "leader_epoch": None, "partition_epoch": None}
    polling = Story("admin:a", SourceKind.POLL)
    polling.later(7200).snapshot([{"topic_id": "t", "reports_reassignments": True, **poll}])
    partition = partition_after(story.seen, polling.seen)
    assert (partition.adding_replicas, partition.removing_replicas, partition.replicas) == ((), (), (1, 2))


def viewed(names: Iterable[str]) -> ClusterView:
    return ClusterView(ClusterId("c"), 1, {}, {name: {} for name in names})


class Describer:
    """Answers at once, with the minima it was given, and the times of a broker."""

    def __init__(self, minima: dict[str, str], times: dict[str, str] | None = None) -> None:
        self.minima, self.times = minima, times or {}

    def describe(self, resources: Sequence[Described]) -> dict[Described, Future[ResourceConfig]]:
        answers: dict[Described, Future[ResourceConfig]] = {resource: Future() for resource in resources}
        for resource, answer in answers.items():
            answer.set_result(ResourceConfig(0, self.values(resource)))
        return answers

    def values(self, resource: Described) -> dict[str, DescribedValue]:
        is_broker = resource.kind is Resource.BROKER
        values = self.times if is_broker else {"min.insync.replicas": self.minima[resource.name]}
        return {key: DescribedValue(value, STATIC if is_broker else OF_TOPIC) for key, value in values.items()}


def told(asked: ConfigsRound, minima: dict[str, str], *, everything: bool = False) -> list[tuple[str, str | None]]:
    asked.ask(Describer(minima), viewed(minima), Micros(1), everything=everything)
    seen: list[Any] = asked.take(envelope(), Micros(2))
    return [(observed.topic, observed.value) for observed in seen]


def test_only_what_changed_is_reported_and_everything_when_it_is_due() -> None:
    asked = ConfigsRound()
    assert told(asked, {"orders": "2", "payments": "1"}) == [("orders", "2"), ("payments", "1")]
    assert told(asked, {"orders": "2", "payments": "3"}) == [("payments", "3")]
    assert told(asked, {"orders": "2", "payments": "3"}, everything=True) == [("orders", "2"), ("payments", "3")]


def test_the_times_of_a_broker_are_reported_when_they_change() -> None:
    asked = ConfigsRound()
    view = ClusterView(ClusterId("c"), 1, {BrokerId(3): ("host", 9092)}, {})

    def reported(times: dict[str, str]) -> list[tuple[str, str, str | None]]:
        asked.ask(Describer({}, times), view, Micros(1), everything=False)
        seen: list[Any] = asked.take(envelope(), Micros(2))
        return [(observed.topic, observed.key, observed.value) for observed in seen]

    times = {"replica.lag.time.max.ms": "30000", "broker.session.timeout.ms": "9000"}
    assert reported(times) == [("", key, value) for key, value in times.items()]
    assert reported(times) == []
    assert reported({}) == [], "without an answer the last one holds"


class Inkless(Describer):
    """Answers as a broker that knows diskless topics: each topic's own value, or the default of the broker."""

    def __init__(self, own: dict[str, str | None], default: str = "false", key: str = "diskless.enable") -> None:
        self.own, self.default, self.key = own, default, key

    def values(self, resource: Described) -> dict[str, DescribedValue]:
        own = self.own[resource.name]
        return {self.key: DescribedValue(self.default, STATIC) if own is None else DescribedValue(own, OF_TOPIC)}


def flags(asked: ConfigsRound, client: Any, *, everything: bool = False) -> dict[str, str | None]:
    asked.ask(client, viewed(client.own), Micros(1), everything=everything)
    seen: list[Any] = asked.take(envelope(), Micros(2))
    return {observed.topic: observed.value for observed in seen if observed.key == DISKLESS}


def test_a_topic_is_diskless_by_its_own_value_not_by_the_brokers_default_for_new_topics() -> None:
    asked = ConfigsRound()
    told = {"cold": "true", "__consumer_offsets": None}
    assert flags(asked, Inkless(told, "true")) == told
    assert flags(asked, Inkless(told, "true")) == {}
    assert flags(asked, Inkless({"cold": "false"})) == {"cold": None}
    assert flags(asked, Inkless({"cold": "true"}, key="inkless.enable")) == {"cold": "true"}


def test_of_brokers_that_do_not_know_diskless_topics_nothing_is_reported() -> None:
    client: Any = Describer({"orders": "2"})
    client.own = client.minima
    assert flags(ConfigsRound(), client, everything=True) == {}


def unset(asked: ConfigsRound, names: list[str]) -> list[tuple[str, str, str | None]]:
    seen: list[Any] = asked.forget(names, envelope())
    return [(observed.topic, observed.key, observed.value) for observed in seen]


def test_a_topic_that_another_one_replaced_loses_its_values_at_once_not_with_the_next_round() -> None:
    asked = ConfigsRound()
    told(asked, {"orders": "2", "payments": "1"})
    assert unset(asked, ["orders"]) == [("orders", MIN_ISR, None), ("orders", DISKLESS, None)]
    assert told(asked, {"orders": "2", "payments": "1"}) == [("orders", "2")]


def test_values_are_unset_that_are_only_being_asked_for_again() -> None:
    asked, describer = ConfigsRound(), Describer({"orders": "2"})
    told(asked, {"orders": "2"})
    asked.ask(describer, viewed(describer.minima), Micros(1), everything=True)
    assert unset(asked, ["orders"]) == [("orders", MIN_ISR, None), ("orders", DISKLESS, None)]


def test_what_was_asked_of_a_topic_that_another_one_replaced_meanwhile_is_not_reported_of_that_one() -> None:
    asked, describer = ConfigsRound(), Describer({"orders": "2", "payments": "1"})
    asked.ask(describer, viewed(describer.minima), Micros(1), everything=False)
    unset(asked, ["orders"])
    assert [(item.topic, item.value) for item in cast("Any", asked.take(envelope(), Micros(2)))] == [("payments", "1")]
    assert told(asked, {"orders": "1", "payments": "1"}) == [("orders", "1")]


class Files:
    """Answers as brokers with files of their own: an error of Kafka, and where each value is from."""

    def __init__(
        self, brokers: dict[str, str], topics: dict[str, tuple[str, int]], error: int = 0, source: int = STATIC
    ) -> None:
        self.brokers, self.topics, self.error, self.source = brokers, topics, error, source
        self.probes: set[str] = set()

    def describe(self, resources: Sequence[Described]) -> dict[Described, Future[ResourceConfig]]:
        answers: dict[Described, Future[ResourceConfig]] = {resource: Future() for resource in resources}
        for resource, answer in answers.items():
            is_broker = resource.kind is Resource.BROKER
            value, source = (self.brokers[resource.name], self.source) if is_broker else self.topics[resource.name]
            self.probes |= {resource.probe} if is_broker else set()
            answer.set_result(ResourceConfig(self.error if is_broker else 0, {MIN_ISR: DescribedValue(value, source)}))
        return answers


def minima(asked: ConfigsRound, files: Files) -> list[tuple[Any, ...]]:
    view = replace(viewed(files.topics), brokers={BrokerId(int(broker)): ("h", 1) for broker in files.brokers})
    asked.ask(files, view, Micros(1), everything=False)
    seen: list[Any] = asked.take(envelope(), Micros(2))
    return [(each.topic, each.value, each.brokers, each.values) for each in seen]


def test_each_broker_is_asked_for_its_own_minimum_and_that_of_a_topic_is_only_its_own() -> None:
    asked, topics = ConfigsRound(), {"orders": ("2", STATIC), "payments": ("3", OF_TOPIC), "audit": ("2", 3)}
    of_topics = [("orders", None, None, None), ("payments", "3", None, None), ("audit", "2", None, None)]
    assert minima(asked, Files({"1": "1", "2": "2"}, topics)) == [("", None, (1, 2), (1, 2)), *of_topics]
    assert minima(asked, Files({"1": "1", "2": "2"}, topics)) == []
    assert minima(asked, Files({"1": "1", "2": "3"}, topics)) == [("", None, (1, 2), (1, 3))]
    assert minima(asked, Files({"2": "3"}, topics)) == []  # what broker 1 had holds until it is asked again


def test_the_default_of_the_cluster_is_not_that_of_topics_while_a_minimum_is_set_for_a_broker_alone() -> None:
    """KIP-226: what is set for the leader alone counts before the default, whichever broker is asked for a topic."""
    asked, topics = ConfigsRound(), {"orders": ("2", 3), "payments": ("3", OF_TOPIC)}
    alone = Files({"1": "1"}, topics, source=2)
    assert minima(asked, alone) == [
        ("", None, (1,), (1,)), ("orders", None, None, None), ("payments", "3", None, None),
    ]  # fmt: skip
    assert minima(asked, Files({"1": "2"}, topics, source=3)) == [("", None, (1,), (2,)), ("orders", "2", None, None)]


def test_a_value_of_unknown_origin_counts_for_the_topic_as_brokers_before_1_1_have_it() -> None:
    assert minima(ConfigsRound(), Files({}, {"orders": ("2", -1)})) == [("orders", "2", None, None)]


def test_where_brokers_may_not_be_described_a_topic_without_a_minimum_shows_theirs() -> None:
    asked, files = ConfigsRound(), Files({"1": "1"}, {"payments": ("3", OF_TOPIC), "orders": ("2", STATIC)}, error=31)
    minima(asked, files)
    minima(asked, files)
    assert files.probes == {"", "orders"}
    assert asked.broker_refusal is not None
