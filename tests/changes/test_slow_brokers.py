"""Who is called slow: beside itself, its peers and a floor, for long enough; and that nobody is where all are slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.advice.slow_brokers import (
    HISTORY_ROUNDS,
    LEAST_HISTORY,
    MOST_SCORE,
    SLOW_SCORE,
    BrokerSpeed,
    SpeedSample,
    after_round,
    most_slow,
)
from streaming.contracts.identifiers import BrokerId, Micros

ONE = BrokerId(1)
USUAL = SpeedSample(4_000, 5, 0, 5, 0)
SLOW = SpeedSample(900_000, 5, 0, 5, 0)
BEHIND = SpeedSample(4_000, 5, 5, 5, 0)
APPENDS = USUAL._replace(append_micros=2_000)
SLOW_DISK = USUAL._replace(append_micros=80_000)
OF_THREE = SpeedSample(4_000, 2, 0, 2, 0, append_micros=2_000)
Speeds = dict[BrokerId, BrokerSpeed]


def brokers(count: int) -> list[BrokerId]:
    return [BrokerId(number) for number in range(1, count + 1)]


def after(
    rounds: int,
    sample_of: Callable[[BrokerId], SpeedSample],
    speeds: Speeds | None = None,
    *,
    count: int = 6,
    at: int = 0,
) -> Speeds:
    """Apply so many equal rounds."""
    concluded = dict(speeds or {})
    for number in range(rounds):
        concluded |= after_round(concluded, {one: sample_of(one) for one in brokers(count)}, Micros(at + number))
    return concluded


def first(sample: SpeedSample, others: SpeedSample = USUAL) -> Callable[[BrokerId], SpeedSample]:
    return lambda broker: sample if broker == ONE else others


def usual(_: BrokerId) -> SpeedSample:
    return USUAL


def slow(speeds: Speeds) -> list[int]:
    return [broker for broker, speed in speeds.items() if speed.is_slow]


@pytest.mark.parametrize("sample", [SLOW, BEHIND, SpeedSample(4_000, 5, 0, 5, 4)])
def test_who_is_slower_than_it_was_and_than_its_peers_is_called_slow_after_five_rounds(sample: SpeedSample) -> None:
    calm = after(LEAST_HISTORY, usual)
    assert not slow(after(SLOW_SCORE - 1, first(sample), calm))
    found = after(SLOW_SCORE, first(sample), calm, at=100)
    assert slow(found) == [ONE]
    assert found[ONE].since == 100
    assert [speed.is_slow for broker, speed in found.items() if broker != ONE] == [False] * 5


def test_it_is_slow_until_its_score_is_zero_again() -> None:
    found = after(20, first(SLOW), after(LEAST_HISTORY, usual))
    assert slow(after(MOST_SCORE - 1, usual, found)) == [ONE]
    ended = after(MOST_SCORE, usual, found)
    assert not slow(ended)
    assert (ended[ONE].since, ended[ONE].reasons) == (None, ())


def test_the_reasons_name_what_is_slow_beside_what_is_usual_and_the_peers() -> None:
    calm = after(LEAST_HISTORY, usual)
    assert after(5, first(SLOW), calm)[ONE].reasons == ("responds in 900 ms, usually in 4 ms, its peers in 4 ms",)
    both = SpeedSample(4_000, 5, 5, 5, 3)
    assert after(5, first(both), calm)[ONE].reasons == (
        "is behind 5 of the 5 brokers it follows and 3 of its 5 followers are behind; usually 0 %, its peers 0 %",
    )


def test_who_always_was_slower_than_its_peers_is_not_called_slow() -> None:
    assert not slow(after(200, first(SLOW)))


def test_what_is_three_times_as_slow_as_usual_and_yet_fast_is_not_called_slow() -> None:
    assert not slow(after(20, first(SpeedSample(90_000, 5, 0, 5, 0)), after(LEAST_HISTORY, usual)))


def test_a_lost_link_makes_neither_of_its_brokers_slow() -> None:
    behind = {1: SpeedSample(4_000, 2, 1, 2, 1), 2: SpeedSample(4_000, 2, 1, 2, 1)}
    cut = after(20, lambda broker: behind.get(broker, USUAL), after(LEAST_HISTORY, usual))
    assert not slow(cut)


@pytest.mark.parametrize("sample", [SLOW, BEHIND])
def test_where_all_are_slow_none_is_to_blame_and_the_cluster_is_overloaded(sample: SpeedSample) -> None:
    found = after(5, lambda _: sample, after(LEAST_HISTORY, usual))
    assert not slow(found)
    assert all(speed.is_overloaded for speed in found.values())
    later = after(HISTORY_ROUNDS, lambda _: sample, found)
    assert not any(speed.is_overloaded for speed in later.values())  # it is what is usual now


def test_where_two_of_six_are_slow_none_is_to_blame() -> None:
    found = after(20, lambda broker: SLOW if broker <= 2 else USUAL, after(LEAST_HISTORY, usual))
    assert not slow(found)
    assert found[ONE].is_overloaded


def test_a_round_in_which_another_is_slow_too_takes_nothing_back() -> None:
    found = after(6, first(SLOW), after(LEAST_HISTORY, usual))
    assert slow(after(1, lambda broker: SLOW if broker <= 2 else USUAL, found)) == [ONE]


@pytest.mark.parametrize(("count", "history"), [(1, 40), (2, 40), (6, LEAST_HISTORY - 1)])
def test_with_few_peers_or_little_history_it_is_unknown_and_never_false(count: int, history: int) -> None:
    speeds = after(history, usual, count=count)
    assert {speed.is_slow for speed in after(1, first(SLOW), speeds, count=count).values()} == {None}
    assert {speed.is_overloaded for speed in speeds.values()} == {None}


@pytest.mark.parametrize("sample", [SLOW, BEHIND, SLOW_DISK])
def test_of_three_brokers_who_is_slower_than_it_was_and_than_each_other_one_is_called_slow(sample: SpeedSample) -> None:
    changed = {
        1: sample._replace(followed_leaders=2, followers=2, followed_leaders_behind=sample.followed_leaders_behind // 2)
    }
    one_behind = OF_THREE._replace(followers_behind=1) if sample is BEHIND else OF_THREE
    found = after(
        SLOW_SCORE,
        lambda broker: changed.get(broker, one_behind),
        after(LEAST_HISTORY, first(OF_THREE, OF_THREE), count=3),
        count=3,
    )
    assert slow(found) == [ONE]
    assert [speed.is_slow for speed in found.values()] == [True, False, False]


@pytest.mark.parametrize("field", ["response_micros", "append_micros"])
def test_of_three_brokers_who_is_slower_than_one_other_only_is_not_called_slow(field: str) -> None:
    calm = after(
        LEAST_HISTORY, lambda broker: OF_THREE._replace(**{field: 70_000}) if broker == 3 else OF_THREE, count=3
    )
    slower = {1: OF_THREE._replace(**{field: 200_000}), 2: OF_THREE, 3: OF_THREE._replace(**{field: 70_000})}
    assert not slow(after(20, slower.__getitem__, calm, count=3))


def test_a_lost_link_between_two_of_three_brokers_makes_none_of_them_slow() -> None:
    cut = OF_THREE._replace(followed_leaders_behind=1, followers_behind=1)
    calm = after(LEAST_HISTORY, first(OF_THREE, OF_THREE), count=3)
    assert not slow(after(20, lambda broker: OF_THREE if broker == ONE else cut, calm, count=3))


def test_a_slow_disk_is_seen_by_the_agent_alone_and_named() -> None:
    calm = after(LEAST_HISTORY, first(APPENDS, APPENDS))
    found = after(SLOW_SCORE, first(SLOW_DISK, APPENDS), calm)
    assert slow(found) == [ONE]
    assert found[ONE].reasons == ("appends in 80 ms, usually in 2 ms, its peers in 2 ms",)
    assert not slow(after(SLOW_SCORE, first(USUAL, USUAL), calm))


def test_a_silent_agent_makes_nobody_slow_and_ends_what_it_has_said() -> None:
    calm = after(LEAST_HISTORY, first(APPENDS, APPENDS))
    assert not slow(after(20, first(USUAL, APPENDS), calm))
    assert not slow(after(20, first(SLOW_DISK, USUAL), calm))  # it alone has an agent that answers
    assert not slow(after(MOST_SCORE, first(USUAL, APPENDS), after(20, first(SLOW_DISK, APPENDS), calm)))


def test_a_short_fault_that_an_agent_shows_later_is_not_taken_for_a_long_one() -> None:
    found = after(
        SLOW_SCORE - 1,
        first(SLOW._replace(append_micros=2_000), APPENDS),
        after(LEAST_HISTORY, first(APPENDS, APPENDS)),
    )
    for _ in range(SLOW_SCORE - 1):
        found = after(1, first(SLOW_DISK, APPENDS), found)
        assert not slow(found)
    assert slow(after(1, first(SLOW_DISK, APPENDS), found)) == [ONE]  # it lasts


def test_whose_appends_always_were_slow_or_are_three_times_as_slow_and_yet_fast_is_not_called_slow() -> None:
    assert not slow(after(200, first(SLOW_DISK, APPENDS)))
    calm = after(LEAST_HISTORY, first(APPENDS, APPENDS))
    assert not slow(after(20, first(APPENDS._replace(append_micros=29_000), APPENDS), calm))


def test_where_all_append_slowly_the_cluster_is_overloaded() -> None:
    found = after(5, first(SLOW_DISK, SLOW_DISK), after(LEAST_HISTORY, first(APPENDS, APPENDS)))
    assert not slow(found)
    assert all(speed.is_overloaded for speed in found.values())


def test_who_pauses_now_and_then_as_usual_is_not_called_slow() -> None:
    speeds: Speeds = {}
    for number in range(200):
        speeds = after(1, first(SLOW if number % 3 == 0 else USUAL), speeds, at=number)
        assert not slow(speeds)


def test_who_did_not_respond_stays_as_it_was() -> None:
    found = after(6, first(SLOW), after(LEAST_HISTORY, usual))
    silent = after_round(found, {one: USUAL for one in brokers(6) if one != ONE}, Micros(1))
    assert ONE not in silent


def samples() -> st.SearchStrategy[SpeedSample]:
    return st.sampled_from((USUAL, SLOW, BEHIND, APPENDS, SLOW_DISK, SpeedSample(4_000, 0, 0, 0, 0)))


@given(st.integers(3, 25).flatmap(lambda count: st.lists(st.tuples(*[samples()] * count), max_size=40)))
def test_never_more_than_a_tenth_or_one_is_called_slow(rounds: Iterable[tuple[SpeedSample, ...]]) -> None:
    speeds: Speeds = {}
    for at, values in enumerate(rounds):
        count = len(values)
        speeds = speeds or after(LEAST_HISTORY, first(APPENDS, APPENDS), count=count)
        speeds |= after_round(speeds, dict(zip(brokers(count), values, strict=True)), Micros(at))
        assert len(slow(speeds)) <= most_slow(count)
        assert all(0 <= speed.score <= MOST_SCORE for speed in speeds.values())
        assert all((speed.since is None) == (speed.score == 0) for speed in speeds.values())
        assert all(
            len(each) <= HISTORY_ROUNDS for speed in speeds.values() for each in (speed.responses, speed.appends)
        )
