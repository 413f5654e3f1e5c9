"""Conditions that are raised: once, with labels that never change, until they are over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streaming.changes.conditions.chains import LiveSpell, SpellBook
from streaming.changes.incidents.context import ChangeRow
from streaming.contracts.conditions import BOUND, KEPT, RECENT, RULES, SETTLED, WINDOW, Condition, Spell
from streaming.contracts.events import Severity
from streaming.contracts.standing import Standing, standing
from tests.examples import examples

SECOND = 1_000_000
MINUTE = 60 * SECOND
START = 1_700_000_000 * SECOND
Labels = tuple[object, ...]


def at(seconds: float) -> ChangeRow:
    return ChangeRow(1, "c", "prod", "partition", 0, START + round(seconds * SECOND))


class Told:
    """Spells as the job writes them, at times in seconds."""

    def __init__(self) -> None:
        self.book = SpellBook()
        self.table: dict[str, Spell] = {}

    def note(self) -> None:
        for name, spell in self.book.take_changed().items():
            if spell is None:
                self.table.pop(name, None)
            else:
                self.table[name] = spell

    def begin(self, condition: Condition, when: float, subject: str = "", incident: str | None = None) -> LiveSpell:
        return self.book.begin(condition, subject, at(when), incident)

    def lasting(self, condition: Condition, begin: float, end: float, **more: str) -> None:
        self.book.end(self.begin(condition, begin, **more), at(end))

    def raised(self, when: float) -> list[Standing]:
        """What is raised at a time, as rows that are late would have it, too."""
        self.note()
        until = START + round(when * SECOND)
        kept = [it for it in self.table.values() if it.ended_at is None or until - it.ended_at < RECENT]
        return list(standing(kept, until))

    def named(self, when: float) -> list[tuple[str, str]]:
        return sorted((it.condition, it.subject) for it in self.raised(when))


def labels(one: Standing) -> Labels:
    return (one.cluster_id, one.condition, one.subject, one.severity, one.incident_id, one.short_id)


def test_what_lasts_for_a_minute_is_raised_until_five_minutes_after_its_end() -> None:
    told = Told()
    told.lasting(Condition.OFFLINE, 0, 100, incident="i")
    assert told.named(59) == []
    assert told.named(60) == told.named(399) == [("offline_partitions", "")]
    assert told.named(400) == []
    assert told.raised(399)[0].since == START
    assert told.raised(399)[0].ended_at == START + 100 * SECOND


@pytest.mark.parametrize("seconds", [30, 20, 10])
def test_half_a_minute_offline_again_and_again_is_raised_once(seconds: int) -> None:
    told = Told()
    for begin in range(0, 3600, 180):
        told.lasting(Condition.OFFLINE, begin, begin + seconds, incident=f"i{begin}")
    seen = {labels(it) for when in range(0, 3600, 10) for it in told.raised(when)}
    assert len(seen) == 1
    first = min(when for when in range(0, 3600, 10) if told.raised(when))
    assert all(told.raised(when) for when in range(first, 3600, 10))
    number = -(-90 // seconds)  # the one with which they add up to 90 seconds
    assert {it[4] for it in seen} == {f"i{(number - 1) * 180}"}


def test_a_broker_down_for_fourteen_minutes_is_raised_when_it_catches_up_for_longer() -> None:
    told = Told()
    told.lasting(Condition.BROKER_DOWN, 0, 14 * 60, subject="3")
    assert told.named(15 * 60) == []
    told = Told()
    told.begin(Condition.BROKER_DOWN, 0, "3")
    assert told.named(15 * 60) == [("broker_down", "3")]


@pytest.mark.parametrize("minutes", [10, 20])
def test_redundancy_that_is_lost_is_raised_once_though_the_broker_goes_down(minutes: int) -> None:
    told = Told()
    missing = told.begin(Condition.UNDER_REPLICATED, 0, "3", "i")
    told.book.end(missing, at(minutes * 60))
    down = told.book.begin(Condition.BROKER_DOWN, "3", at(minutes * 60), "i", follows=missing)
    name = "broker_down" if minutes < 15 else "under_replicated"
    assert told.named(14 * 60) == []
    assert {tuple(told.named(minute * 60)) for minute in range(15, 60)} == {((name, "3"),)}
    told.book.end(down, at(3600))
    assert told.named(3600 + 299) == [(name, "3")]
    assert told.named(3600 + 301) == []


def test_what_came_again_says_since_when_it_lasts_and_when_it_was_over() -> None:
    told = Told()
    told.lasting(Condition.OFFLINE, 0, 100)
    over = told.raised(120)
    told.begin(Condition.OFFLINE, 160)
    (again,) = told.raised(170)
    assert [(each.since, each.again_since, each.ended_at) for each in over] == [(START, None, START + 100 * SECOND)]
    assert (again.since, again.again_since, again.ended_at) == (START, START + 160 * SECOND, None)


def test_a_broker_that_leaves_isrs_again_and_again_flaps() -> None:
    told = Told()
    for begin in range(0, 1800, 300):
        told.lasting(Condition.UNDER_REPLICATED, begin, begin + 20, subject="3")
    assert told.named(1499) == []
    assert told.named(1520) == told.named(1500 + 1799) == [("isr_flapping", "3")]
    assert told.named(1500 + 1801) == []


def test_a_broker_that_restarts_again_and_again_does_not_flap() -> None:
    told = Told()
    for begin in range(0, 1800, 300):
        missing = told.begin(Condition.UNDER_REPLICATED, begin, "3")
        told.book.end(missing, at(begin + 9))
        down = told.book.begin(Condition.BROKER_DOWN, "3", at(begin + 9), None, follows=missing)
        told.book.end(down, at(begin + 60))
    assert told.named(1600) == [("restart_loop", "3")]


def test_new_trouble_is_raised_next_to_old_trouble() -> None:
    told = Told()
    told.begin(Condition.OFFLINE, 0, incident="old")
    told.begin(Condition.OFFLINE, 3600, incident="new")
    assert [it.incident_id for it in told.raised(3700)] == ["old", "new"]


def test_an_unclean_election_is_raised_at_once_and_ten_thousand_are_one() -> None:
    told = Told()
    for number in range(1000):
        told.book.moment(Condition.UNCLEAN_ELECTION, at(number / 10), "i").partitions += 1
    assert told.named(0) == [("unclean_election", "")]
    assert len(told.table) == 1
    assert told.raised(100)[0].partitions == 1000
    assert told.named(100 + 1799) == [("unclean_election", "")]
    assert told.named(100 + 1801) == []


def test_a_reassignment_that_does_not_get_on_is_stuck() -> None:
    told = Told()
    spell = told.begin(Condition.REASSIGNING, 0)
    spell.progressed_at = START + 3600 * SECOND
    assert told.named(7200) == []
    assert told.named(7200 + 3600) == [("reassignment_stuck", "")]


MOVES = st.tuples(
    st.sampled_from([Condition.OFFLINE, Condition.UNDER_REPLICATED, Condition.BROKER_DOWN, Condition.UNCLEAN_ELECTION]),
    st.sampled_from(["i", "j", None]),
    st.one_of(st.integers(0, 40), st.integers(0, 1300)),
    st.booleans(),
)


def played(moves: Iterable[tuple[Condition, str | None, int, bool]]) -> Iterator[tuple[int, dict[str, Spell]]]:
    """Spells of a broker, and of two incidents; yields each moment with the table as it was then."""
    told, now, lasting = Told(), 0, dict[tuple[Condition, str | None], LiveSpell]()
    for condition, incident, later, is_bound in moves:
        now += later
        is_broker = condition in (Condition.UNDER_REPLICATED, Condition.BROKER_DOWN)
        key = (Condition.BROKER_DOWN, None) if is_broker else (condition, incident)
        before = lasting.pop(key, None)
        if condition is Condition.UNCLEAN_ELECTION:
            told.book.moment(condition, at(now), incident).partitions += 1
        elif before is None or (is_broker and before.condition is not condition):
            follows = None
            if before is not None:
                told.book.end(before, at(now))
                is_worse = condition is Condition.BROKER_DOWN
                follows = before if is_worse else None
            spell = told.book.begin(condition, "3" if is_broker else "", at(now), incident, follows=follows)
            spell.partitions = 1
            lasting[key] = spell
        else:
            told.book.end(before, at(now))
        for chain in list(told.book.unsettled):
            if is_bound and incident is not None and at(now).time - chain.since <= BOUND:
                told.book.bind(chain, incident)
        told.note()
        yield now, dict(told.table)
    yield now + RECENT // SECOND, dict(told.table)


@settings(max_examples=examples(100), deadline=None)
@given(moves=st.lists(MOVES, max_size=30))
@example(
    moves=[
        (Condition.UNDER_REPLICATED, "j", 0, False),
        (Condition.OFFLINE, "i", 900, False),
        (Condition.BROKER_DOWN, "i", 0, False),
        (Condition.UNDER_REPLICATED, "j", 0, False),
    ]
)
def test_labels_never_change_until_it_is_over(moves: list[tuple[Condition, str | None, int, bool]]) -> None:
    raised: dict[Labels, Standing] = {}
    seen: set[tuple[Labels, int]] = set()
    known = list(played(moves))
    for (now, table), (then, _) in zip(known, [*known[1:], known[-1]], strict=True):
        for when in sorted({now, *range(now, then, 7 if then - now < 100 else 59)}):
            until = START + when * SECOND
            found = {labels(it): it for it in standing(table.values(), until)}
            assert len(found) == len(list(standing(table.values(), until)))
            for it in found.values():
                assert it.since <= it.raised_since <= until
                is_moment = it.condition in (Condition.UNCLEAN_ELECTION, *_REPEATED)
                assert is_moment or it.raised_since >= it.since + SETTLED
            for name, before in raised.items():
                if name not in found:
                    key = before.since, before.condition, before.incident_id
                    chain = (it for it in table.values() if (it.since, it.condition, it.incident_id) == key)
                    last = max((it.ended_at or until for it in chain), default=0)
                    assert before.condition in _REPEATED or until - last >= _kept(before.condition), (name, when)
            for name in found.keys() - raised.keys():
                assert (name, found[name].since) not in seen or found[name].condition in _REPEATED
                seen.add((name, found[name].since))
            raised = found


_REPEATED = (Condition.RESTART_LOOP, Condition.ISR_FLAPPING)


def _kept(condition: Condition) -> int:
    return RULES[condition].kept


@pytest.mark.parametrize("condition", [Condition.BROKER_DOWN, Condition.REASSIGNING])
def test_nothing_that_may_be_explained_yet_is_raised_however_short_it_may_last(condition: Condition) -> None:
    told = Told()
    told.begin(condition, 0)
    told.note()
    at_once = {each: rule._replace(lasting=0) for each, rule in RULES.items()}
    settled = SETTLED // SECOND
    assert [len(list(standing(told.table.values(), START + when * SECOND, at_once))) for when in (1, settled)] == [0, 1]


def test_severities_are_those_of_the_rules() -> None:
    told = Told()
    told.begin(Condition.OFFLINE, 0, incident="i")
    told.begin(Condition.OFFLINE_PLANNED, 0, incident="j")
    assert {it.condition: it.severity for it in told.raised(100)} == {
        Condition.OFFLINE: Severity.CRITICAL, Condition.OFFLINE_PLANNED: Severity.WARNING,
    }  # fmt: skip


def test_bounds_are_in_order() -> None:
    assert BOUND < SETTLED < KEPT < WINDOW < RECENT
    assert all(rule.lasting == 0 or rule.lasting >= SETTLED for rule in RULES.values())
