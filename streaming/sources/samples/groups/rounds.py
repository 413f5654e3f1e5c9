"""Rounds over the groups of a coordinator, in pieces: however many groups there are, each request is answered soon.

Between two pieces a broker answers other questions. A piece that it does not answer in time is asked for again in
smaller ones; a round that still takes too long ends, and the groups that it did not reach are the first of the next.
What is shown of a round is shown at once, under one time: the newest answer of a coordinator replaces those before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import Micros
from streaming.sources.samples.groups.blocks import ended_blocks, group_blocks, kept_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.sample_blocks import BrokerGroupOffsetsObserved, BrokerGroupsObserved
    from streaming.sources.samples.groups.blocks import CoordinatorAnswer
    from streaming.sources.samples.groups.described import DescribedGroup

    Block = BrokerGroupsObserved | BrokerGroupOffsetsObserved

MOST_GROUPS: Final = 2_000
"""Groups of one piece; a request for so many is answered in less than a second unless they have very many offsets."""
MOST_OFFSETS: Final = 100_000
"""Offsets of one piece, as many as those of the piece before let expect."""
ROUND_MICROS: Final = Micros(60_000_000)
"""So long a round lasts at most, and one piece more."""
_FAILURES: Final = 6
_SMALLER: Final = 8
_TIMES: Final = ("occurred_not_after", "collected_at")


class GroupsPiece(NamedTuple):
    """Groups to ask for.

    Attributes:
        size: how many.
        groups: those that are left of the round; None where they have yet to be listed.
        ahead: names that are the first to be asked for.
        expected: what is asked for if it is not listed: whether it is gone.
    """

    size: int
    groups: Mapping[str, DescribedGroup] | None = None
    ahead: Sequence[str] = ()
    expected: frozenset[str] = frozenset()

    def cut(self, groups: Mapping[str, DescribedGroup]) -> tuple[dict[str, DescribedGroup], dict[str, DescribedGroup]]:
        """Return what is asked for now, and what is left."""
        names = [*dict.fromkeys((*(name for name in self.ahead if name in groups), *groups))]
        return {name: groups[name] for name in names[: self.size]}, {name: groups[name] for name in names[self.size :]}


@dataclass(slots=True)
class Coordinator:
    """The state of a broker whose groups are asked for.

    Attributes:
        size: groups of the next piece.
        late: names that the last round did not reach.
        round: the one that is not over.
    """

    size: int = field(default_factory=lambda: MOST_GROUPS)
    late: list[str] = field(default_factory=list)
    round: Round | None = None

    def piece(self, expected: Callable[[], frozenset[str]]) -> GroupsPiece:
        """Return what to ask for next."""
        if self.round is None:
            return GroupsPiece(self.size, None, self.late, expected())
        return GroupsPiece(self.size, self.round.left)

    def fit(self, answer: CoordinatorAnswer) -> None:
        """Choose the size of the next piece by the offsets of this one."""
        offsets = sum(len(each) for by_topic in answer.committed.values() for each in by_topic.values())
        if answer.groups and offsets:
            self.size = max(1, min(MOST_GROUPS, MOST_OFFSETS * len(answer.groups) // offsets))

    def fail(self) -> None:
        """Choose smaller pieces."""
        self.size = max(1, self.size // _SMALLER)


@dataclass(slots=True)
class Round:
    """The answers of a coordinator to the pieces of a round so far.

    Attributes:
        began_at: by the monotonic clock.
        left: groups that have yet to be asked for.
        blocks: of the pieces.
        missing: groups that it has listed before, and no broker since.
        unread: groups of which it did not say what they have committed.
        denied: groups that may not be described.
        ended: groups of which less is there than in the round before, or nothing.
        is_asked: whether a piece is being asked for.
    """

    began_at: Micros
    left: Mapping[str, DescribedGroup]
    missing: tuple[str, ...] = ()
    blocks: list[Block] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    is_asked: bool = False
    failures: int = 0

    def is_over(self, moment: Micros) -> bool:
        """Return whether everything was asked for, or it took too long."""
        return not self.left or moment >= self.began_at + ROUND_MICROS or self.failures >= _FAILURES

    def add(self, blocks: Iterable[Block], answer: CoordinatorAnswer) -> None:
        """Take the answer to a piece."""
        self.blocks += blocks
        self.unread += answer.unread
        self.denied += answer.denied
        self.ended |= answer.ended
        self.left, self.is_asked, self.failures = answer.left, False, 0

    def fail(self) -> None:
        """Take a piece that was not answered: what is left stays left."""
        self.is_asked, self.failures = False, self.failures + 1

    def shown(self, broker: BrokerId, envelope: Mapping[str, Any]) -> list[Block]:
        """Return all blocks under the time of the last one; what was not reached is listed, and what it had is kept."""
        times = {name: envelope[name] for name in _TIMES}
        kept = sorted({*self.missing, *self.unread, *self.left})
        return [
            *kept_blocks(broker, kept, envelope),  # first, because blocks may be applied one by one
            *(replace(block, **times) for block in self.blocks),
            *(group_blocks(broker, self.left, self.left, envelope) if self.left else ()),
            *ended_blocks(broker, sorted(self.ended), envelope),  # last, because all else of the answer is known then
        ]


def about(count: int) -> str:
    """Return a number with one digit that counts: a sentence that is said once must not differ from round to round.

    >>> about(1_723)
    '2,000'
    """
    return f"{round(count, 1 - len(str(count))):,}"
