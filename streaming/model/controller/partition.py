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

    ``isr`` is ordered and never empty unless eligible leader replicas are on; ``leader`` is -1 while nobody leads.
    ``adding_replicas`` and ``removing_replicas`` are parts of ``replicas``, empty unless a reassignment runs.
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
    """The controller's truth about one broker."""

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
