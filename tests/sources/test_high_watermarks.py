"""Since when a record has been readable, against writers whose every record has a moment."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.identifiers import Micros, TopicId
from streaming.sources.samples.high_watermarks import MOST_ROWS, SHARE_OF_AGE, HighWatermarks

SECOND = 1_000_000
INTERVAL = 10 * SECOND
APART = Micros(3 * INTERVAL)
IDS = {"orders": TopicId("t")}


class Written:
    """A partition whose records became readable at these moments, read once per interval."""

    def __init__(self, moments: Sequence[int], *, until: int, missing: Collection[int] = ()) -> None:
        self._moments = sorted(moments)
        self.history, self.now = HighWatermarks(APART), Micros(until)
        for moment in range(0, until + 1, INTERVAL):
            if moment // INTERVAL in missing:
                continue
            self.history.put(IDS, {"orders": {0: self.end(moment)}}, Micros(moment), Micros(moment))

    def end(self, moment: int) -> int:
        return bisect_right(self._moments, moment)

    def truth(self, offset: int) -> float:
        """For how long a group that has read up to here could have read more, in seconds."""
        return (self.now - self._moments[offset]) / SECOND if offset < self.end(self.now) else 0.0

    def estimate(self, offset: int) -> float | None:
        ends = {0: self.end(self.now)}
        return self.history.lag_seconds(IDS["orders"], {0: offset}, ends, self.now).get(0)

    def error(self, offset: int) -> float:
        """By how much the estimate is wrong."""
        found = self.estimate(offset)
        assert found is not None
        return abs(found - self.truth(offset))


@given(
    moments=st.lists(st.integers(0, 600), min_size=1, max_size=60),
    missing=st.sets(st.integers(0, 60), max_size=20),
    thousandths=st.integers(0, 999),
)
def test_no_estimate_is_wrong_by_as_much_as_the_readings_around_it_are_apart(
    moments: list[int], missing: set[int], thousandths: int
) -> None:
    """Whatever was written when, and whichever readings are missing."""
    missing -= {60}
    at = [moment * SECOND + thousandths * 1_000 for moment in moments]
    written = Written(at, until=600 * SECOND, missing=missing)
    rounds = [number * INTERVAL for number in range(61) if number not in missing]
    for offset in range(written.end(written.now) + 1):
        found, truth = written.estimate(offset), written.truth(offset)
        passed = written.now - round(truth * SECOND)
        around = [(begin, end) for begin, end in pairwise(rounds) if begin < passed <= end]
        if offset == written.end(written.now):
            assert found == 0
        elif not around or around[0][1] - around[0][0] > max(APART, (written.now - around[0][1]) / SHARE_OF_AGE):
            assert found is None, "readable before the first reading, or while readings were missing for long"
        else:
            ((begin, end),) = around
            assert found is not None
            assert abs(found - truth) <= (end - begin) / SECOND


def steady(begin: int, end: int) -> Iterator[int]:
    """Five records per second, not quite evenly."""
    yield from (moment + moment % 7_919 for moment in range(begin, end, SECOND // 5))


def bursts(begin: int, end: int) -> Iterator[int]:
    """Fifty records within a tenth of a second, each seven seconds."""
    yield from (burst + number * 2_000 for burst in range(begin, end, 7 * SECOND) for number in range(50))


@pytest.mark.parametrize(("write", "most_seconds"), [(steady, 0.25), (bursts, INTERVAL / SECOND)])
@pytest.mark.parametrize("hours", [0.1, 30.0])
def test_the_error_of_steady_writers_is_a_fraction_of_that_of_bursts(
    write: Callable[[int, int], Iterator[int]], most_seconds: float, hours: float
) -> None:
    """A group that is stuck since then, one that is at a constant distance, and what it reads as it catches up."""
    end = round(hours * 3_600) * SECOND
    written = Written([*write(5 * SECOND, end)], until=end)
    for ago in range(20, 340, 7):
        offset = written.end(written.now - ago * SECOND)
        allowed = most_seconds if write is steady else max(most_seconds, ago / SHARE_OF_AGE)
        assert written.error(offset) <= allowed, f"{ago} seconds behind"


def test_the_error_of_all_ages_of_a_day() -> None:
    """A writer that pauses for a minute after each: the worst pace there is for the rows that were left out."""
    end = 86_400 * SECOND
    minutes = range(5 * SECOND, end, 120 * SECOND)
    written = Written([moment for begin in minutes for moment in steady(begin, begin + 60 * SECOND)], until=end)
    old = [offset for offset in range(0, written.end(written.now), 997) if written.truth(offset) > 120]
    shares = [written.error(offset) / written.truth(offset) for offset in old]
    assert max(shares) < 1 / SHARE_OF_AGE
    assert quantiles(shares, n=20)[-1] < 0.03, "19 of 20 are wrong by less than 3 % of their age"


def test_a_week_of_readings_fits_into_the_rows_and_the_oldest_of_them_is_there() -> None:
    history = HighWatermarks(APART)
    moments = range(0, 8 * 86_400 * SECOND, INTERVAL)
    for moment in moments:
        history.put(IDS, {"orders": {0: moment // SECOND, 3: 7}}, Micros(moment), Micros(moment))
    now = moments[-1]
    for hours, known in ((1, [1]), (24, [24]), (160, [160]), (180, [])):
        committed = {0: (now - hours * 3_600 * SECOND) // SECOND}
        found = history.lag_seconds(IDS["orders"], committed, {0: now}, Micros(now))
        assert [seconds / 3_600 for seconds in found.values()] == pytest.approx(known, abs=0.01)
    assert len(pickle.dumps(history)) <= 1.2 * 8 * 5 * MOST_ROWS, "a moment and the values of four partitions each"


def after(*rounds: dict[int, int] | None, topic_ids: dict[str, TopicId] = IDS) -> HighWatermarks:
    """High watermarks by partition, one round per interval; None: no answer."""
    history = HighWatermarks(APART)
    for number, offsets in enumerate(rounds):
        if offsets is not None:
            history.put(topic_ids, {"orders": offsets}, Micros(number * INTERVAL), Micros(number * INTERVAL))
    return history


def lags(history: HighWatermarks, committed: dict[int, int], ends: dict[int, int], at: int) -> dict[int, float]:
    return history.lag_seconds(IDS["orders"], committed, ends, Micros(at * INTERVAL))


def test_beyond_the_high_watermark_there_is_no_lag_and_without_one_it_is_unknown() -> None:
    assert lags(after({0: 50}, {0: 40}), {0: 45, 1: 3}, {0: 40}, 2) == {0: 0}
    assert lags(HighWatermarks(APART), {0: 60, 1: 3}, {0: 60, 1: 5}, 2) == {0: 0}


def test_what_is_below_a_fall_of_the_high_watermark_is_unknown_until_it_is_passed_again() -> None:
    history = after({0: 10}, {0: 90}, {0: 40}, {0: 100})
    assert lags(history, {0: 20}, {0: 100}, 4) == lags(history, {0: 39}, {0: 100}, 4) == {}
    assert lags(history, {0: 40}, {0: 100}, 4)[0] == pytest.approx(20, abs=0.1)
    assert lags(history, {0: 95}, {0: 100}, 4)[0] == pytest.approx(10.75)


def test_a_topic_that_was_created_again_begins_anew() -> None:
    history = after({0: 50}, {0: 60})
    history.retain([TopicId("another")])
    history.put({"orders": TopicId("another")}, {"orders": {0: 60}}, Micros(2 * INTERVAL), Micros(2 * INTERVAL))
    assert lags(history, {0: 55}, {0: 60}, 3) == {}
    assert history.lag_seconds(TopicId("another"), {0: 55, 1: 2}, {0: 60, 1: 3}, Micros(3 * INTERVAL)) == {}


def test_a_partition_may_be_added_and_a_leader_may_leave_one_out() -> None:
    history = after({0: 5, 1: 5}, {0: 6}, {0: 7, 1: 9, 3: 1}, None, {0: 9, 1: 9, 3: 5})
    assert lags(history, {0: 5, 1: 7, 2: 0, 3: 0, 7: 0}, {0: 9, 1: 9, 2: 4, 3: 5, 7: 1}, 5) == {0: 45.0, 1: 37.5}
    assert lags(history, {3: 3}, {3: 5}, 5) == {3: pytest.approx(17.5)}


def test_each_leader_is_read_in_its_own_time() -> None:
    history = HighWatermarks(APART)
    for number in range(2):
        at = Micros(number * INTERVAL)
        history.put(IDS, {"orders": {0: 10 * number}}, at, at)
        history.put(IDS, {"orders": {1: 10 * number}}, at, Micros(at + 4 * SECOND))
    assert lags(history, {0: 9, 1: 9}, {0: 10, 1: 10}, 3) == {0: pytest.approx(20.5), 1: pytest.approx(16.5)}


def test_the_leaders_of_one_round_share_its_row() -> None:
    together, apart = after({0: 5, 1: 7}, {0: 6, 1: 8}), HighWatermarks(APART)
    for number in range(2):
        for partition in range(2):
            at = Micros(number * INTERVAL)
            apart.put(IDS, {"orders": {partition: 5 + number + 2 * partition}}, at, at)
    assert len(pickle.dumps(apart)) == len(pickle.dumps(together))


def test_an_offset_that_is_beyond_all_sense_is_left_out() -> None:
    assert lags(after({0: 1, 1: 2**63 - 1}, {0: 9, 1: 2**63 - 1}), {0: 5, 1: 5}, {0: 9, 1: 2**63 - 1}, 2).keys() == {0}
