"""The image of a cluster: recorded logs of real clusters, and records that they did not hold."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts import observations as seen
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerEpoch, BrokerId, ClusterId, Micros, Offset, TopicId
from streaming.contracts.observations import DISKLESS, MIN_ISR
from streaming.contracts.records import (
    BrokerRegistrationChange,
    ClearElr,
    Config,
    EndPoint,
    LeaderChange,
    MetadataRecord,
    NoOp,
    Partition,
    PartitionChange,
    RecordBatch,
    RegisterBroker,
    RegisterController,
    RemoveTopic,
    SkippedRecord,
    Topic,
    TransactionMarker,
    UndecodableRecord,
    UnregisterBroker,
    UnregisterController,
)
from streaming.sources.metadata_log.image import ClusterImage
from streaming.sources.metadata_log.image_state import ControllersStep, MetadataState
from tests.blocks import singly
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streaming.contracts.observations import Observation

    RecordedLog = Callable[[str], list[RecordBatch]]

T = TypeVar("T")
LOGS = ("one_controller", "controller_failover", "replication_links")
TOPIC = TopicId("AAAAAAAAAAAAAAAAAAAAAQ")
NOW = Micros(7)


def image(*records: MetadataRecord) -> ClusterImage:
    """An image of a cluster whose log began with records."""
    cluster = ClusterImage(cluster_id=ClusterId("C"), cluster="test", source="metadata_log:test")
    if records:
        cluster.apply(batch(0, *records), NOW)
    return cluster


def applied(cluster: ClusterImage, batches: Iterable[RecordBatch]) -> list[Observation]:
    return list(singly(item for batch in batches for item in cluster.apply(batch, NOW)))


def full_report(cluster: ClusterImage) -> list[Observation]:
    return cluster.snapshot(snapshot_id="s", reason=seen.SnapshotReason.START, collected_at=NOW)


def of(kind: type[T], found: Iterable[object]) -> list[T]:
    return [item for item in found if isinstance(item, kind)]


@pytest.mark.parametrize("log", LOGS)
def test_each_partition_record_gives_exactly_one_observation(recorded_log: RecordedLog, log: str) -> None:
    batches = recorded_log(log)
    records = [(it.base_offset + index, record) for it in batches for index, record in enumerate(it.records)]
    written = [offset for offset, record in records if isinstance(record, Partition | PartitionChange)]
    cluster = image()
    assert written == [item.metadata_offset for item in of(seen.PartitionObserved, applied(cluster, batches))]
    assert cluster.undecodable == []


@pytest.mark.parametrize("log", LOGS)
def test_partition_epochs_grow_by_one_and_leader_epochs_by_new_leaders(recorded_log: RecordedLog, log: str) -> None:
    last: dict[tuple[str, int], seen.PartitionObserved] = {}
    for item in of(seen.PartitionObserved, applied(image(), recorded_log(log))):
        before = last.get((item.topic_id, item.partition))
        assert item.leader in (*item.isr, -1)
        if before is None:
            assert (item.leader_epoch, item.partition_epoch) == (0, 0)
        else:
            assert before.partition_epoch + 1 == item.partition_epoch  # type: ignore[operator]
            assert (before.leader == item.leader) or item.leader_epoch == before.leader_epoch + 1  # type: ignore[operator]
        last[item.topic_id, item.partition] = item


def test_the_state_at_the_end_of_a_real_log_is_the_known_one(recorded_log: RecordedLog) -> None:
    cluster = image()
    applied(cluster, recorded_log("one_controller"))
    snapshot = full_report(cluster)
    assert [
        (item.topic, item.partition, item.replicas, item.isr, item.leader, item.leader_epoch, item.partition_epoch)
        for item in of(seen.PartitionObserved, singly(snapshot))
    ] == [
        ("orders", 0, (1, 2, 3), (1, 2, 3), 2, 2, 28),
        ("orders", 1, (2, 3, 1), (1, 2, 3), 2, 9, 29),
        ("orders", 2, (3, 1, 2), (1, 2, 3), 2, 13, 30),
        ("loose", 0, (2, 3), (2, 3), 2, 12, 31),
    ]
    assert {item.broker: item.fenced for item in of(seen.BrokerObserved, snapshot)} == {1: False, 2: False, 3: False}
    assert {
        ("", MIN_ISR, "1"),
        ("orders", MIN_ISR, "2"),
        ("loose", MIN_ISR, None),
        ("orders", DISKLESS, None),
        ("loose", DISKLESS, None),
        ("loose", "unclean.leader.election.enable", "true"),
    } == {(each.topic, each.key, each.value) for each in of(seen.ConfigObserved, snapshot) if each.brokers is None}
    assert [each.values for each in of(seen.ConfigObserved, snapshot) if each.brokers is not None] == [()]


@pytest.mark.parametrize("log", LOGS)
def test_times_never_run_backwards_and_a_heartbeat_comes_each_five_seconds(recorded_log: RecordedLog, log: str) -> None:
    batches = recorded_log(log)
    found = applied(image(), batches)
    times = [item.occurred_not_after for item in found]
    assert times == sorted(times)
    assert all(item.occurred_not_before == item.occurred_not_after for item in found)
    gaps = [after - before for before, after in pairwise(times)]
    # A controller's death leaves at most 2.8 s without any record in these logs.
    assert max(gaps) < 5_000_000 + 2_900_000
    beats = [index for index, item in enumerate(found) if isinstance(item, seen.Heartbeat)]
    assert all(gaps[index - 1] >= 5_000_000 for index in beats if index)
    assert len(beats) < len(batches) / 8


def test_a_fencing_that_repeats_what_is_known_is_not_reported(recorded_log: RecordedLog) -> None:
    brokers = of(seen.BrokerObserved, applied(image(), recorded_log("one_controller")))
    offsets = {item.metadata_offset for item in brokers}
    assert {402, 423, 488, 495} <= offsets
    assert offsets.isdisjoint({16, 418, 504, 517})


def test_a_broker_is_reported_through_crash_clean_stop_and_return(recorded_log: RecordedLog) -> None:
    brokers = of(seen.BrokerObserved, applied(image(), recorded_log("one_controller")))
    told = [(item.metadata_offset, item.fenced, item.in_controlled_shutdown) for item in brokers if item.broker == 2]
    assert told[:6] == [
        (20, True, False), (23, False, False), (97, False, True),
        (103, True, True), (116, True, False), (117, False, False),
    ]  # fmt: skip


def test_the_controllers_of_a_failover_are_reported(recorded_log: RecordedLog) -> None:
    told = of(seen.ControllerObserved, applied(image(), recorded_log("controller_failover")))
    assert [(item.metadata_offset, item.controller) for item in told if item.registered_controllers is None] == [
        (0, 101),
        (217, 102),
    ]
    assert told[0].controller_epoch < told[-1].controller_epoch


def test_the_controllers_that_are_registered_are_reported_with_what_they_support(recorded_log: RecordedLog) -> None:
    batches, before = recorded_log("controller_failover"), image()
    told = [
        each
        for each in of(seen.ControllerObserved, applied(before, batches))
        if each.registered_controllers is not None
    ]
    assert [len(item.registered_controllers or ()) for item in told] == [1, 2, 3]
    restored = ClusterImage.from_document({**json.loads(json.dumps(before.to_document()))})
    for one in (before, restored):
        report = one.snapshot(snapshot_id="s", reason=seen.SnapshotReason.START, collected_at=Micros(0))
        (at_last,) = of(seen.ControllerObserved, report)
        assert (at_last.registered_controllers, at_last.registered_levels) == ((101, 102, 103), (0, 0, 0)), (
            "recorded without levels"
        )


def test_a_controller_that_is_unregistered_blocks_nothing_any_more() -> None:
    state = MetadataState()
    state.apply(LeaderChange(controller=101, epoch=1))
    for node, level in ((101, 30), (102, 21)):
        (step,) = state.apply(RegisterController(controller=node, incarnation_id="i", newest_metadata_version=level))
    assert isinstance(step, ControllersStep)
    assert step.levels == {101: 30, 102: 21}
    (step,) = state.apply(UnregisterController(controller=102))
    assert isinstance(step, ControllersStep)
    assert step.levels == {101: 30}
    assert state.apply(RegisterController(controller=101, incarnation_id="j", newest_metadata_version=30)) == []


def test_only_configurations_that_matter_are_reported(recorded_log: RecordedLog) -> None:
    told = of(seen.ConfigObserved, applied(image(), recorded_log("one_controller")))
    assert [(item.metadata_offset, item.topic, item.key, item.value) for item in told] == [
        (8, "", MIN_ISR, "1"),
        (26, "orders", MIN_ISR, "2"),
        (43, "tmp", MIN_ISR, "2"),
        (47, "tmp", MIN_ISR, None),
        (394, "loose", "unclean.leader.election.enable", "true"),
    ]


@pytest.mark.parametrize("log", LOGS)
@settings(max_examples=examples(20))
@given(st.data())
def test_a_checkpoint_changes_nothing_of_what_follows(recorded_log: RecordedLog, log: str, data: st.DataObject) -> None:
    batches = recorded_log(log)
    cut = data.draw(st.integers(0, len(batches)))
    straight = image()
    applied(straight, batches[:cut])
    resumed = ClusterImage.from_document(json.loads(json.dumps(straight.to_document())))
    # Whoever resumes may fetch a little too early.
    again = batches[max(0, cut - 2) :]
    assert applied(straight, batches[cut:]) == applied(resumed, again)
    assert straight.to_document() == resumed.to_document()


def test_a_snapshot_tells_everything_and_changes_nothing(recorded_log: RecordedLog) -> None:
    batches = recorded_log("one_controller")
    asked, unasked = image(), image()
    for batch in batches:
        full_report(asked)
        assert unasked.apply(batch, NOW) == asked.apply(batch, NOW)
    snapshot = full_report(asked)
    begin, end = snapshot[0], snapshot[-1]
    assert isinstance(begin, seen.SnapshotBegin)
    assert isinstance(end, seen.SnapshotEnd)
    parts = of(seen.PartitionObserved, singly(snapshot))
    assert Counter(item.topic_id for item in parts) == dict(zip(end.topic_ids, end.partition_counts, strict=True))
    assert tuple(item.broker for item in of(seen.BrokerObserved, snapshot)) == end.brokers
    assert {(True, None)} == {(item.in_snapshot, item.cause) for item in parts}
    assert {(565, asked.image_timestamp)} == {(item.metadata_offset, item.occurred_not_after) for item in snapshot}  # type: ignore[attr-defined]


def test_a_loaded_kraft_snapshot_is_silent_and_then_goes_on_at_the_given_offset() -> None:
    loaded = image()
    loaded.load([batch(0, ORDERS, partition())])
    loaded.image_offset = Offset(500)
    (found,) = of(seen.PartitionObserved, loaded.apply(batch(501, change(isr=(1, 2))), NOW))
    assert (found.topic, found.metadata_offset, found.partition_epoch) == ("orders", 501, 10)


def batch(offset: int, *records: MetadataRecord, seconds: float = 0.0) -> RecordBatch:
    return RecordBatch(base_offset=Offset(offset), epoch=1, timestamp=Micros(int(seconds * 1_000_000)), records=records)


def partition(number: int = 0, *, elr: Sequence[int] = (), last_known_elr: Sequence[int] = ()) -> Partition:
    members: Any = {
        "replicas": (1, 2),
        "isr": (1,),
        "leader": 1,
        "elr": tuple(elr),
        "last_known_elr": tuple(last_known_elr),
    }
    return Partition(topic_id=TOPIC, partition=number, leader_epoch=4, partition_epoch=9, **members)


def change(number: int = 0, **fields: Any) -> PartitionChange:
    return PartitionChange(topic_id=TOPIC, partition=number, **fields)


ORDERS = Topic(topic="orders", topic_id=TOPIC)


def test_a_controller_whose_clock_is_an_hour_behind_was_silent_by_the_clock_here() -> None:
    def here(seconds: float) -> Micros:
        return Micros(round((3_600 + seconds) * 1_000_000))

    cluster = image()
    cluster.apply(batch(0, LeaderChange(controller=101, epoch=1), seconds=1), here(1))
    for offset in (1, 2, 3):
        cluster.apply(batch(offset, NoOp(), seconds=1 + offset / 2), here(1 + offset / 2))
    cluster.heartbeat(here(2.5), here(2.5))
    (stall,) = of(seen.ControllerObserved, cluster.apply(batch(4, NoOp(), seconds=14.5), here(14.5)))
    assert (stall.silent_since, stall.occurred_not_after) == (here(2.5), here(14.5))


@pytest.mark.parametrize("name", ["orders", ""])
def test_clearing_eligible_replicas_is_a_step_of_each_partition_that_had_any(name: str) -> None:
    """Kafka merges an empty list into each of them, which raises its partition epoch."""
    cluster = image(ORDERS, partition(0, elr=(2,)), partition(1), partition(2, last_known_elr=(2,)))
    found = of(seen.PartitionObserved, cluster.apply(batch(4, ClearElr(topic=name)), NOW))
    stepped = [(item.partition, item.metadata_index, item.partition_epoch, item.leader_epoch) for item in found]
    assert stepped == [(0, 0, 10, 4), (2, 1, 10, 4)]
    assert {((), ())} == {(item.elr, item.last_known_elr) for item in found}
    assert {(Cause.CONFIG, Evidence.PROVEN)} == {(item.cause, item.evidence) for item in found}


def test_absent_lists_stay_and_empty_lists_clear() -> None:
    cluster = image(ORDERS, partition(0, elr=(2,), last_known_elr=(2,)))
    (found,) = of(seen.PartitionObserved, cluster.apply(batch(2, change(elr=(), leader=BrokerId(1))), NOW))
    assert (found.elr, found.last_known_elr, found.isr) == ((), (2,), (1,))
    assert (found.leader_epoch, found.partition_epoch) == (5, 10)


def test_a_deleted_topic_is_gone_with_its_configuration() -> None:
    cluster = image(ORDERS, Config(resource_type=2, resource_name="orders", key=MIN_ISR, value="2"), partition())
    removed, unset = cluster.apply(batch(3, RemoveTopic(topic_id=TOPIC)), NOW)
    assert isinstance(removed, seen.TopicRemoved)
    assert isinstance(unset, seen.ConfigObserved)
    assert (removed.topic, removed.topic_id, unset.topic, unset.value) == ("orders", TOPIC, "orders", None)
    snapshot = full_report(cluster)
    assert [item.kind for item in snapshot] == ["snapshot_begin", "config", "config", "snapshot_end"]
    assert (snapshot[1].topic, snapshot[1].value) == ("", None)


def test_a_topic_is_reported_as_diskless_by_either_name_of_the_configuration() -> None:
    def flag(key: str, value: str | None) -> Config:
        return Config(resource_type=2, resource_name="orders", key=key, value=value)

    cluster = image(ORDERS, partition())
    set_in_turn = [("ink", "true"), ("disk", "false"), ("disk", "TRUE"), ("ink", None), ("disk", None)]
    records = [flag(f"{name}less.enable", value) for name, value in set_in_turn]
    found = of(seen.ConfigObserved, cluster.apply(batch(3, *records), NOW))
    assert [(item.topic, item.key) for item in found] == [("orders", DISKLESS)] * 5
    assert [item.value for item in found] == ["true", "true", "TRUE", "TRUE", None]

    cluster.apply(batch(8, flag("inkless.enable", "true"), flag("diskless.enable", "true")), NOW)
    snapshot = full_report(cluster)
    configs = [(item.topic, item.key, item.value) for item in of(seen.ConfigObserved, snapshot) if item.brokers is None]
    assert configs == [("", MIN_ISR, None), ("orders", DISKLESS, "true"), ("orders", MIN_ISR, None)]
    gone = of(seen.ConfigObserved, cluster.apply(batch(10, RemoveTopic(topic_id=TOPIC)), NOW))
    assert [(item.key, item.value) for item in gone] == [(DISKLESS, None)]


def registered(broker: int, *end_points: EndPoint) -> RegisterBroker:
    ids = {"broker": BrokerId(broker), "broker_epoch": BrokerEpoch(0), "incarnation_id": f"i{broker}"}
    return RegisterBroker(**ids, host=end_points[0].host, port=end_points[0].port, end_points=end_points)


def addresses(found: Sequence[Observation]) -> dict[int, tuple[str | None, int | None]]:
    return {each.broker: (each.host, each.port) for each in of(seen.BrokerObserved, found)}


INSIDE, OUTSIDE = EndPoint("INSIDE", "10.0.0.1", 9091, 0), EndPoint("OUTSIDE", "b-1.example.com", 9092, 0)


def test_the_address_of_a_broker_is_that_of_the_listener_that_is_used_whatever_its_place_in_the_record() -> None:
    cluster = image()
    cluster.learn_listener({1: ("b-1.example.com", 9092)})
    outside = EndPoint("OUTSIDE", "b-2.example.com", 9092, 0)
    one, two = registered(1, INSIDE, OUTSIDE), registered(2, outside, EndPoint("INSIDE", "10.0.0.2", 9091, 0))
    lacks = registered(3, EndPoint("INSIDE", "10.0.0.3", 9091, 0))
    now = addresses(cluster.apply(batch(0, one, two, lacks), NOW))
    assert now == {1: ("b-1.example.com", 9092), 2: ("b-2.example.com", 9092), 3: (None, None)}
    assert addresses(full_report(cluster)) == now
    change = BrokerRegistrationChange(broker=BrokerId(1), broker_epoch=BrokerEpoch(0), fenced=-1)
    assert addresses(cluster.apply(batch(3, change), NOW)) == {1: ("b-1.example.com", 9092)}
    restored = ClusterImage.from_document(json.loads(json.dumps(cluster.to_document())))
    restored.learn_listener({2: ("10.0.0.2", 9091)})  # the configuration names another listener now
    assert addresses(full_report(restored)) == {1: INSIDE[1:3], 2: ("10.0.0.2", 9091), 3: ("10.0.0.3", 9091)}


def test_a_broker_that_is_unregistered_is_gone() -> None:
    cluster = image()
    born = RegisterBroker(broker=BrokerId(4), broker_epoch=BrokerEpoch(0), incarnation_id="i", rack="r1")
    gone = UnregisterBroker(broker=BrokerId(4), broker_epoch=BrokerEpoch(0))
    first, last = of(seen.BrokerObserved, cluster.apply(batch(0, born, gone), NOW))
    assert (first.registered, first.fenced, first.rack) == (True, True, "r1")
    assert (last.registered, last.fenced, last.rack) == (False, None, None)


def test_the_settings_of_one_broker_are_not_the_cluster_default() -> None:
    cluster = image()
    own = Config(resource_type=4, resource_name="3", key=MIN_ISR, value="2")
    other = Config(resource_type=2, resource_name="orders", key="retention.ms", value="1")
    (alone,) = of(seen.ConfigObserved, cluster.apply(batch(0, own, other), NOW))
    assert (alone.value, alone.brokers, alone.values) == (None, (3,), (2,))
    restored = ClusterImage.from_document(json.loads(json.dumps(cluster.to_document())))
    assert [each.values for each in of(seen.ConfigObserved, full_report(restored)) if each.brokers is not None] == [
        (2,)
    ]
    unset = of(seen.ConfigObserved, restored.apply(batch(2, replace(own, value=None)), NOW))
    assert [(each.brokers, each.values) for each in unset] == [((), ())]


def test_minima_of_single_brokers_are_unknown_after_a_checkpoint_without_them() -> None:
    document = image().to_document()
    del document["state"]["minima"]
    cluster = ClusterImage.from_document(document)
    own = Config(resource_type=4, resource_name="3", key=MIN_ISR, value="2")
    assert of(seen.ConfigObserved, cluster.apply(batch(0, own), NOW)) == []


def test_a_transaction_takes_effect_at_its_end_and_an_aborted_one_never() -> None:
    cluster = image()
    begin, end, abort = (TransactionMarker(marker=marker) for marker in (23, 24, 25))
    assert cluster.apply(batch(0, NoOp(), begin, ORDERS), NOW) == []
    assert cluster.apply(batch(3, partition(0)), NOW) == []
    whole = list(singly(cluster.apply(batch(4, partition(1), end, partition(2), seconds=3), NOW)))
    assert {3_000_000} == {item.occurred_not_after for item in whole}
    parts = of(seen.PartitionObserved, whole)
    assert [(item.metadata_offset, item.partition) for item in parts] == [(3, 0), (4, 1), (6, 2)]
    assert cluster.apply(batch(7, begin, partition(3), abort), NOW) == []
    assert {0, 1, 2} == {item.partition for item in of(seen.PartitionObserved, singly(full_report(cluster)))}


def test_a_checkpoint_inside_a_transaction_reads_the_transaction_again() -> None:
    begin, end = TransactionMarker(marker=23), TransactionMarker(marker=24)
    opened = batch(0, ORDERS, begin, partition(0), seconds=1)
    ended = batch(3, end, seconds=2)
    straight = image()
    straight.apply(opened, NOW)
    resumed = ClusterImage.from_document(straight.to_document())
    assert (resumed.image_offset, straight.image_offset) == (0, 2)
    assert resumed.apply(opened, NOW) == []
    assert straight.apply(ended, NOW) == resumed.apply(ended, NOW)
    assert straight.to_document() == resumed.to_document()


def test_a_clock_that_runs_backwards_is_held() -> None:
    cluster = image()
    cluster.apply(batch(0, LeaderChange(controller=101, epoch=1), seconds=9), NOW)
    (late,) = cluster.apply(batch(1, LeaderChange(controller=102, epoch=2), seconds=8), NOW)
    assert (late.occurred_not_before, late.occurred_not_after) == (9_000_000, 9_000_000)


def test_a_log_busy_with_other_things_still_beats() -> None:
    cluster = image()
    cluster.apply(batch(0, LeaderChange(controller=101, epoch=1), seconds=1), NOW)
    busy = [batch(number, SkippedRecord(api_key=14, version=0), seconds=number) for number in range(1, 14)]
    assert [item.metadata_offset for item in of(seen.Heartbeat, applied(cluster, busy))] == [6, 11]


def test_an_unreadable_record_that_changes_no_state_is_put_aside_with_its_offset_and_the_rest_goes_on() -> None:
    cluster = image()
    strange = UndecodableRecord(reason="record type 99 is unknown", value=b"\x01\x63", hides_state=False)
    found = cluster.apply(batch(0, ORDERS, strange, partition()), NOW)
    assert [item.metadata_offset for item in of(seen.PartitionObserved, found)] == [2]
    assert [(offset, item.reason) for offset, item in cluster.undecodable] == [(1, "record type 99 is unknown")]
    assert cluster.incomplete_since is None


FENCED_8 = BrokerRegistrationChange(broker=BrokerId(8), broker_epoch=BrokerEpoch(1), fenced=1)


@pytest.mark.parametrize(
    ("hidden", "reason"),
    [
        (UndecodableRecord(reason="PartitionChange version 3", value=b""), "PartitionChange version 3"),
        (change(5, isr=()), "PartitionChange: change of an unknown partition"),
        (FENCED_8, "BrokerRegistrationChange: change of an unregistered broker"),
        (RemoveTopic(topic_id=TopicId("x")), "RemoveTopic: removal of an unknown topic"),
    ],
)
def test_after_a_record_that_hides_the_state_nothing_is_observed_any_more(hidden: MetadataRecord, reason: str) -> None:
    cluster = image(ORDERS, partition())
    assert cluster.apply(batch(2, change(isr=(1,)), hidden, seconds=2), NOW) == [], "its cause is in doubt, too"
    assert applied(cluster, [batch(number, NoOp(), seconds=9 * number) for number in range(4, 9)]) == []
    assert (cluster.incomplete_since, cluster.incomplete_because, cluster.image_offset) == (3, reason, 8)
    assert [offset for offset, _ in cluster.undecodable] == [3]


@pytest.mark.parametrize(
    "document", [{}, {"version": 2}, {"version": 1, "cluster_id": "C"}, {"version": 1, "state": 3}]
)
def test_a_document_that_is_not_an_image_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="image"):
        ClusterImage.from_document(document)


@pytest.mark.parametrize("header", ["partition_fields", "broker_fields"])
def test_a_document_whose_rows_have_other_fields_is_refused(header: str) -> None:
    document: Any = image().to_document()
    document["state"][header] = document["state"][header][1:]
    with pytest.raises(ValueError, match="fields of "):
        ClusterImage.from_document(document)
