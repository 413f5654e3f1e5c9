"""Risks in the settings of a topic, whatever brokers are up: each weakness defined once, in words, with its fix. Pure.

Source: ``Partition.appendRecordsToLeader`` and ``effectiveMinIsr`` of Apache Kafka (KAFKA-15583: since 3.7 a minimum
above the replication factor counts as the replication factor), KIP-106 (unclean election is off by default).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.records import METADATA_VERSION
from streaming.contracts.topic_roles import COMPACTED, role_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

COMPACT: Final = "compact"


class Weakness(StrEnum):
    """Weakness in the settings of a topic, worst first."""

    MIN_ISR_ABOVE_REPLICATION_FACTOR = "min_isr_above_replication_factor"
    ONE_REPLICA = "one_replica"
    NOT_COMPACTED = "not_compacted"
    UNCLEAN_ELECTION = "unclean_election"
    MIN_ISR_ONE = "min_isr_one"
    NO_REPLICA_TO_SPARE = "no_replica_to_spare"
    ONE_RACK = "one_rack"


WORST_FIRST: Final = tuple(Weakness)


class TopicDurability(NamedTuple):
    """Settings that the durability of a topic depends on. None is unknown, and then nothing is said about it.

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
        """Say what fixes it: with at least three replicas, two of which must have a record."""
        few = self.replication_factor < _ENOUGH
        if weakness is Weakness.MIN_ISR_ONE:
            return f"{_ADD}, then set min.insync.replicas=2" if few else "set min.insync.replicas=2"
        if weakness is Weakness.NO_REPLICA_TO_SPARE and not few:
            return f"set min.insync.replicas={self.replication_factor - 1}, or add a replica"
        if weakness is Weakness.MIN_ISR_ABOVE_REPLICATION_FACTOR and not few:
            return f"set min.insync.replicas={self.replication_factor - 1}, or add replicas"
        return _FIXES.get(weakness, _ADD)


def is_in_one_rack(replicas: Collection[int], racks: Mapping[int, str | None]) -> bool:
    """Return whether several replicas are all in one rack of several; False while a rack is unknown."""
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


# Throttles of replication: those that limit something, and those left behind by a reassignment. Pure.
#
# A broker limits the replication of those replicas alone that a topic lists, and only if it has a rate (KIP-73).
# ``kafka-reassign-partitions --throttle`` sets both, and only its ``--verify`` takes them back.


_EVERY: Final = "*"
_NONE: Final = frozenset({"", "none"})


class ThrottleRates(NamedTuple):
    """Limits of a broker for replication as leader and as follower, bytes per second; None is no limit."""

    leader: int | None = None
    follower: int | None = None


class ThrottledReplicas(NamedTuple):
    """Replicas of a topic, ``*.replication.throttled.replicas``, as Kafka writes them: ``0:1,0:2``, or ``*``."""

    leader: str | None = None
    follower: str | None = None

    @property
    def is_set(self) -> bool:
        """True if it lists any."""
        return any(listed is not None and listed.strip() not in _NONE for listed in self)

    def limited_by(self, rates: Mapping[int, ThrottleRates]) -> list[int]:
        """Return the brokers that limit the replication of the topic."""
        return [
            broker
            for broker, of_broker in sorted(rates.items())
            if any(rate is not None and _lists(each, broker) for each, rate in zip(self, of_broker, strict=True))
        ]


class LeftThrottles(NamedTuple):
    """Throttles that are set though nothing is being reassigned.

    Attributes:
        topics: each that lists replicas, and the brokers that limit its replication now.
        brokers: each that has a rate, and the topics whose replication it limits now.
    """

    topics: dict[str, list[int]]
    brokers: dict[int, list[str]]


def left_throttles(
    topics: Mapping[str, ThrottledReplicas], rates: Mapping[int, ThrottleRates], *, reassigning: int
) -> LeftThrottles:
    """Return the throttles that are left behind: none while any partition is being reassigned."""
    if reassigning:
        return LeftThrottles({}, {})
    limited = {name: each.limited_by(rates) for name, each in sorted(topics.items()) if each.is_set}
    with_rate = [broker for broker, each in sorted(rates.items()) if each != ThrottleRates()]
    return LeftThrottles(
        limited, {broker: [name for name, brokers in limited.items() if broker in brokers] for broker in with_rate}
    )


def _lists(replicas: str | None, broker: int) -> bool:
    """Return whether a list has a replica on a broker."""
    listed = (replicas or "").strip()
    return listed == _EVERY or any(each.strip().partition(":")[2] == str(broker) for each in listed.split(","))


# Brokers that run another version than the others, and unfinished upgrades, by feature levels. Pure.
#
# A release of Kafka raises the highest ``metadata.version`` that its brokers support; the cluster uses a new one after
# ``kafka-features upgrade`` only (KIP-584). Versions that differ in a bug-fix release alone look the same.


class FeatureLevels(NamedTuple):
    """One feature.

    Attributes:
        finalized: the level that the cluster uses; 0 is off.
        supported: the highest level that each broker supports.
    """

    finalized: int
    supported: Mapping[int, int]

    @property
    def behind(self) -> list[int]:
        """The brokers that support less than another one."""
        newest = max(self.supported.values(), default=0)
        return sorted(broker for broker, level in self.supported.items() if level < newest)


class BrokerVersions(NamedTuple):
    """Versions of the brokers, by feature levels.

    Attributes:
        mixed: each feature of which some brokers support less than others, and these brokers.
        unused: the ``metadata.version`` that every broker supports while the cluster uses an older one; else None.
    """

    mixed: dict[str, list[int]]
    unused: int | None


def versions_of(features: Mapping[str, FeatureLevels]) -> BrokerVersions:
    """Compare what brokers support and what the cluster uses.

    Other features than ``metadata.version`` are switched on by choice, so a lower level of theirs is no upgrade to end.
    """
    mixed = {name: behind for name, levels in sorted(features.items()) if (behind := levels.behind)}
    metadata = features.get(METADATA_VERSION, FeatureLevels(0, {}))
    newest = min(metadata.supported.values(), default=0)
    return BrokerVersions(mixed, newest if newest > metadata.finalized and METADATA_VERSION not in mixed else None)
