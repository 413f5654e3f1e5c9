"""Random histories: what the exporter shows and counts at each version is what the job makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from exporters.read_model.past import state_as_of
from exporters.read_model.reader import TablesReader
from tests.exporters.histories import History, logs, play, polls
from tests.exporters.meaning import compare_with_tables, meaning
from tests.plugins.derived import shard_of

WORLDS = [(logs, 1), (polls, 1)]
MORE = [(logs, 2), (polls, 3)]


def named(world: tuple[Any, int]) -> str:
    return f"{world[0].__name__} {world[1]}"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any, int], History]:
    """Play a world once, however often and in which order its history is asked for."""

    @cache
    def play_once(sources: Any, world: int) -> History:
        return play(tmp_path_factory.mktemp("tables"), sources(world), Random(world), compare)

    return play_once


@pytest.fixture(params=[*WORLDS, *(pytest.param(each, marks=pytest.mark.long) for each in MORE)], ids=named)
def history(request: pytest.FixtureRequest, played: Callable[[Any, int], History]) -> History:
    """A history whose state tables lag behind the changes at its end."""
    return played(*request.param)


def compare(history: History) -> None:
    compare_with_tables(history.reader.snapshot, history.tables)


def test_a_history_has_what_is_hard(history: History) -> None:
    clusters = history.reader.snapshot.clusters.values()
    tombstones = {key for cluster in clusters for key in cluster.tombstones}
    live = {key for cluster in clusters for key in cluster.topics}
    assert len(history.versions) >= 20
    assert history.deleted - tombstones
    assert any(any(cluster.departures.values()) for cluster in clusters)
    assert {topic_id for topic_id, _ in history.deleted} & live == {key for key in live if key.startswith("name:c")}


def test_from_every_starting_point_the_same_is_shown(history: History) -> None:
    shown = meaning(history.reader.snapshot)
    assert meaning(TablesReader(history.tables).refresh()) == shown
    history.project()
    assert meaning(TablesReader(history.tables).refresh()) == shown
    compare(history)


def test_the_partitions_brokers_and_sources_are_those_of_the_job(history: History) -> None:
    state = shard_of(history.job).held.state
    clusters = history.reader.snapshot.clusters
    live = [partition for cluster in clusters.values() for partition in cluster.partitions()]
    deleted = [partition for cluster in clusters.values() for partition in cluster.tombstones.values()]
    assert sorted([*live, *deleted]) == sorted(state.partitions())
    brokers = [broker for cluster in clusters.values() for broker in cluster.brokers.values()]
    assert Counter(brokers) == Counter(state.brokers.values())
    assert {cluster_id: each.cluster for cluster_id, each in clusters.items()} == state.clusters
    sources = [each.state for cluster in clusters.values() for each in cluster.sources.values()]
    assert sorted(sources) == sorted(state.sources.values())


def test_no_count_goes_back_while_topics_are_deleted_and_made_again(history: History) -> None:
    for before, after in pairwise(history.versions.values()):
        assert [each for each in before if not counted(before[each]) <= counted(after[each])] == []


def counted(cluster: dict[str, Any]) -> Counter[Any]:
    removals = {(broker, cause): n for broker, causes in cluster["departures"].items() for cause, n in causes.items()}
    return Counter({**cluster["totals"]._asdict(), **removals})


def test_as_of_every_version_the_state_is_what_was_shown_then(history: History) -> None:
    for version, shown in history.versions.items():
        assert (version, meaning(state_as_of(history.tables, version))) == (version, shown)
