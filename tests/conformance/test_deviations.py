"""What no controller would have written is found, and told with what it would have written instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerEpoch, BrokerId, Micros, Offset, TopicId
from streaming.contracts.records import (
    BrokerRegistrationChange,
    ClearElr,
    Config,
    FeatureLevel,
    LeaderChange,
    NoOp,
    Partition,
    PartitionChange,
    RecordBatch,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UndecodableRecord,
)
from tests.conformance.actions import ActionName
from tests.conformance.checker import Checker

ISR = "min.insync.replicas"


def registered(broker: int, epoch: int) -> RegisterBroker:
    return RegisterBroker(broker=broker, broker_epoch=epoch, incarnation_id=f"process {broker}")  # type: ignore[arg-type]


def changed(broker: int, **more: int) -> BrokerRegistrationChange:
    return BrokerRegistrationChange(broker=broker, broker_epoch=broker, **more)  # type: ignore[arg-type]


def step(partition: int = 0, **more: Any) -> PartitionChange:
    return PartitionChange(topic_id="t", partition=partition, **more)  # type: ignore[arg-type]


def created(partition: int, replicas: tuple[int, ...], **more: Any) -> Partition:
    usual = {"isr": replicas, "leader": replicas[0], "leader_epoch": 0, "partition_epoch": 0}
    return Partition(topic_id="t", partition=partition, replicas=replicas, **usual | more)  # type: ignore[arg-type]


# Three brokers, whose epochs are their ids, and one topic.
BEGIN = (
    LeaderChange(controller=100, epoch=1),
    *(registered(broker, broker) for broker in (1, 2, 3)),
    *(changed(broker, fenced=-1) for broker in (1, 2, 3)),
    Topic(topic="orders", topic_id="t"),  # type: ignore[arg-type]
    Config(resource_type=2, resource_name="orders", key=ISR, value="2"),
    created(0, (1, 2, 3)),
    created(1, (2, 3, 1)),
)
ELR = FeatureLevel(feature="eligible.leader.replicas.version", level=1)


class Log:
    """A log of batches after :data:`BEGIN`."""

    def __init__(self, *before: Any) -> None:
        self.checker = Checker()
        self.offset = 0
        assert self.append(*BEGIN) == ()
        for record in before:
            assert self.append(record) == ()

    def append(self, *records: Any) -> tuple[Any, ...]:
        batch = RecordBatch(base_offset=Offset(self.offset), epoch=1, timestamp=Micros(0), records=records)
        self.offset += len(records)
        return self.checker.observe(batch)


FENCED = (step(0, isr=(1, 2)), step(1, isr=(2, 1)), changed(3, fenced=1))
LEADER_FENCED = (step(0, isr=(2, 3), leader=2), step(1, isr=(2, 3)), changed(1, fenced=1))


@pytest.mark.parametrize(
    "records",
    [
        [step(isr=(1, 2))],
        [step(isr=(1,))],
        FENCED,
        LEADER_FENCED,
        [changed(3, in_controlled_shutdown=0)],
        [step()],
        [changed(1, in_controlled_shutdown=1), step(0, isr=(2, 3), leader=2), step(1, isr=(2, 3))],
        [step(0, isr=(1, 3)), *FENCED[1:2], step(0, isr=(1,)), changed(3, fenced=1)],
        [step(replicas=(2, 1, 3))],
        [step(replicas=(1, 2), isr=(1, 2), leader=1)],
        [RemoveTopic(topic_id="t"), Topic(topic="orders", topic_id="u")],  # type: ignore[arg-type]
    ],
)
def test_what_a_controller_may_write_is_no_deviation(records: Iterable[Any]) -> None:
    assert Log().append(*records) == ()


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        pytest.param([step(isr=(2, 3))], "no action", id="a leader that leaves its own ISR"),
        pytest.param([step(isr=(1, 2), leader=1)], "no action", id="an epoch for a shrink"),
        pytest.param([step(leader=3)], "no action", id="a leader that is neither preferred nor next"),
        pytest.param([step(leader=-1)], "no action", id="a leader lost without reason"),
        pytest.param([step(isr=(1, 2, 4))], "no action", id="a member that is no replica"),
        pytest.param([step(elr=(3,))], "no action", id="eligible replicas without the feature"),
        pytest.param([step(leader_recovery_state=1)], "no action", id="a recovery without an election"),
        pytest.param([step(7, isr=(1,))], "does not exist", id="an unknown partition"),
        pytest.param(FENCED[1:], "lacks changes", id="a fenced broker that stays in an ISR"),
        pytest.param([FENCED[2], *FENCED[:2]], "lacks changes", id="fenced before it leaves"),
        pytest.param([replace(LEADER_FENCED[0], leader=3), *LEADER_FENCED[1:]], "no action", id="the second next"),
        pytest.param([replace(LEADER_FENCED[0], leader=None), *LEADER_FENCED[1:]], "no action", id="still leading"),
        pytest.param([changed(1, in_controlled_shutdown=1)], "lacks changes", id="a shutdown that moves nothing"),
        pytest.param([changed(1, fenced=-1)], "not fenced", id="unfenced twice"),
        pytest.param([replace(changed(1, fenced=1), broker_epoch=7)], "epoch 1", id="an older process fenced"),
        pytest.param([changed(4, fenced=-1)], "not registered", id="a stranger unfenced"),
        pytest.param([registered(4, 3)], "epoch, fenced", id="an epoch that is no offset"),
        pytest.param([replace(registered(4, 11), fenced=False)], "epoch, fenced", id="born unfenced"),
        pytest.param([registered(3, 11)], "lacks changes", id="a restart that keeps its place in the ISR"),
        pytest.param([BEGIN[7]], "of this name", id="a topic twice"),
        pytest.param([created(2, (1, 2), isr=(1,))], "new partition", id="an active replica out of sync from birth"),
        pytest.param([created(3, (1, 2))], "would be next", id="a partition left out"),
        pytest.param([created(2, (4,))], "no replica is active", id="a partition of a stranger"),
        pytest.param([ClearElr(topic="orders")], "no minimum", id="eligible replicas voided without reason"),
        pytest.param([LeaderChange(controller=101, epoch=1)], "had begun", id="two controllers in one epoch"),
        pytest.param([RemoveTopic(topic_id="u")], "does not exist", id="an unknown topic removed"),  # type: ignore[arg-type]
        pytest.param([UndecodableRecord(reason="type 99", value=b"")], "type 99", id="a record that nobody knows"),
    ],
)
def test_what_no_controller_would_write_is_a_deviation(records: Iterable[Any], reason: str) -> None:
    found = Log().append(*records)
    assert reason in " ".join(map(str, found)), found


@pytest.mark.parametrize(
    "records",
    [
        [step(isr=(1,), elr=(3,))],
        [step(isr=(1,))],
        [step(isr=(1, 2), elr=(3,))],
        [Config(resource_type=2, resource_name="orders", key=ISR, value="3")],
        [ClearElr(topic="orders"), Config(resource_type=2, resource_name="orders", key=ISR, value="3")],
    ],
)
def test_with_the_feature_eligible_replicas_are_kept_and_voided_as_kip_966_says(records: Iterable[Any]) -> None:
    log = Log(ELR)
    assert log.append(*records) != ()


def test_below_the_minimum_who_leaves_stays_eligible_until_the_minimum_changes() -> None:
    log = Log(ELR)
    lowered = Config(resource_type=2, resource_name="orders", key=ISR, value="1")
    assert log.append(step(isr=(1,), elr=(2, 3))) == ()
    assert log.append(lowered, ClearElr(topic="orders")) == ()
    assert log.append(step(isr=(1, 3), elr=())) != (), "there is nothing left to clear"


def test_the_minimum_is_capped_at_the_replicas_of_partition_0() -> None:
    log = Log(ELR, step(0, replicas=(1,), isr=(1,), leader=1, elr=(2, 3)))
    assert log.append(step(1, isr=(2,))) == (), "one of one, so that nobody needs to be eligible"


def test_who_lost_a_directory_may_or_may_not_be_elected_for_nobody_knows_what_lay_there() -> None:
    allowed = Config(resource_type=2, resource_name="orders", key="unclean.leader.election.enable", value="true")
    lost = BrokerRegistrationChange(broker=BrokerId(2), broker_epoch=BrokerEpoch(2), log_dirs=("a",))
    for record, deviates in ((lost, False), (NoOp(), True)):
        log = Log(allowed)
        assert log.append(step(0, isr=(1, 3)), record) == ()
        assert log.append(step(0, isr=(1,)), step(1, isr=(2, 1)), changed(3, fenced=1)) == ()
        found = log.append(step(0, leader=-1), step(1, isr=(2,)), changed(1, fenced=1))
        assert bool(found) is deviates, "2 is active, and out of sync: only a lost directory keeps it from leading"


def test_a_deviation_tells_what_each_action_would_have_written() -> None:
    (deviation,) = Log().append(step(isr=(2, 3)))
    told = {it.name: it for it in deviation.considered}
    assert deviation.offset == 11
    assert told[ActionName.ALTER_PARTITION].why == "the leader would be refused, INVALID_REQUEST"
    assert told[ActionName.ELECT_PREFERRED].why == "the preferred leader leads"
    assert told[ActionName.REASSIGN].why == "would change nothing"
    assert "alter partition: the leader would be refused" in str(deviation)


def test_what_is_missing_comes_with_its_partition() -> None:
    (deviation,) = Log().append(*FENCED[1:])
    assert deviation.subject == "broker 3"
    assert deviation.missing == (("orders-0", FENCED[0]),)


@pytest.mark.parametrize(
    ("record", "subject"),
    [
        (step(1, isr=(1,)), "orders-1"),
        (replace(step(0, isr=(1,)), topic_id=TopicId("u")), "u-0"),
        (changed(4, fenced=-1), "broker 4"),
        (BEGIN[7], "orders"),
        (RemoveTopic(topic_id=TopicId("u")), "u"),
        (LeaderChange(controller=101, epoch=1), ""),
    ],
)
def test_a_deviation_says_what_it_is_about(record: Any, subject: str) -> None:
    (deviation,) = Log().append(record)
    assert deviation.subject == subject


def test_after_a_deviation_it_goes_on_from_what_the_log_says() -> None:
    log = Log()
    assert log.append(step(isr=(2, 3), leader=2)) != ()
    assert log.append(step(isr=(2, 3, 1))) == ()


def test_a_gap_in_the_offsets_is_a_deviation() -> None:
    log = Log()
    log.offset += 1
    (deviation,) = log.append(NoOp())
    assert (deviation.offset, deviation.reason) == (12, "offset 11 would be next")


def test_after_a_batch_that_cannot_be_read_nobody_knows_which_offset_is_next() -> None:
    log = Log()
    (unreadable,) = log.append(UndecodableRecord(reason="batch at offset 11 does not match its checksum", value=b""))
    log.offset += 5
    assert (unreadable.offset, log.append(NoOp())) == (11, ())


# Leaders ask for an ISR and administrators for replicas as they like; the rest follows.
FOLLOWING = ("leader", "leader_recovery_state", "elr", "last_known_elr")


def with_a_field_left_out(record: Any) -> list[PartitionChange]:
    """Not the only one: a change without any is one of directories."""
    if not isinstance(record, PartitionChange):
        return []
    empty = PartitionChange(topic_id=record.topic_id, partition=record.partition)
    kept = (replace(record, **{name: None}) for name in FOLLOWING if getattr(record, name) is not None)
    return [each for each in kept if each != empty]


@pytest.mark.parametrize("name", ["one_controller", "replication_links", "operators_and_faults"])
def test_no_field_of_a_recorded_change_can_be_left_out(recorded_log: Callable[[str], Any], name: str) -> None:
    batches = recorded_log(name)
    for number, batch in enumerate(batches):
        for index, record in enumerate(batch.records):
            for other in with_a_field_left_out(record):
                checker = Checker()
                checker.restore(batches[:number])
                records = (*batch.records[:index], other, *batch.records[index + 1 :])
                assert checker.observe(replace(batch, records=records)), f"{other} instead of {record}"
