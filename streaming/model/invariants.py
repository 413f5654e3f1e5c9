"""What must hold after every step. An observer: it reads the cluster from outside and changes nothing.

The numbers are those of the list in the protocol notes of Kafka's specifications (hachikuji, Vanlightly) as far as a
model without record contents can tell. Each function raises ``AssertionError`` with the partition that breaks it.
"""

# ruff: noqa: S101 - asserting is what this file is for
from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.health import effective_min_isr
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.cluster import Cluster
    from streaming.model.controller.partition import PartitionRegistration, TopicRegistration, Transition
    from streaming.model.storage.replica import LocalReplica


def leader_in_isr(key: TopicPartition, state: PartitionRegistration) -> None:
    """A leader is a member of the ISR, and the ISR a part of the replicas without repetition (LeaderInIsr)."""
    assert state.leader == NO_LEADER or state.leader in state.isr, f"{key}: leader outside ISR: {state}"
    assert set(state.isr) <= set(state.replicas), f"{key}: ISR outside replicas: {state}"
    assert len(set(state.isr)) == len(state.isr), f"{key}: ISR repeats a member: {state}"


def isr_never_empty_without_elr(key: TopicPartition, state: PartitionRegistration, *, elr_enabled: bool) -> None:
    """Without eligible leader replicas the last member stays in the ISR."""
    assert elr_enabled or state.isr, f"{key}: empty ISR without ELR: {state}"


def elr_is_disjoint(key: TopicPartition, topic: TopicRegistration, state: PartitionRegistration) -> None:
    """The ELR shares nothing with the ISR, and is empty while the ISR has the minimum (ValidControllerIsrAndElr)."""
    assert set(state.elr) <= set(state.replicas), f"{key}: ELR outside replicas: {state}"
    assert not set(state.elr) & set(state.isr), f"{key}: ELR and ISR share a member: {state}"
    minimum = effective_min_isr(topic.min_isr, state.replicas) or 0
    assert len(state.isr) < minimum or not state.elr, f"{key}: ELR beside a full ISR: {state}"


def epochs_grow(step: Transition) -> None:
    """The partition epoch grows by one a step; the leader epoch by at most one, and with every new leader."""
    if step.before is None or step.after is None:
        return
    before, after = step.before, step.after
    assert after.partition_epoch == before.partition_epoch + 1, f"{step.topic_partition}: {before} -> {after}"
    grown = after.leader_epoch - before.leader_epoch
    assert grown in {0, 1}, f"{step.topic_partition}: leader epoch leaps: {before} -> {after}"
    assert grown or after.leader == before.leader, f"{step.topic_partition}: leader without epoch: {before} -> {after}"


def offsets_are_ordered(key: TopicPartition, replica: LocalReplica) -> None:
    """Log start ≤ high watermark ≤ log end."""
    log = replica.log
    assert log.start <= replica.high_watermark <= log.end, f"{key}: {log.start} {replica.high_watermark} {log.end}"
    pairs = list(zip(log.epochs, log.epochs[1:], strict=False))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairs), f"{key}: epoch cache not increasing: {log.epochs}"


def maximal_isr_covers(key: TopicPartition, truth: PartitionRegistration, leader: LeaderPartition) -> None:
    """A leader that is not stale waits for everybody the controller counts as in sync (ReplicationQuorumSuperset)."""
    if leader.committed.leader_epoch == truth.leader_epoch:
        assert set(truth.isr) <= set(leader.maximal_isr()), f"{key}: {truth.isr} beyond {leader.maximal_isr()}"


def check_steps(steps: Iterable[Transition], *, elr_enabled: bool) -> None:
    """Check what changed: invariants 1 and 2."""
    for step in steps:
        epochs_grow(step)
        if step.after is not None:
            leader_in_isr(step.topic_partition, step.after)
            isr_never_empty_without_elr(step.topic_partition, step.after, elr_enabled=elr_enabled)
            elr_is_disjoint(step.topic_partition, step.topic, step.after)


def check_brokers(cluster: Cluster) -> None:
    """Check every replica and every leader's view: invariants 3 and 5. Costs as much as there are replicas.

    Invariant 6, one proposal in flight, is asserted where a proposal is made.
    """
    registry = cluster.controller.registry
    for disk in cluster.disks.values():
        for key, replica in disk.replicas.items():
            offsets_are_ordered(key, replica)
    for broker in cluster.brokers.values():
        for key, leader in broker.leadership.led.items():
            if key in registry.partitions and registry.partitions[key].leader == broker.broker:
                maximal_isr_covers(key, registry.partitions[key], leader)
