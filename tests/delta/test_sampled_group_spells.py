"""Spells of groups: a gap in what their coordinators say neither begins nor ends any, however the log is cut."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.group_positions import MOVING
from streaming.contracts.group_readers import LOSING, STANDING
from streaming.contracts.sample_tables import GROUP_OFFSETS
from tests.delta.test_sampled_spells import SECOND, START, Row, Stored, shown

ROUND = 30
STUCK_AT = STANDING // SECOND
"""Seconds after its first sample at which a group that stands still is stuck."""


def offsets(  # noqa: PLR0913 - what a row says
    at: float,
    committed: int | None = 50,
    end: int = 100,
    *,
    start: int = 0,
    group: str = "g",
    topic: str = "a-b",
    topic_id: str = "t",
    partition: int = 3,
    coordinator: int = 1,
    **more: Any,
) -> Row:
    """Give what a coordinator says of a group in a partition, which a member owns."""
    now = START + round(at * SECOND)
    owned = {"member": "app", "members": 1, "group_state": "Stable"}
    positions = {"log_start_offset": start, "high_watermark": end, "last_stable_offset": end, "positions_at": now - 1}
    positions |= {"readable_at": now}
    row = {"group": group, "topic": topic, "topic_id": topic_id, "partition": partition, "committed_offset": committed}
    return owned | positions | row | {"coordinator": coordinator, "collected_at": now} | more


def listed(at: float, coordinator: int) -> Row:
    """Give what says that a coordinator has reported all its groups."""
    return {"coordinator": coordinator, "collected_at": START + round(at * SECOND)}


def standing(until: int = STUCK_AT, since: int = 0, **more: Any) -> list[list[Row]]:
    """Give the answers of a coordinator of a group that stands still."""
    return [[offsets(at, **more)] for at in range(since, until + 1, ROUND)]


def stored(answers: list[list[Row]], *, restarts: bool = False) -> Stored:
    held = Stored(GROUP_OFFSETS)
    for answer in answers:
        held.apply(answer)
        if restarts:
            held.start()
    return held


LASTS = ("group_stuck", "g", "a-b-3", 0, STUCK_AT, None)
"""It is stuck since its first sample, from when it has stood still for long enough."""


def test_a_group_is_stuck_since_it_stands_still_until_it_commits() -> None:
    held = stored(standing(STUCK_AT - ROUND))
    assert shown(held) == []
    held.apply([offsets(STUCK_AT)])
    assert shown(held) == [LASTS]
    held.apply([offsets(STUCK_AT + ROUND, 51)])
    assert shown(held) == [(*LASTS[:-1], STUCK_AT + ROUND)]


@pytest.mark.parametrize("restarts", [False, True], ids=["one job", "restarts"])
@pytest.mark.parametrize("silence", [60, MOVING // SECOND + ROUND])
def test_it_stays_stuck_while_its_coordinator_is_silent_also_if_its_position_is_forgotten(
    silence: int, *, restarts: bool
) -> None:
    """Its members come back one after the other, before the first of which nothing is owned."""
    held = stored(standing(), restarts=restarts)
    back = STUCK_AT + silence
    for at in range(STUCK_AT, back, 2 * ROUND):
        held.apply([offsets(at, 7, 7, group="other", coordinator=2)])
        if restarts:
            held.start()
    joining = {"member": None, "members": 1, "group_state": "PreparingRebalance"}
    for answer in ([offsets(back, **joining)], *standing(back + STUCK_AT, back + ROUND)):
        held.apply(answer)
        if restarts:
            held.start()
    assert shown(held) == [LASTS]
    over = back + STUCK_AT + ROUND
    held.apply([offsets(over, 51)])
    assert shown(held) == [(*LASTS[:-1], over)]


@pytest.mark.parametrize("loading", [0, MOVING // SECOND - ROUND])
def test_it_stays_stuck_when_it_moves_though_no_coordinator_lists_it_meanwhile(loading: int) -> None:
    """Both answer: the old one has left it already, the new one has yet to read its offsets; then it moves back."""
    held, at = stored(standing()), STUCK_AT
    for old, new in ((1, 2), (2, 1)):
        for _ in range(0, loading, ROUND):
            at += ROUND
            held.apply([listed(at, old), listed(at + 1, new)])
        at += ROUND
        held.apply([listed(at, old), offsets(at + 1, coordinator=new)])
        held.apply([listed(at + ROUND, old), offsets(at + ROUND + 1, coordinator=new)])
    assert shown(held) == [LASTS]


def test_a_group_that_a_round_did_not_reach_stays_stuck_and_one_that_is_gone_does_not() -> None:
    held, late = stored(standing()), STUCK_AT + ROUND
    for at in range(late, late + 400, 2 * ROUND):
        held.apply([listed(at, 1)])
        held.apply([offsets(at + ROUND)])
    assert shown(held) == [LASTS]
    left = late + 400
    for at in range(left, left + MOVING // SECOND + 2 * ROUND, ROUND):
        held.apply([listed(at, 1)])
    assert shown(held) == [(*LASTS[:-1], left)]


def ended(at: float, group: str, coordinator: int = 1) -> Row:
    """Give what says that what an answer leaves out of a group is gone."""
    return listed(at, coordinator) | {"group": group, "group_state": "Dead"}


@pytest.mark.parametrize("restarts", [False, True], ids=["one job", "restarts"])
@pytest.mark.parametrize("missing", [0, 2, MOVING // SECOND // ROUND - 1])
def test_a_group_that_is_gone_is_stuck_no_longer_once_its_coordinator_says_so(missing: int, *, restarts: bool) -> None:
    held, at = stored(standing()), STUCK_AT
    for _ in range(missing):
        at += ROUND
        held.apply([listed(at, 1) | {"group": "g"}])
        if restarts:
            held.start()
    assert shown(held) == [LASTS], "it may have moved"
    held.apply([listed(at + ROUND, 1), ended(at + ROUND, "other"), ended(at + ROUND, "g")])
    assert shown(held) == [(*LASTS[:-1], at + ROUND)]


@pytest.mark.parametrize("cut", [False, True], ids=["at once", "block by block"])
def test_a_deleted_offset_ends_what_was_said_of_its_partition_alone(*, cut: bool) -> None:
    both = [standing(), standing(partition=4)]
    held, at = stored([[*one, *other] for one, other in zip(*both, strict=True)]), STUCK_AT + ROUND
    blocks = [[offsets(at, partition=4)], [listed(at, 1), ended(at, "g")]]
    for batch in blocks if cut else [[*blocks[0], *blocks[1]]]:
        held.apply(batch)
    assert shown(held) == [(*LASTS[:-1], at), ("group_stuck", "g", "a-b-4", 0, STUCK_AT, None)]


def test_a_group_of_the_same_name_begins_again_where_the_one_before_was_deleted() -> None:
    held, at = stored(standing()), STUCK_AT + ROUND
    held.apply([listed(at, 1), ended(at, "g")])
    held.apply([offsets(at + ROUND)])
    assert shown(held) == [(*LASTS[:-1], at)], "it has not stood still for long"


def test_what_is_no_trouble_begins_nothing() -> None:
    """A purged topic, one that was read to its end, one that the group has left, a replay, a leader that is silent."""
    held = Stored(GROUP_OFFSETS)
    for at in range(0, 2 * STUCK_AT, ROUND):
        unread = {"member": None, "members": 1}
        silent = {"log_start_offset": None, "high_watermark": None, "last_stable_offset": None}
        held.apply(
            [
                offsets(at, 100, 100, start=100, topic="purged"),
                offsets(at, 50 + min(at, 50), 100, topic="drained"),
                offsets(at, topic="left", **unread),
                offsets(at, at % 600, 1_000, topic="replayed"),
                offsets(at, topic="silent", **silent),
            ]
        )
    assert shown(held) == []


def test_a_group_beyond_the_end_is_so_until_the_end_has_passed_it() -> None:
    held = stored([[offsets(at, 100, end)] for at, end in ((0, 100), (10, 100), (20, 70), (30, 80), (40, 100))])
    assert shown(held) == [("group_beyond_end", "g", "a-b-3", 20, 20, 40)]


def test_a_group_loses_records_for_a_while_after_each_loss() -> None:
    held = stored([[offsets(0)], [offsets(ROUND, start=60)]])
    lasts = ("group_losing", "g", "a-b-3", ROUND, ROUND, None)
    for at in range(2 * ROUND, LOSING // SECOND + 2 * ROUND, ROUND):
        assert shown(held)[:1] == [lasts]
        held.apply([offsets(at, start=60)])
    held.apply([offsets(LOSING // SECOND + 2 * ROUND, start=60)])
    assert shown(held)[0] == (*lasts[:-1], LOSING // SECOND + 2 * ROUND)


@pytest.mark.parametrize("silence", [60, MOVING // SECOND + ROUND])
def test_a_group_that_loses_goes_on_losing_after_a_silence_and_then_it_is_one_spell(silence: int) -> None:
    held = stored([[offsets(0)], [offsets(ROUND, start=60)]])
    back = ROUND + silence
    held.apply([offsets(back - 5, 7, 7, group="other", coordinator=2)])
    for number in range(10):
        held.apply([offsets(back + number * ROUND, start=60 + 5 * number)])
        held.start()
    assert shown(held)[0] == ("group_losing", "g", "a-b-3", ROUND, ROUND, None)


def test_a_topic_that_was_created_again_counts_as_it_is_now() -> None:
    held = stored(standing())
    for at in (STUCK_AT + ROUND, STUCK_AT + 2 * ROUND):
        held.apply([offsets(at, 0, 0, topic_id="new", coordinator=2)])
    assert shown(held) == [(*LASTS[:-1], STUCK_AT + ROUND)]


def test_partitions_of_a_group_have_spells_of_their_own() -> None:
    names = (("g", "a", 3), ("g", "a-1", 3), ("", "a", 3), ("g\n", "a", 31))
    held = stored(
        [
            [
                offsets(at, group=group, topic=topic, topic_id=topic, partition=partition)
                for group, topic, partition in names
            ]
            for at in range(0, STUCK_AT + ROUND, ROUND)
        ]
    )
    assert {(group, part) for _, group, part, *_ in shown(held)} == {(g, f"{t}-{p}") for g, t, p in names}
