"""Who leads next (``PartitionChangeBuilder``, KIP-966). Pure: a partition and a question in, a winner out."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, BrokerId

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.registrations import PartitionRegistration


class Mode(Enum):
    """How hard to look for a leader."""

    PREFERRED = auto()
    ONLINE = auto()
    UNCLEAN = auto()


class Outcome(Enum):
    """Where the winner came from. The last two may lose committed records."""

    KEPT = auto()
    FROM_ISR = auto()
    FROM_ELR = auto()
    LEADERLESS = auto()
    LAST_KNOWN = auto()
    OUT_OF_SYNC = auto()

    @property
    def is_unclean(self) -> bool:
        """Kafka counts it as an unclean election."""
        return self in {Outcome.LAST_KNOWN, Outcome.OUT_OF_SYNC}


class Election(NamedTuple):
    """The leader after an election, and where it came from."""

    leader: BrokerId
    outcome: Outcome


class Candidates(NamedTuple):
    """What an election looks at: the ISR and ELR the change aims for, and who may lead at all.

    Without ``last_known_leader_check`` the last known leader is elected even if it may not lead (KAFKA-19522).
    """

    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    acceptable: Callable[[BrokerId], bool]
    last_known_leader_check: bool = True

    def is_valid(self, broker: BrokerId) -> bool:
        """Live, and certain to hold every committed record.

        The ELR counts only while the ISR is empty: as long as anybody is in sync, records may have been committed that
        those who left do not have.
        """
        return self.acceptable(broker) and (broker in self.isr or (not self.isr and broker in self.elr))

    def may_return(self, last_known: tuple[BrokerId, ...]) -> bool:
        """Return whether the last known leader may lead again: nobody is in sync, nobody is eligible."""
        if self.isr or self.elr or len(last_known) != 1:
            return False
        return self.acceptable(last_known[0]) or not self.last_known_leader_check


def elect(partition: PartitionRegistration, candidates: Candidates, mode: Mode) -> Election:
    """Find the leader, in Kafka's order of preference.

    PREFERRED asks for the first replica before the current leader; both keep the current leader before they look
    along the replica list. Only then may the last known leader return (nobody in ISR or ELR), or, in mode UNCLEAN,
    any live replica.
    """
    preferred, current = partition.replicas[0], partition.leader
    order = [preferred, current] if mode is Mode.PREFERRED else [current]
    for broker in (*order, *partition.replicas):
        if candidates.is_valid(broker):
            return Election(broker, _clean_outcome(partition, candidates, broker))
    if candidates.may_return(partition.last_known_elr):
        return Election(partition.last_known_elr[0], Outcome.LAST_KNOWN)
    if mode is Mode.UNCLEAN:
        for broker in partition.replicas:
            if candidates.acceptable(broker):
                return Election(broker, Outcome.OUT_OF_SYNC)
    return Election(NO_LEADER, Outcome.LEADERLESS)


def _clean_outcome(partition: PartitionRegistration, candidates: Candidates, winner: BrokerId) -> Outcome:
    if winner not in candidates.isr:
        return Outcome.FROM_ELR
    return Outcome.KEPT if winner == partition.leader else Outcome.FROM_ISR
