"""Effects of a stop of each in-sync replica on a partition: what it adds to the counts of its replicas.

Every in-sync replica has the same effects, so they depend on the partition alone; but where brokers disagree on the
minimum, that of the leader afterwards counts, so it depends on who stops. An effect that depends on other
brokers names them, and is judged where their state is known (``streaming.changes.advice.restart_safety``). Source:
KIP-497, KIP-966 (eligible leader replicas), KAFKA-15583 (effective minimum).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

WOULD_GO_OFFLINE: Final = "would_go_offline"
WOULD_GO_UNDER_MIN_ISR: Final = "would_go_under_min_isr"
UNKNOWN_MIN_ISR: Final = "unknown_min_isr_partitions"
UNAVOIDABLE_OFFLINE: Final = "unavoidable_offline"
UNAVOIDABLE_UNDER_MIN_ISR: Final = "unavoidable_under_min_isr"
_UNLESS: Final = "would_go_offline_unless"
_WAITS: Final = "waits_for"


class ReplicationShape(Protocol):
    """Input of the effects: a state, or the shape of one."""

    @property
    def replicas(self) -> Sequence[int]:
        """Assigned brokers, the preferred leader first."""

    @property
    def isr(self) -> Collection[int]:
        """In-sync replicas."""

    @property
    def elr(self) -> Collection[int]:
        """Eligible leader replicas."""

    @property
    def leader(self) -> int:
        """Leader, or ``NO_LEADER``."""

    @property
    def min_isr_effective(self) -> int | None:
        """The minimum, None while unknown."""

    @property
    def min_isr_by_replica(self) -> Sequence[int] | None:
        """The minimum if each replica led, -1 while unknown; None where it is the same."""

    @property
    def is_offline(self) -> bool:
        """It has no leader."""

    @property
    def is_under_min_isr(self) -> bool | None:
        """Writes with ``acks=all`` are refused; None while unknown."""


class RestartCondition(NamedTuple):
    """An effect that depends on other brokers.

    Attributes:
        is_offline: the partition would go offline unless one of the brokers is up: they may lead it. Otherwise it would
            be lost unless one of them is in sync by then.
        brokers: the eligible leader replicas, or the replicas that are not in sync.
    """

    is_offline: bool
    brokers: frozenset[int]


def minimum_after(partition: ReplicationShape, stopped: Collection[int]) -> int | None:
    """Return the minimum once some brokers have stopped: that of who leads then. None while it is unknown.

    Kafka elects the first of the replicas that is in sync, or else eligible.
    """
    minima = partition.min_isr_by_replica
    if not minima:
        return partition.min_isr_effective
    by_replica = dict(zip(partition.replicas, minima, strict=True))
    candidates = [
        each for of in ((partition.leader,), partition.isr, partition.elr) for each in by_replica if each in of
    ]
    leader = next((each for each in candidates if each not in stopped), None)
    minimum = partition.min_isr_effective if leader is None else by_replica[leader]
    return None if minimum is None or minimum < 0 else minimum


def effects_of_stop(partition: ReplicationShape, broker: int | None = None) -> list[str]:
    """Name the effects on a partition if one of its in-sync replicas stopped; ``broker`` None: whichever."""
    left = len(partition.isr) - 1
    minimum = partition.min_isr_effective if broker is None else minimum_after(partition, {broker})
    effects = [UNKNOWN_MIN_ISR] if minimum is None and partition.min_isr_effective is not None else []
    if not partition.is_offline and not left:
        effects.append(_effect(_UNLESS, partition.elr) if partition.elr else WOULD_GO_OFFLINE)
    if minimum is not None and left < minimum and not partition.is_under_min_isr:
        effects.append(WOULD_GO_UNDER_MIN_ISR)
    # Of an available partition: left is below the minimum by one at most, so one more replica in sync averts the loss.
    if left < max(1, minimum or 1) and not partition.is_offline and not partition.is_under_min_isr:
        effects.append(_avoidance(partition))
    return effects


def loss_by_stops(partition: ReplicationShape, brokers: Collection[int], up: Collection[int]) -> str | None:
    """Name what a partition would lose if some brokers stopped at once: its leader, or else writes with ``acks=all``.

    What it has lost already does not count; an eligible leader replica among those that are ``up`` before can lead.
    """
    left, minimum = set(partition.isr).difference(brokers), minimum_after(partition, brokers)
    if partition.is_offline or len(left) == len(partition.isr):
        return None
    if not left and set(partition.elr).isdisjoint(set(up).difference(brokers)):
        return WOULD_GO_OFFLINE
    is_refusing = minimum is not None and len(left) < minimum and not partition.is_under_min_isr
    return WOULD_GO_UNDER_MIN_ISR if is_refusing else None


def _avoidance(partition: ReplicationShape) -> str:
    """Name what averts the loss of an available partition: another replica in sync, or nothing, by configuration."""
    missing = set(partition.replicas) - set(partition.isr)
    if missing:
        return _effect(_WAITS, missing)
    return UNAVOIDABLE_UNDER_MIN_ISR if len(partition.isr) > 1 else UNAVOIDABLE_OFFLINE


def condition(name: str) -> RestartCondition | None:
    """Read the name of an effect that depends on other brokers; None for any other name."""
    kind, _, brokers = name.partition("/")
    return (
        RestartCondition(kind == _UNLESS, frozenset(map(int, brokers.split(","))))
        if kind in {_UNLESS, _WAITS}
        else None
    )


def _effect(kind: str, brokers: Collection[int]) -> str:
    return f"{kind}/{','.join(map(str, sorted(brokers)))}"
