"""What slow brokers are judged by.

The mean time of an append between two scrapes of an agent: when there is one, and how long it counts. And which pairs
of a leader and a follower count, and which of them are behind.
"""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe

import pytest

from streaming.changes.advice.slow_brokers import SLOW_SCORE
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.sources.append_times import LEAST_REQUESTS, MOST_AGE, AppendTimes
from streaming.sources.polling.view import PartitionView
from streaming.sources.samples.replication_pairs import PairCounts, ReplicationPairs
from streaming.sources.samples.source import LEAST_SPEED_SECONDS

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


def test_times_of_brokers_that_come_later_are_kept_while_there_is_room() -> None:
    times = AppendTimes([ONE], 2)
    for broker in (ONE, BrokerId(0), BrokerId(77), BrokerId(88)):
        for count in range(3):
            times.put(broker, 100.0 * (count + 1), 5.0, Micros(SECOND * 10 * (count + 1)))
    assert times.newest(Micros(SECOND * 31)) == {1: 5_000, 0: 5_000, 77: 5_000}


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


ALIVE = [BrokerId(number) for number in (1, 2, 3, 4)]


def led_by(leader: int, *followers: int, out: tuple[int, ...] = ()) -> PartitionView:
    replicas = tuple(map(BrokerId, (leader, *followers)))
    return PartitionView(replicas, tuple(each for each in replicas if each not in out), BrokerId(leader))


TOPICS = {"t": {0: led_by(1, 4), 1: led_by(2, 4), 2: led_by(3, 4)}}


def ends(at: int) -> dict[str, dict[int, int]]:
    return {"t": dict.fromkeys((0, 1, 2), at)}


def of(broker: int, *positions: int) -> dict[BrokerId, dict[str, dict[int, int]]]:
    return {BrokerId(broker): {"t": dict(enumerate(positions))}}


def test_who_lacks_what_its_leader_had_a_round_ago_is_behind_and_who_lacks_less_is_not() -> None:
    pairs = ReplicationPairs()
    assert pairs.take(ALIVE, TOPICS, ends(100), of(4, 100, 100, 0))[BrokerId(4)] == PairCounts(), "nothing to compare"
    counts = pairs.take(ALIVE, TOPICS, ends(200), of(4, 200, 100, 99))
    assert counts[BrokerId(4)] == PairCounts(followed_leaders=3, followed_leaders_behind=1, replicas_behind=1)
    assert counts[BrokerId(3)] == PairCounts(followers=1, followers_behind=1)
    assert counts[BrokerId(2)] == PairCounts(followers=1)


def test_a_follower_may_have_a_lower_id_than_its_leader() -> None:
    pairs, topics = ReplicationPairs(), {"t": {0: led_by(4, 1)}}
    pairs.take(ALIVE, topics, {"t": {0: 100}}, of(1, 100))
    counts = pairs.take(ALIVE, topics, {"t": {0: 200}}, of(1, 99))
    assert counts[BrokerId(1)] == PairCounts(followed_leaders=1, followed_leaders_behind=1, replicas_behind=1)
    assert counts[BrokerId(4)] == PairCounts(followers=1, followers_behind=1)


def test_a_pair_with_nothing_to_replicate_does_not_count_unless_it_is_behind() -> None:
    pairs = ReplicationPairs()
    pairs.take(ALIVE, TOPICS, ends(100), of(4, 100, 100, 90))
    counts = pairs.take(ALIVE, TOPICS, ends(100), of(4, 100, 100, 90))
    assert counts[BrokerId(4)] == PairCounts(followed_leaders=1, followed_leaders_behind=1, replicas_behind=1)


def test_who_was_removed_from_the_isr_is_behind_even_where_nothing_is_written() -> None:
    pairs = ReplicationPairs()
    pairs.take(ALIVE, TOPICS, ends(100), of(4, 100, 100, 100))
    removed = {"t": {**TOPICS["t"], 0: led_by(1, 4, out=(4,))}}
    for _ in range(2):
        counts = pairs.take(ALIVE, removed, ends(100), of(4, 100, 100, 100))
        assert counts[BrokerId(4)] == PairCounts(followed_leaders=1, followed_leaders_behind=1, replicas_out_of_isr=1)
    back = pairs.take(ALIVE, TOPICS, ends(100), of(4, 100, 100, 100))
    assert back[BrokerId(4)] == PairCounts()


def test_who_catches_up_after_it_was_away_is_not_behind_until_it_was_in_the_isr() -> None:
    pairs, without = ReplicationPairs(), [BrokerId(1), BrokerId(2), BrokerId(3)]
    out = {"t": {number: view._replace(isr=(view.leader,)) for number, view in TOPICS["t"].items()}}
    pairs.take(ALIVE, TOPICS, ends(100), of(4, 100, 100, 100))
    pairs.take(without, out, ends(200), {})
    for end in (300, 400):
        assert pairs.take(ALIVE, out, ends(end), of(4, 110, 110, 110))[BrokerId(4)] == PairCounts()
    pairs.take(ALIVE, TOPICS, ends(500), of(4, 500, 500, 500))
    counts = pairs.take(ALIVE, TOPICS, ends(600), of(4, 510, 400, 400))
    assert counts[BrokerId(4)] == PairCounts(followed_leaders=3, followed_leaders_behind=2, replicas_behind=2)


def test_what_a_reassignment_adds_is_not_behind_while_it_is_filled() -> None:
    pairs = ReplicationPairs()
    added = {"t": {0: led_by(1, 2, 4, out=(4,))}}
    pairs.take(ALIVE, {"t": {0: led_by(1, 2)}}, {"t": {0: 100}}, {})
    for end in (200, 300):
        assert pairs.take(ALIVE, added, {"t": {0: end}}, of(4, 5))[BrokerId(4)] == PairCounts()


def test_who_reports_no_position_is_not_counted_as_its_directory_may_have_failed() -> None:
    pairs = ReplicationPairs()
    pairs.take(ALIVE, TOPICS, ends(100), of(4, 100, 100, 100))
    removed = {"t": {**TOPICS["t"], 0: led_by(1, 4, out=(4,))}}
    counts = pairs.take(ALIVE, removed, ends(100), {BrokerId(4): {"t": {1: 100, 2: 100}}})
    assert counts[BrokerId(4)] == PairCounts()
