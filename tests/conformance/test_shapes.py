"""What a running Kafka 4.3.1 wrote in each situation: batch by batch, record by record, as a table.

The rows are those that were seen on a real cluster; its own log is told by the same function in the recordings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streaming.contracts.records import (
    BrokerRegistrationChange,
    ClearElr,
    Config,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from streaming.model.controller.change import Mode

pytest_plugins = ["tests.plugins.laboratory"]

# Times of the live runs: a window that is shorter than the session.
LIVE = {"broker_session_timeout_ms": 6_000, "replica_lag_time_max_ms": 2_500, "broker_heartbeat_interval_ms": 500}
NEVER = LIVE | {"replica_lag_time_max_ms": 60_000}
_FIELDS = ("replicas", "adding_replicas", "removing_replicas", "isr", "leader", "leader_recovery_state", "elr")


def shape(record: MetadataRecord) -> str:
    """``t-0 isr 1,2 leader 1``: only what the record names; without offsets, epochs and last known leaders."""
    match record:
        case PartitionChange():
            named = [(name, getattr(record, name)) for name in _FIELDS if getattr(record, name) is not None]
            return " ".join(
                (f"{record.topic_id}-{record.partition}", *(f"{name} {_ids(value)}" for name, value in named))
            )
        case BrokerRegistrationChange():
            moved = {1: "fenced", -1: "unfenced", 0: "shutting down"}[record.fenced]
            return f"{record.broker} {moved}"
        case RegisterBroker():
            return f"{record.broker} registered"
        case UnregisterBroker():
            return f"{record.broker} unregistered"
        case Topic() | Config() | ClearElr() | Partition() | RemoveTopic():
            return type(record).__name__
        case _:
            return ""


def _ids(value: Any) -> str:
    return (",".join(map(str, value)) or "-") if isinstance(value, tuple) else str(value)


def kill(broker: int) -> Callable[[Any], None]:
    return lambda it: it.cluster.kill(broker)


def start(broker: int) -> Callable[[Any], None]:
    return lambda it: it.start(broker)


def unregister(it: Any) -> None:
    it.cluster.kill(3)
    it.cluster.admin.unregister_broker(3)


def configure(key: str, value: str) -> Callable[[Any], None]:
    return lambda it: it.cluster.admin.alter_config(key, value, "t")


def reassign(*replicas: int) -> Callable[[Any], None]:
    return lambda it: it.cluster.admin.alter_partition_reassignments({it.key("t"): replicas})


def elect(mode: Mode) -> Callable[[Any], None]:
    return lambda it: it.cluster.admin.elect_leaders(mode, [it.key("t")])


# name: constants, replicas, minimum ISR, what happened before, what happens, batches of the next 15 seconds.
SHAPES: dict[str, tuple[Any, ...]] = {
    "a minimum": (LIVE, (1, 2, 3), 2, [], configure("min.insync.replicas", "1"), [["Config", "ClearElr"]]),
    "another configuration": (LIVE, (1, 2, 3), 2, [], configure("retention.ms", "1000"), [["Config"]]),
    "delete": (LIVE, (1, 2, 3), 2, [], lambda it: it.cluster.admin.delete_topic(it.key("t").topic_id),
        [["RemoveTopic"]]),
    "more partitions": (LIVE, (1, 2), 1, [], lambda it: it.cluster.admin.create_partitions("t", ((2, 3),)),
        [["Partition"]]),
    "kill a follower": (LIVE, (1, 2, 3), 2, [], kill(3), [["t-0 isr 1,2"], ["3 fenced"]]),
    "kill a leader": (LIVE, (3, 1, 2), 2, [], kill(3), [["t-0 isr 1,2 leader 1", "3 fenced"]]),
    "kill, no lag": (NEVER, (1, 2, 3), 2, [], kill(3), [["t-0 isr 1,2", "3 fenced"]]),
    "restart after a crash": (LIVE, (1, 2, 3), 2, [kill(3)], start(3),
        [["3 registered"], ["3 unfenced"], ["t-0 isr 1,2,3"]]),
    "restart of an eligible replica": (LIVE, (1, 2, 3), 3, [kill(3)], start(3),
        [["t-0 elr -", "3 registered"], ["3 unfenced"], ["t-0 isr 1,2,3"]]),
    "preferred election": (LIVE, (3, 1, 2), 2, [kill(3), start(3)], elect(Mode.PREFERRED),
        [["t-0 leader 3"]]),
    "clean stop of a leader": (NEVER, (3, 1, 2), 2, [], lambda it: it.cluster.stop(3),
        [["3 shutting down", "t-0 isr 1,2 leader 1"], ["3 fenced"], ["3 fenced"]]),
    "clean stop of a follower": (NEVER, (1, 2, 3), 2, [], lambda it: it.cluster.stop(3),
        [["t-0 isr 1,2", "3 fenced"], ["3 fenced"]]),
    "a held link": (LIVE, (1, 2, 3), 2, [], lambda it: it.hold(1, 3), [["t-0 isr 1,2"]]),
    "a released link": (LIVE, (1, 2, 3), 2, [lambda it: it.hold(1, 3)], lambda it: it.release(1, 3),
        [["t-0 isr 1,2,3"]]),
    "reassignment": (LIVE, (2, 3), 1, [], reassign(1, 2),
        [["t-0 replicas 1,2,3 adding_replicas 1 removing_replicas 3"],
         ["t-0 replicas 1,2 adding_replicas - removing_replicas - isr 1,2 leader 2"]]),
    "another order": (LIVE, (1, 2, 3), 2, [], reassign(2, 1, 3), [["t-0 replicas 2,1,3"]]),
    "leaderless": (NEVER, (1, 2), 1, [kill(1)], kill(2), [["t-0 isr - leader -1 elr 2", "2 fenced"]]),
    "unclean election on request": (NEVER, (2, 3), 1, [kill(3), kill(2), start(3)], elect(Mode.UNCLEAN),
        [["t-0 isr 3 leader 3 leader_recovery_state 1 elr -"]]),
    "the last known leader returns": (NEVER, (1, 2), 1, [kill(1), kill(2)], start(2),
        [["t-0 elr -", "2 registered"], ["2 unfenced", "t-0 isr 2 leader 2 leader_recovery_state 1"]]),
    "unregistered within its session": (NEVER, (3, 1, 2), 2, [], unregister,
        [["t-0 isr 1,2 leader 1", "3 unregistered"]]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_the_model_writes_what_a_real_cluster_wrote(lab: Any, name: str) -> None:
    constants, replicas, min_isr, before, act, expected = SHAPES[name]
    it = lab(**constants)
    (key,) = it.topic("t", [replicas], min_isr=min_isr)
    it.keep_writing(key, 1, 400)
    for each in (*before, act):
        it.run(it.cluster.now + 9_000)
        began = it.cluster.now
        each(it)
    it.run(began + 15_000)
    assert [list(map(shape, batch)) for batch in it.batches_since(began)] == expected
