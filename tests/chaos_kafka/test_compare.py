"""The comparison accepts tables that have what Kafka's tool reads, and no others. Pure: logs that were recorded."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deploy.sandbox.dump import DumpedRecord, records_in
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import SnapshotReason
from streaming.contracts.records import RecordBatch
from streaming.delta.changes.log import changes_to_arrow, in_commit
from streaming.sources.metadata_log.image import ClusterImage
from tests.chaos_kafka.compare import (
    Facts,
    Missed,
    Row,
    Step,
    Truth,
    created,
    kinds,
    log_differences,
    merged,
    min_isr_differences,
    missed_by_poller,
    missed_differences,
    polled_differences,
    recorded,
    snapshot_differences,
    truth_of,
)

RECORDED = Path(__file__).parents[1] / "fixtures" / "metadata_records"
DUMP = """\
Dumping 00000000000000000000.log
baseOffset: 7 lastOffset: 8 count: 2 baseSequence: -1 CreateTime: 1795250020779 size: 83 magic: 2
| offset: 7 CreateTime: 1795250020779 keySize: -1 valueSize: 23 sequence: -1 headerKeys: [] payload: {"type":\
"TOPIC_RECORD","version":0,"data":{"name":"orders","topicId":"9POfdbjRRHqqznT0RDV0DQ"}}
| offset: 8 CreateTime: 1795250020779 keySize: -1 valueSize: 109 sequence: -1 headerKeys: [] payload: {"type":\
"PARTITION_RECORD","version":2,"data":{"partitionId":0,"topicId":"9POfdbjRRHqqznT0RDV0DQ","replicas":[1,2,3],\
"isr":[1,2,3],"removingReplicas":[],"addingReplicas":[],"leader":1,"leaderEpoch":0,"partitionEpoch":0,"directories":[]}}
| offset: 9 CreateTime: 1795250020800 keySize: 4 valueSize: 19 sequence: -1 headerKeys: [] LeaderChange {"version":0}
| offset: 10 CreateTime: 1795250026389 keySize: -1 valueSize: 35 sequence: -1 headerKeys: [] payload: {"type":\
"PARTITION_CHANGE_RECORD","version":2,"data":{"partitionId":0,"topicId":"9POfdbjRRHqqznT0RDV0DQ","isr":[2],"leader":2,\
"eligibleLeaderReplicas":[3]}}
"""
ORDERS = ("9POfdbjRRHqqznT0RDV0DQ", 0)
WHOLE = Facts(1, (1, 2, 3), 0, 0, (1, 2, 3), (), (), (), (), False)


def dumped(name: str) -> list[DumpedRecord]:
    """Read the records of a recorded log as Kafka's tool decoded them."""
    with gzip.open(RECORDED / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        batches = json.load(file)
    return [
        DumpedRecord(offset=batch["offset"] + index, timestamp=batch["ts"], kind=data["type"], version=0, data=data)
        for batch in batches
        for index, data in enumerate(batch["records"])
    ]


@cache
def tables_of(batches: tuple[RecordBatch, ...], first: int) -> tuple[list[Row], list[Row]]:
    """Let the pipeline read a log whose first batches were there before it came: changes and states."""
    image = ClusterImage(cluster_id=ClusterId("recorded"), cluster="recorded", source="metadata_log:test")
    image.load(batches[:first])
    observed = image.snapshot(snapshot_id="first", reason=SnapshotReason.START, collected_at=image.image_timestamp)
    for batch in batches[first:]:
        observed += image.apply(batch, batch.timestamp)
    state = ReplicationState()
    folded = fold(state, observed)
    rows = in_commit(changes_to_arrow(folded.changes), 0, 0).to_pylist()
    newest = {(row["topic_id"], row["partition"]): row["after"] for row in rows if row["subject"] == "partition"}
    return rows, [{**after, "topic_id": key[0], "partition": key[1]} for key, after in newest.items()]


@pytest.fixture
def truth() -> Truth:
    return truth_of(dumped("one_controller"))


@pytest.fixture
def tables(recorded_log: Callable[[str], list[RecordBatch]]) -> tuple[list[Row], list[Row]]:
    """Give tables that are right, to be damaged by a test."""
    return copy.deepcopy(tables_of(tuple(recorded_log("one_controller")), 0))


def partition_rows(rows: list[Row]) -> list[Row]:
    """Leave out the rows that are no step."""
    offsets = {step.offset for steps in recorded(rows)[0].values() for step in steps}
    return [row for row in rows if row["subject"] == "partition" and row["offset"] in offsets and row["before"]]


# ---------------------------------------------------------------- the truth


def test_the_output_of_kafkas_tool_becomes_the_steps_of_each_partition() -> None:
    found = truth_of(records_in(DUMP))
    elected = WHOLE._replace(leader=2, isr=(2,), leader_epoch=1, partition_epoch=1, elr=(3,))
    assert found.history == {ORDERS: [Step(8, WHOLE), Step(10, elected)]}
    assert found.names == {ORDERS[0]: "orders"}
    assert found.last_offset() == 10
    assert found.min_isr == {"orders": 1}


def test_a_leader_that_is_elected_again_has_a_new_leader_epoch_and_an_empty_list_is_a_value() -> None:
    before = WHOLE._replace(elr=(3,), last_known_elr=(3,), leader_recovering=True)
    after = merged(before, {"leader": 1, "lastKnownElr": [], "leaderRecoveryState": 0})
    assert after == before._replace(leader_epoch=1, partition_epoch=1, last_known_elr=(), leader_recovering=False)
    assert merged(before, {}) == before._replace(partition_epoch=1)


def record(offset: int, kind: str, **data: Any) -> DumpedRecord:
    return DumpedRecord(offset=offset, timestamp=0, kind=kind, version=0, data=data)


def topic(offset: int, name: str, topic_id: str, **partition: Any) -> list[DumpedRecord]:
    data = {"replicas": [1, 2], "isr": [1], "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0, **partition}
    return [
        record(offset, "TOPIC_RECORD", name=name, topicId=topic_id),
        record(offset + 1, "PARTITION_RECORD", topicId=topic_id, partitionId=0, **data),
    ]


def test_clearing_the_elr_is_a_step_of_the_partitions_that_have_one_and_of_no_other() -> None:
    both = [
        *topic(0, "orders", "A", eligibleLeaderReplicas=[2]),
        *topic(2, "payments", "B", eligibleLeaderReplicas=[2]),
        *topic(4, "audit", "C"),
    ]
    of_one = truth_of([*both, record(6, "CLEAR_ELR_RECORD", topicName="orders")])
    of_all = truth_of([*both, record(6, "CLEAR_ELR_RECORD", topicName="")])
    assert {key[0] for key, steps in of_one.history.items() if len(steps) == 2} == {"A"}
    assert {key[0] for key, steps in of_all.history.items() if len(steps) == 2} == {"A", "B"}
    assert of_one.at_end()["A", 0][-3:] == ((), (), False)
    assert of_one.at_end()["A", 0].partition_epoch == 1


def test_a_deleted_topic_ends_and_takes_its_configuration_along() -> None:
    minimum = record(2, "CONFIG_RECORD", resourceType=2, resourceName="orders", name="min.insync.replicas", value="2")
    removed = record(3, "REMOVE_TOPIC_RECORD", topicId="A")
    found = truth_of([*topic(0, "orders", "A"), minimum, removed, *topic(4, "orders", "B")])
    assert found.history["A", 0] == [Step(1, found.history["A", 0][0].facts), Step(3, None)]
    assert set(found.at_end()) == {("B", 0)}
    assert found.min_isr == {"orders": 1}


def test_what_the_steps_of_a_log_were_is_counted() -> None:
    lone = WHOLE._replace(isr=(1,), elr=(2,), partition_epoch=1)
    offline = lone._replace(leader=-1, isr=(), leader_epoch=1)
    unclean = offline._replace(leader=3, isr=(3,), leader_epoch=2, leader_recovering=True)
    moving = unclean._replace(leader_recovering=False, isr=(3, 1), adding_replicas=(4,), removing_replicas=(2,))
    moved = moving._replace(replicas=(1, 4, 3), adding_replicas=(), removing_replicas=())
    back = moving._replace(adding_replicas=(), removing_replicas=())
    steps = [WHOLE, lone, offline, unclean, moving, moved, moving, back, None]
    assert kinds({ORDERS: [Step(offset, facts) for offset, facts in enumerate(steps)]}) == {
        "created": 1,
        "shrunk": 2,
        "expanded": 2,
        "eligible outside the ISR": 1,
        "offline": 1,
        "elected": 1,
        "unclean": 1,
        "reassignment begun": 2,
        "reassignment completed": 1,
        "reassignment cancelled": 1,
        "deleted": 1,
    }


# ---------------------------------------------------------------- the tables of a log


@pytest.mark.parametrize("name", ["one_controller", "replication_links"])
@pytest.mark.parametrize("first", [0, 100], ids=["from the begin", "from the middle"])
def test_what_the_pipeline_makes_of_a_recorded_log_is_what_kafkas_tool_reads(
    name: str, first: int, recorded_log: Callable[[str], list[RecordBatch]]
) -> None:
    rows, states = tables_of(tuple(recorded_log(name)), first)
    assert list(log_differences(truth_of(dumped(name)), rows, states)) == []
    assert sum(map(len, recorded(rows)[0].values())) > 10


def test_a_lost_step_is_found(truth: Truth, tables: tuple[list[Row], list[Row]]) -> None:
    rows, states = tables
    lost = partition_rows(rows)[3]
    rows.remove(lost)
    found = list(log_differences(truth, rows, states))
    assert len(found) == 1
    assert f"{lost['topic']}-{lost['partition']} ({lost['topic_id']})" in found[0]


def test_a_doubled_step_is_found(truth: Truth, tables: tuple[list[Row], list[Row]]) -> None:
    rows, states = tables
    doubled = partition_rows(rows)[-1]
    rows.append({**doubled, "ordinal": doubled["ordinal"] + 1_000_000})
    (found,) = log_differences(truth, rows, states)
    assert "only in the table: offset" in found


@pytest.mark.parametrize("name", Facts._fields)
def test_a_step_that_differs_in_one_fact_is_found(name: str, truth: Truth, tables: tuple[list[Row], list[Row]]) -> None:
    rows, states = tables
    after = next(row for row in partition_rows(rows) if not row["after"]["is_deleted"])["after"]
    after[name] = [9] if isinstance(after[name], list) else (not after[name] if name == "leader_recovering" else 9)
    (found,) = log_differences(truth, rows, states)
    assert f"{name} {(9,) if isinstance(after[name], list) else after[name]}" in found.rpartition("table:")[2]


def test_steps_in_another_order_are_found(truth: Truth, tables: tuple[list[Row], list[Row]]) -> None:
    rows, states = tables
    last = partition_rows(rows)[-1]
    *_, first, second = (
        row
        for row in partition_rows(rows)
        if row["topic_id"] == last["topic_id"] and row["partition"] == last["partition"]
    )
    first["ordinal"], second["ordinal"] = second["ordinal"], first["ordinal"]
    assert len(list(log_differences(truth, rows, states))) == 1


def test_a_wrong_state_and_a_state_too_many_and_too_few_are_found(
    truth: Truth, tables: tuple[list[Row], list[Row]]
) -> None:
    rows, states = tables
    live = [state for state in states if not state["is_deleted"]]
    live[0]["isr"] = []
    live[1]["topic_id"] = "another"
    found = list(log_differences(truth, rows, states))
    assert [line.partition(",")[0].partition(":")[0].partition(" (")[0] for line in found] == [
        "the states of the log's tables have partitions that do not exist",
        "the states of the log's tables lack partitions",
        "the states of the log's tables",
    ]


def test_changes_said_to_be_missed_and_violations_are_found(truth: Truth, tables: tuple[list[Row], list[Row]]) -> None:
    rows, states = tables
    row = partition_rows(rows)[0]
    row["missed"] = 2
    row["events"] = [{"event": "protocol_violation", "detail": "leader 1 is not in the ISR"}]
    found = list(log_differences(truth, rows, states))
    assert found[0] == "the log's tables say that 2 changes were missed, and none was"
    assert found[1].endswith(": leader 1 is not in the ISR")


def test_a_snapshot_of_kafka_decides_about_the_epochs() -> None:
    steps = [*topic(0, "orders", "A"), record(2, "PARTITION_CHANGE_RECORD", topicId="A", partitionId=0, isr=[1, 2])]
    later = record(3, "PARTITION_CHANGE_RECORD", topicId="A", partitionId=0, isr=[1])
    found = truth_of([*steps, later])
    right = topic(0, "orders", "A", isr=[1, 2], partitionEpoch=1)
    assert list(snapshot_differences(found, 3, right)) == []
    assert len(list(snapshot_differences(found, 4, right))) == 1
    (wrong,) = snapshot_differences(found, 3, topic(0, "orders", "A", isr=[1, 2], partitionEpoch=2))
    assert wrong.startswith("the KRaft snapshot at 3, orders-0 (A)")


# ---------------------------------------------------------------- the tables of a poller


def polled(partition: int = 0, **fields: Any) -> Row:
    lists = ("adding_replicas", "removing_replicas", "elr", "last_known_elr")
    state = {"topic_id": "A", "topic": "orders", "partition": partition, "is_deleted": False, "leader": 1}
    epochs = {"leader_epoch": None, "partition_epoch": None, "min_isr_effective": 1}
    return {**state, **epochs, "replicas": [1, 2], "isr": [1], **{name: [] for name in lists}, **fields}


def change(number: int, epoch: int | None, missed: int | None = None, **fields: Any) -> Row:
    after = polled(leader_epoch=epoch, is_deleted=fields.pop("is_deleted", False))
    row = {"version": 0, "ordinal": number, "subject": "partition", "topic_id": "A", "partition": 0, "before": None}
    return {**row, "is_baseline": False, "missed": missed, "after": after, **fields}


def elections(count: int) -> list[DumpedRecord]:
    return [record(2 + at, "PARTITION_CHANGE_RECORD", topicId="A", partitionId=0, leader=1) for at in range(count)]


def test_the_last_view_of_a_poller_has_no_epochs_and_the_isr_in_any_order() -> None:
    found = truth_of(topic(0, "orders", "A", isr=[2, 1], partitionEpoch=7))
    assert list(polled_differences(found, [polled(isr=[1, 2])])) == []
    assert list(polled_differences(found, [polled(isr=[1, 2], leader_epoch=0)])) == []
    assert list(polled_differences(found, [polled(isr=[1, 2], elr=[2])])) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"isr": [1, 2]}, {"leader": 2}, {"replicas": [2, 1]}, {"adding_replicas": [2]}, {"removing_replicas": [2]},
        {"leader_epoch": 1}, {"leader_epoch": 0, "elr": [2]}, {"leader_epoch": 0, "last_known_elr": [2]},
        {"is_deleted": True}, {"partition": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_view_that_differs_is_found(wrong: Row) -> None:
    found = truth_of(topic(0, "orders", "A"))
    assert list(polled_differences(found, [polled()])) == []
    assert list(polled_differences(found, [polled(**wrong)])) != []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([change(0, 0), change(1, 5, 4)], Missed(4, 4)),  # five elections, the last one was seen
        ([change(0, 0), change(1, 2, 1), change(2, 2), change(3, 5, 2)], Missed(3, 3)),
        ([change(0, 3, 3), change(1, 5, 1)], Missed(4, 4)),  # created, and elected three times before it was seen
        ([change(0, 3, is_baseline=True), change(1, 5, 1)], Missed(1, 1)),
        ([change(0, 0), change(1, 4, 3)], Missed(4, 3)),  # the last election is not in the tables at all
        ([change(0, 0), change(1, 4, 3), change(2, 4, is_deleted=True)], Missed(3, 3)),
        ([change(0, 0), change(1, 5, 3)], Missed(4, 3)),
        ([change(0, None), change(1, None)], Missed(None, 0)),
    ],
)
def test_missed_elections_are_counted_by_the_epochs_of_the_log(rows: list[Row], expected: Missed) -> None:
    found = truth_of([*topic(0, "orders", "A"), *elections(5)])
    assert missed_by_poller(found, rows) == {("A", 0): expected}
    assert bool(list(missed_differences(found, rows))) == (expected.actual != (expected.expected or 0))


def test_a_poller_without_epochs_has_nothing_to_count() -> None:
    found = truth_of(topic(0, "orders", "A"))
    assert list(missed_differences(found, [change(0, None, 1)])) == [
        "the poller missed None elections of orders-0 (A) and counts 1"
    ]


def test_a_wrong_minimum_is_found() -> None:
    minimum = record(2, "CONFIG_RECORD", resourceType=2, resourceName="orders", name="min.insync.replicas", value="3")
    found = truth_of([*topic(0, "orders", "A"), minimum])
    assert list(min_isr_differences(found, [polled(min_isr_effective=2)], "they")) == []
    assert list(min_isr_differences(found, [polled(min_isr_effective=3)], "they")) == [
        "they say that orders-0 has the min ISR 3, it is 2"
    ]
    assert created({**WHOLE._asdict(), "leaderEpoch": 0, "partitionEpoch": 0}) == WHOLE
