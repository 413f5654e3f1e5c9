"""Counts of partitions per broker and per cluster, kept up to date change by change.

What one partition adds is a pure function of its state. The owner of the state takes away what it added before a
change and adds what it adds after, so counts cost what changed, however many partitions there are. Tallies of disjoint
sets of partitions add up. Names are column names of ``broker_state`` and ``cluster_state``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from streaming.changes.suspects import blamed, score
from streaming.contracts import health
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.totals import EPISODES, SECONDS, TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.changes.state import PartitionState, ReplicationState
    from streaming.contracts.identifiers import BrokerId, ClusterId, Micros

SECOND: Final = 1_000_000
_SINCE: Final = tuple((f"{name}_seconds", f"{name}_since") for name in EPISODES)
_SECONDS: Final = frozenset(SECONDS)
_COLUMN: Final = {
    state: state if state == health.PARTITIONS else f"{state}_{health.PARTITIONS}" for state in health.STATES
}
# What is added: whose count (None: the cluster's), and which.
Contribution = tuple["BrokerId | None", str]


def contributions(partition: PartitionState) -> Iterator[Contribution]:
    """Name the counts that a partition is one of; a tombstone is in none."""
    if partition.is_deleted:
        return
    yield from _to_cluster(partition)
    if partition.leader != NO_LEADER:
        yield partition.leader, "led_partitions"
    for broker in partition.replicas:
        yield broker, "hosted_partitions"
        if partition.is_under_min_isr:
            yield broker, "under_min_isr_partitions"
        if partition.is_offline:
            yield broker, "offline_partitions"
    at_stake = tuple(_at_stake(partition))
    for broker in partition.isr:
        yield broker, "in_sync_partitions"
        for name in at_stake:
            yield broker, name
    yield from _of_blame(partition)


def _to_cluster(partition: PartitionState) -> Iterator[Contribution]:
    for state in health.states_of(partition):
        yield None, _COLUMN[state]
    if partition.partition == 0:
        yield None, "topics"  # every topic has a partition 0, so it stands for its topic


def _of_blame(partition: PartitionState) -> Iterator[Contribution]:
    suspects = blamed(partition)
    if suspects:
        yield None, "blamed"
    for broker in suspects:
        yield broker, "blamed"
        if len(suspects) == 1:
            yield broker, "blamed_alone"


def _at_stake(partition: PartitionState) -> Iterator[str]:
    """Name what would happen to a partition if any one of its in-sync replicas stopped now.

    Eligible leader replicas (KIP-966) are not counted on: they are known to have been fenced or to lag when they left
    the ISR, and a promise that one of them leads on would have to be kept by a broker nobody has heard of.
    """
    left = len(partition.isr) - 1
    if not partition.is_offline and left == 0:
        yield "would_go_offline"
    if partition.min_isr_effective is None:
        yield "unknown_min_isr_partitions"
    elif not partition.is_under_min_isr and left < partition.min_isr_effective:
        yield "would_go_under_min_isr"


class Tally:
    """The counts of every broker and cluster, and the totals of the partitions that are remembered."""

    def __init__(self, partitions: Iterable[PartitionState] = ()) -> None:
        """Count some partitions, tombstones included: their totals are still theirs."""
        self._counts: Counter[tuple[ClusterId, Contribution]] = Counter()
        self._totals: Counter[tuple[ClusterId, str]] = Counter()
        for partition in partitions:
            self._add(partition, 1)

    def apply(self, state: ReplicationState, touched: ReplicationState) -> None:
        """Follow a fold, before what it touched is applied to the state."""
        for key, partitions in touched.topics.items():
            known = state.topics.get(key, {})
            for number, after in partitions.items():
                before = known.get(number)
                if before is not None:
                    self._add(before, -1)
                self._add(after, 1)

    def forget(self, partitions: Iterable[PartitionState]) -> None:
        """Take away what some partitions added."""
        for partition in partitions:
            self._add(partition, -1)

    def copy(self) -> Tally:
        """Give a copy that later changes leave alone."""
        copied = Tally()
        copied.update(self)
        return copied

    def update(self, other: Tally) -> None:
        """Add the counts of other partitions."""
        self._counts.update(other._counts)
        self._totals.update(other._totals)

    def of_broker(self, cluster_id: ClusterId, broker: BrokerId, name: str) -> int:
        """Give one count of a broker."""
        return self._counts[cluster_id, (broker, name)]

    def of_cluster(self, cluster_id: ClusterId, name: str) -> int:
        """Give one count of a cluster."""
        return self._counts[cluster_id, (None, name)]

    def suspect_score(self, cluster_id: ClusterId, broker: BrokerId) -> float:
        """Tell how much a broker explains of every ISR that is shrunk now, 0 to 1 (see ``suspects.score``)."""
        return score(
            self.of_broker(cluster_id, broker, "blamed"),
            self.of_broker(cluster_id, broker, "blamed_alone"),
            self.of_cluster(cluster_id, "blamed"),
        )

    def total(self, cluster_id: ClusterId, name: str, watermark: Micros | None) -> int | float:
        """Give one total of ``contracts.totals`` over a cluster; seconds with the open episodes up to the watermark.

        Whole microseconds are summed, so that what is added and taken away leaves nothing behind.
        """
        closed = self._totals[cluster_id, name]
        if name not in _SECONDS:
            return closed
        begun = self._totals[cluster_id, f"{name}/open"]
        running = 0 if watermark is None else watermark * begun - self._totals[cluster_id, f"{name}/since"]
        return (closed + max(0, running)) / SECOND

    def _add(self, partition: PartitionState, step: int) -> None:
        counts, totals, cluster_id = self._counts, self._totals, partition.cluster_id
        for contribution in contributions(partition):
            counts[cluster_id, contribution] += step
        for name in TOTALS:
            value = getattr(partition, name)
            if value:
                totals[cluster_id, name] += step * (round(value * SECOND) if name in _SECONDS else value)
        for name, since in _SINCE:
            begin = getattr(partition, since)
            if begin is not None:
                totals[cluster_id, f"{name}/open"] += step
                totals[cluster_id, f"{name}/since"] += step * begin
