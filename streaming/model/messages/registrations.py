"""One partition and one broker as the controller knows them: frozen values, replaced whole at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicId, TopicPartition
from streaming.contracts.records import RECOVERED
from streaming.model.storage.segments import LogConfig


class PartitionRegistration(NamedTuple):
    """The controller's truth about one partition (``PartitionRegistration.java``).

    Attributes:
        replicas: the assignment; the first one is the preferred leader.
        isr: in the order in which they joined. Invariant: ⊆ ``replicas``; never empty unless eligible leader replicas
            are on.
        leader: -1 for none. Invariant: in ``isr`` or -1.
        leader_epoch: grows by at most one in a step, always with another leader and always when a replica goes.
            Fences requests between replicas. Invariant: ≤ ``partition_epoch``.
        partition_epoch: grows by exactly one in every step; a leader's proposal must build on the newest.
        elr: eligible leader replicas, who left the ISR while it was below the minimum: they hold everything committed,
            for nothing was committed since (KIP-966). Invariant: disjoint from ``isr``; names no replica once the ISR
            has the minimum; ⊆ ``replicas`` but for those that a reassignment dropped.
        last_known_elr: the last leader, where ISR and ELR became empty. Invariant: at most one; empty while a replica
            leads.
        leader_recovery_state: RECOVERING from an unclean election until its leader says that it has recovered.
        adding_replicas, removing_replicas: ⊆ ``replicas``, empty unless a reassignment runs.
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    leader_recovery_state: int = RECOVERED
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()


class BrokerRegistration(NamedTuple):
    """The controller's truth about one broker.

    Attributes:
        epoch: the broker epoch: offset at which this process registered, so every later process has a larger one. What
            an earlier process of the broker asks is refused by it.
        incarnation_id: of the process; a registration asked for twice by the same process is one.
        fenced: may neither lead nor join an ISR. Invariant: in no ISR, but for the last member without ELR.
        in_controlled_shutdown: on its way out: still serves what it leads, but is elected nowhere and joins no ISR.
    """

    epoch: BrokerEpoch
    incarnation_id: str
    fenced: bool = True
    in_controlled_shutdown: bool = False
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()
    cordoned_log_dirs: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        """May lead and may join an ISR."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRegistration:
    """A topic with the configuration that replication depends on; ``log`` None: as the brokers' own."""

    topic: str
    topic_id: TopicId
    partitions: int
    min_isr: int = 1
    is_min_isr_of_brokers: bool = False
    """Neither the topic nor the cluster sets it: each leader's own file does (KIP-226)."""
    unclean: bool = False
    log: LogConfig | None = None


class Transition(NamedTuple):
    """One step of one partition: its states around it, and what the model knows to have caused it.

    ``before`` is None for a creation, ``after`` for a deletion. No record carries ``cause``: it is a ghost, the
    truth that monitoring has to find again.
    """

    topic: TopicRegistration
    topic_partition: TopicPartition
    before: PartitionRegistration | None
    after: PartitionRegistration | None
    cause: Cause
