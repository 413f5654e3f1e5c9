"""Which pairs of a leader and a follower count, and which of them are behind."""

from __future__ import annotations

from streaming.contracts.identifiers import BrokerId
from streaming.sources.polling.view import PartitionView
from streaming.sources.samples.speed import PairCounts, ReplicationPairs

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
