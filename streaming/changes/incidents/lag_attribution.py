"""Lag attribution: of all followers that leaders expelled for lag, which broker is at fault, and why.

Pure. One ISR that shrank by lag is a report of one leader about one follower, and the leader may be the one in trouble.
Taken together, reports show more:

- a broker in all of them is the suspect;
- a leader that reports followers only after others reported it, and takes them back at once, had stalled; so had one
  that a poller saw stand still just before (``seen_stalled``);
- two that report each other, or of which one keeps up with other leaders, have lost their link; several pairs
  at once are a cut;
- a cut takes every pair across it within the same lag time, and gives them all back at the same moment; of a slow
  broker some follower rejoins, or is removed again, while others are still missing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming.contracts.events import IncidentClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming.changes.state import ConfiguredTimes

LagReport = tuple[int, int]
"""(reporter, follower): a leader removed a follower from the ISR for lag."""
_CATCHING_UP: Final = 10
"""After a cut every follower must catch up: for a tenth of the time it was away, at least."""


@dataclass(slots=True)
class LagEpisode:
    """The reports between two moments at which every ISR was full. Times in microseconds.

    The names of the fields are keys of the stored document (``incident_document``).
    """

    began: int
    seen: int
    spoken: dict[LagReport, tuple[int, int]] = field(default_factory=dict)
    """First and last time of each report."""
    kept: Counter[LagReport] = field(default_factory=Counter)
    """Pairs of leader and follower that stayed in sync where the leader expelled another one, and in how many ISRs; the
    smaller id first."""
    torn_at: int | None = None
    """First time that reports went both ways between two groups of brokers."""
    rejoined_at: int | None = None
    """First time that an expelled follower rejoined its reporter's ISR, or the other way round."""
    removed_again: bool = False
    """True once a follower was removed after one had rejoined."""
    follows_others: bool = False
    """True if the follower of the first report is in the ISR of other leaders."""
    seen_stalled: set[int] = field(default_factory=set)
    """Leaders that a poller saw stand still just before they reported."""

    def add_report(
        self, reporter: int, followers: Iterable[int], isr: Iterable[int], moment: int, *, is_shrunk: bool
    ) -> bool:
        """Record one shrunk ISR; return whether it shows anything new.

        ``is_shrunk``: it was shrunk before, so a broker that leaves it now had been kept there.
        """
        is_new = False
        for broker in followers:
            first, _ = self.spoken.get((reporter, broker), (moment, moment))
            is_new |= (reporter, broker) not in self.spoken
            self.spoken[reporter, broker] = (first, moment)
        changed, step = (followers, -1) if is_shrunk else (isr, 1)
        for broker in changed:
            if broker != reporter:
                pair = (min(reporter, broker), max(reporter, broker))
                was, self.kept[pair] = self.kept[pair] > 0, self.kept[pair] + step
                is_new |= was != (self.kept[pair] > 0)
        self.seen = max(self.seen, moment)
        self.removed_again |= self.rejoined_at is not None
        if is_new and self.torn_at is None and self.sides():
            self.torn_at = moment
        return is_new

    def _in_sync(self) -> set[LagReport]:
        return {pair for pair, count in self.kept.items() if count > 0}

    def rejoin(self, leader: int, brokers: Iterable[int], moment: int) -> None:
        """Record that followers rejoined an ISR."""
        self.seen = max(self.seen, moment)
        if self.rejoined_at is None and any(
            {(leader, broker), (broker, leader)} & self.spoken.keys() for broker in brokers
        ):
            self.rejoined_at = moment

    def pass_time(self, moment: int, times: ConfiguredTimes) -> bool:
        """Advance to a moment without reports; return whether that may change the verdict."""
        if self.rejoined_at is not None:
            due = self.rejoined_at + self._catching_up(times) + 1
        elif self.torn_at is not None:
            due = self.torn_at + times.rejoined_at_once
        else:
            return False
        if self.seen >= due or moment < due:
            return False
        self.seen = due  # not ``moment``, which depends on how changes are cut into batches
        return True

    def _catching_up(self, times: ConfiguredTimes) -> int:
        away = (self.rejoined_at or self.seen) - self.began
        return max(times.rejoined_at_once, away // _CATCHING_UP)

    def verdict(self, times: ConfiguredTimes) -> IncidentClass:
        """Return the class that all reports up to ``seen`` show."""
        if self.is_split(times):
            return IncidentClass.NETWORK_SPLIT
        if self.stalled(times):
            return IncidentClass.LEADER_STALL
        is_link = self.pairs_apart() == 1 and (len(self.spoken) > 1 or self.follows_others)
        return IncidentClass.LINK_FAILURE if is_link else IncidentClass.SLOW_FOLLOWER

    def stalled(self, times: ConfiguredTimes) -> tuple[int, ...]:
        """Return the leaders that stood still, by id."""
        reporters = {reporter for reporter, _ in self.spoken}
        return tuple(sorted(self.seen_stalled | {broker for broker in reporters if self._has_stalled(broker, times)}))

    def is_split(self, times: ConfiguredTimes) -> bool:
        """Return whether all reports are those of one cut, and not those of one leader that recovers from a stall."""
        if not self.removed_again and (self.pairs_apart() > 1 or self.is_scattered(times)):
            return True
        if self.torn_at is None or self.removed_again or len({frozenset(pair) for pair in self.spoken}) == 1:
            return False
        is_one_cut = self.torn_at - self.began <= times.replica_lag_time
        is_lasting = (self.rejoined_at or self.seen) - self.torn_at >= times.rejoined_at_once
        is_lasting |= not any(self._may_have_stalled(broker, times) for broker in next(iter(self.spoken)))
        is_one_return = self.rejoined_at is None or self.seen - self.rejoined_at <= self._catching_up(times)
        return is_one_cut and is_lasting and is_one_return and bool(self.sides())

    def sides(self) -> tuple[frozenset[int], ...]:
        """Return the two groups of brokers that report only each other, the smaller first; none unless both do."""
        groups = self._groups()
        side_of = _coloured(groups, self.spoken)
        ways = {(side_of[reporter], side_of[follower]) for reporter, follower in self.spoken if side_of}
        if len(ways) != 2 or any(one == other for one, other in ways):  # noqa: PLR2004 - there, and back
            return ()
        sides = (frozenset(broker for broker, side in side_of.items() if side == number) for number in (0, 1))
        return tuple(sorted(sides, key=lambda side: (len(side), sorted(side))))

    def cut_off(self) -> tuple[int, ...]:
        """Return the brokers of the smaller side of a split: of both where they are equal or unknown."""
        sides = self.sides()
        if not sides:
            return tuple(sorted({broker for pair in self.spoken for broker in pair}))
        is_tied = len(sides[0]) == len(sides[-1])
        return tuple(sorted(broker for side in (sides if is_tied else sides[:1]) for broker in side))

    def _groups(self) -> list[frozenset[int]]:
        """Return the groups of brokers that keep up with each other, the smallest first."""
        in_sync = self._in_sync()
        return _connected({broker for pair in (*self.spoken, *in_sync) for broker in pair}, in_sync)

    def is_torn_in_two(self) -> bool:
        """Return whether every broker is on one of two sides, and each side reports the other."""
        return len(self._groups()) == 2 and bool(self.sides())  # noqa: PLR2004 - the sides of a cut

    def pairs_apart(self) -> int:
        """Return how many pairs of brokers do not reach each other, if no broker is in two of them; else 0.

        One pair may have lost its link, or one of the two is slow. Several at once are a cut through a large cluster.
        """
        pairs = {frozenset(pair) for pair in self.spoken}
        return len(pairs) if len(frozenset().union(*pairs)) == 2 * len(pairs) else 0

    def is_scattered(self, times: ConfiguredTimes) -> bool:
        """Return whether some brokers report and are reported at one moment, and none is in all reports.

        No broker explains that, but a cut does: which leader reports which follower depends on where there was anything
        to replicate.
        """
        at_once = [pair for pair, (first, _) in self.spoken.items() if first <= self.began + times.lag_check]
        reporters, followers = ({pair[place] for pair in at_once} for place in (0, 1))
        return bool(at_once) and not set.intersection(*map(set, at_once)) and not reporters.isdisjoint(followers)

    def _may_have_stalled(self, broker: int, times: ConfiguredTimes) -> bool:
        """Return whether a broker is in every report, and first as the one that was removed."""
        by = [first for (reporter, _), (first, _) in self.spoken.items() if reporter == broker]
        against = [first for (_, follower), (first, _) in self.spoken.items() if follower == broker]
        is_about_it = len(by) + len(against) == len(self.spoken)
        return is_about_it and (not by or not against or self._is_after_stall(min(against), min(by), times))

    def _has_stalled(self, broker: int, times: ConfiguredTimes) -> bool:
        """Return whether a broker is in every report, last as the reporter, and recovered soon."""
        by = [moments for (reporter, _), moments in self.spoken.items() if reporter == broker]
        against = [moments for (_, follower), moments in self.spoken.items() if follower == broker]
        if len(by) + len(against) < len(self.spoken):
            return False
        if not against:
            return len(by) > 1
        is_late = self._is_after_stall(max(last for _, last in against), min(first for first, _ in by), times)
        return is_late and self.seen - max(last for _, last in by) < times.rejoined_at_once

    def _is_after_stall(self, against: int, by: int, times: ConfiguredTimes) -> bool:
        """Return whether a broker's own reports are those of one that continues after a stall.

        It finds its followers late, and their fetches waiting for it: they are back before a failed fetch could be
        tried again, as it would be after a cut.
        """
        if self.rejoined_at is not None and self.rejoined_at - by < times.fetch_backoff:
            return against < by
        return against + times.fetch_backoff <= by


def _connected(brokers: set[int], pairs: Iterable[LagReport]) -> list[frozenset[int]]:
    group = {broker: {broker} for broker in brokers}
    for one, other in pairs:
        if group[one] is not group[other]:
            group[one] |= group[other]
            for broker in group[other]:
                group[broker] = group[one]
    return sorted({frozenset(members) for members in group.values()}, key=lambda group: (len(group), sorted(group)))


def _coloured(groups: list[frozenset[int]], reports: Iterable[LagReport]) -> dict[int, int]:
    """Put groups on two sides, so that every report goes from one to the other; nowhere if that cannot be.

    The smallest group that is not placed yet is put on the first side: few brokers are cut off from many.
    """
    group_of = {broker: group for group in groups for broker in group}
    opposite: dict[frozenset[int], set[frozenset[int]]] = {group: set() for group in groups}
    for one, other in reports:
        opposite[group_of[one]].add(group_of[other])
        opposite[group_of[other]].add(group_of[one])
    side: dict[frozenset[int], int] = {}
    for first in sorted(groups, key=lambda group: (len(group) - len(opposite[group]), sorted(group))):
        waiting = [] if first in side else [(first, 0)]
        while waiting:
            group, number = waiting.pop()
            if side.setdefault(group, number) != number:
                return {}
            waiting += [(other, 1 - number) for other in opposite[group] if side.get(other) != 1 - number]
    return {broker: side[group] for group in groups for broker in group}


def merged_episode(one: LagEpisode | None, other: LagEpisode | None) -> LagEpisode | None:
    """Return one episode of the reports of two."""
    if one is None or other is None:
        return one or other
    spoken = dict(one.spoken)
    for pair, (first, last) in other.spoken.items():
        ours = spoken.get(pair, (first, last))
        spoken[pair] = (min(first, ours[0]), max(last, ours[1]))
    merged = LagEpisode(
        began=min(one.began, other.began),
        seen=max(one.seen, other.seen),
        spoken=spoken,
        kept=one.kept + other.kept,
        torn_at=_earlier(one.torn_at, other.torn_at),
        rejoined_at=_earlier(one.rejoined_at, other.rejoined_at),
        removed_again=one.removed_again or other.removed_again,
        follows_others=one.follows_others or other.follows_others,
        seen_stalled=one.seen_stalled | other.seen_stalled,
    )
    if merged.torn_at is None and merged.is_torn_in_two():
        merged.torn_at = max(one.began, other.began)
    return merged


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)


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


# Brokers that went away, and whether those that were stopped are overdue. Pure; times are UTC microseconds.


@dataclass(slots=True)
class BrokerAbsence:
    """A broker that was down or fenced.

    The order of the fields is that of the stored document (``incident_document``).
    """

    broker: int
    at: int
    planned: bool
    back_at: int | None = None
    by_stall: bool = False
    """The controller fenced it because it stood still itself: it is not lost unless it stays away."""


def overdue(absences: Sequence[BrokerAbsence], moment: int, times: ConfiguredTimes) -> set[int]:
    """Return the brokers that were stopped and are away, or back and not in every ISR, for too long.

    A broker that was stopped has to come back: within the time of a restart, or three times the longest one here. Then
    it has as long to catch up; whether it has, this does not know.
    """
    turns = (down.back_at - down.at for down in absences if down.planned and down.back_at is not None)
    until = max(times.restart, *(3 * turn for turn in turns), 0)
    last = {down.broker: down for down in absences}
    return {
        down.broker
        for down in last.values()
        if down.planned and moment - (down.at if down.back_at is None else down.back_at) > until
    }
