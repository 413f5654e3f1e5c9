"""Elections of the ZooKeeper controller (``Election.scala``, ``PartitionLeaderElectionAlgorithms``). Pure.

Each strategy gets the replicas in the order in which they are to be asked, and gives the leader and the ISR it begins
with; None if no replica may lead.

Departs from Kafka: replicas are not reassigned on ZooKeeper here, so the strategy for that is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId


class Question(NamedTuple):
    """Input of an election.

    Attributes:
        replicas: by preference, the preferred leader first.
        isr: as ZooKeeper has it.
        is_live: the broker's session lives.
        is_leaving: it is in controlled shutdown.
        unclean: ``unclean.leader.election.enable`` of the topic.
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    is_live: Callable[[BrokerId], bool]
    is_leaving: Callable[[BrokerId], bool]
    unclean: bool = False

    @property
    def live_isr(self) -> tuple[BrokerId, ...]:
        """Members of the ISR that are alive, ordered as the replicas are."""
        return tuple(broker for broker in self.replicas if broker in self.isr and self.is_live(broker))


class ElectionResult(NamedTuple):
    """The outcome; ``is_unclean``: the leader may lack committed records."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    is_unclean: bool = False


Strategy = Callable[[Question], ElectionResult | None]


def offline(question: Question) -> ElectionResult | None:
    """The leader died: the first live member of the ISR; else, if allowed, any live replica, alone."""
    candidates = question.live_isr
    if candidates:
        return ElectionResult(candidates[0], tuple(broker for broker in question.isr if question.is_live(broker)))
    if question.unclean:
        for broker in question.replicas:
            if question.is_live(broker):
                return ElectionResult(broker, (broker,), is_unclean=True)
    return None


def preferred(question: Question) -> ElectionResult | None:
    """Balance: the first replica or none."""
    first = question.replicas[0]
    return ElectionResult(first, question.isr) if first in question.live_isr else None


def controlled_shutdown(question: Question) -> ElectionResult | None:
    """The leader wants to leave: the first live member of the ISR that stays; who leaves, leaves the ISR."""
    for broker in question.live_isr:
        if not question.is_leaving(broker):
            return ElectionResult(broker, tuple(broker for broker in question.isr if not question.is_leaving(broker)))
    return None
