from __future__ import annotations

from streaming.changes.lag_attribution import LagEpisode


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
