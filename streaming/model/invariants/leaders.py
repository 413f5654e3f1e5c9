"""Invariants of a leader's view compared with the truth. Each gives the complaint, or None while it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.storage.log import first_difference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.invariants.ghost import View


def valid_replica_state(view: View) -> str | None:
    """Every leader was named by its own metadata, and its log has a record at every offset.

    Source: ValidReplicaState of Vanlightly's specifications.
    """
    for broker, leader in view.believers.items():
        log = leader.replica.log
        if leader.committed.leader != broker:
            return f"{broker} leads, but knows {leader.committed.leader} as leader"
        if log.end > log.start and (not log.epochs or log.epochs[0][1] > log.start):
            return f"{broker} has records without an epoch: {log.epochs}"
    return None


def valid_fetcher_state(view: View) -> str | None:
    """A broker fetches a partition from at most one source, and not at all while it leads.

    Source: ValidFetcherState of Vanlightly's specifications. A follower without source waits after an error.
    """
    for broker, process in view.processes.items():
        sources = process.following.sources(view.key)
        if len(sources) > (0 if broker in view.believers else 1):
            return f"{broker} fetches from {sources}, and it {'leads' if broker in view.believers else 'follows'}"
    return None


def one_proposal_in_flight(view: View) -> str | None:
    """A partition has at most one proposed ISR. Source: ours, the sixth of the cheap checks (KIP-497)."""
    for broker, leader in view.believers.items():
        proposals = view.processes[broker].leadership.proposals.of(view.key)
        if sum(entry is leader.pending for entry in proposals) > 1 or (
            proposals and leader.pending and leader.pending not in proposals
        ):
            return f"{broker} proposes {proposals} while {leader.pending} is pending"
    return None


def replication_quorum_superset(view: View) -> str | None:
    """A leader that is not stale waits for every replica that the controller counts as in sync, or as eligible.

    Source: ReplicationQuorumSuperset of Vanlightly's specifications. The ELR is part of it while the leader's own ISR
    has the minimum: it did not hear yet that it shrank.
    """
    for broker, leader in view.believers.items():
        if leader.committed.leader_epoch != view.truth.leader_epoch:
            continue
        maximal = set(leader.maximal_isr())
        if leader.pending is None and maximal != set(leader.committed.isr):
            return f"{broker} waits for {maximal} with nothing pending"
        eligible = set(view.truth.elr) & set(view.truth.replicas)
        required = {*view.truth.isr, *(eligible if len(leader.committed.isr) >= view.min_isr else ())}
        if not required <= maximal:
            return f"{sorted(required)} beyond {sorted(maximal)} of {broker}"
    return None


def weak_isr(view: View) -> str | None:
    """Below the high watermark of a leader by its own belief, its own ISR has the same records.

    Source: WeakIsr of hachikuji's specification. Scope: members that did not lose their replica since by a
    reassignment; damaged disks excused.
    """
    memory = view.memory
    for leader in view.heirs().values():
        partition_epoch = leader.committed.partition_epoch
        members = [
            broker
            for broker in leader.committed.isr
            if memory.dropped.get(broker, 0) <= partition_epoch and broker not in memory.damaged
        ]
        if complaint := _compare(view, leader, members):
            return complaint
    return None


def strong_isr(view: View) -> str | None:
    """Below the high watermark of a leader by its own belief, stale or not, the controller's ISR has the same records.

    Source: StrongIsr of hachikuji's specification. Scope: a damaged disk counts once its process is registered.
    """
    members = [broker for broker in view.truth.isr if view.answers_for(broker)]
    for leader in view.heirs().values():
        if leader.committed.isr == view.truth.isr and not view.memory.damaged:
            continue  # then it is the weak form
        if view.answers_for(leader.broker) and (complaint := _compare(view, leader, members)):
            return complaint
    return None


def valid_high_watermark(view: View) -> str | None:
    """No member of the controller's ISR ends below the high watermark of a leader that is not stale.

    Source: ValidHighWatermark of hachikuji's specification of asynchronous ISR changes.
    """
    for broker, leader in view.heirs().items():
        if leader.committed.leader_epoch == view.truth.leader_epoch and view.answers_for(broker):
            ends = {broker: view.end(broker) for broker in view.truth.isr if view.answers_for(broker)}
            short = {broker: end for broker, end in ends.items() if end < leader.replica.high_watermark}
            if short:
                return f"high watermark {leader.replica.high_watermark} of {broker} beyond the ends {short}"
    return None


def high_watermark_grows(view: View) -> str | None:
    """While a process leads in one epoch its high watermark never falls. Source: prose of the specifications."""
    for broker, leader in view.believers.items():
        mark = leader.replica.high_watermark
        former, before = view.memory.epoch_marks.get(broker, (leader, 0))
        view.memory.epoch_marks[broker] = (leader, mark)
        if former is leader and mark < before:
            return f"high watermark of {broker} falls from {before} to {mark}"
    return None


def latest_offset_grows(view: View) -> str | None:
    """The latest offset, as the controller's leader answers it, never falls. Source: KIP-207, KAFKA-2334."""
    leader = view.believers.get(view.truth.leader)
    if leader is None or leader.committed.leader_epoch != view.truth.leader_epoch or view.excuse:
        return None
    latest = leader.latest_offset
    if latest is None or not view.answers_for(leader.broker):
        return None
    before, view.memory.latest = view.memory.latest, max(view.memory.latest, latest)
    return f"latest offset falls from {before} to {latest} at {leader.broker}" if latest < before else None


def metadata_log_matching(view: View) -> str | None:
    """A leader knows of its partition what the controller once wrote, at that partition epoch.

    Source: MetadataLogMatching of Vanlightly's specifications.
    """
    for broker, leader in view.believers.items():
        written = view.memory.states.get(leader.committed.partition_epoch, leader.committed)
        if written != leader.committed:
            return f"{broker} knows {leader.committed}, the controller wrote {written}"
    return None


def _compare(view: View, leader: LeaderPartition, members: Iterable[BrokerId]) -> str | None:
    mark = leader.replica.high_watermark
    for member in members:
        log = view.log(member)
        if view.end(member) < mark:
            return f"{member} ends at {view.end(member)}, below the high watermark {mark} of {leader.broker}"
        if log is not None and (offset := first_difference(log, leader.replica.log, mark)) is not None:
            return f"{member} and {leader.broker} differ at {offset}, below the high watermark {mark}"
    return None
