"""Invariants of a leader's view beside the truth. Each gives the complaint, or None while it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.invariants.records import first_difference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.invariants.sight import Sight


def valid_replica_state(sight: Sight) -> str | None:
    """Who leads was named leader by its own metadata, and its log has a record at every offset.

    Source: ValidReplicaState of Vanlightly's specifications.
    """
    for broker, leader in sight.believers.items():
        log = leader.replica.log
        if leader.committed.leader != broker:
            return f"{broker} leads, but knows {leader.committed.leader} as leader"
        if log.end > log.start and (not log.epochs or log.epochs[0][1] > log.start):
            return f"{broker} has records without an epoch: {log.epochs}"
    return None


def valid_fetcher_state(sight: Sight) -> str | None:
    """A broker fetches a partition from at most one source, and not at all while it leads.

    Source: ValidFetcherState of Vanlightly's specifications. A follower without source waits after an error.
    """
    for broker, process in sight.processes.items():
        sources = process.following.sources(sight.key)
        if len(sources) > (0 if broker in sight.believers else 1):
            return f"{broker} fetches from {sources}, and it {'leads' if broker in sight.believers else 'follows'}"
    return None


def one_proposal_in_flight(sight: Sight) -> str | None:
    """A partition has at most one proposed ISR. Source: ours, the sixth of the cheap checks (KIP-497)."""
    for broker, leader in sight.believers.items():
        known = sight.processes[broker].leadership.proposals.of(sight.key)
        if sum(it is leader.pending for it in known) > 1 or (known and leader.pending and leader.pending not in known):
            return f"{broker} proposes {known} while {leader.pending} is pending"
    return None


def replication_quorum_superset(sight: Sight) -> str | None:
    """A leader that is not stale waits for everybody whom the controller counts as in sync, or as eligible.

    Source: ReplicationQuorumSuperset of Vanlightly's specifications. The ELR is part of it while the leader's own ISR
    has the minimum: it did not hear yet that it shrank.
    """
    for broker, leader in sight.believers.items():
        if leader.committed.leader_epoch != sight.truth.leader_epoch:
            continue
        maximal = set(leader.maximal_isr())
        if leader.pending is None and maximal != set(leader.committed.isr):
            return f"{broker} waits for {maximal} with nothing pending"
        eligible = set(sight.truth.elr) & set(sight.truth.replicas)
        wanted = {*sight.truth.isr, *(eligible if len(leader.committed.isr) >= sight.min_isr else ())}
        if not wanted <= maximal:
            return f"{sorted(wanted)} beyond {sorted(maximal)} of {broker}"
    return None


def weak_isr(sight: Sight) -> str | None:
    """Below the high watermark of whoever believes to lead, its own ISR has the same records.

    Source: WeakIsr of hachikuji's specification. Scope: members that did not lose their replica since by a
    reassignment; damaged disks excused.
    """
    memory = sight.memory
    for leader in sight.heirs().values():
        known = leader.committed.partition_epoch
        members = [it for it in leader.committed.isr if memory.dropped.get(it, 0) <= known and it not in memory.damaged]
        if complaint := _compare(sight, leader, members):
            return complaint
    return None


def strong_isr(sight: Sight) -> str | None:
    """Below the high watermark of whoever believes to lead, stale or not, the controller's ISR has the same records.

    Source: StrongIsr of hachikuji's specification. Scope: a damaged disk counts once its process is registered.
    """
    members = [it for it in sight.truth.isr if sight.answers_for(it)]
    for leader in sight.heirs().values():
        if leader.committed.isr == sight.truth.isr and not sight.memory.damaged:
            continue  # then it is the weak form
        if sight.answers_for(leader.broker) and (complaint := _compare(sight, leader, members)):
            return complaint
    return None


def valid_high_watermark(sight: Sight) -> str | None:
    """Nobody in the controller's ISR ends below the high watermark of a leader that is not stale.

    Source: ValidHighWatermark of hachikuji's specification of asynchronous ISR changes.
    """
    for broker, leader in sight.heirs().items():
        if leader.committed.leader_epoch == sight.truth.leader_epoch and sight.answers_for(broker):
            ends = {it: sight.end(it) for it in sight.truth.isr if sight.answers_for(it)}
            short = {it: end for it, end in ends.items() if end < leader.replica.high_watermark}
            if short:
                return f"high watermark {leader.replica.high_watermark} of {broker} beyond the ends {short}"
    return None


def high_watermark_grows(sight: Sight) -> str | None:
    """While a process leads in one epoch its high watermark never falls. Source: prose of the specifications."""
    for broker, leader in sight.believers.items():
        mark = leader.replica.high_watermark
        known, before = sight.memory.term_marks.get(broker, (leader, 0))
        sight.memory.term_marks[broker] = (leader, mark)
        if known is leader and mark < before:
            return f"high watermark of {broker} falls from {before} to {mark}"
    return None


def latest_offset_grows(sight: Sight) -> str | None:
    """The latest offset, as the controller's leader answers it, never falls. Source: KIP-207, KAFKA-2334."""
    leader = sight.believers.get(sight.truth.leader)
    if leader is None or leader.committed.leader_epoch != sight.truth.leader_epoch or sight.excuse:
        return None
    latest = leader.latest_offset
    if latest is None or not sight.answers_for(leader.broker):
        return None
    before, sight.memory.latest = sight.memory.latest, max(sight.memory.latest, latest)
    return f"latest offset falls from {before} to {latest} at {leader.broker}" if latest < before else None


def metadata_log_matching(sight: Sight) -> str | None:
    """What a leader knows of its partition is what the controller once wrote, at that partition epoch.

    Source: MetadataLogMatching of Vanlightly's specifications.
    """
    for broker, leader in sight.believers.items():
        written = sight.memory.states.get(leader.committed.partition_epoch, leader.committed)
        if written != leader.committed:
            return f"{broker} knows {leader.committed}, the controller wrote {written}"
    return None


def _compare(sight: Sight, leader: LeaderPartition, members: Iterable[BrokerId]) -> str | None:
    mark = leader.replica.high_watermark
    for member in members:
        log = sight.log(member)
        if sight.end(member) < mark:
            return f"{member} ends at {sight.end(member)}, below the high watermark {mark} of {leader.broker}"
        if log is not None and (offset := first_difference(log, leader.replica.log, mark)) is not None:
            return f"{member} and {leader.broker} differ at {offset}, below the high watermark {mark}"
    return None
