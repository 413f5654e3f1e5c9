"""Health of a partition: Kafka's own definitions, each stated once.

Source: ``Partition.isUnderReplicated``, ``isUnderMinIsr``, ``isAtMinIsr`` of Apache Kafka; KIP-352 (original replica
count during a reassignment), KIP-427 (at min ISR), KAFKA-15583 (effective minimum), KIP-1150 (diskless topics).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection

    from streaming.contracts.identifiers import Micros

PARTITIONS: Final = "partitions"
UNDER_REPLICATED: Final = "under_replicated"
UNDER_MIN_ISR: Final = "under_min_isr"
AT_MIN_ISR: Final = "at_min_isr"
UNKNOWN_MIN_ISR: Final = "unknown_min_isr"
OFFLINE: Final = "offline"
OFF_PREFERRED_LEADER: Final = "off_preferred_leader"
REASSIGNING: Final = "reassigning"
DISKLESS: Final = "diskless"
STATES: Final = (
    PARTITIONS,
    UNDER_REPLICATED,
    UNDER_MIN_ISR,
    AT_MIN_ISR,
    UNKNOWN_MIN_ISR,
    OFFLINE,
    OFF_PREFERRED_LEADER,
    REASSIGNING,
    DISKLESS,
)


class Health(Protocol):
    """Input of a partition's health: a state of the job, or a row of the exporter."""

    @property
    def adding_replicas(self) -> Collection[int]:
        """Replicas that a reassignment adds."""

    @property
    def removing_replicas(self) -> Collection[int]:
        """Replicas that a reassignment removes."""

    @property
    def min_isr_effective(self) -> int | None:
        """The minimum, None while unknown."""

    @property
    def is_offline(self) -> bool:
        """It has no leader."""

    @property
    def is_under_replicated(self) -> bool:
        """Fewer in sync than assigned."""

    @property
    def is_under_min_isr(self) -> bool | None:
        """Writes with ``acks=all`` are refused; None while unknown."""

    @property
    def is_at_min_isr(self) -> bool | None:
        """A replica is missing and one more loss stops writes; None while unknown."""

    @property
    def is_off_preferred_leader(self) -> bool:
        """A replica other than the first leads."""

    @property
    def is_diskless(self) -> bool:
        """Its records are in an object store (KIP-1150): its ISR means nothing."""


def replication_factor(replicas: Collection[int], adding_replicas: Collection[int]) -> int:
    """Count the replicas a partition is meant to have: those being added do not count yet (KIP-352)."""
    return len(replicas) - len(adding_replicas)


def effective_min_isr(configured: int | None, replicas: Collection[int]) -> int | None:
    """Cap ``min.insync.replicas`` at the replica count; None where the configured value is unknown."""
    return None if configured is None else min(configured, len(replicas))


def is_offline(leader: int) -> bool:
    """Return whether there is no leader: no reads, no writes. One that cannot be seen is one."""
    return leader == NO_LEADER


def is_under_replicated(replicas: Collection[int], isr: Collection[int], adding_replicas: Collection[int]) -> bool:
    """Return whether fewer replicas are in sync than the partition is meant to have.

    A partition without a leader keeps its last ISR, so it need not be under-replicated: see ``is_offline``.
    """
    return len(isr) < replication_factor(replicas, adding_replicas)


def is_under_min_isr(min_isr_effective: int | None, isr: Collection[int]) -> bool | None:
    """Return whether a leader refuses writes with ``acks=all``; None where the minimum is unknown."""
    return None if min_isr_effective is None else len(isr) < min_isr_effective


def is_at_min_isr(min_isr_effective: int | None, isr: Collection[int], *, is_lacking: bool) -> bool | None:
    """Return whether a replica is missing and the loss of one more stops writes; None where the minimum is unknown.

    Kafka's ``isAtMinIsr`` counts healthy partitions, too, that have as many replicas as their minimum, for ever.

    Args:
        min_isr_effective: the minimum, None while unknown.
        isr: the replicas in sync.
        is_lacking: it is under-replicated.
    """
    return None if min_isr_effective is None else is_lacking and len(isr) == min_isr_effective


def is_off_preferred_leader(replicas: tuple[int, ...], leader: int) -> bool:
    """Return whether a replica other than the first leads (false without a leader, or while it cannot be seen)."""
    return leader >= 0 and bool(replicas) and leader != replicas[0]


def states_of(partition: Health) -> tuple[str, ...]:
    """Name the states that a live partition is in; every one is in ``partitions``.

    Neither ISR nor leader of a diskless one says whether it can be read and written, so it is healthy by none of them.
    """
    reported = (
        (PARTITIONS, True),
        (UNDER_REPLICATED, partition.is_under_replicated),
        (UNDER_MIN_ISR, partition.is_under_min_isr),
        (AT_MIN_ISR, partition.is_at_min_isr),
        (UNKNOWN_MIN_ISR, partition.min_isr_effective is None and not partition.is_diskless),
        (OFFLINE, partition.is_offline),
        (OFF_PREFERRED_LEADER, partition.is_off_preferred_leader),
        (REASSIGNING, bool(partition.adding_replicas or partition.removing_replicas)),
        (DISKLESS, partition.is_diskless),
    )
    return tuple([name for name, holds in reported if holds])


BY_MINIMUM: Final = frozenset({UNDER_MIN_ISR, AT_MIN_ISR})
"""The states that depend on min ISR."""


def known_by_minimum(count: int, partitions: int, unknown: int) -> int | None:
    """Return a count that needs the minimum; None while the minimum of every one of them is unknown.

    ``partitions`` is how many there are without diskless ones, ``unknown`` of how many of them the minimum is unknown.
    """
    return None if 0 < partitions == unknown else count


def lag(position: int | None, end: int | None) -> int | None:
    """Count the records between the log end of a replica and that of its leader; None while either is unknown.

    Never negative: after an unclean election it may have more. Of groups: ``group_positions``.
    """
    return None if position is None or end is None else max(0, end - position)


def is_late(started_at: Micros | None, timeout_ms: int | None, at: Micros) -> bool | None:
    """Return whether a transaction has been open for longer than its timeout; None while either is unknown.

    Its coordinator aborts it then (``transaction.abort.timed.out.transaction.cleanup.interval.ms``, 10 s), unless it
    cannot write the markers of its end.
    """
    return None if started_at is None or timeout_ms is None else at - started_at > timeout_ms * 1000


def behind_since(
    before: Micros | None,
    leader_end_before: int | None,
    collected_at: Micros,
    log_end: int | None,
    leader_end: int | None,
) -> Micros | None:
    """Return since when samples have shown a replica behind without its catching up; None while it is not, or unknown.

    Kafka's rule of ``lastCaughtUpTimeMs``: a follower of a busy partition never has the newest record, so it counts as
    caught up, too, when it has what its leader had at the look before.

    So the time since then is never longer than the leader thinks, and what the replica has is older by one interval of
    samples at most. One that is always less than an interval behind counts as caught up here. Measured in the model at
    an interval of ten seconds: of replicas shown behind 0.2 to 10.3 s shorter than the leader thinks, on average 5 s
    (``tests/sources/test_simulated_lag.py``).

    ``before`` is the answer at the sample before, and ``leader_end_before`` the leader's log end in it.
    """
    if not lag(log_end, leader_end):
        return None
    if before is None or lag(log_end, leader_end_before) == 0:
        return collected_at
    return before
