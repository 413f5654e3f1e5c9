"""Lag attribution: of all followers that leaders expelled for lag, which broker is at fault, and why.

Pure. One ISR that shrank by lag is a report of one leader about one follower, and the leader may be the one in trouble.
Taken together, reports show more: a broker in all of them is the suspect; a leader that reports followers only after
others reported it, and recovers at once, had stalled; two groups of brokers that report each other, with no replica
rejoining, are split by the network.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LagReport = tuple[int, int]
"""(reporter, follower): a leader removed a follower from the ISR for lag."""

LASTING: Final = 3_000_000
"""Microseconds: what recovers faster was a broker that stalled, not one that is cut off or slow."""
STALL_DELAY: Final = 1_000_000
"""Microseconds by which a stalled broker's own reports come after those against it."""
_SPLIT_MOST_OF_THE_TIME: Final = 0.7


@dataclass(slots=True)
class LagEpisode:
    """The reports between two moments at which every ISR was full. Times in microseconds.

    The names of the fields are keys of the stored document (``incident_document``).
    """

    began: int
    seen: int
    spoken: dict[LagReport, tuple[int, int]] = field(default_factory=dict)
    """First and last time of each report."""
    kept: set[LagReport] = field(default_factory=set)
    """Pairs of leader and follower that stayed in sync while the leader expelled another one; the smaller id first."""
    torn_at: int | None = None
    """When a broker first was the reporter of one report and the follower of another."""
    rejoined_at: int | None = None
    """When an expelled follower first rejoined its reporter's ISR, or the other way round."""

    def add_report(self, reporter: int, followers: Iterable[int], isr: Iterable[int], moment: int) -> None:
        """Record one shrunk ISR."""
        for broker in followers:
            first, _ = self.spoken.get((reporter, broker), (moment, moment))
            self.spoken[reporter, broker] = (first, moment)
        self.kept.update((min(reporter, broker), max(reporter, broker)) for broker in isr if broker != reporter)
        self.seen = max(self.seen, moment)
        if self.torn_at is None and {pair[0] for pair in self.spoken} & {pair[1] for pair in self.spoken}:
            self.torn_at = moment

    def rejoin(self, leader: int, brokers: Iterable[int], moment: int) -> None:
        """Record that followers rejoined an ISR."""
        self.seen = max(self.seen, moment)
        if self.rejoined_at is None and any(
            {(leader, broker), (broker, leader)} & self.spoken.keys() for broker in brokers
        ):
            self.rejoined_at = moment

    def pass_time(self, moment: int) -> bool:
        """Advance to a moment without reports; return whether that showed something new: a lasting split."""
        lasting = None if self.torn_at is None or self.rejoined_at is not None else self.torn_at + LASTING
        if lasting is None or self.seen >= lasting or moment < lasting:
            return False
        self.seen = lasting  # not ``moment``, which depends on how changes are cut into batches
        return True

    def verdict(self) -> IncidentClass:
        """Return the class that all reports up to ``seen`` show."""
        if self._is_split():
            return IncidentClass.NETWORK_SPLIT
        return IncidentClass.LEADER_STALL if self.stalled() else IncidentClass.SLOW_FOLLOWER

    def stalled(self) -> tuple[int, ...]:
        """Return the leaders that stood still, by id."""
        return tuple(
            sorted(broker for broker in {reporter for reporter, _ in self.spoken} if self._has_stalled(broker))
        )

    def _is_split(self) -> bool:
        if self.torn_at is None:
            return False
        split = (self.rejoined_at or self.seen) - self.torn_at
        is_lasting = split >= LASTING and split >= _SPLIT_MOST_OF_THE_TIME * (self.seen - self.began)
        is_more_than_a_link = len({frozenset(pair) for pair in self.spoken}) > 1
        return is_lasting and is_more_than_a_link and len(self.sides()) > 1

    def sides(self) -> list[frozenset[int]]:
        """Return the groups of brokers that stayed in sync; none if a report is within one, or one-way."""
        groups = _connected({broker for pair in (*self.spoken, *self.kept) for broker in pair}, self.kept)
        side_of = {broker: number for number, group in enumerate(groups) for broker in group}
        ways = {(side_of[reporter], side_of[follower]) for reporter, follower in self.spoken}
        is_both_ways = all(a != b and (b, a) in ways for a, b in ways)
        return groups if is_both_ways else []

    def _has_stalled(self, broker: int) -> bool:
        """Return whether a broker is in every report, last as the reporter, and recovered soon."""
        by = [times for (reporter, _), times in self.spoken.items() if reporter == broker]
        against = [times for (_, follower), times in self.spoken.items() if follower == broker]
        if len(by) + len(against) < len(self.spoken):
            return False
        if not against:
            return len(by) > 1
        blamed_last = max(last for _, last in against) + STALL_DELAY <= min(first for first, _ in by)
        return blamed_last and self.seen - max(last for _, last in by) < LASTING


def _connected(brokers: set[int], pairs: Iterable[LagReport]) -> list[frozenset[int]]:
    group = {broker: {broker} for broker in brokers}
    for one, other in pairs:
        if group[one] is not group[other]:
            group[one] |= group[other]
            for broker in group[other]:
                group[broker] = group[one]
    return sorted({frozenset(members) for members in group.values()}, key=lambda group: (len(group), sorted(group)))


def merged_episode(one: LagEpisode | None, other: LagEpisode | None) -> LagEpisode | None:
    """Return one episode of the reports of two."""
    if one is None or other is None:
        return one or other
    spoken = dict(one.spoken)
    for pair, (first, last) in other.spoken.items():
        ours = spoken.get(pair, (first, last))
        spoken[pair] = (min(first, ours[0]), max(last, ours[1]))
    return LagEpisode(
        began=min(one.began, other.began),
        seen=max(one.seen, other.seen),
        spoken=spoken,
        kept=one.kept | other.kept,
        torn_at=_earlier(one.torn_at, other.torn_at),
        rejoined_at=_earlier(one.rejoined_at, other.rejoined_at),
    )


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)


def smaller_side(sides: list[frozenset[int]]) -> tuple[int, ...]:
    """Return the brokers of the smaller side of a split: of all sides where none is smaller than another."""
    smallest = [side for side in sides if len(side) == len(sides[0])]
    is_tied = len(smallest) == len(sides)
    return tuple(sorted(broker for side in (sides if is_tied else smallest) for broker in side))


def most_blamed(departures: Mapping[LagReport, int]) -> tuple[int, ...]:
    """Return the fewest brokers that explain every report.

    The broker in the most reports comes first, then the one that more leaders reported; two that only report each
    other are equals.

    Args:
        departures: the number of ISRs of each report.
    """
    unexplained = set(departures)
    suspects: set[int] = set()
    while unexplained:
        involved = Counter(broker for pair in unexplained for broker in pair)
        blamed = Counter(broker for _, broker in unexplained)
        best = max((involved[broker], blamed[broker]) for broker in involved)
        equals = [broker for broker in involved if (involved[broker], blamed[broker]) == best]
        worst = _mutual(equals, unexplained) or {min(equals, key=lambda broker: (-_weight(departures, broker), broker))}
        suspects |= worst
        unexplained = {pair for pair in unexplained if not worst & set(pair)}
    return tuple(sorted(suspects))


def _mutual(equals: list[int], reports: set[LagReport]) -> set[int]:
    return {broker for broker in equals if any({(broker, other), (other, broker)} <= reports for other in equals)}


def _weight(departures: Mapping[LagReport, int], broker: int) -> int:
    return sum(count for (_, follower), count in departures.items() if follower == broker)
