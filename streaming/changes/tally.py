"""Counts of partitions per broker and per cluster, kept up to date change by change.

What one partition adds is a pure function of its state. The owner of the state takes away what it added before a
change and adds what it adds after, so counts cost what changed, however many partitions there are. Tallies of disjoint
sets of partitions add up. Names are column names of ``broker_state`` and ``cluster_state``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.suspects import blamed, score
from streaming.contracts import health
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.totals import COUNTS, EPISODES, TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.changes.state import PartitionState, ReplicationState
    from streaming.contracts.identifiers import BrokerId, ClusterId, Micros

SECOND: Final = 1_000_000
_SINCE: Final = tuple((f"{name}_seconds", f"{name}_since") for name in EPISODES)
_COLUMN: Final = {
    state: state if state == health.PARTITIONS else f"{state}_{health.PARTITIONS}" for state in health.STATES
}
_TOTALS_OF: Final = attrgetter(*TOTALS)
_SINCE_OF: Final = attrgetter(*(since for _, since in _SINCE))
_NOTHING: Final = (0,) * len(TOTALS)
# What is added: whose count (None: the cluster's), and which.
Contribution = tuple["BrokerId | None", str]


class Entry(NamedTuple):
    """One number of a tally: a count, of a broker or (None) of the cluster, or a total."""

    cluster_id: ClusterId
    is_total: bool
    broker: BrokerId | None
    name: str
    value: int


def contributions(partition: PartitionState) -> list[Contribution]:
    """Name the counts that a partition is one of; a tombstone is in none."""
    if partition.is_deleted:
        return []
    told: list[Contribution] = [(None, _COLUMN[state]) for state in health.states_of(partition)]
    if partition.partition == 0:
        told.append((None, "topics"))  # every topic has a partition 0, so it stands for its topic
    if partition.leader != NO_LEADER:
        told.append((partition.leader, "led_partitions"))
    hosted = ["hosted_partitions"]
    if partition.is_under_min_isr:
        hosted.append("under_min_isr_partitions")
    if partition.is_offline:
        hosted.append("offline_partitions")
    told += [(broker, name) for broker in partition.replicas for name in hosted]
    in_sync = ["in_sync_partitions", *_at_stake(partition)]
    told += [(broker, name) for broker in partition.isr for name in in_sync]
    if len(partition.isr) < len(partition.replicas):
        told += _of_blame(partition)
    return told


def _of_blame(partition: PartitionState) -> Iterator[Contribution]:
    suspects = blamed(partition)
    if suspects:
        yield None, "blamed"
    for broker in suspects:
        yield broker, "blamed"
        if len(suspects) == 1:
            yield broker, "blamed_alone"


def _at_stake(partition: PartitionState) -> list[str]:
    """Name what would happen to a partition if any one of its in-sync replicas stopped now.

    Eligible leader replicas (KIP-966) are not counted on: they are known to have been fenced or to lag when they left
    the ISR, and a promise that one of them leads on would have to be kept by a broker nobody has heard of.
    """
    left, minimum = len(partition.isr) - 1, partition.min_isr_effective
    at_stake = [] if partition.is_offline or left else ["would_go_offline"]
    if minimum is None:
        at_stake.append("unknown_min_isr_partitions")
    elif left < minimum and not partition.is_under_min_isr:
        at_stake.append("would_go_under_min_isr")
    return at_stake


class Tally:
    """The counts of every broker and cluster, and the totals of the partitions that are remembered."""

    def __init__(self, partitions: Iterable[PartitionState] = ()) -> None:
        """Count some partitions, tombstones included: their totals are still theirs."""
        self._counts: defaultdict[ClusterId, Counter[Contribution]] = defaultdict(Counter)
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
        for cluster_id, counts in other._counts.items():
            self._counts[cluster_id].update(counts)
        self._totals.update(other._totals)

    def entries(self) -> Iterator[Entry]:
        """List every number, to be added up elsewhere."""
        for cluster_id, counts in self._counts.items():
            for (broker, name), value in counts.items():
                yield Entry(cluster_id, False, broker, name, value)
        for (cluster_id, name), value in self._totals.items():
            yield Entry(cluster_id, True, None, name, value)

    def add(self, entry: Entry) -> None:
        """Add one number of another tally."""
        if entry.is_total:
            self._totals[entry.cluster_id, entry.name] += entry.value
        else:
            self._counts[entry.cluster_id][entry.broker, entry.name] += entry.value

    def of_broker(self, cluster_id: ClusterId, broker: BrokerId, name: str) -> int:
        """Give one count of a broker."""
        return self._counts[cluster_id][broker, name]

    def of_cluster(self, cluster_id: ClusterId, name: str) -> int:
        """Give one count of a cluster."""
        return self._counts[cluster_id][None, name]

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
        if name in COUNTS:
            return closed
        begun = self._totals[cluster_id, f"{name}/open"]
        running = 0 if watermark is None else watermark * begun - self._totals[cluster_id, f"{name}/since"]
        return (closed + max(0, running)) / SECOND

    def _add(self, partition: PartitionState, step: int) -> None:
        totals, cluster_id = self._totals, partition.cluster_id
        counts = self._counts[cluster_id]
        for contribution in contributions(partition):
            counts[contribution] += step
        if (told := _TOTALS_OF(partition)) != _NOTHING:
            for name, value in zip(TOTALS, told, strict=True):
                totals[cluster_id, name] += step * (value if name in COUNTS else round(value * SECOND))
        for (name, _), begin in zip(_SINCE, _SINCE_OF(partition), strict=True):
            if begin is not None:
                totals[cluster_id, f"{name}/open"] += step
                totals[cluster_id, f"{name}/since"] += step * begin
