"""Invariants of the controller's state. Each gives the complaint, or None while it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.records import RECOVERED, RECOVERING
from streaming.model.constants import MetadataMode

if TYPE_CHECKING:
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.invariants.ghost import View
    from streaming.model.messages.registrations import Transition


def type_ok(view: View) -> str | None:
    """State variables stay in their domains. Source: TypeOk of hachikuji's specification."""
    state = view.truth
    is_known = state.leader == NO_LEADER or state.leader in state.replicas
    is_typed = min(state.leader_epoch, state.partition_epoch) >= 0 and state.leader_recovery_state in {
        RECOVERED,
        RECOVERING,
    }
    is_list = bool(state.replicas) and len(set(state.replicas)) == len(state.replicas)
    return None if is_known and is_typed and is_list else f"not a partition: {state}"


def leader_in_isr(view: View) -> str | None:
    """A leader is a member of the ISR. Source: LeaderInIsr of hachikuji's specification; in KRaft -1 is no leader."""
    state = view.truth
    return None if state.leader == NO_LEADER or state.leader in state.isr else f"leader outside ISR: {state}"


def isr_well_formed(view: View) -> str | None:
    """The ISR is a part of the replicas without repetition, and never empty without eligible leader replicas.

    Source: ours, the first of the cheap checks.
    """
    state = view.truth
    if not set(state.isr) <= set(state.replicas):
        return f"ISR outside replicas: {state}"
    if len(set(state.isr)) != len(state.isr):
        return f"ISR repeats a member: {state}"
    return None if view.constants.elr_enabled or state.isr else f"empty ISR without ELR: {state}"


def valid_controller_isr_and_elr(view: View) -> str | None:
    """ISR and ELR share no member, and the ELR is empty while the ISR has the minimum.

    Source: ValidControllerIsrAndElr of Vanlightly's specification of KIP-966. Scope: trivial without ELR; the ELR goes
    on naming replicas that a reassignment dropped.
    """
    state = view.truth
    if set(state.elr) & set(state.isr):
        return f"ELR and ISR share a member: {state}"
    eligible = set(state.elr) & set(state.replicas)
    return f"ELR although the ISR is full: {state}" if eligible and len(state.isr) >= view.min_isr else None


def last_known_leader(view: View) -> str | None:
    """At most one last known leader is remembered, and only while there is no leader.

    Source: what shipped Kafka keeps in ``LastKnownElr``. The design of KIP-966 promised more (MinIsrRecoveryQuorum:
    with ISR and ELR empty, as many last known members as the minimum ISR), which is not true of Kafka 4.x.
    """
    state = view.truth
    is_fine = not state.last_known_elr or (len(state.last_known_elr) == 1 and state.leader == NO_LEADER)
    return None if is_fine else f"last known leaders: {state}"


def valid_controller_state(view: View) -> str | None:
    """No fenced broker is in an ISR; without eligible leader replicas it may be there alone.

    Source: ValidControllerState of Vanlightly's specifications (3.5 and KIP-966). Scope: KRaft; a controller on
    ZooKeeper learns of the end of a session some time after it could be read.
    """
    if view.constants.metadata_mode is not MetadataMode.KRAFT:
        return None
    isr = view.truth.isr
    fenced = [broker for broker in isr if broker not in view.registrations or view.registrations[broker].fenced]
    may_be = not view.constants.elr_enabled and len(isr) == 1
    return f"fenced members {fenced} in ISR {isr}" if fenced and not may_be else None


def unclean_exclusion(view: View) -> str | None:
    """A broker that lost records in a crash is in neither ISR nor ELR until it has them again.

    Source: prose of KIP-966. Scope: with eligible leader replicas, from the registration of the new process on.
    """
    state = view.truth
    back = [broker for broker in view.memory.damaged if broker in {*state.isr, *state.elr} and view.is_accepted(broker)]
    return (
        f"damaged members {back}: ISR {state.isr}, ELR {state.elr}"
        if back and view.constants.elr_enabled and not view.excuse
        else None
    )


def epochs_grow(step: Transition) -> str | None:
    """The partition epoch grows by one a step; the leader epoch by at most one, and with every new leader.

    Source: ours, the second of the cheap checks.
    """
    before, after = step.before, step.after
    if before is None or after is None:
        return None
    grown = after.leader_epoch - before.leader_epoch
    is_fine = after.partition_epoch == before.partition_epoch + 1 and grown in {0, 1}
    return None if is_fine and (grown or after.leader == before.leader) else f"{before} -> {after}"


def valid_broker_state(cluster: Cluster) -> str | None:
    """A process that runs unfenced is or was the registered one, and knows no metadata from the future.

    Source: ValidBrokerState of Vanlightly's specifications. Scope: KRaft; on ZooKeeper a broker runs on while its
    registration is gone with its session.
    """
    if cluster.constants.metadata_mode is not MetadataMode.KRAFT:
        return None
    for node, broker in cluster.brokers.items():
        registration = cluster.controller.registry.brokers.get(node)
        if not broker.lifecycle.is_running:
            continue
        if registration is None or broker.lifecycle.epoch > registration.epoch:
            return f"broker {node} runs with epoch {broker.lifecycle.epoch}, not that of {registration}"
        if (
            broker.lifecycle.epoch == registration.epoch
            and broker.lifecycle.incarnation_id != registration.incarnation_id
        ):
            return f"broker {node} runs under the epoch of another process: {registration}"
    return None
