"""The invariants can fail: each is shown a state that breaks it, beside one that does not."""

from __future__ import annotations

import pytest

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.model import invariants
from streaming.model.broker.leader import IsrProposal, LeaderPartition
from streaming.model.controller.partition import PartitionRegistration, TopicRegistration, Transition
from streaming.model.storage.replica import HighWatermarkCheckpoint, LocalReplica
from streaming.model.switches import Switches

KEY = TopicPartition(TopicId("t"), 0)
TOPIC = TopicRegistration(topic="t", topic_id=TopicId("t"), partitions=1, min_isr=2)
GOOD = PartitionRegistration((1, 2, 3), (1, 2), 1, leader_epoch=4, partition_epoch=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "broken",
    [GOOD._replace(leader=3), GOOD._replace(isr=(1, 4)), GOOD._replace(isr=(1, 2, 2))],
    ids=["leader outside ISR", "ISR outside replicas", "ISR repeats"],
)
def test_leader_in_isr_bites(broken: PartitionRegistration) -> None:
    invariants.leader_in_isr(KEY, GOOD)
    with pytest.raises(AssertionError):
        invariants.leader_in_isr(KEY, broken)


def test_isr_never_empty_without_elr_bites() -> None:
    empty = GOOD._replace(isr=(), leader=BrokerId(-1))
    invariants.isr_never_empty_without_elr(KEY, empty, elr_enabled=True)
    with pytest.raises(AssertionError, match="empty ISR"):
        invariants.isr_never_empty_without_elr(KEY, empty, elr_enabled=False)


@pytest.mark.parametrize("broken", [{"elr": (4,)}, {"isr": (1,), "elr": (1,)}, {"elr": (3,)}])
def test_elr_is_disjoint_bites(broken: dict[str, tuple[int, ...]]) -> None:
    invariants.elr_is_disjoint(KEY, TOPIC, GOOD._replace(isr=(1,), elr=(2, 3)))
    with pytest.raises(AssertionError):
        invariants.elr_is_disjoint(KEY, TOPIC, GOOD._replace(**broken))


@pytest.mark.parametrize(
    "broken",
    [{"partition_epoch": 7}, {"partition_epoch": 9}, {"leader_epoch": 3}, {"leader_epoch": 6}, {"leader": 2}],
)
def test_epochs_grow_bites(broken: dict[str, int]) -> None:
    after = GOOD._replace(partition_epoch=8)
    invariants.epochs_grow(Transition(TOPIC, KEY, GOOD, after, Cause.LAG))
    with pytest.raises(AssertionError):
        invariants.epochs_grow(Transition(TOPIC, KEY, GOOD, after._replace(**broken), Cause.LAG))


def test_offsets_are_ordered_bites() -> None:
    replica = LocalReplica(HighWatermarkCheckpoint())
    replica.log.begin_epoch(1, 0)
    replica.log.append(5)
    replica.high_watermark = 5
    invariants.offsets_are_ordered(KEY, replica)
    replica.high_watermark = 6
    with pytest.raises(AssertionError):
        invariants.offsets_are_ordered(KEY, replica)
    replica.high_watermark = 5
    replica.log.epochs.append((1, 5))
    with pytest.raises(AssertionError, match="epoch cache"):
        invariants.offsets_are_ordered(KEY, replica)


def test_maximal_isr_covers_bites_only_while_the_leader_is_not_stale() -> None:
    leader = LeaderPartition(BrokerId(1), KEY, LocalReplica(HighWatermarkCheckpoint()), GOOD, Switches())
    grown = GOOD._replace(isr=(BrokerId(1), BrokerId(2), BrokerId(3)))
    invariants.maximal_isr_covers(KEY, GOOD, leader)
    invariants.maximal_isr_covers(KEY, grown._replace(leader_epoch=5), leader)
    with pytest.raises(AssertionError, match="beyond"):
        invariants.maximal_isr_covers(KEY, grown, leader)
    leader.pending = IsrProposal(grown.isr, Cause.EXPAND)
    invariants.maximal_isr_covers(KEY, grown, leader)
