"""The restart advice about a broker, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class Obstacles(NamedTuple):
    """What stands in the way of restarting one broker: counts of partitions, and numbers of brokers.

    Attributes:
        is_known: whether the cluster has been reported completely, and is observed now.
        is_up: registered, and neither fenced nor shutting down.
        place: in the order, None for none.
        offline_now: partitions that it has a replica of and that nobody leads.
        under_min_isr_now: the same, under their min ISR.
        unknown_min_isr: partitions that it is in sync with, of unknown min ISR.
        goes_offline: partitions that nobody could lead if it stopped now.
        waiting_partitions: partitions that need other brokers in sync before it may stop.
        waits_for: those brokers.
        waits_for_down: those of them that are not up.
        unavoidable_offline: partitions that go offline by configuration.
        unavoidable_under_min_isr: partitions that go under their min ISR by configuration.
        voters: of the controller quorum, None while unknown.
        voters_caught_up: those of them that have caught up, None while unknown.
        is_voter: whether the broker is one.
        keeps_quorum: whether the others are a majority, None while unknown.
        is_quorum_unavoidable: whether they never are, by configuration.
    """

    is_known: bool
    is_up: bool
    place: int | None
    offline_now: int
    under_min_isr_now: int
    unknown_min_isr: int
    goes_offline: int
    waiting_partitions: int
    waits_for: tuple[int, ...]
    waits_for_down: tuple[int, ...]
    unavoidable_offline: int
    unavoidable_under_min_isr: int
    voters: tuple[int, ...] | None
    voters_caught_up: tuple[int, ...] | None
    is_voter: bool
    keeps_quorum: bool | None
    is_quorum_unavoidable: bool


def reason(obstacles: Obstacles) -> str:
    """Return the advice as a sentence: what forbids the restart, or what it costs, or that it costs nothing."""
    if not obstacles.is_known:
        return "unknown: the cluster has not been reported completely"
    if not obstacles.is_up:
        return "not up"
    clauses = list(_forbidding(obstacles)) if obstacles.place is None else list(_costs(obstacles))
    if not clauses:
        clauses = ["every partition stays online and at its min ISR"]
    if obstacles.voters is None:
        clauses.append("whether it has a vote in the controller quorum is unknown")
    return "; ".join(clauses)


def _forbidding(obstacles: Obstacles) -> Iterator[str]:
    offline, refusing = obstacles.offline_now, obstacles.under_min_isr_now
    if offline:
        them = "it" if offline == 1 else "them"
        yield f"{_partitions(offline)} it has a replica of {_is(offline)} offline: bring {them} back first"
    avoidable = obstacles.goes_offline - obstacles.unavoidable_offline
    if refusing:
        last = f", and {avoidable} would go offline" if avoidable else ""
        yield (
            f"{_partitions(refusing)} it has a replica of {_is(refusing)} under min ISR already{last}: wait until "
            f"{'it has' if refusing == 1 else 'they have'} recovered"
        )
    if obstacles.waits_for:
        lost = f"{_partitions(obstacles.waiting_partitions, 'more ' if refusing else '')} would go under min ISR"
        if avoidable and not refusing:
            lost += " or offline"
        down = f" (down: {_list(obstacles.waits_for_down)})" if obstacles.waits_for_down else ""
        yield f"{lost}: {_brokers(obstacles.waits_for)} must catch up first{down}"
    if obstacles.keeps_quorum is False and not obstacles.is_quorum_unavoidable:
        lost = "would lose its majority" if obstacles.is_voter else "has no majority to elect other leaders"
        yield f"the controller quorum {lost}: voter {_behind(obstacles)} must catch up first"
    if obstacles.unknown_min_isr:
        yield f"unknown: the min ISR of {_partitions(obstacles.unknown_min_isr)} is unknown"
    if obstacles.keeps_quorum is None:
        yield "unknown: which voters of the controller quorum have caught up"


def _costs(obstacles: Obstacles) -> Iterator[str]:
    if obstacles.waits_for:
        has = "has" if len(obstacles.waits_for) == 1 else "have"
        yield f"only after {_brokers(obstacles.waits_for)} {has} caught up"
    if obstacles.keeps_quorum is False and not obstacles.is_quorum_unavoidable:
        yield f"only after voter {_behind(obstacles)} of the controller quorum has caught up"
    if obstacles.unavoidable_offline:
        yield (
            f"unavoidable by configuration: {_partitions(obstacles.unavoidable_offline)} with one replica "
            f"{'goes' if obstacles.unavoidable_offline == 1 else 'go'} offline while it is down"
        )
    if obstacles.unavoidable_under_min_isr:
        yield (
            f"unavoidable by configuration: {_partitions(obstacles.unavoidable_under_min_isr)} with no more replicas "
            f"than min ISR {'refuses' if obstacles.unavoidable_under_min_isr == 1 else 'refuse'} acks=all writes while "
            "it is down"
        )
    if obstacles.is_quorum_unavoidable:
        yield (
            f"unavoidable by configuration: the controller quorum of {len(obstacles.voters or ())} voters has no "
            "majority while it is down"
        )


def _behind(obstacles: Obstacles) -> str:
    return _list(set(obstacles.voters or ()) - set(obstacles.voters_caught_up or ()))


def _partitions(number: int, more: str = "") -> str:
    return f"{number:,} {more}partition{'' if number == 1 else 's'}"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _brokers(numbers: Collection[int]) -> str:
    return f"broker{'' if len(numbers) == 1 else 's'} {_list(numbers)}"


def _list(numbers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
