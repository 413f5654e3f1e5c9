"""Size is no cliff: a coordinator of 65,000 groups is asked in pieces, and what it does not answer in time is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.identifiers import Micros
from streaming.contracts.sample_blocks import BrokerGroupOffsetsObserved, BrokerGroupsObserved
from streaming.errors import ConnectionRefused
from streaming.name_patterns import NamePatterns
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.groups import groups as module
from streaming.sources.samples.groups.blocks import GroupValues
from streaming.sources.samples.groups.described import DescribedGroup
from streaming.sources.samples.groups.groups import KIND, GroupsKind
from streaming.sources.samples.groups.rounds import MOST_GROUPS, ROUND_MICROS, about
from streaming.sources.samples.kind import AnswerContent, BrokerAnswer
from streaming.sources.samples.offsets import OffsetsKind
from tests.blocks import ENVELOPE, singly
from tests.sources.samples.test_groups import ONE, SECOND, Versions, view_of

VIEW = view_of(dict.fromkeys(range(50), ONE), brokers=(ONE,))
TIMEOUT = 5 * SECOND
PER_OFFSET = 150
"""Microseconds: with 15 times as many offsets, 1 M of them, as slow as a real broker has been seen to be."""


class StandIn:
    """One coordinator with its own time; it answers each request within 5 s, or not at all."""

    def __init__(self, groups: Mapping[str, int], *, hangs_at: Callable[[str], bool] = lambda _: False) -> None:
        self.groups, self.hangs_at = groups, hangs_at
        self.now = 10_000 * SECOND
        self.longest, self.requests, self.most_offsets = 0, 0, 0
        period = Micros(10 * SECOND)
        self.kind = GroupsKind(period, OffsetsKind(period, DirectoriesKind(period)), NamePatterns())
        self.asked: list[str] = []

    def listed(self, _: Any) -> dict[str, DescribedGroup]:
        return {name: DescribedGroup("classic", "Empty") for name in self.groups}

    def described(self, _: Any, groups: Any, _probe: Any) -> tuple[Any, tuple[str, ...]]:
        return groups, ()

    def committed(self, _: Any, names: Any) -> tuple[GroupValues, ...]:
        names = [*names]
        offsets = sum(self.groups[name] for name in names)
        took = offsets * PER_OFFSET
        self.requests += 1
        self.now += min(took, TIMEOUT)
        self.longest = max(self.longest, min(took, TIMEOUT))
        if took > TIMEOUT or any(map(self.hangs_at, names)):
            self.now += TIMEOUT - min(took, TIMEOUT)
            raise ConnectionRefused("it did not answer within 5 s")
        self.most_offsets = max(self.most_offsets, offsets)
        self.asked += names
        return tuple(GroupValues(0, name, {"orders": dict.fromkeys(range(self.groups[name]), 7)}) for name in names)

    def step(self) -> AnswerContent | None:
        """Let the kind ask once, and take the answer; None if it does not ask now."""
        works: list[Any] = []
        self.kind.ask(VIEW, lambda *asked: not works.append(asked), Micros(self.now))  # type: ignore[func-returns-value]
        if not works:
            return None
        ((_, broker, work),) = works
        try:
            answer = BrokerAnswer(KIND, broker, Micros(self.now), work(Versions(9)))
        except ConnectionRefused as refusal:
            answer = BrokerAnswer(KIND, broker, Micros(self.now), refusal=refusal)
        return self.kind.shown(VIEW, answer, {**ENVELOPE, "collected_at": Micros(self.now)})

    def round(self) -> AnswerContent:
        """Go on until a round is over."""
        began = self.now
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "monotonic", lambda: Micros(self.now))
            patch.setattr(module, "list_groups", self.listed)
            patch.setattr(module, "describe_groups", self.described)
            patch.setattr(module, "committed_offsets", self.committed)
            while self.now < began + 10 * ROUND_MICROS:
                content = self.step()
                if content is None:
                    self.now += SECOND
                elif content.observations:
                    return content
        raise AssertionError("nothing is shown")


def offsets_in(content: AnswerContent) -> dict[str, int]:
    found: dict[str, int] = {}
    for block in content.observations:
        if isinstance(block, BrokerGroupOffsetsObserved):
            for group, count in zip(block.arrays.get("group", ()), block.samples_by_topic, strict=True):
                found[group] = found.get(group, 0) + count
    return found


def groups_in(content: AnswerContent) -> set[str]:
    blocks = (block for block in content.observations if isinstance(block, BrokerGroupsObserved))
    return {name for block in blocks for name in block.arrays.get("group", ())}


def named(count: int, offsets: int) -> dict[str, int]:
    return {f"group-{number:05}": offsets for number in range(count)}


def test_65_000_groups_are_asked_in_pieces_and_shown_at_once_under_one_time() -> None:
    coordinator = StandIn(named(65_000, 1))
    content = coordinator.round()
    assert offsets_in(content) == coordinator.groups
    assert groups_in(content) == coordinator.groups.keys()
    assert content.refusal is None
    assert coordinator.requests >= 65_000 / MOST_GROUPS
    assert coordinator.longest <= SECOND, "between two pieces the broker answers other questions"
    assert len({block.collected_at for block in content.observations}) == 1, "else the table keeps the last piece alone"


def test_few_groups_are_one_question() -> None:
    coordinator = StandIn(named(300, 20))
    content = coordinator.round()
    assert (coordinator.requests, content.refusal) == (1, None)
    assert offsets_in(content) == coordinator.groups
    assert coordinator.step() is None, "until they are due again"
    assert coordinator.kind.next_at > coordinator.now


def test_very_many_offsets_are_asked_for_in_pieces_that_are_answered() -> None:
    coordinator = StandIn(named(2_000, 2) | {f"wide-{number}": 100 for number in range(1_000)})
    content = coordinator.round()
    assert offsets_in(content) == coordinator.groups
    assert coordinator.most_offsets <= TIMEOUT / PER_OFFSET


def test_what_is_never_answered_is_said_and_everything_else_is_shown() -> None:
    coordinator = StandIn(named(5_000, 2), hangs_at=lambda name: name == "group-04000")
    content = coordinator.round()
    assert isinstance(content.refusal, ServiceRefused)
    missing = coordinator.groups.keys() - offsets_in(content).keys()
    assert "group-04000" in missing
    assert len(missing) <= MOST_GROUPS
    assert f"the offsets of about {about(len(missing))} are unknown" in str(content.refusal)
    assert groups_in(content) == coordinator.groups.keys(), "they are listed"


def test_what_a_round_did_not_reach_is_asked_for_first_in_the_next() -> None:
    slow = StandIn(named(12_000, 1))
    slow.hangs_at = lambda name: slow.asked.count(name) == 0 and len(slow.asked) > 3_000 and not slow.recovered  # type: ignore[attr-defined]
    slow.recovered = False  # type: ignore[attr-defined]
    content = slow.round()
    missing = slow.groups.keys() - offsets_in(content).keys()
    assert missing
    slow.recovered, slow.asked = True, []  # type: ignore[attr-defined]
    again = slow.round()
    assert slow.asked[0] in missing
    assert offsets_in(again) == slow.groups
    assert again.refusal is None


@given(st.dictionaries(st.text(max_size=4), st.integers(0, 60), max_size=40), st.integers(1, 12))
def test_every_group_is_asked_for_once_a_round_whatever_the_pieces(groups: dict[str, int], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming.sources.samples.groups.rounds.MOST_GROUPS", size)
        coordinator = StandIn(groups)
        content = coordinator.round()
    assert sorted(coordinator.asked) == sorted(groups)
    assert groups_in(content) == groups.keys()
    assert {name: count for name, count in offsets_in(content).items() if count} == {
        name: count for name, count in groups.items() if count
    }
    assert singly(content.observations) is not None
