"""Counts of partitions per broker and per cluster, kept up to date change by change.

What one partition adds is a pure function of its state. The owner of the state takes away what it added before a
change and adds what it adds after, so counts cost what changed, however many partitions there are. Tallies of disjoint
sets of partitions add up. Names are column names of ``broker_state`` and ``cluster_state``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from streaming.contracts import health
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.state import COUNTS, EPISODES, SECONDS, TOTALS, UNKNOWN
from streaming.contracts.stop_effects import UNKNOWN_MIN_ISR, effects_of_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.state import ObservedTime, PartitionState

MICROS_OF_TOTALS: Final = 1_000_000  # totals are summed in whole microseconds
_SINCE: Final = tuple((f"{name}_seconds", f"{name}_since") for name in EPISODES)
COLUMN_OF_STATE: Final = {
    state: state if state == health.PARTITIONS else f"{state}_{health.PARTITIONS}" for state in health.STATES
}
# Totals, then of each kind of episode how many are open, and the sum of their begins.
# Begins are in observed time: the time without observation before them, in all, is taken away. Of unknown time itself
# that is the begin: it is counted from there in every live partition.
_NAMES: Final = (*TOTALS, *(f"{name}/open" for name, _ in _SINCE), *(f"{name}/since" for name, _ in _SINCE))
_EPISODES: Final = len(_SINCE)
_COLUMNS_OF: Final = attrgetter(*COUNTS, *SECONDS, *(since for _, since in _SINCE), "unobserved_micros", "is_deleted")
_NO_TOTALS: Final = (*[0] * len(TOTALS), *[None] * _EPISODES, 0)
# Addend of a tally: whose count (None: the cluster's), and which.
Contribution = tuple["BrokerId | None", str]


class TallyEntry(NamedTuple):
    """One number of a tally: a count, of a broker or (None) of the cluster, or a total."""

    cluster_id: ClusterId
    is_total: bool
    broker: BrokerId | None
    name: str
    value: int


class Shape(NamedTuple):
    """All of a partition that its counts depend on; very many partitions have the same."""

    is_first: bool
    is_deleted: bool
    leader: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
    min_isr_effective: int | None
    is_offline: bool
    is_under_replicated: bool
    is_under_min_isr: bool | None
    is_at_min_isr: bool | None
    is_off_preferred_leader: bool
    is_diskless: bool
    last_cause: str | None
    min_isr_by_replica: tuple[int, ...] | None = None


_SHAPE_OF: Final = attrgetter(*Shape._fields[1:])


def contributions(partition: Shape) -> list[Contribution]:
    """Name the counts that a partition is one of; a tombstone is in none."""
    if partition.is_deleted:
        return []
    contributions: list[Contribution] = [(None, COLUMN_OF_STATE[state]) for state in health.states_of(partition)]
    if partition.is_first:
        contributions.append((None, "topics"))  # every topic has a partition 0, so it stands for its topic
    if partition.is_diskless:
        return contributions  # no broker holds it, so none can lose it
    if partition.leader >= 0:
        contributions.append((partition.leader, "led_partitions"))
    hosted = ["hosted_partitions"]
    if partition.is_under_min_isr:
        hosted.append("under_min_isr_partitions")
    elif partition.min_isr_effective is None:
        hosted.append(UNKNOWN_MIN_ISR)  # it may be under its minimum now, and then no broker may be stopped
    if partition.is_offline:
        hosted.append("offline_partitions")
    contributions += [(broker, name) for broker in partition.replicas for name in hosted]
    contributions += [(broker, "in_sync_partitions") for broker in partition.isr]
    if partition.min_isr_by_replica:
        return contributions + [(each, name) for each in partition.isr for name in effects_of_stop(partition, each)]
    effects = effects_of_stop(partition)
    return contributions + [(broker, name) for broker in partition.isr for name in effects]


class Tally:
    """The counts of every broker and cluster, and the totals of the partitions that are remembered.

    Partitions that came and went are counted by their shape first. What a shape adds is worked out once, when the
    counts are read: a broker that dies changes thousands of partitions, which have a few shapes.
    """

    def __init__(self, partitions: Iterable[PartitionState] = ()) -> None:
        """Count some partitions, tombstones included: their totals are still theirs."""
        self._uncounted: defaultdict[ClusterId, Counter[tuple[Any, ...]]] = defaultdict(Counter)
        self._counts: defaultdict[ClusterId, Counter[Contribution]] = defaultdict(Counter)
        self._totals: defaultdict[ClusterId, Counter[str]] = defaultdict(Counter)
        for cluster_id, together in groupby(partitions, attrgetter("cluster_id")):
            self._add_all(cluster_id, list(together))

    contributions = staticmethod(contributions)

    def replace(self, before: PartitionState | None, after: PartitionState) -> None:
        """Follow one change of a partition."""
        if before is None:
            self.add_alike(after, 1)
            return
        was, now = _shape(before), _shape(after)
        if was != now:
            uncounted = self._uncounted[after.cluster_id]
            uncounted[was] -= 1
            uncounted[now] += 1
        totals = self._totals[after.cluster_id]
        for place, (had, has) in enumerate(zip(_totals_of(before), _totals_of(after), strict=True)):
            if had != has:  # a change moves one or two of a dozen totals
                for name, value in _added(place, (has,)):
                    totals[name] += value
                for name, value in _added(place, (had,)):
                    totals[name] -= value

    def forget(self, partitions: Iterable[PartitionState]) -> None:
        """Take away what some partitions added."""
        for partition in partitions:
            self.add_alike(partition, -1)

    def copy(self) -> Self:
        """Return an independent copy."""
        copied = type(self)()
        copied.update(self)
        return copied

    def update(self, other: Tally) -> None:
        """Add the counts of other partitions."""
        for cluster_id, counts in other._counted().items():
            self._counts[cluster_id].update(counts)
        for cluster_id, totals in other._totals.items():
            self._totals[cluster_id].update(totals)

    def add_counted(
        self, cluster_id: ClusterId, shapes: Mapping[tuple[Any, ...], int], totals: Mapping[str, int]
    ) -> None:
        """Add partitions of one cluster that were counted already: how many have each shape, and sums of their totals.

        Names of totals are those of ``contracts.totals``; with ``/open`` and ``/since`` after those of episodes, how
        many are open, and the sum of their begins. All times in microseconds.
        """
        self._uncounted[cluster_id].update(shapes)
        self._totals[cluster_id].update({name: value for name, value in totals.items() if value})

    def entries(self) -> Iterator[TallyEntry]:
        """List every number."""
        for cluster_id, counts in self._counted().items():
            for (broker, name), value in counts.items():
                yield TallyEntry(cluster_id, False, broker, name, value)
        for cluster_id, totals in self._totals.items():
            for name, value in totals.items():
                yield TallyEntry(cluster_id, True, None, name, value)

    def of_broker(self, cluster_id: ClusterId, broker: BrokerId, name: str) -> int:
        """Return one count of a broker."""
        return self._counted()[cluster_id][broker, name]

    def by_broker(self, cluster_id: ClusterId, name: str) -> dict[int, int]:
        """Return one count of every broker that has it."""
        counts = self._counted()[cluster_id].items()
        return {broker: value for (broker, each), value in counts if each == name and broker is not None and value}

    def of_brokers(self, cluster_id: ClusterId) -> dict[BrokerId, dict[str, int]]:
        """Return every count of every broker of a cluster, those that are 0 left out."""
        brokers: defaultdict[BrokerId, dict[str, int]] = defaultdict(dict)
        for (broker, name), value in self._counted()[cluster_id].items():
            if broker is not None and value:
                brokers[broker][name] = value
        return brokers

    def of_cluster(self, cluster_id: ClusterId, name: str) -> int:
        """Return one count of a cluster."""
        return self._counted()[cluster_id][None, name]

    def with_prefix(self, cluster_id: ClusterId, prefix: str) -> dict[str, int]:
        """Return the counts of a cluster whose names begin alike, those that are 0 left out."""
        counts = self._counted()[cluster_id].items()
        return {name: value for (broker, name), value in counts if broker is None and value and name.startswith(prefix)}

    def total(self, cluster_id: ClusterId, name: str, observed: ObservedTime) -> int | float:
        """Return one total of ``contracts.totals`` over a cluster; seconds with what is open up to the watermark.

        Whole microseconds are summed, so that what is added and taken away leaves nothing behind.
        """
        totals = self._totals[cluster_id]
        closed = totals[name]
        if name in COUNTS:
            return closed
        begun = totals[f"{name}/open"]
        if name == UNKNOWN:
            running = observed.unobserved * self.of_cluster(cluster_id, health.PARTITIONS) - totals[f"{name}/since"]
        elif observed.watermark is None:
            running = 0
        else:
            running = (observed.watermark - observed.unobserved) * begun - totals[f"{name}/since"]
        return (closed + max(0, running)) / MICROS_OF_TOTALS

    def add_alike(self, partition: PartitionState, count: int) -> None:
        """Add so many partitions that are counted like this one; take them away if the count is negative."""
        self._uncounted[partition.cluster_id][_shape(partition)] += count
        numbers = _totals_of(partition)
        if numbers != _NO_TOTALS:
            totals = self._totals[partition.cluster_id]
            for place, number in enumerate(numbers):
                for name, value in _added(place, (number,)):
                    totals[name] += count * value

    def _add_all(self, cluster_id: ClusterId, partitions: Sequence[PartitionState]) -> None:
        """Add the partitions of one cluster, column by column: a start has a million of them."""
        self._uncounted[cluster_id].update(map(_shape, partitions))
        totals = self._totals[cluster_id]
        for place, numbers in enumerate(zip(*map(_totals_of, partitions), strict=True)):
            for name, value in _added(place, numbers):
                totals[name] += value

    def _counted(self) -> defaultdict[ClusterId, Counter[Contribution]]:
        """Return the counts, with what every shape adds that has come or gone since the last time."""
        for cluster_id, shapes in self._uncounted.items():
            counts = self._counts[cluster_id]
            for shape, number in shapes.items():
                if number:
                    for contribution in self.contributions(Shape._make(shape)):
                        counts[contribution] += number
        self._uncounted.clear()
        return self._counts


def _shape(partition: PartitionState) -> tuple[Any, ...]:
    """Return the values of ``Shape``; an object of that class is made once per shape only."""
    return partition.partition == 0, *_SHAPE_OF(partition)


def _totals_of(partition: PartitionState) -> tuple[Any, ...]:
    """Return what a partition adds at each place: totals, begins of open episodes, begin of unknown time."""
    *numbers, unobserved, is_deleted = _COLUMNS_OF(partition)
    if not unobserved:
        return *numbers, 0
    begins = (None if since is None else since - unobserved for since in numbers[len(TOTALS) :])
    return *numbers[: len(TOTALS)], *begins, 0 if is_deleted else unobserved


def _added(place: int, numbers: Iterable[float | None]) -> list[tuple[str, int]]:
    """Return what numbers at one place of ``_totals_of`` add to the totals of ``_NAMES``.

    Whole microseconds, so that sums come back to zero; a begin adds an open episode, too.
    """
    if place < len(COUNTS):
        added = [(_NAMES[place], int(sum(filter(None, numbers))))]
    elif place < len(TOTALS):
        added = [(_NAMES[place], sum(round(number * MICROS_OF_TOTALS) for number in filter(None, numbers)))]
    elif place == len(TOTALS) + _EPISODES:
        added = [(f"{UNKNOWN}/since", int(sum(filter(None, numbers))))]
    else:
        begins = [int(number) for number in numbers if number is not None]  # an episode may begin at 0
        added = [(_NAMES[place], len(begins)), (_NAMES[place + _EPISODES], sum(begins))]
    return [(name, value) for name, value in added if value]
