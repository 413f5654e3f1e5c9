"""Effects of a stop of each in-sync replica on a partition: what it adds to the counts of its replicas.

Every in-sync replica has the same effects, so they depend on the partition alone. An effect that depends on other
brokers names them, and is judged where their state is known (``streaming.changes.advice.restart_safety``). Source:
KIP-497, KIP-966 (eligible leader replicas), KAFKA-15583 (effective minimum).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

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
    def replicas(self) -> Collection[int]:
        """Assigned brokers."""

    @property
    def isr(self) -> Collection[int]:
        """In-sync replicas."""

    @property
    def elr(self) -> Collection[int]:
        """Eligible leader replicas."""

    @property
    def min_isr_effective(self) -> int | None:
        """The minimum, None while unknown."""

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


def effects_of_stop(partition: ReplicationShape) -> list[str]:
    """Name the effects on a partition if any one of its in-sync replicas stopped."""
    left, minimum = len(partition.isr) - 1, partition.min_isr_effective
    effects = []
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

    Args:
        partition: its state; what it has lost already does not count.
        brokers: those that stop.
        up: every broker that is up before: an eligible leader replica among them can lead.
    """
    left, minimum = set(partition.isr).difference(brokers), partition.min_isr_effective
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
