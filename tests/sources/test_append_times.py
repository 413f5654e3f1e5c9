"""The mean time of an append between two scrapes of an agent: when there is one, and how long it counts."""

from __future__ import annotations

from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from streaming.changes.advice.slow_brokers import SLOW_SCORE
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.sources.broker_metrics import LEAST_REQUESTS, MOST_AGE, AppendTimes
from streaming.sources.samples.source import LEAST_SPEED_SECONDS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

ONE, TWO = BrokerId(1), BrokerId(2)
SECOND = 1_000_000
BOOTED = 77 * SECOND


def at(seconds: float) -> Micros:
    return Micros(round(BOOTED + seconds * SECOND))


def scraped(*scrapes: tuple[float, float | None, float | None]) -> AppendTimes:
    times = AppendTimes([TWO, ONE])
    for seconds, requests, mean_ms in scrapes:
        times.put(ONE, requests, mean_ms, at(seconds))
    return times


def said(*rounds: tuple[float, int, float], of: int = 1000) -> list[tuple[float, float, float]]:
    """Give scrapes of an agent of so many requests of 2 ms, then at each time so many more of so many milliseconds."""
    requests, total, scrapes = of, of * 2.0, [(0.0, float(of), 2.0)]
    for seconds, more, ms in rounds:
        requests, total = requests + more, total + more * ms
        scrapes.append((seconds, requests, total / requests))
    return scrapes


def test_it_is_the_smaller_mean_of_the_requests_between_scrapes() -> None:
    slower = said((15, 200, 50.0), (30, 300, 70.0), (45, 300, 60.0))
    assert [scraped(*slower[:count]).newest(at(15 * count - 15)) for count in (1, 2, 3, 4)] == [
        {}, {}, {ONE: 50_000}, {ONE: 60_000}
    ]  # fmt: skip


@pytest.mark.parametrize("begin", range(30, 45))
def test_a_fault_of_half_a_minute_is_seen_in_fewer_rounds_than_make_a_broker_slow(begin: int) -> None:
    hot = [max(0, min(at_ + 15, begin + 30) - max(at_, begin)) / 15 for at_ in range(0, 180, 15)]
    scrapes = said(*((15 * number + 15, 300, 2 + 98 * share) for number, share in enumerate(hot)))
    times, seen = AppendTimes([ONE]), 0
    for second in range(0, 180, 5):
        if second % 15 == 0:
            times.put(ONE, *scrapes[second // 15][1:], at(second))
        seen += second % 10 == 5 and times.newest(at(second)).get(ONE, 0) >= 6_000
    assert 1 <= seen < SLOW_SCORE


@pytest.mark.parametrize(
    "scrapes",
    [
        [(30, 1400, 10.0)],
        [(0, 1000, 2.0), (15, 1200, 10.0)],
        [(0, 1000, 2.0), (15, 1200, 10.0), (30, 1200 + LEAST_REQUESTS - 1, 50.0)],
        [(0, 1000, 2.0), (15, 1200, 10.0), (30, 200, 2.0)],
        [(0, 1000, 2.0), (36, 1200, 10.0), (50, 1400, 10.0)],
        [(0, 1000, None), (15, 1200, 10.0), (30, 1400, 10.0)],
        [(0, 1000, 2.0), (15, 1200, 10.0), (30, 1400, None)],
        [(0, 1000, 2.0), (15, 1200, 10.0), (30, None, None)],
    ],
    ids=["one", "two", "few requests", "restarted", "long silent", "no mean at first", "no mean", "nothing"],
)
def test_without_three_recent_scrapes_of_the_same_run_with_requests_in_between_there_is_none(
    scrapes: list[tuple[float, float | None, float | None]],
) -> None:
    assert scraped(*scrapes).newest(at(scrapes[-1][0])) == {}


def test_after_a_restart_three_scrapes_are_enough_again() -> None:
    before = said((15, 200, 50.0))
    again = [(seconds + 30, *rest) for seconds, *rest in said((15, 200, 60.0), (30, 200, 70.0), of=100)]
    assert scraped(*before, *again).newest(at(60)) == {ONE: 60_000}


def test_few_requests_are_added_to_those_after_them() -> None:
    times = scraped(*said((10, 6, 30.0), (20, 6, 30.0), (30, 20, 40.0)))
    assert times.newest(at(30)) == {ONE: 30_000}


def test_what_a_silent_agent_has_said_counts_in_fewer_rounds_than_make_a_broker_slow() -> None:
    times = scraped(*said((15, 200, 50.0), (30, 200, 50.0)))
    rounds = [number for number in range(100) if times.newest(at(30 + LEAST_SPEED_SECONDS * number))]
    assert rounds == list(range(MOST_AGE // (10 * SECOND) + 1))
    assert len(rounds) < SLOW_SCORE


def _read(times: AppendTimes, pipe: Pipe) -> None:
    pipe.recv()
    pipe.send(times.newest(at(30)))


def test_another_process_sees_what_is_put_after_it_was_started() -> None:
    context = get_context("spawn")
    scrapes = said((15, 200, 50.0), (30, 200, 50.0))
    times, (ours, theirs) = scraped(*scrapes[:2]), context.Pipe()
    process = context.Process(target=_read, args=(times, theirs))
    process.start()
    try:
        times.put(ONE, *scrapes[2][1:], at(30))
        ours.send("read")
        assert ours.poll(60)
        assert ours.recv() == {ONE: 50_000}
    finally:
        process.join()
