from __future__ import annotations

from streaming.changes.lag_attribution import LagEpisode, merged_episode


def test_an_episode_remembers_when_an_expelled_follower_first_rejoined() -> None:
    episode = LagEpisode(began=10, seen=10)
    episode.add_report(1, [2], (1, 3), 10)

    episode.rejoin(1, [3], 20)
    assert episode.rejoined_at is None, "it was never expelled"
    episode.rejoin(2, [1], 30)
    episode.rejoin(1, [2], 40)

    assert (episode.rejoined_at, episode.seen) == (30, 40)


def test_an_episode_remembers_who_stayed_in_sync_whichever_id_is_smaller() -> None:
    episode = LagEpisode(began=10, seen=10)

    episode.add_report(2, [4], (1, 2, 3), 10)

    assert episode.kept == {(1, 2), (2, 3)}


def test_a_merged_episode_spans_both_and_keeps_what_happened_first_and_last() -> None:
    one = LagEpisode(
        began=10, seen=50, spoken={(1, 2): (10, 40), (2, 1): (20, 20)}, kept={(1, 3)}, torn_at=20, rejoined_at=50
    )
    other = LagEpisode(
        began=15, seen=45, spoken={(1, 2): (15, 45), (3, 1): (30, 30)}, kept={(2, 3)}, rejoined_at=45,
        removed_again=True, follows_others=True,
    )  # fmt: skip
    both = LagEpisode(
        began=10, seen=50, spoken={(1, 2): (10, 45), (2, 1): (20, 20), (3, 1): (30, 30)}, kept={(1, 3), (2, 3)},
        torn_at=20, rejoined_at=45, removed_again=True, follows_others=True,
    )  # fmt: skip

    assert merged_episode(one, other) == both
    assert merged_episode(other, one) == both
    assert merged_episode(one, None) is one
    assert merged_episode(None, other) is other
    assert merged_episode(None, None) is None


def test_the_sides_of_a_split_are_the_groups_that_report_only_each_other_the_smaller_first() -> None:
    reports = {(1, 3): (10, 10), (3, 1): (11, 11), (1, 4): (12, 12), (4, 1): (13, 13)}

    assert LagEpisode(began=10, seen=20, spoken=reports, kept={(3, 4)}).sides() == (frozenset({1}), frozenset({3, 4}))
    assert LagEpisode(began=10, seen=20, spoken={(1, 3): (10, 10)}).sides() == (), "only one of them reports"
    among = {**reports, (3, 4): (14, 14)}
    assert LagEpisode(began=10, seen=20, spoken=among, kept={(3, 4)}).sides() == (), "within a side"
