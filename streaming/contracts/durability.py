"""What the settings of a topic risk, whoever is up: each weakness defined once, in words, with what mends it. Pure.

Source: ``Partition.appendRecordsToLeader`` and ``effectiveMinIsr`` of Apache Kafka (KAFKA-15583: since 3.7 a minimum
above the replication factor counts as the replication factor), KIP-106 (unclean election is off by default).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.topic_roles import COMPACTED, role_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

COMPACT: Final = "compact"


class Weakness(StrEnum):
    """What is wrong with the settings of a topic, worst first."""

    MIN_ISR_ABOVE_REPLICATION_FACTOR = "min_isr_above_replication_factor"
    ONE_REPLICA = "one_replica"
    NOT_COMPACTED = "not_compacted"
    UNCLEAN_ELECTION = "unclean_election"
    MIN_ISR_ONE = "min_isr_one"
    NO_REPLICA_TO_SPARE = "no_replica_to_spare"
    ONE_RACK = "one_rack"


WORST_FIRST: Final = tuple(Weakness)


class TopicDurability(NamedTuple):
    """What the durability of a topic depends on. None is unknown, and then nothing is said about it.

    Attributes:
        topic: its name.
        replication_factor: the smallest of its partitions; those being added do not count (KIP-352).
        min_isr: ``min.insync.replicas``.
        allows_unclean_election: ``unclean.leader.election.enable``.
        cleanup_policy: ``cleanup.policy``.
        is_in_one_rack: whether a partition of it is; see :func:`is_in_one_rack`.
    """

    topic: str
    replication_factor: int
    min_isr: int | None = None
    allows_unclean_election: bool | None = None
    cleanup_policy: str | None = None
    is_in_one_rack: bool = False

    def weaknesses(self) -> tuple[Weakness, ...]:
        """Name what is wrong, worst first; what follows from another weakness is left out."""
        return tuple(self._weaknesses())

    def _weaknesses(self) -> Iterator[Weakness]:
        replicas, minimum = self.replication_factor, self.min_isr
        if minimum is not None and minimum > replicas:
            yield Weakness.MIN_ISR_ABOVE_REPLICATION_FACTOR
        if replicas == 1:
            yield Weakness.ONE_REPLICA
        if self.cleanup_policy is not None and role_of(self.topic) in COMPACTED and not self._is_compacted:
            yield Weakness.NOT_COMPACTED
        if replicas == 1:
            return
        if self.allows_unclean_election:
            yield Weakness.UNCLEAN_ELECTION
        if minimum == 1:
            yield Weakness.MIN_ISR_ONE
        if minimum == replicas:
            yield Weakness.NO_REPLICA_TO_SPARE
        if self.is_in_one_rack:
            yield Weakness.ONE_RACK

    @property
    def _is_compacted(self) -> bool:
        policies = (self.cleanup_policy or "").split(",")
        return COMPACT in (policy.strip() for policy in policies)

    def reason(self, weakness: Weakness) -> str:
        """Say what a weakness of it means."""
        return _REASONS[weakness].format(replicas=self.replication_factor, minimum=self.min_isr)

    def fix(self, weakness: Weakness) -> str:
        """Say what mends it: with at least three replicas, two of which must have a record."""
        few = self.replication_factor < _ENOUGH
        if weakness is Weakness.MIN_ISR_ONE:
            return f"{_ADD}, then set min.insync.replicas=2" if few else "set min.insync.replicas=2"
        if weakness is Weakness.NO_REPLICA_TO_SPARE and not few:
            return f"set min.insync.replicas={self.replication_factor - 1}, or add a replica"
        if weakness is Weakness.MIN_ISR_ABOVE_REPLICATION_FACTOR and not few:
            return f"set min.insync.replicas={self.replication_factor - 1}, or add replicas"
        return _FIXES.get(weakness, _ADD)


def is_in_one_rack(replicas: Collection[int], racks: Mapping[int, str | None]) -> bool:
    """Return whether several replicas are all in one rack though there is another one; False while a rack is unknown.

    Args:
        replicas: brokers.
        racks: of each broker of the cluster.
    """
    own = {racks.get(broker) for broker in replicas}
    return len(replicas) > 1 and len(own) == 1 and None not in own and bool({*racks.values()} - own - {None})


_ENOUGH: Final = 3
_ADD: Final = "reassign its partitions to three brokers (kafka-reassign-partitions)"
_REASONS: Final = {
    Weakness.MIN_ISR_ABOVE_REPLICATION_FACTOR: (
        "min.insync.replicas {minimum} is above the replication factor {replicas}: before Kafka 3.7 acks=all is always "
        "refused, since then while any replica is missing"
    ),
    Weakness.ONE_REPLICA: (
        "one replica: the disk of its broker has the only copy, and while it is down nothing is read or written"
    ),
    Weakness.NOT_COMPACTED: "cleanup.policy deletes by age what is kept by key: old state is lost",
    Weakness.UNCLEAN_ELECTION: "unclean.leader.election.enable: a replica that lacks acknowledged records may lead",
    Weakness.MIN_ISR_ONE: "min.insync.replicas 1: an acknowledged record may be on one broker alone",
    Weakness.NO_REPLICA_TO_SPARE: (
        "min.insync.replicas {minimum} of {replicas} replicas: while one broker is down acks=all is refused"
    ),
    Weakness.ONE_RACK: "all replicas of a partition are in one rack: its loss takes the partition offline",
}
_FIXES: Final = {
    Weakness.NOT_COMPACTED: "set cleanup.policy=compact",
    Weakness.UNCLEAN_ELECTION: "set unclean.leader.election.enable=false",
    Weakness.ONE_RACK: "reassign its replicas to brokers of several racks (kafka-reassign-partitions)",
}
