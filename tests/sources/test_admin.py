"""Polling, against brokers that speak the protocol (and a real one in ``test_admin_cluster``)."""

from __future__ import annotations

import copy
import socket
import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from kafka.protocol.admin import DescribeClusterRequest, DescribeConfigsRequest, ListPartitionReassignmentsRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import ClusterId, Micros, synthetic_topic_id
from streaming.contracts.observations import (
    MIN_ISR,
    BrokerObserved,
    ConfigObserved,
    Heartbeat,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
)
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.polling import metadata, view
from streaming.sources.polling.metadata import NO_TOPIC
from streaming.sources.polling.source import AdminSource
from streaming.sources.protocol.connection import ServiceRefused
from tests.blocks import singly
from tests.plugins.fake_kafka import (
    DESCRIBE_CONFIGS,
    METADATA,
    OF_KAFKA_1_0,
    OF_KAFKA_2_3,
    TOPIC_AUTHORIZATION_FAILED,
    FakeKafka,
    Topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    MakeKafka = Callable[..., FakeKafka]
    SourceOf = Callable[..., AdminSource]
    Enough = Callable[[list[Observation]], bool]
    Polled = Callable[..., tuple[FakeKafka, AdminSource]]

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
TWO_HOURS = 7_200_000_000


def now() -> Micros:
    return Micros(time.time_ns() // 1000)


def made(bootstrap_servers: str, **settings: Any) -> AdminSource:
    periods = {"poll_micros": 50_000, "view_micros": 100_000, "config_micros": 600_000_000}
    values = {"client": {}, "source_kind": SourceKind.POLL, "request_seconds": 2.0, **periods, **settings}
    return AdminSource(bootstrap_servers=bootstrap_servers, cluster="test", name="admin:test", **values)


@pytest.fixture
def source_of() -> Iterator[SourceOf]:
    with ExitStack() as stack:
        yield lambda servers, **settings: stack.enter_context(closing(made(servers, **settings)))


@pytest.fixture
def polled(fake_kafka: MakeKafka, source_of: SourceOf) -> Polled:
    """Give a factory of a cluster with topics, and of a source that polls it."""

    def make(brokers: int, topics: Mapping[str, int] = {"orders": 1}, **settings: Any) -> tuple[FakeKafka, AdminSource]:
        cluster = fake_kafka(brokers, **topics)
        return cluster, source_of(cluster.bootstrap_servers, **settings)

    return make


def until(
    source: AdminSource, enough: Enough, ahead_micros: int = 0, refusals: tuple[type[Exception], ...] = ()
) -> list[Observation]:
    """Poll until enough was seen, by a clock that is ahead, or behind."""
    found: list[Observation] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not enough(found):
        assert time.monotonic() < deadline, f"seen so far: {Counter(item.kind for item in found)}"
        with suppress(*refusals):
            found += singly(source.poll(Micros(now() + ahead_micros)))
    return found


in_spite_of_refusals = partial(until, refusals=(ConnectionRefused,))
"""Whatever permission is missing."""


def of(kind: type[T], found: list[Observation]) -> list[T]:
    return [item for item in found if isinstance(item, kind)]


def has(kind: type[Observation], number: int = 1) -> Enough:
    return lambda found: len(of(kind, found)) >= number


def has_minimum(topic: str) -> Enough:
    return lambda found: any(item.topic == topic and item.value is not None for item in of(ConfigObserved, found))


def test_the_first_poll_is_a_whole_snapshot(fake_kafka: MakeKafka, source_of: SourceOf) -> None:
    cluster = fake_kafka(3, orders=4)
    cluster.create_topic("loose", partitions=1, replicas=2)
    began = now()
    found = until(source_of(cluster.bootstrap_servers), has(SnapshotEnd))
    assert all(began <= item.collected_at <= now() for item in found)
    (begin,), (end,) = of(SnapshotBegin, found), of(SnapshotEnd, found)
    parts = of(PartitionObserved, [*singly(found)])
    assert begin.reason is SnapshotReason.START
    assert begin.snapshot_id == end.snapshot_id
    assert Counter(item.topic_id for item in parts) == dict(zip(end.topic_ids, end.partition_counts, strict=True))
    assert Counter(item.topic for item in parts) == {"orders": 4, "loose": 1}
    assert {(True, None, SourceKind.POLL)} == {(item.in_snapshot, item.cause, item.source_kind) for item in parts}
    assert all(set(item.isr) == set(item.replicas) and item.leader in item.isr for item in parts)
    assert [item.broker for item in of(BrokerObserved, found)] == [1, 2, 3]
    assert {(None, 0, True)} == {(item.partition_epoch, item.leader_epoch, item.reports_elr) for item in parts}


def test_reassignments_that_take_longer_than_polls_are_in_the_first_report(polled: Polled) -> None:
    cluster, source = polled(1)
    cluster.held.add(ListPartitionReassignmentsRequest.API_KEY)
    threading.Timer(0.3, cluster.held.clear).start()
    until(source, has(SnapshotEnd))
    assert not of(SnapshotBegin, until(source, has(Heartbeat, 2))), "nothing was unknown"


def asks_again_whether_it_is_there(cluster: FakeKafka, broker: int) -> bool:
    """Return whether a broker must have answered that it is there: what it did is unknown before."""
    return [asked for asked, _ in cluster.asked(DescribeClusterRequest)].count(broker) > 1


def test_between_snapshots_only_what_changed_is_reported_within_its_window(polled: Polled) -> None:
    cluster, source = polled(3, {"orders": 4})
    first = until(source, has(SnapshotEnd))
    (old,) = [item for item in of(PartitionObserved, [*singly(first)]) if item.partition == 2]
    until(source, lambda _: asks_again_whether_it_is_there(cluster, old.leader))
    new = 1 + old.leader % 3
    before = now()
    cluster.set_leader("orders", 2, new)
    after = now()
    changes = of(PartitionObserved, until(source, has(PartitionObserved, 2)))
    assert {(each.partition, each.leader, each.in_snapshot) for each in changes} == {(2, new, False)}
    assert [each.cause for each in changes] == [Cause.FENCED, Cause.EXPAND], "no order elects but the first replica"
    assert {each.evidence for each in changes} == {Evidence.INFERRED}
    for change in changes:
        assert change.occurred_not_before <= after
        assert change.occurred_not_after >= before
        assert change.occurred_not_before >= old.occurred_not_after - 1_000_000


def test_a_new_topic_a_deleted_topic_and_one_made_again_are_reported(polled: Polled) -> None:
    cluster, source = polled(3)
    until(source, has(SnapshotEnd))
    cluster.create_topic("new", partitions=2, replicas=1)
    created = of(PartitionObserved, until(source, has(PartitionObserved, 2)))
    assert {("new", Cause.CREATED)} == {(item.topic, item.cause) for item in created}
    assert sorted(item.partition for item in created) == [0, 1]
    cluster.delete_topic("new")
    gone = until(source, has(SnapshotEnd))
    assert [item.reason for item in of(SnapshotBegin, gone)] == [SnapshotReason.PERIODIC]
    assert {"orders"} == {item.topic for item in of(PartitionObserved, [*singly(gone)])}
    cluster.create_topic("new", partitions=2, replicas=1)
    again = of(PartitionObserved, until(source, has(PartitionObserved, 2)))
    assert {item.topic_id for item in created}.isdisjoint(item.topic_id for item in again)


@pytest.mark.parametrize("kind", [SourceKind.POLL, SourceKind.NONE])
def test_a_topic_that_is_created_again_is_asked_for_its_minimum_at_once(polled: Polled, kind: SourceKind) -> None:
    cluster, source = polled(1, source_kind=kind)
    until(source, has_minimum("orders"))
    cluster.create_topic("orders", partitions=1, replicas=1)
    found = until(source, has_minimum("orders"))
    assert [item.value for item in of(ConfigObserved, found) if item.key == MIN_ISR] == [None, "1"]


def test_a_topic_created_while_minima_are_awaited_is_asked_soon(fake_kafka: MakeKafka, source_of: SourceOf) -> None:
    cluster = fake_kafka(2, orders=1)
    cluster.hang(2, 200)
    source = source_of(f"127.0.0.1:{cluster.ports[1]}")
    until(source, lambda _: any(broker == 2 for broker, _ in cluster.asked(DescribeConfigsRequest)))
    cluster.create_topic("payments", partitions=1, replicas=1)
    until(source, has_minimum("payments"))


def test_a_hung_broker_never_makes_polls_blind(polled: Polled) -> None:
    """Any broker may be the one that is asked; without a second question one hit would take a minute."""
    cluster, source = polled(2, request_seconds=60.0, client={"socket.timeout.ms": "60000"})
    until(source, has(Heartbeat, 3))
    cluster.hang(2, 600_000)
    began = time.monotonic()
    until(source, has(Heartbeat, 6))
    assert time.monotonic() - began < 55.0


@pytest.mark.parametrize("newest", [OF_KAFKA_1_0, OF_KAFKA_2_3], ids=["1.0", "2.3"])
def test_old_brokers_are_polled_without_epochs_and_topic_ids(polled: Polled, newest: dict[int, int]) -> None:
    cluster, source = polled(3, {"orders": 3})
    cluster.newest = newest
    cluster.view.topics["orders"].parts[1].offline = [3]
    found = in_spite_of_refusals(source, lambda seen: has(Heartbeat)(seen) and has_minimum("orders")(seen))
    assert {request.API_VERSION for _, request in cluster.asked(MetadataRequest)} == {newest[METADATA]}
    parts = of(PartitionObserved, found)
    assert {("orders", None, None)} == {(item.topic, item.leader_epoch, item.reports_elr) for item in parts}
    assert {item.topic_id for item in parts} == {synthetic_topic_id(ClusterId(cluster.cluster_id), "orders")}
    seen = {(item.partition, item.leader, item.isr) for item in parts}
    assert seen == {(0, 1, (1, 2, 3)), (1, 2, (2, 3, 1)), (2, 3, (3, 1, 2))}
    cluster.set_leader("orders", 1, 1)
    cluster.view.topics["orders"].parts[1].isr = [1, 2]
    (left,) = of(PartitionObserved, in_spite_of_refusals(source, has(PartitionObserved)))
    assert (left.partition, left.leader, left.isr, left.cause) == (1, 1, (2, 1), Cause.DIR_FAILURE)
    cluster.delete_topic("orders")
    cluster.create_topic("payments", partitions=1, replicas=3)
    (end,) = of(SnapshotEnd, in_spite_of_refusals(source, has(SnapshotEnd)))
    assert end.topic_ids == (synthetic_topic_id(ClusterId(cluster.cluster_id), "payments"),)


def test_brokers_from_before_kafka_1_0_are_refused_in_one_sentence(polled: Polled) -> None:
    cluster, source = polled(1)
    cluster.newest = {**OF_KAFKA_1_0, METADATA: 4}
    with pytest.raises(
        ServiceRefused, match=r"is older than Kafka 1\.0, and cannot be polled: .*; name brokers of Kafka"
    ):
        until(source, has(SnapshotEnd))


def test_a_lost_connection_ends_in_a_snapshot_that_says_so(polled: Polled) -> None:
    cluster, source = polled(1, request_seconds=1.0)
    until(source, has(SnapshotEnd))
    cluster.take_down(1)
    with pytest.raises(ConnectionRefused, match="no broker answers at 127"):
        until(source, has(SnapshotEnd))
    cluster.bring_up(1)
    found = of(SnapshotBegin, in_spite_of_refusals(source, has(SnapshotEnd)))
    assert [item.reason for item in found] == [SnapshotReason.HISTORY_LOST]


def test_where_the_broker_that_is_asked_ends_the_next_one_answers_in_the_same_round(polled: Polled) -> None:
    cluster, source = polled(3, {"orders": 3})
    until(source, has(Heartbeat))
    (asked, _) = cluster.asked(MetadataRequest)[-1]
    cluster.disconnect(asked)
    found = until(source, has(Heartbeat, 3))
    assert cluster.asked(MetadataRequest)[-1][0] != asked
    assert SnapshotReason.HISTORY_LOST not in {begin.reason for begin in of(SnapshotBegin, found)}


def test_second_looks_leave_no_connection_behind(polled: Polled) -> None:
    names = [f"topic-{number}" for number in range(6)]
    cluster, source = polled(3, dict.fromkeys(names, 3))
    until(source, has(SnapshotEnd))
    for name in names[1:]:
        cluster.delete_topic(name)
        until(source, has(SnapshotEnd))
    assert {broker for broker, _ in cluster.asked(MetadataRequest)} == {1, 2, 3}
    # One to each leader, and those for metadata, reassignments and configurations.
    assert cluster.connections() <= 3 + 3


def test_controllers_restored_from_a_backup_are_followed_although_their_epochs_are_lower(polled: Polled) -> None:
    cluster, source = polled(1)
    (part,) = cluster.view.topics["orders"].parts
    part.leader_epoch = 9
    state = ReplicationState()
    state.apply(fold(state, until(source, has(Heartbeat))).touched)
    part.leader_epoch, part.leader = 4, -1
    found = until(source, has(SnapshotEnd))
    state.apply(fold(state, found).touched)
    (begin,), (partition,) = of(SnapshotBegin, found), state.partitions()
    assert (begin.is_new_log, begin.reason) == (True, SnapshotReason.HISTORY_LOST)
    assert (partition.leader_epoch, partition.leader, partition.is_offline) == (4, -1, True)


@pytest.mark.parametrize("is_restored", [True, False])
def test_controllers_that_were_restored_while_no_collector_ran_are_followed_and_one_stale_broker_is_not(
    fake_kafka: MakeKafka, source_of: SourceOf, tmp_path: Path, *, is_restored: bool
) -> None:
    cluster = fake_kafka(3, orders=1)
    (part,) = cluster.view.topics["orders"].parts
    part.leader_epoch = 9
    state = ReplicationState()

    def run() -> bool:
        source = source_of(cluster.bootstrap_servers, epochs=tmp_path / "admin.json")
        found = until(source, has(Heartbeat))
        source.acknowledge()
        state.apply(fold(state, found).touched)
        first, *others = [begin.is_new_log for begin in of(SnapshotBegin, found)]
        assert not any(others)  # there are some where the machine stood still
        return first

    assert not run()
    (asked, *_) = [broker for broker, _ in cluster.asked(MetadataRequest)]
    cluster.views = {asked: copy.deepcopy(cluster.view)}
    for each in cluster.views.values() if not is_restored else [cluster.view, *cluster.views.values()]:
        each.topics["orders"].parts[0].leader_epoch, each.topics["orders"].parts[0].leader = 4, -1
    assert run() == is_restored
    (partition,) = state.partitions()
    assert (partition.leader_epoch, partition.is_offline) == ((4, True) if is_restored else (9, False))
    assert not run()


def test_what_was_remembered_and_is_damaged_or_of_another_cluster_is_forgotten(
    fake_kafka: MakeKafka, source_of: SourceOf, tmp_path: Path
) -> None:
    cluster, path = fake_kafka(1, orders=1), tmp_path / "admin.json"
    for content in (b"", b"{}", b'{"version": 0}'):
        path.write_bytes(content)
        source = source_of(cluster.bootstrap_servers, epochs=path)
        begins = of(SnapshotBegin, until(source, has(Heartbeat)))  # one more where the machine stood still
        source.acknowledge()
        assert begins
        assert not any(begin.is_new_log for begin in begins)
        assert b'"orders":["' in path.read_bytes()


def test_one_broker_alone_undoes_no_election_that_another_one_showed_until_the_doubt_has_lasted_long(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut off from the controllers, and the others from the collector; or the controllers were restored."""
    monkeypatch.setattr(view, "LONGEST_DOUBT", 2_000_000)
    cluster, source = polled(3)
    until(source, has(Heartbeat))
    (asked, _) = cluster.asked(MetadataRequest)[-1]
    cut_off, *_ = others = [broker for broker in (1, 2, 3) if broker != asked]
    cluster.views[cut_off] = copy.deepcopy(cluster.view)
    cluster.set_leader("orders", 0, asked)
    until(source, has(PartitionObserved))
    for broker in {asked, *others} - {cut_off}:
        cluster.disconnect(broker)
    began, found = time.monotonic(), list[Observation]()
    while time.monotonic() - began < 1:
        with suppress(ConnectionRefused):
            found += singly(source.poll(now()))
    assert [each for each in found if not isinstance(each, ConfigObserved)] == []
    assert [broker for broker, _ in cluster.asked(MetadataRequest)].count(cut_off) > 3
    (begin,) = of(SnapshotBegin, in_spite_of_refusals(source, has(SnapshotEnd)))
    assert begin.is_new_log
    assert time.monotonic() - began > 2


def test_a_poller_that_was_suspended_says_that_it_saw_nothing_meanwhile(polled: Polled) -> None:
    _, source = polled(1)
    until(source, has(Heartbeat))
    (begin,) = of(SnapshotBegin, until(source, has(SnapshotBegin), TWO_HOURS))
    assert begin.reason is SnapshotReason.HISTORY_LOST


def test_a_poller_that_was_suspended_knows_that_without_a_look_at_the_wall_clock(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, source = polled(1)
    until(source, has(Heartbeat))
    clock = time.clock_gettime_ns
    shift = {time.CLOCK_BOOTTIME: 7_200 * 10**9}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: clock(which) + shift.get(which, 0))
    (begin,) = of(SnapshotBegin, until(source, has(SnapshotBegin)))
    assert begin.reason is SnapshotReason.HISTORY_LOST


def test_a_corroborator_tells_partitions_only_while_its_primary_source_is_not_whole(polled: Polled) -> None:
    whole, lines = [True], list[str]()
    settings = {"is_primary_current": lambda: whole[0], "view_micros": 10**8, "report": lines.append}
    _, source = polled(3, {"orders": 2}, source_kind=SourceKind.NONE, **settings)
    found = until(source, has(ConfigObserved))
    assert {("config", SourceKind.NONE)} == {(item.kind, item.source_kind) for item in found}
    whole[0] = False
    found = until(source, has(Heartbeat, 2))
    (begin,) = of(SnapshotBegin, found)
    assert (begin.reason, begin.source_kind) == (SnapshotReason.HISTORY_LOST, SourceKind.POLL)
    assert len(of(PartitionObserved, found)) == 2
    whole[0] = True
    assert not [item for _ in range(3) for item in source.poll(now()) if item.source_kind is SourceKind.POLL]
    assert lines == [
        "admin:test: polls the brokers while the metadata log cannot be read",
        "admin:test: the metadata log is read again",
    ]


def test_a_clock_that_is_set_back_by_hours_stops_no_poll(polled: Polled) -> None:
    _, source = polled(1)
    until(source, has(Heartbeat))
    until(source, has(Heartbeat, 3), -TWO_HOURS)


def test_a_missing_permission_is_named_once_and_the_rest_goes_on(polled: Polled) -> None:
    cluster, source = polled(1)
    cluster.fail(DESCRIBE_CONFIGS, *[TOPIC_AUTHORIZATION_FAILED] * 10)
    sentence = r"this user lacks DescribeConfigs on topic orders: .* --operation DescribeConfigs"
    with pytest.raises(ConnectionRefused, match=sentence):
        until(source, has(ConfigObserved))
    assert has(Heartbeat, 3)(in_spite_of_refusals(source, has(Heartbeat, 3)))  # the broker's own are denied, too


def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


LOGIN = {
    "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"
}  # fmt: skip


@pytest.mark.parametrize(
    ("servers", "client", "sentence"),
    [
        ("127.0.0.1:{unused}", {}, r"no broker answers at 127.0.0.1:\d+: .*refused; check cluster.bootstrap_servers"),
        ("nowhere.invalid:1", {}, r"no broker answers at nowhere.invalid:1: .* cannot be reached: .*; check cluster.b"),
        ("{mock}", {"security.protocol": "SSL"}, r"refuses TLS: .*; check .* security.protocol "),
        ("{mock}", LOGIN, r"does not offer PLAIN; set cluster.client sasl.mechanism to one of GSSAPI"),
    ],
)
def test_a_refusal_is_one_sentence_that_names_the_fix(
    fake_kafka: MakeKafka, source_of: SourceOf, servers: str, client: dict[str, str], sentence: str
) -> None:
    address = servers.format(unused=unused_port(), mock=fake_kafka(1).bootstrap_servers)
    with pytest.raises(ConnectionRefused, match=sentence) as refused:
        until(source_of(address, client=client, request_seconds=1.0), has(SnapshotEnd))
    assert "\n" not in str(refused.value)


def test_a_property_that_nobody_knows_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match=r"cluster\.client nonsense is unknown"):
        made("127.0.0.1:9092", client={"nonsense": "1"})


def test_an_idle_poll_waits_and_comes_back_within_two_seconds(polled: Polled) -> None:
    _, source = polled(1, {}, **dict.fromkeys(("poll_micros", "view_micros", "config_micros"), 3_600_000_000))
    until(source, has(SnapshotEnd))
    began = time.monotonic()
    while source.poll(now()):
        began = time.monotonic()
    assert 0.9 < time.monotonic() - began < 20


def test_a_broker_that_answers_alone_is_believed_in_the_end(polled: Polled) -> None:
    """A deleted topic stays missing, however often one looks."""
    cluster, source = polled(1, {"orders": 1, "gone": 1}, poll_micros=2_000_000)
    until(source, has(SnapshotEnd))
    cluster.delete_topic("gone")
    began = time.monotonic()
    (end,) = of(SnapshotEnd, until(source, has(SnapshotEnd)))
    assert len(end.topic_ids) == 1
    assert time.monotonic() - began > 0.8


def test_a_broker_cut_off_from_the_controllers_hides_no_change(polled: Polled, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers every time, and says the same for ever: so another one is asked now and then."""
    monkeypatch.setattr(metadata, "ELSEWHERE_EVERY", 200_000)
    cluster, source = polled(3)
    until(source, has(Heartbeat))
    (asked, _) = cluster.asked(MetadataRequest)[-1]
    cluster.views[asked] = copy.deepcopy(cluster.view)
    cluster.view.brokers.remove(asked)
    (part,) = cluster.view.topics["orders"].parts
    part.isr.remove(asked)
    if part.leader == asked:
        cluster.set_leader("orders", 0, part.isr[0])

    found = until(source, has(SnapshotEnd))
    (end,), (partition,) = of(SnapshotEnd, found), [item for item in of(PartitionObserved, found) if item.cause]
    assert (set(end.brokers), set(partition.isr)) == ({1, 2, 3} - {asked}, {1, 2, 3} - {asked})
    later = until(source, has(Heartbeat, 10))
    assert not of(SnapshotEnd, later), "what it says is not believed when it is asked again"


def test_what_a_broker_shows_that_is_seldom_asked_is_verified(polled: Polled, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was cut off while a replica was missing shows for ever that it is missing."""
    monkeypatch.setattr(metadata, "ELSEWHERE_EVERY", 200_000)
    cluster, source = polled(3)
    until(source, has(Heartbeat))
    cut_off = next(broker for broker in (1, 2, 3) if broker != cluster.asked(MetadataRequest)[-1][0])
    cluster.views[cut_off] = copy.deepcopy(cluster.view)
    cluster.views[cut_off].topics["orders"].parts[0].isr.pop()
    found = until(source, lambda _: [broker for broker, _ in cluster.asked(MetadataRequest)].count(cut_off) > 1)
    found += until(source, has(Heartbeat, 3))
    assert not of(PartitionObserved, found)


def test_topics_that_a_restarted_poller_may_not_see_are_not_deleted_and_those_it_saw_deleted_are(
    fake_kafka: MakeKafka, source_of: SourceOf
) -> None:
    cluster = fake_kafka(1, orders=2, payments=2, returns=2)
    state = ReplicationState()

    def deleted_after(found: list[Observation]) -> set[str]:
        state.apply(fold(state, found).touched)
        return {each.topic for each in state.partitions() if each.is_deleted}

    assert deleted_after(until(source_of(cluster.bootstrap_servers), has(SnapshotEnd))) == set()
    for name in ("payments", NO_TOPIC):
        cluster.view.topics[name] = Topic(uuid.UUID(int=0), [], TOPIC_AUTHORIZATION_FAILED)
    restarted = source_of(cluster.bootstrap_servers)
    assert deleted_after(in_spite_of_refusals(restarted, has(SnapshotEnd))) == set()
    cluster.delete_topic("returns")
    assert deleted_after(in_spite_of_refusals(restarted, has(SnapshotEnd))) == {"returns"}


def test_one_topic_alone_that_became_hidden_while_no_collector_ran_is_not_deleted(
    fake_kafka: MakeKafka, source_of: SourceOf, tmp_path: Path
) -> None:
    cluster = fake_kafka(1, orders=2, payments=2, returns=2)
    state, unset = ReplicationState(), list[str]()

    def run() -> set[str]:
        source = source_of(cluster.bootstrap_servers, epochs=tmp_path / "admin.json", snapshot_micros=100_000)
        found = in_spite_of_refusals(source, has(SnapshotEnd, 2))
        source.acknowledge()
        state.apply(fold(state, found).touched)
        unset[:] = [
            item.topic
            for item in of(ConfigObserved, found)
            if item.key == MIN_ISR and item.brokers is None and item.value is None
        ]
        return {each.topic for each in state.partitions() if each.is_deleted}

    assert run() == set()
    cluster.view.topics["payments"].error = TOPIC_AUTHORIZATION_FAILED
    assert run() == set()
    cluster.delete_topic("returns")
    cluster.create_topic("orders", partitions=1, replicas=1)
    assert run() == {"orders", "returns"}
    assert sorted(unset) == ["orders", "returns"], "the new topic does not inherit a minimum"
    cluster.view.topics["payments"].error = 0
    assert run() == {"orders", "returns"}
    assert sorted((each.topic, each.is_deleted) for each in state.partitions()) == [
        ("orders", False), ("orders", True), ("orders", True), ("payments", False), ("payments", False),
        ("returns", True), ("returns", True),
    ]  # fmt: skip


def test_a_topic_that_becomes_hidden_is_not_reported_until_it_is_seen_again(polled: Polled) -> None:
    """Neither as it was, which nobody knows any more, nor as deleted."""
    cluster, source = polled(2, {"orders": 1, "payments": 1}, snapshot_micros=100_000)
    state = ReplicationState()

    def reported() -> tuple[set[str], bool | None]:
        """Return what the next two full reports say, the first of which may have been on its way."""
        found = in_spite_of_refusals(source, has(SnapshotEnd, 2))
        state.apply(fold(state, found).touched)
        last = found[max(place for place, item in enumerate(found) if isinstance(item, SnapshotBegin)) :]
        return {item.topic for item in of(PartitionObserved, last)}, of(SnapshotEnd, last)[-1].is_partial

    assert reported() == ({"orders", "payments"}, None)
    payments = cluster.view.topics["payments"]
    payments.error, payments.parts[0].isr = TOPIC_AUTHORIZATION_FAILED, [2]
    cluster.set_leader("payments", 0, 2)
    in_spite_of_refusals(source, has(Heartbeat, 3))
    assert reported() == ({"orders"}, True)
    assert {each.topic: each.isr for each in state.partitions()} == {"orders": (1, 2), "payments": (1, 2)}
    payments.error = 0
    found = in_spite_of_refusals(source, lambda seen: any(it.topic == "payments" for it in of(PartitionObserved, seen)))
    state.apply(fold(state, found).touched)
    assert {each.topic: each.isr for each in state.partitions()} == {"orders": (1, 2), "payments": (2,)}
    assert {item.cause for item in of(PartitionObserved, found)} == {None}


def test_another_cluster_at_the_same_address_begins_anew_and_has_no_topic_of_the_one_before(polled: Polled) -> None:
    cluster, source = polled(1, {"orders": 1, "payments": 1})
    until(source, has(Heartbeat))
    cluster.view.topics = {"payments": Topic(uuid.UUID(int=0), [], TOPIC_AUTHORIZATION_FAILED)}
    cluster.create_topic("orders", partitions=1, replicas=1)
    cluster.cluster_id = "another-cluster"
    found = in_spite_of_refusals(source, has(SnapshotEnd))
    parts = of(PartitionObserved, found)
    assert [begin.reason for begin in of(SnapshotBegin, found)] == [SnapshotReason.START]
    assert [(item.cluster_id, item.topic, item.cause) for item in parts] == [("another-cluster", "orders", None)]


@pytest.mark.parametrize("kind", [SourceKind.POLL, SourceKind.NONE])
def test_bootstrap_servers_of_two_clusters_are_refused(
    fake_kafka: MakeKafka, source_of: SourceOf, kind: SourceKind
) -> None:
    one, other = fake_kafka(1), fake_kafka(1)
    other.cluster_id = "another-cluster"
    source = source_of(f"{one.bootstrap_servers},{other.bootstrap_servers}", source_kind=kind)
    sentence = r"names brokers of several clusters: 127\.\S+ is of \S+, 127\.\S+ is of \S+; name those of one"
    for _ in range(3):
        with pytest.raises(ServiceRefused, match=sentence):
            until(source, has(PartitionObserved))


def test_a_bootstrap_server_that_is_down_is_no_other_cluster(fake_kafka: MakeKafka, source_of: SourceOf) -> None:
    cluster = fake_kafka(1)
    source = source_of(f"127.0.0.1:{unused_port()},{cluster.bootstrap_servers},localhost:{cluster.ports[1]}")
    until(source, has(Heartbeat, 3))


def test_where_only_a_bootstrap_server_is_reached_it_is_asked_for_minima_times_and_reassignments(
    fake_kafka: MakeKafka, source_of: SourceOf
) -> None:
    """As behind NAT: offsets alone are missing, which only leaders have."""
    cluster = fake_kafka(2, orders=1)
    cluster.advertised = {1: ("127.0.0.1", unused_port()), 2: ("127.0.0.1", unused_port())}
    source = source_of(f"127.0.0.1:{cluster.ports[1]}", snapshot_micros=100_000, config_micros=200_000)

    def is_whole(seen: list[Observation]) -> bool:
        return has_minimum("orders")(seen) and any(item.reports_reassignments for item in of(PartitionObserved, seen))

    until(source, is_whole)
    types = {each.resource_type for _, request in cluster.asked(DescribeConfigsRequest) for each in request.resources}
    assert types == {2, 4}, "topics and a broker"


def test_a_broker_that_is_too_old_for_topic_ids_makes_no_other_topic_of_any(polled: Polled) -> None:
    cluster, source = polled(2, snapshot_micros=1_000_000)
    ids = {end.topic_ids for end in of(SnapshotEnd, until(source, has(SnapshotEnd)))}

    def of_all_topics() -> tuple[int, Any]:
        return next(each for each in reversed(cluster.asked(MetadataRequest)) if each[1].topics is None)

    (asked, _) = of_all_topics()
    cluster.newest[METADATA] = 9
    cluster.disconnect(asked)
    found = until(source, has(SnapshotEnd, 2))
    assert of_all_topics()[1].API_VERSION == 9
    assert {end.topic_ids for end in of(SnapshotEnd, found)} == ids
