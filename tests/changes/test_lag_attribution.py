from __future__ import annotations

from collections import Counter

import pytest

from streaming.changes.incidents.context import ClusterContext
from streaming.changes.incidents.lag_attribution import LagEpisode, merged_episode, most_blamed
from streaming.changes.state import ConfiguredTimes
from streaming.contracts.events import IncidentClass
from streaming.contracts.identifiers import NO_LEADER


def test_an_episode_remembers_when_an_expelled_follower_first_rejoined() -> None:
    episode = LagEpisode(began=10, seen=10)
    episode.add_report(1, [2], (1, 3), 10, is_shrunk=False)
    episode.rejoin(1, [3], 20)
    assert episode.rejoined_at is None, "it was never expelled"
    episode.rejoin(2, [1], 30)
    episode.rejoin(1, [2], 40)
    assert (episode.rejoined_at, episode.seen) == (30, 40)


def test_an_episode_remembers_who_stayed_in_sync_whichever_id_is_smaller() -> None:
    episode = LagEpisode(began=10, seen=10)
    episode.add_report(2, [4], (1, 2, 3), 10, is_shrunk=False)
    assert episode.kept == {(1, 2): 1, (2, 3): 1}


def test_a_merged_episode_spans_both_and_keeps_what_happened_first_and_last() -> None:
    one = LagEpisode(
        began=10,
        seen=50,
        spoken={(1, 2): (10, 40), (2, 1): (20, 20)},
        kept=Counter([(1, 3)]),
        torn_at=20,
        rejoined_at=50,
    )
    other = LagEpisode(
        began=15, seen=45, spoken={(1, 2): (15, 45), (3, 1): (30, 30)}, kept=Counter([(2, 3)]), rejoined_at=45,
        removed_again=True, follows_others=True,
    )  # fmt: skip
    both = LagEpisode(
        began=10, seen=50, spoken={(1, 2): (10, 45), (2, 1): (20, 20), (3, 1): (30, 30)},
        kept=Counter([(1, 3), (2, 3)]), torn_at=20, rejoined_at=45, removed_again=True, follows_others=True,
    )  # fmt: skip

    assert merged_episode(one, other) == both
    assert merged_episode(other, one) == both
    assert merged_episode(one, None) is one
    assert merged_episode(None, other) is other
    assert merged_episode(None, None) is None


def test_the_sides_of_a_split_are_the_groups_that_report_only_each_other_the_smaller_first() -> None:
    reports = {(1, 3): (10, 10), (3, 1): (11, 11), (1, 4): (12, 12), (4, 1): (13, 13)}
    assert LagEpisode(began=10, seen=20, spoken=reports, kept=Counter([(3, 4)])).sides() == (
        frozenset({1}),
        frozenset({3, 4}),
    )
    assert LagEpisode(began=10, seen=20, spoken={(1, 3): (10, 10)}).sides() == (), "only one of them reports"
    among = {**reports, (3, 4): (14, 14)}
    assert LagEpisode(began=10, seen=20, spoken=among, kept=Counter([(3, 4)])).sides() == (), "within a side"


def test_who_leaves_an_isr_later_was_not_kept_there() -> None:
    episode = LagEpisode(began=10, seen=10)
    episode.add_report(1, [2], (1, 3, 4), 10, is_shrunk=False)
    episode.add_report(3, [1], (3, 4), 11, is_shrunk=False)
    assert episode.sides() == (), "3 still follows 1"
    episode.add_report(1, [3], (1, 4), 20, is_shrunk=True)
    episode.add_report(1, [4], (1,), 21, is_shrunk=True)
    episode.add_report(2, [1], (2, 3), 22, is_shrunk=False)
    assert episode.sides() == (frozenset({1}), frozenset({2, 3, 4}))
    assert episode.torn_at == 21


def test_reports_of_two_pairs_are_of_one_cut_where_who_keeps_up_leaves_no_third_group() -> None:
    one, other, apart = LagEpisode(began=10, seen=10), LagEpisode(began=12, seen=12), LagEpisode(began=12, seen=12)
    one.add_report(4, [3], (4, 2), 10, is_shrunk=False)
    other.add_report(1, [2], (1, 3), 12, is_shrunk=False)
    apart.add_report(1, [5], (1, 6), 12, is_shrunk=False)
    cut, links = merged_episode(one, other), merged_episode(one, apart)
    assert cut is not None
    assert (cut.torn_at, cut.sides()) == (12, (frozenset({1, 3}), frozenset({2, 4})))
    assert links is not None
    assert links.torn_at is None


def test_a_short_cut_is_a_split_unless_one_broker_may_have_stood_still() -> None:
    second = 1_000_000
    of_groups, of_one, of_one_late = (LagEpisode(began=0, seen=0) for _ in range(3))
    of_groups.add_report(1, [2], (1, 3), 0, is_shrunk=False)
    of_groups.add_report(4, [3], (4, 2), 2 * second, is_shrunk=False)
    for episode, late in ((of_one, 0), (of_one_late, 2 * second)):
        episode.add_report(1, [2], (1, 3), 0, is_shrunk=False)
        episode.add_report(2, [3], (2,), late, is_shrunk=False)
    for episode in (of_groups, of_one, of_one_late):
        episode.rejoin(1, [2], 3 * second - 1)
    found = [episode.verdict(ConfiguredTimes()) for episode in (of_groups, of_one, of_one_late)]
    assert found == [IncidentClass.NETWORK_SPLIT, IncidentClass.NETWORK_SPLIT, IncidentClass.LEADER_STALL]


@pytest.mark.parametrize(("last", "is_split"), [(109, True), (111, False)])
def test_after_a_cut_everybody_is_back_within_a_tenth_of_its_time(last: int, is_split: bool) -> None:  # noqa: FBT001 - a parameter
    second = 1_000_000
    episode = LagEpisode(began=0, seen=0)
    episode.add_report(1, [2], (1, 3), 0, is_shrunk=False)
    episode.add_report(2, [3], (2,), 0, is_shrunk=False)
    episode.rejoin(1, [2], 100 * second)
    episode.rejoin(2, [3], last * second)
    assert episode.is_split(ConfiguredTimes()) == is_split


def test_an_episode_without_a_report_is_no_cut() -> None:
    assert not LagEpisode(began=0, seen=0).is_split(ConfiguredTimes())


def test_a_cut_is_looked_at_again_when_a_stall_would_be_over() -> None:
    times, episode = ConfiguredTimes(), LagEpisode(began=0, seen=0)
    episode.add_report(1, [2], (1, 3), 0, is_shrunk=False)
    episode.add_report(4, [3], (4, 2), 2_000_000, is_shrunk=False)
    due = 2_000_000 + times.rejoined_at_once
    assert episode.torn_at == 2_000_000
    assert [episode.pass_time(moment, times) for moment in (due - 1, due + 500, due + 900)] == [False, True, False]
    assert episode.seen == due


def test_the_verdict_on_reports_of_one_way_does_not_change_with_time() -> None:
    episode = LagEpisode(began=0, seen=0)
    episode.add_report(1, [2], (1, 3), 0, is_shrunk=False)
    assert not episode.pass_time(3_600_000_000, ConfiguredTimes())
    assert episode.seen == 0


def test_of_brokers_in_as_many_reports_the_one_is_blamed_that_left_more_isrs() -> None:
    assert most_blamed({(1, 2): 3, (2, 3): 1, (3, 1): 1}) == (1, 2), "2, then whom 3 reported"
    assert most_blamed({(1, 2): 1, (2, 3): 3, (3, 1): 1}) == (2, 3), "3, then whom 1 reported"


def test_a_broker_follows_others_if_a_leader_beside_itself_and_the_one_that_reports_it_has_it_in_sync() -> None:
    def follows(*in_sync: tuple[int, int], none: tuple[tuple[int, int], ...] = ()) -> bool:
        pairs = Counter({**dict.fromkeys(in_sync, 1), **dict.fromkeys(none, 0)})
        return ClusterContext(in_sync=pairs).follows_others(2, leader=1)

    assert follows((3, 2))
    assert not follows((1, 2), (2, 2), (NO_LEADER, 2)), "only the leader that reports, itself, and nobody"
    assert not follows((3, 4), (3, 3)), "others follow"
    assert not follows(none=((3, 2),)), "of no partition any more"
