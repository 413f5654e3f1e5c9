"""The coordinator that has listed each group last, and the groups that are missing: not listed, and not gone either.

A group that is not listed any more is asked for by name. Only a broker that has loaded the partition of
``__consumer_offsets`` of a group answers for it; every other one refuses, as a broker does that has just started, lists
nothing without an error, and does not yet know what it leads. So a group is gone when its coordinator says that it has
nothing of it, or has moved when another one lists it. Until then it is missing: its rows stay, and grow old.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.sample_tables import ROUNDS_OF_GROUPS
from streaming.sources.samples.groups.blocks import committed_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from collections.abc import Set as AbstractSet

    from streaming.contracts.identifiers import BrokerId
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.groups.blocks import CoordinatorAnswer

GIVEN_UP: Final = Micros(ROUNDS_OF_GROUPS * 1_000_000)
"""So long a group may be missing; the tables forget its rows by then."""
_GROUP_ID_NOT_FOUND: Final = 69


def gone_groups(connection: Connection, names: Collection[str]) -> frozenset[str]:
    """Ask a broker for groups that it does not list, in one request; return those that are gone, as it says.

    Raises:
        ConnectionRefused: it does not respond.
    """
    answers = committed_offsets(connection, names) if names else ()
    return frozenset(one.group for one in answers if one.error in {0, _GROUP_ID_NOT_FOUND} and not one.values)


class ShareStarts:
    """Start offsets of share groups, as their coordinators said last: one that cannot be read now is where it was.

    A coordinator asks the leaders of partitions; while one is moved or away, what the group has done is not gone.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._of: dict[str, Mapping[str, Mapping[int, int]]] = {}

    def completed(self, answer: CoordinatorAnswer) -> CoordinatorAnswer:
        """Take an answer; return it with the starts that were known of partitions which it could not read."""
        for name in answer.gone:
            self._of.pop(name, None)
        starts = {name: dict(by_topic) for name, by_topic in answer.starts.items()}
        for name, by_topic in answer.unread_starts.items():
            before = self._of.get(name, {})
            for topic, numbers in by_topic.items():
                held = {number: at for number, at in before.get(topic, {}).items() if number in numbers}
                starts[name][topic] = {**held, **starts[name].get(topic, {})}
        self._of.update(starts)
        return replace(answer, starts=starts) if answer.unread_starts else answer


class OffsetCounts:
    """Offsets of each group in each topic, as its coordinator said last: where there are fewer, some were deleted.

    Kafka leaves out topics that may not be described, so this holds for topics that are visible.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._of: dict[str, dict[str, int]] = {}

    def take(self, answer: CoordinatorAnswer, visible: Collection[str]) -> frozenset[str]:
        """Take an answer; return the groups that are gone, and those that have fewer offsets in a visible topic."""
        ended = set(answer.gone)
        for name in answer.gone:
            self._of.pop(name, None)
        for name in answer.groups.keys() - answer.unread:
            offsets = answer.committed.get(name) or answer.starts.get(name) or {}
            now, before = {topic: len(of_topic) for topic, of_topic in offsets.items()}, self._of.get(name, {})
            if now != before:
                self._of[name] = now
                if any(now.get(topic, 0) < count for topic, count in before.items() if topic in visible):
                    ended.add(name)
        return frozenset(ended)


class ListedGroups:
    """The groups of each coordinator. A broker that is in no view any more may come back, so nothing of it is dropped.

    Invariant: a group is of one broker, the last one that has listed it.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._of: dict[BrokerId, set[str]] = {}
        self._missing: dict[str, Micros] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether a coordinator has listed a group of this name last."""
        return any(name in names for names in self._of.values())

    def expected(self, broker: BrokerId) -> frozenset[str]:
        """Return what to ask a broker for if it does not list it: what it has listed, and what is missing."""
        return frozenset(self._of.get(broker, ())).union(self._missing)

    def take(
        self, broker: BrokerId, listed: AbstractSet[str], gone: AbstractSet[str], moment: Micros
    ) -> tuple[str, ...]:
        """Take the list of a coordinator, and what it says is gone; return the groups that are missing."""
        own = self._of.setdefault(broker, set())
        moved = listed - own
        for names in self._of.values():
            names.difference_update(moved, gone)
        own |= listed
        for name in listed | gone if self._missing else ():
            self._missing.pop(name, None)
        for name in own - listed:
            if moment >= self._missing.setdefault(name, moment) + GIVEN_UP:
                del self._missing[name]
                own.discard(name)
        return tuple(sorted(own - listed))
