"""What leaders say of their followers, read together: a slow broker, a leader that stood still, or a cut.

Pure. One ISR that shrank by lag is one leader's word against one follower, and the leader may be the one in trouble.
Taken together the words tell more: who is in all of them is the suspect; who accuses only after everybody accused it,
and is well again at once, had stood still; and two sides that accuse each other, none rejoining, are cut apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Word = tuple[int, int]
"""(accuser, accused): a leader expelled a follower."""

LASTING: Final = 3_000_000
"""Microseconds: what heals faster was a broker that stood still, not one that is cut off or slow."""
APART: Final = 1_000_000
"""Microseconds by which a stalled broker's own accusations come after those against it."""
_TORN_MOST_OF_THE_TIME: Final = 0.7


@dataclass(slots=True)
class Episode:
    """The words between two moments at which every ISR was whole again. Times in microseconds."""

    began: int
    seen: int
    spoken: dict[Word, tuple[int, int]] = field(default_factory=dict)
    """When each word was said first and last."""
    kept: set[Word] = field(default_factory=set)
    """Who, while expelling somebody, kept whom in sync (the smaller id first)."""
    torn_at: int | None = None
    """When somebody that was accused first accused somebody, or the other way round."""
    rejoined_at: int | None = None

    def accuse(self, accuser: int, accused: Iterable[int], isr: Iterable[int], moment: int) -> None:
        """Take one shrunk ISR down."""
        for broker in accused:
            first, _ = self.spoken.get((accuser, broker), (moment, moment))
            self.spoken[accuser, broker] = (first, moment)
        self.kept.update((min(accuser, broker), max(accuser, broker)) for broker in isr if broker != accuser)
        self.seen = max(self.seen, moment)
        if self.torn_at is None and {word[0] for word in self.spoken} & {word[1] for word in self.spoken}:
            self.torn_at = moment

    def rejoin(self, leader: int, brokers: Iterable[int], moment: int) -> None:
        """Take down that a leader took expelled followers back."""
        self.seen = max(self.seen, moment)
        if self.rejoined_at is None and any({(leader, it), (it, leader)} & self.spoken.keys() for it in brokers):
            self.rejoined_at = moment

    def pass_time(self, moment: int) -> bool:
        """Let time go by while nothing is said; give whether it told something: that a tear lasts."""
        lasting = None if self.torn_at is None or self.rejoined_at is not None else self.torn_at + LASTING
        if lasting is None or self.seen >= lasting or moment < lasting:
            return False
        self.seen = lasting  # and not the moment itself, which depends on when somebody looked
        return True

    def verdict(self) -> IncidentClass:
        """Judge what was said up to ``seen``."""
        if self._is_cut():
            return IncidentClass.NETWORK_SPLIT
        if any(self._stood_still(broker) for broker in {accuser for accuser, _ in self.spoken}):
            return IncidentClass.LEADER_STALL
        return IncidentClass.SLOW_FOLLOWER

    def _is_cut(self) -> bool:
        if self.torn_at is None:
            return False
        torn = (self.rejoined_at or self.seen) - self.torn_at
        is_lasting = torn >= LASTING and torn >= _TORN_MOST_OF_THE_TIME * (self.seen - self.began)
        is_more_than_a_link = len({frozenset(word) for word in self.spoken}) > 1
        return is_lasting and is_more_than_a_link and len(self.sides()) > 1

    def sides(self) -> list[frozenset[int]]:
        """Name the groups of brokers that kept each other, if all words go between groups and both ways; else none."""
        groups = _connected({broker for word in (*self.spoken, *self.kept) for broker in word}, self.kept)
        side_of = {broker: number for number, group in enumerate(groups) for broker in group}
        ways = {(side_of[accuser], side_of[accused]) for accuser, accused in self.spoken}
        is_both_ways = all(a != b and (b, a) in ways for a, b in ways)
        return groups if is_both_ways else []

    def _stood_still(self, broker: int) -> bool:
        """Tell whether one leader is in every word, spoke last, and was soon well again."""
        by = [times for (accuser, _), times in self.spoken.items() if accuser == broker]
        against = [times for (_, accused), times in self.spoken.items() if accused == broker]
        if len(by) + len(against) < len(self.spoken):
            return False
        if not against:
            return len(by) > 1
        spoke_last = max(last for _, last in against) + APART <= min(first for first, _ in by)
        return spoke_last and self.seen - max(last for _, last in by) < LASTING


def _connected(brokers: set[int], pairs: Iterable[Word]) -> list[frozenset[int]]:
    group = {broker: {broker} for broker in brokers}
    for one, other in pairs:
        if group[one] is not group[other]:
            group[one] |= group[other]
            for broker in group[other]:
                group[broker] = group[one]
    return sorted({frozenset(found) for found in group.values()}, key=lambda found: (len(found), sorted(found)))


def smaller_side(sides: list[frozenset[int]]) -> tuple[int, ...]:
    """Name the brokers of the smaller side of a cut: of all sides where none is smaller than another."""
    smallest = [side for side in sides if len(side) == len(sides[0])]
    is_tied = len(smallest) == len(sides)
    return tuple(sorted(broker for side in (sides if is_tied else smallest) for broker in side))


def most_accused(departures: Mapping[Word, int]) -> tuple[int, ...]:
    """Name the fewest brokers that explain every word.

    Who is in the most words comes first, then who is accused by more; two that only accuse each other are equals.

    Args:
        departures: word to the number of ISRs.
    """
    left = set(departures)
    found: set[int] = set()
    while left:
        words = Counter(broker for word in left for broker in word)
        accused = Counter(word[1] for word in left)
        best = max((words[broker], accused[broker]) for broker in words)
        equals = [broker for broker in words if (words[broker], accused[broker]) == best]
        chosen = _mutual(equals, left) or {min(equals, key=lambda it: (-_weight(departures, it), it))}
        found |= chosen
        left = {word for word in left if not chosen & set(word)}
    return tuple(sorted(found))


def _mutual(equals: list[int], words: set[Word]) -> set[int]:
    return {broker for broker in equals if any({(broker, it), (it, broker)} <= words for it in equals)}


def _weight(departures: Mapping[Word, int], broker: int) -> int:
    return sum(count for (_, accused), count in departures.items() if accused == broker)
